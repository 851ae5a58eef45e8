"""What `OpenAIChat` promises of the format: replies read, requests written.

The names that hold ``wire_nnn`` are cases of replies that broke other clients.
"""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import chat_server
from tests.chat_server import chunk, event
from trioagent import Agent, ToolContext, tool
from trioagent.errors import (
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    OverloadedError,
    ProtocolError,
    ProviderError,
    RateLimitError,
    UnavailableError,
)
from trioagent.events import Answered, TextDelta, ThinkingDelta, ToolFinished, UsageReported
from trioagent.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Opaque,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from trioagent.provider import CallOptions, Delta, Request, ToolSpec
from trioagent.providers import OpenAIChat
from trioagent.providers.chat_decoder import ChatDecoder
from trioagent.providers.chat_encoder import ChatEncoder
from trioagent.providers.sse import SSEDecoder

JSON = dict[str, Any]


def read(*datas: JSON | str, done: bool = True) -> tuple[AssistantMessage, list[Delta]]:
    """The reply of a stream with these events, with ``[DONE]`` after them unless it is cut."""
    decoder = ChatDecoder("asked")
    deltas: list[Delta] = []
    for data in (*datas, "[DONE]") if done else datas:
        deltas += decoder.feed(data if isinstance(data, str) else json.dumps(data))
    return decoder.finish(), deltas


def fragment(
    *, index: int | None = None, id: str | None = None, name: str | None = None, args: Any = None
) -> JSON:
    function = {"name": name, "arguments": args}
    found = {"index": index, "id": id}
    item: JSON = {key: value for key, value in found.items() if value is not None}
    item["function"] = {key: value for key, value in function.items() if value is not None}
    return chunk({"tool_calls": [item]})


def calls_of(*fragments: JSON, finish: str | None = "tool_calls") -> list[tuple[str, str, str]]:
    """The calls as ``(id, name, arguments)``; nothing of them may be shown as text."""
    message, deltas = read(*fragments, *([chunk({}, finish)] if finish else []))
    assert deltas == []
    return [(call.id, call.name, call.arguments) for call in message.tool_calls]


# -- tool calls -----------------------------------------------------------------------------------


def test_wire_001_a_fragment_without_id_and_index_goes_to_the_call_last_opened() -> None:
    found = calls_of(fragment(id="c1", name="add", args='{"a":'), fragment(args="1}"))
    assert found == [("c1", "add", '{"a":1}')]


def test_wire_002_two_ids_without_an_index_are_two_calls() -> None:
    found = calls_of(
        fragment(id="c1", name="f", args='{"x":1}'), fragment(id="c2", name="g", args='{"y":2}')
    )
    assert found == [("c1", "f", '{"x":1}'), ("c2", "g", '{"y":2}')]


def test_wire_003_a_call_without_an_id_is_kept_and_its_id_left_to_the_machine() -> None:
    found = calls_of(fragment(index=0, name="read", args='{"p":'), fragment(index=0, args='"a"}'))
    assert found == [("", "read", '{"p":"a"}')]


def test_wire_004_a_new_id_at_a_used_index_opens_a_call_and_its_tail_follows_it() -> None:
    found = calls_of(
        fragment(index=0, id="a", name="f", args='{"x":1}'),
        fragment(index=0, id="b", name="g", args='{"y"'),
        fragment(index=1, args=":2}"),
    )
    assert found == [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]


def test_wire_005_calls_that_all_have_index_0_keep_their_own_arguments() -> None:
    found = calls_of(
        fragment(index=0, id="a", name="f", args='{"p":"a"}'),
        fragment(index=0, id="b", name="f", args='{"p":"b"}'),
    )
    assert found == [("a", "f", '{"p":"a"}'), ("b", "f", '{"p":"b"}')]


def test_wire_007_arguments_may_come_before_the_name() -> None:
    found = calls_of(fragment(id="a", args='{"q":1'), fragment(id="a", name="f", args="}"))
    assert found == [("a", "f", '{"q":1}')]


def test_wire_015_empty_arguments_are_an_empty_object() -> None:
    assert calls_of(fragment(index=0, id="a", name="now", args="")) == [("a", "now", "{}")]
    assert calls_of(fragment(index=0, id="a", name="now")) == [("a", "now", "{}")]


def test_calls_that_come_interleaved_are_told_apart_by_index() -> None:
    found = calls_of(
        fragment(index=0, id="a", name="f"),
        fragment(index=1, id="b", name="g"),
        fragment(index=0, args='{"x":'),
        fragment(index=1, args='{"y":'),
        fragment(index=0, args="1}"),
        fragment(index=1, args="2}"),
    )
    assert found == [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]


def test_an_id_and_a_name_repeated_in_each_fragment_are_one_call() -> None:
    pieces = ["", '{"a":', '{"b":1}', "}", ""]
    found = calls_of(*[fragment(index=0, id="a", name="f", args=piece) for piece in pieces])
    assert found == [("a", "f", '{"a":{"b":1}}')]


def test_one_id_for_two_calls_is_two_calls() -> None:
    found = calls_of(
        fragment(index=0, id="f:0", name="f", args='{"x":1}'),
        fragment(index=1, id="f:0", name="f", args='{"x":2}'),
    )
    assert found == [("f:0", "f", '{"x":1}'), ("f:0", "f", '{"x":2}')]


def test_a_second_name_without_id_and_index_opens_a_call() -> None:
    found = calls_of(fragment(name="f", args='{"x":1}'), fragment(name="f", args='{"x":2}'))
    assert found == [("", "f", '{"x":1}'), ("", "f", '{"x":2}')]


def test_an_id_that_comes_late_is_the_call_s() -> None:
    found = calls_of(fragment(index=0, name="f", args="{"), fragment(index=0, id="a", args="}"))
    assert found == [("a", "f", "{}")]


def test_arguments_written_as_an_object_are_its_json_text() -> None:
    assert calls_of(fragment(id="a", name="f", args={"x": 1})) == [("a", "f", '{"x":1}')]


def test_an_empty_placeholder_of_a_call_is_no_call() -> None:
    assert calls_of(fragment(id="", name="", args=""), finish="stop") == []


def test_the_function_call_of_older_servers_is_a_call() -> None:
    message, _ = read(
        chunk({"function_call": {"name": "f", "arguments": '{"x":'}}),
        chunk({"function_call": {"arguments": "1}"}}),
        chunk({}, "function_call"),
    )
    assert message.tool_calls == (ToolCall("", "f", '{"x":1}'),)
    assert message.stop_reason == "tool_calls"


def test_a_finish_reason_of_calls_without_a_call_leaves_the_message_as_it_is() -> None:
    message, _ = read(chunk({"content": "hm"}), chunk({}, "tool_calls"))
    assert (message.text, message.tool_calls, message.stop_reason) == ("hm", (), "tool_calls")


def test_a_half_call_at_a_stream_that_ends_early_is_never_returned() -> None:
    half = fragment(index=0, id="a", name="f", args='{"x":')
    with pytest.raises(ProtocolError, match="without a finish reason"):
        read(half, done=False)
    with pytest.raises(ProtocolError, match="within the arguments"):
        read(half)


def test_a_call_that_never_gets_a_name_is_a_protocol_error_unless_the_output_was_cut() -> None:
    with pytest.raises(ProtocolError, match="without a name"):
        calls_of(fragment(id="a", args="{}"))
    assert calls_of(fragment(id="a", args="{"), finish="length") == []


# -- usage ----------------------------------------------------------------------------------------


def usage_of(*datas: JSON) -> Usage:
    return read(chunk({"content": "hi"}), chunk({}, "stop"), *datas)[0].usage


def test_wire_026_usage_on_a_chunk_without_choices_counts() -> None:
    assert usage_of(chat_server.usage(5, 2)) == Usage(5, 2)


def test_wire_027_usage_on_a_chunk_with_choices_counts_with_its_cached_tokens() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 4}}
    report = {"prompt_tokens": 5, "completion_tokens": 2, **details}
    message, _ = read(chunk({"content": "hi"}), {**chunk({}, "stop"), "usage": report})
    assert message.usage == Usage(5, 2, cache_read_tokens=4)


def test_wire_028_the_last_report_of_usage_replaces_those_before() -> None:
    report = {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}
    assert usage_of({**chunk({}, "stop"), **report}, {**chunk({}), **report}) == Usage(5, 2)


def test_wire_034_cached_tokens_are_part_of_the_input_and_not_counted_on_top() -> None:
    report = {"prompt_tokens": 10, "completion_tokens": 4, "cached": 3}
    details = {"prompt_tokens_details": {"cached_tokens": 3}}
    assert usage_of({"choices": [], "usage": report}).total_tokens == 14
    assert usage_of({"choices": [], "usage": report | details}).total_tokens == 14


def test_reasoning_tokens_are_read_and_an_empty_report_says_nothing() -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": 6}}
    report = {"prompt_tokens": 5, "completion_tokens": 9, **details}
    empty: JSON = {"choices": [], "usage": {}}
    found = usage_of({"choices": [], "usage": report}, empty, {"choices": [], "usage": None})
    assert found == Usage(5, 9, reasoning_tokens=6)


@pytest.mark.parametrize("count", [-1, 1.5, 1e300])
def test_a_report_that_is_no_count_is_refused(count: float) -> None:
    with pytest.raises(ProtocolError, match="no count"):
        usage_of({"choices": [], "usage": {"prompt_tokens": count}})


# -- text, thinking, ends -------------------------------------------------------------------------


def test_text_is_shown_as_it_comes_and_null_or_empty_content_is_nothing() -> None:
    message, deltas = read(
        chunk({"role": "assistant", "content": None}),
        chunk({"content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, "stop"),
    )
    assert deltas == [TextDelta("Hel"), TextDelta("lo")]
    expected = AssistantMessage((Text("Hello"),), Usage(), "served", "stop", usage_missing=True)
    assert message == expected


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_thinking_and_stands_before_the_text(name: str) -> None:
    message, deltas = read(
        chunk({name: "let me "}), chunk({name: "see"}), chunk({"content": "4"}), chunk({}, "stop")
    )
    assert deltas == [ThinkingDelta("let me "), ThinkingDelta("see"), TextDelta("4")]
    assert message.parts == (Thinking("let me see"), Text("4"))


def test_reasoning_under_both_names_is_read_once() -> None:
    message, _ = read(chunk({"reasoning": "a", "reasoning_content": "a"}), chunk({}, "stop"))
    assert message.parts == (Thinking("a"),)


def test_content_that_is_a_list_of_parts_is_read() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    message, _ = read(chunk({"content": [thought, {"type": "text", "text": "4"}]}, "stop"))
    assert message.parts == (Thinking("hm"), Text("4"))


def test_a_refusal_is_text_with_a_stop_reason_of_its_own() -> None:
    message, deltas = read(chunk({"refusal": "I will"}), chunk({"refusal": " not"}, "stop"))
    assert (message.text, message.stop_reason) == ("I will not", "refusal")
    assert deltas == [TextDelta("I will"), TextDelta(" not")]


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("stop", "stop"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("eos_token", "stop"),
    ],
)
def test_a_finish_reason_becomes_a_stop_reason(finish: str, expected: str) -> None:
    assert read(chunk({"content": "x"}, finish), done=False)[0].stop_reason == expected


def test_other_choices_than_the_first_are_passed_over() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}
    message, _ = read(chunk({"content": "yes"}), other, chunk({}, "stop"))
    assert message.text == "yes"


def test_a_reply_with_nothing_in_it_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="no choices"):
        read()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"error": {"message": "m", "type": "server_error"}}, UnavailableError),
        ({"error": {"message": "m", "type": "overloaded_error"}}, OverloadedError),
        ({"error": {"message": "m", "code": 429}}, RateLimitError),
        ({"error": {"message": "m", "code": "context_length_exceeded"}}, ContextLengthError),
        ({"error": {"message": "m", "code": "content_filter"}}, ContentFilterError),
        ({"object": "error", "message": "m", "code": 400}, InvalidRequestError),
        ({"error": "something broke"}, ProtocolError),
        ({"error": [{"odd": None}]}, ProtocolError),
        (chunk({}, "error"), UnavailableError),
    ],
)
def test_an_error_inside_a_stream_is_typed(data: JSON, expected: type[ProviderError]) -> None:
    with pytest.raises(ProviderError) as caught:
        read(chunk({"content": "x"}), data)
    assert type(caught.value) is expected


@pytest.mark.parametrize(
    "data",
    [
        "{",
        "[]",
        "7",
        '{"choices": 7}',
        '{"choices": [{"delta": {"content": 7}}]}',
        '{"choices": [{"delta": {"content": "\\ud800"}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"index": "x"}]}}]}',
        '{"error": ' + "[" * 100_000,
    ],
)
def test_what_is_no_chunk_is_a_protocol_error(data: str) -> None:
    with pytest.raises(ProtocolError, match="no chat completion"):
        read(data)


def test_a_body_that_is_not_streamed_is_read_as_well() -> None:
    call = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "hi", "reasoning": "hm", "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    decoder = ChatDecoder()
    deltas = decoder.feed_whole(json.dumps({"choices": [choice], "usage": usage}).encode())
    assert deltas == [ThinkingDelta("hm"), TextDelta("hi")]
    parts = (Thinking("hm"), Text("hi"), ToolCall("a", "f", "{}"))
    assert decoder.finish() == AssistantMessage(parts, Usage(5, 2), "", "tool_calls")


STREAM = b"".join(
    [
        b": keep-alive\r\n\r\n",
        event(chunk({"reasoning": "hm"})),
        event(chunk({"content": "naïve ☃"})),
        event(fragment(index=0, id="a", name="f", args='{"x":')).replace(b"\n", b"\r\n"),
        event(fragment(index=0, args='"é"}')).replace(b"\n", b"\r"),
        event(chunk({}, "tool_calls")),
        event(chat_server.usage(5, 2)),
        event("[DONE]"),
    ]
)


def decoded(chunks: list[bytes]) -> AssistantMessage:
    sse, decoder = SSEDecoder(), ChatDecoder()
    for piece in chunks:
        for data in sse.feed(piece):
            decoder.feed(data)
    for data in sse.close():
        decoder.feed(data)
    return decoder.finish()


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_however_the_bytes_are_split_the_reply_is_the_same(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    message = decoded([STREAM[a:b] for a, b in pairwise(edges)])
    assert message.parts == (Thinking("hm"), Text("naïve ☃"), ToolCall("a", "f", '{"x":"é"}'))
    assert message.usage == Usage(5, 2)


@given(st.integers(0, len(STREAM)))
def test_a_stream_that_is_cut_anywhere_gives_the_whole_call_or_an_error(length: int) -> None:
    try:
        message = decoded([STREAM[:length]])
    except ProtocolError:
        assert length < len(STREAM)
    else:
        assert message.tool_calls == (ToolCall("a", "f", '{"x":"é"}'),)
        assert b'"finish_reason": "tool_calls"' in STREAM[:length]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "tool_calls", "index", "function", "usage", "error"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(st.binary(max_size=60) | json_values.map(lambda value: event(json.dumps(value)))))
def test_no_reply_raises_anything_but_a_provider_error(pieces: list[bytes]) -> None:
    for reading in (lambda: decoded(pieces), lambda: ChatDecoder().feed_whole(b"".join(pieces))):
        with suppress(ProviderError):
            reading()


# -- requests -------------------------------------------------------------------------------------


def written(*messages: Message, **fields: Any) -> JSON:
    body: JSON = json.loads(ChatEncoder("m").encode(Request(messages, **fields)))
    return body


def wire(message: Message) -> JSON:
    found: JSON = written(message)["messages"][0]
    return found


def user(text: str) -> UserMessage:
    return UserMessage((Text(text),))


def test_wire_031_a_request_is_streamed_and_asks_for_usage_unless_told_not_to() -> None:
    body = written(user("hi"))
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    bare = json.loads(ChatEncoder("m", include_usage=False).encode(Request((user("hi"),))))
    assert "stream_options" not in bare and bare["stream"] is True


def test_a_system_message_is_one_and_text_alone_is_a_string() -> None:
    assert wire(SystemMessage("be brief")) == {"role": "system", "content": "be brief"}
    assert wire(UserMessage((Text("a"), Text("b")))) == {"role": "user", "content": "ab"}


def test_images_and_files_of_a_user_go_as_parts() -> None:
    parts = (
        Text("see"),
        Image("image/png", b"\x00\x01"),
        Image(url="https://example.org/a.png"),
        File("application/pdf", b"%PDF", "a.pdf"),
    )
    file = {"file_data": "data:application/pdf;base64,JVBERg==", "filename": "a.pdf"}
    assert wire(UserMessage(parts))["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAE="}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "file", "file": file},
    ]


def test_an_assistant_message_goes_back_with_its_calls_and_without_its_thinking() -> None:
    parts = (Thinking("hm"), Text("I look"), ToolCall("a", "f", '{"x": 1}'), ToolCall("b", "g", ""))
    assert wire(AssistantMessage(parts)) == {
        "role": "assistant",
        "content": "I look",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }


def test_content_is_null_only_beside_calls() -> None:
    assert wire(AssistantMessage((Thinking("hm"),))) == {"role": "assistant", "content": ""}
    assert wire(AssistantMessage((ToolCall("a", "f"),)))["content"] is None


def test_a_name_that_the_model_made_up_is_made_legal_on_the_wire_only() -> None:
    message = AssistantMessage((ToolCall("a", "fs.read file" + "x" * 70), ToolCall("b", "")))
    names = [call["function"]["name"] for call in wire(message)["tool_calls"]]
    assert names == ["fs_read_file" + "x" * 43 + "_7e39bb33", "_e3b0c442"]
    assert message.tool_calls[0].name.startswith("fs.read ")


def test_opaque_parts_of_this_api_go_back_unchanged_and_others_do_not() -> None:
    own = Opaque("openai-chat", '{"reasoning_details":[{"n":1.50,"big":1e400}],"role":"x"}')
    body = ChatEncoder("m").encode(
        Request((AssistantMessage((own, Opaque("anthropic", "{}"), Text("a"))),))
    )
    assert b'{"reasoning_details":[{"n":1.50,"big":1e400}],"role":"assistant"' in body
    with pytest.raises(InvalidRequestError, match="no JSON object"):
        wire(AssistantMessage((Opaque("openai-chat", "[1]"),)))


def test_images_in_a_tool_s_result_become_a_sentence_and_never_base64() -> None:
    image, file = Image("image/png", b"\x00" * 300), File("text/csv", b"1,2", "a.csv")
    found = wire(ToolMessage("a", "shot", (Text("done"), image, file, Image(url="http://x/y"))))
    assert (found["role"], found["tool_call_id"]) == ("tool", "a")
    assert found["content"].splitlines() == [
        "done",
        "[image/png, 300 bytes, which cannot be shown here]",
        "[text/csv 'a.csv', 3 bytes, which cannot be shown here]",
        "[image at http://x/y, which cannot be shown here]",
    ]


SPEC = ToolSpec("f", "does f", {"type": "object", "properties": {}})


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", None),
        ("none", "none"),
        ("required", "required"),
        ("f", {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_tools_and_the_choice_among_them_are_sent_only_where_there_are_tools(
    choice: str, expected: Any
) -> None:
    options = CallOptions(tool_choice=choice)
    body = written(user("hi"), tools=(SPEC,), options=options)
    function = {"name": "f", "description": "does f", "parameters": SPEC.parameters}
    assert body["tools"] == [{"type": "function", "function": function}]
    assert body.get("tool_choice") == expected
    assert not {"tools", "tool_choice"} & set(written(user("hi"), options=options))


def test_options_are_sent_where_they_are_given() -> None:
    request = Request((user("hi"),), options=CallOptions(temperature=0, max_output_tokens=9))
    body = json.loads(ChatEncoder("m").encode(request))
    assert (body["temperature"], body["max_completion_tokens"]) == (0, 9)
    old = json.loads(ChatEncoder("m", max_tokens_field="max_tokens").encode(request))
    assert old["max_tokens"] == 9 and "max_completion_tokens" not in old


def test_what_json_cannot_hold_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidRequestError, match="JSON"):
        written(user("\ud800"))
    with pytest.raises(InvalidRequestError, match="NaN"):
        written(user("hi"), options=CallOptions(temperature=float("nan")))


# -- the whole loop, over a real connection -------------------------------------------------------


@tool(effect="read")
def weather(city: str, ctx: ToolContext) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


async def test_an_agent_asks_calls_its_tool_and_answers_over_a_real_server() -> None:
    def handler(body: JSON) -> chat_server.Reply:
        last = body["messages"][-1]
        if last["role"] == "user":
            return chat_server.calls(("c1", "weather", {"city": "Paris"}), tokens=(20, 10))
        return chat_server.says("It is ", last["content"], ".", tokens=(40, 8))

    async with chat_server.chat_server(handler) as server:
        model = OpenAIChat("gpt", base_url=server.base_url, api_key="sk-secret-1")
        agent = Agent(model, tools=[weather], system="be brief")
        async with agent.stream("weather in Paris?") as stream:
            events = [event async for event in stream]
            state = await stream.result()

    assert isinstance(state, Answered)
    assert state.message.text == "It is sunny in Paris."
    assert state.usage == Usage(60, 18)
    assert [type(event).__name__ for event in events] == [
        *("UsageReported", "ToolCalled", "ToolFinished"),
        *("TextDelta", "TextDelta", "TextDelta", "UsageReported", "Done"),
    ]
    assert [event.usage for event in events if isinstance(event, UsageReported)] == [
        Usage(20, 10),
        Usage(40, 8),
    ]
    finished = next(event for event in events if isinstance(event, ToolFinished))
    assert finished.message == ToolMessage("c1", "weather", (Text("sunny in Paris"),))
    first, second = server.requests
    assert first.path == "/v1/chat/completions"
    assert first.headers["authorization"] == "Bearer sk-secret-1"
    assert [tool["function"]["name"] for tool in first.body["tools"]] == ["weather"]
    function = {"name": "weather", "arguments": '{"city": "Paris"}'}
    assert second.body["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "weather in Paris?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sunny in Paris"},
    ]


async def test_wire_003_the_id_made_for_a_call_without_one_goes_back_in_both_messages() -> None:
    call = fragment(index=0, name="weather", args='{"city":"Paris"}')
    replies = [
        chat_server.events(call, chunk({}, "tool_calls"), "[DONE]"),
        chat_server.says("ok"),
    ]
    async with chat_server.chat_server(chat_server.in_turn(replies)) as server:
        agent = Agent(OpenAIChat("gpt", base_url=server.base_url), tools=[weather])
        await agent.run("weather in Paris?")
    _, assistant, result = server.requests[1].body["messages"]
    assert assistant["tool_calls"][0]["id"] == result["tool_call_id"] != ""
    assert "authorization" not in server.requests[0].headers
