"""Messages: what is stored, what is refused, and which transcripts hold together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioagent import (
    AssistantMessage,
    EncodingError,
    File,
    Image,
    Opaque,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    TranscriptError,
    Usage,
    UserMessage,
)
from trioagent.messages import (
    as_messages,
    check_transcript,
    decode_assistant,
    decode_messages,
    decode_result,
    encode,
    unanswered,
    with_unique_ids,
)

from .scripts import call, calling, saying, user

# -- stored form ----------------------------------------------------------------------------------

storable = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
contents = (
    st.builds(Text, storable)
    | st.builds(Image, storable, st.binary(max_size=8), storable)
    | st.builds(File, storable, st.binary(max_size=8), storable)
)
assistant_parts = (
    st.builds(Text, storable)
    | st.builds(Thinking, storable, storable)
    | st.builds(ToolCall, storable, storable, storable)
    | st.builds(Opaque, storable, storable)
)
counts = st.integers(0, 2**62)
usages = st.builds(Usage, counts, counts, counts, counts, counts)
outcomes = st.sampled_from(["ok", "error", "denied"])


def several(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(parts, max_size=4).map(tuple)


messages = (
    st.builds(SystemMessage, storable)
    | st.builds(UserMessage, several(contents))
    | st.builds(
        AssistantMessage,
        several(assistant_parts),
        usages,
        storable,
        st.sampled_from(["stop", "tool_calls", "length", "content_filter", "refusal"]),
    )
    | st.builds(ToolMessage, storable, storable, several(contents), outcomes)
)


@given(several(messages))
def test_every_transcript_comes_back_equal_from_its_bytes(transcript: tuple[Any, ...]) -> None:
    assert decode_messages(encode(transcript)) == transcript


@given(st.builds(ToolResult, several(contents), outcomes, storable))
def test_every_result_comes_back_equal_from_its_bytes(result: ToolResult) -> None:
    assert decode_result(encode(result)) == result


def test_a_stored_message_carries_its_tags_and_leaves_defaults_out() -> None:
    reply = AssistantMessage((ToolCall("1", "t"),), stop_reason="tool_calls")
    assert json.loads(encode(reply)) == {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": "1", "name": "t"}],
        "stop_reason": "tool_calls",
    }


def test_fields_of_a_newer_version_are_ignored_on_reading() -> None:
    data = b'{"role":"assistant","parts":[{"type":"text","text":"hi","mood":"good"}],"year":2030}'
    assert decode_assistant(data) == saying("hi")


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b'[{"role":"robot","text":"hi"}]', "robot"),
        (b'[{"role":"user","parts":[{"type":"smell"}]}]', "smell"),
        (b'[{"role":"user"}]', "parts"),
        (b'[{"role":"user","parts":[{"type":"text","text":"\xff"}]}]', "messages"),
        (b'[{"role":"user"', "truncated"),
        (b"", "truncated"),
        (b"null", "null"),
    ],
)
def test_bytes_that_are_no_messages_are_a_clear_error(data: bytes, names: str) -> None:
    with pytest.raises(EncodingError, match=names):
        decode_messages(data)


@pytest.mark.parametrize(
    "value",
    ["\ud800", [float("nan")], {"a": {"b": float("inf")}}, Text("\udfff"), object(), {(1,): 2}],
)
def test_what_json_cannot_hold_is_refused_and_turns_into_nothing_else(value: Any) -> None:
    with pytest.raises(EncodingError):
        encode(value)


@pytest.mark.parametrize("value", [None, "null", {"null": None}, [None, 1.5]])
def test_a_null_that_is_meant_is_kept(value: Any) -> None:
    assert json.loads(encode(value)) == value


def test_ordered_bytes_are_equal_for_equal_values() -> None:
    one, other = {"b": 1, "a": {"d": 2, "c": 3}}, {"a": {"c": 3, "d": 2}, "b": 1}
    assert encode(one, ordered=True) == encode(other, ordered=True) != encode(one)


# -- reading them ---------------------------------------------------------------------------------


def test_text_and_calls_are_read_from_the_parts_in_order() -> None:
    a, b = call("a"), call("b")
    reply = AssistantMessage((Thinking("hm"), Text("one "), a, Text("two"), b))
    assert reply.text == "one two"
    assert reply.tool_calls == (a, b)


def test_usages_add_field_by_field_and_total_counts_input_and_output_once() -> None:
    used = Usage(10, 4, 1, 2, 3) + Usage(20, 5, 10, 20, 30)
    assert used == Usage(30, 9, 11, 22, 33)
    assert used.total_tokens == 39


def test_an_input_is_a_text_a_message_or_messages_and_nothing_else() -> None:
    assert as_messages("hi") == (user("hi"),)
    assert as_messages(user("hi")) == (user("hi"),)
    assert as_messages([user("hi"), saying("ho")]) == (user("hi"), saying("ho"))
    with pytest.raises(TypeError, match="not dict"):
        as_messages([{"role": "user"}])  # type: ignore[list-item]


# -- transcripts ----------------------------------------------------------------------------------

ASKED = (user("go"), calling(call("a"), call("b")))
A, B = ToolMessage("a", "a"), ToolMessage("b", "b")


@pytest.mark.parametrize(
    "transcript",
    [
        (),
        (SystemMessage("s"), user("go")),
        (user("one"), user("two")),
        ASKED,
        (*ASKED, B),
        (*ASKED, B, A),
        (*ASKED, A, B, user("more"), saying("ok")),
    ],
)
def test_a_transcript_that_holds_together_is_taken(transcript: tuple[Any, ...]) -> None:
    check_transcript(transcript)


@pytest.mark.parametrize(
    ("transcript", "says"),
    [
        ((user("go"), A), "answers call 'a', which was never made"),
        ((*ASKED, A, A), "answers call 'a', which is answered twice"),
        ((*ASKED, A, B, user("more"), A), "'a', which is answered twice"),
        ((*ASKED, A, B, calling(call("c")), A), "'a', which is answered twice"),
        ((*ASKED, ToolMessage("c", "c")), "'c', which was never made"),
        ((*ASKED, user("well?")), "call 'a' is not answered"),
        ((*ASKED, A, saying("well")), "call 'b' is not answered"),
        ((*ASKED, ToolMessage("a", "b")), "names the tool 'b'"),
        ((user("go"), SystemMessage("s")), "stands only first"),
        ((user("go"), calling(call("a", id="x"), call("b", id="x"))), "'x' is missing or repeated"),
        ((user("go"), calling(ToolCall("", "a"))), "'' is missing or repeated"),
    ],
)
def test_a_transcript_that_no_model_would_take_is_refused_by_name(
    transcript: tuple[Any, ...], says: str
) -> None:
    with pytest.raises(TranscriptError, match=says):
        check_transcript(transcript)


def test_unanswered_are_the_calls_of_the_last_turn_without_a_result() -> None:
    a, b = ASKED[1].tool_calls
    assert unanswered(ASKED) == (a, b)
    assert unanswered((*ASKED, B)) == (a,)
    assert unanswered((*ASKED, B, A)) == ()
    assert unanswered((*ASKED, A, B, user("more"))) == ()


ids = st.sampled_from(["", "a", "b", "call_2_0", "call_2_1"])


@given(st.lists(ids, max_size=4), st.sets(ids))
def test_ids_become_unique_the_same_way_each_time_and_unique_ones_stay(
    given_ids: list[str], seen: set[str]
) -> None:
    reply = AssistantMessage(tuple([ToolCall(call_id, "t") for call_id in given_ids]))
    before = set(seen)
    made = with_unique_ids(reply, 2, seen)
    new = [made_call.id for made_call in made.tool_calls]
    assert "" not in new
    assert len(set(new)) == len(new)
    assert not set(new) & (seen - {""})
    assert seen == before
    assert with_unique_ids(reply, 2, seen) == made
    assert with_unique_ids(made, 2, seen) == made
    for index, (old, call_id) in enumerate(zip(given_ids, new, strict=True)):
        taken = not old or old in seen or old in given_ids[:index] or old in new[:index]
        assert call_id == old or taken
