"""What `Anthropic` promises of the format: replies read, requests written, pauses gone on with.

The names that hold ``wire_nnn`` are cases of replies that broke other clients.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import chat_server
from tests.chat_server import event
from trioagent import Agent, ToolContext, tool
from trioagent.errors import (
    ContextLengthError,
    InvalidRequestError,
    OverloadedError,
    ProtocolError,
    ProviderError,
)
from trioagent.events import Answered, TextDelta, ThinkingDelta
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
from trioagent.providers import Anthropic, read_reply
from trioagent.providers.anthropic import MAX_PAUSES
from trioagent.providers.anthropic_decoder import AnthropicDecoder
from trioagent.providers.anthropic_encoder import AnthropicEncoder

JSON = dict[str, Any]
API: Final = "anthropic-messages"


def start(**usage: int) -> JSON:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude"}
    return {"type": "message_start", "message": {**message, "content": [], "usage": usage}}


def block(index: int, *deltas: JSON, **fields: Any) -> list[JSON]:
    """The events of one content block; its kind is in `fields`."""
    return [
        {"type": "content_block_start", "index": index, "content_block": fields},
        *[{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas],
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, *pieces: str) -> list[JSON]:
    return block(index, *[{"type": "text_delta", "text": p} for p in pieces], type="text", text="")


def call(index: int, id: str, name: str, *pieces: str) -> list[JSON]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(index, *deltas, type="tool_use", id=id, name=name, input={})


def end(reason: str = "end_turn", **usage: int) -> list[JSON]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def read(*datas: JSON | str) -> tuple[AssistantMessage, list[Delta]]:
    decoder = AnthropicDecoder("asked")
    deltas: list[Delta] = []
    for data in datas:
        deltas += decoder.feed(data if isinstance(data, str) else json.dumps(data))
    return decoder.finish(), deltas


def written(*messages: Message, **fields: Any) -> JSON:
    body: JSON = json.loads(AnthropicEncoder("m").encode(Request(messages, **fields)))
    return body


def user(words: str) -> UserMessage:
    return UserMessage((Text(words),))


def again(reply: AssistantMessage) -> list[JSON]:
    """The blocks of a reply as they go back to the vendor."""
    blocks: list[JSON] = written(reply, user("go on"))["messages"][0]["content"]
    return blocks


# -- replies --------------------------------------------------------------------------------------


def test_wire_013_parallel_calls_with_one_id_are_two_calls_that_the_run_tells_apart() -> None:
    message, _ = read(start(), *call(0, "grep:3", "grep"), *call(1, "grep:3", "grep"), *end())
    assert message.tool_calls == (ToolCall("grep:3", "grep"), ToolCall("grep:3", "grep"))


async def test_wire_013_both_calls_run_and_their_results_go_back_under_legal_ids() -> None:
    replies = [
        chat_server.events(
            start(),
            *call(0, "grep:3", "weather", '{"city":"Paris"}'),
            *call(1, "grep:3", "weather", '{"city":"Oslo"}'),
            *end("tool_use"),
        ),
        chat_server.events(start(), *text(0, "ok"), *end()),
    ]
    async with chat_server.chat_server(chat_server.in_turn(replies)) as server:
        await Agent(Anthropic("m", base_url=server.base_url), tools=[weather]).run("weather?")
    _, assistant, results = server.requests[1].body["messages"]
    ids = [block["id"] for block in assistant["content"]]
    assert len(set(ids)) == 2 and ":" not in "".join(ids)
    assert [block["tool_use_id"] for block in results["content"]] == ids
    told = [block["content"][0]["text"] for block in results["content"]]
    assert told == ["sunny in Paris", "sunny in Oslo"]


def test_wire_032_usage_is_a_total_so_far_and_cached_tokens_are_part_of_the_input() -> None:
    message, _ = read(
        start(input_tokens=3, cache_read_input_tokens=100, output_tokens=1),
        *text(0, "hi"),
        *end(input_tokens=3, cache_read_input_tokens=100, output_tokens=7),
    )
    assert message.usage == Usage(103, 7, cache_read_tokens=100)


def test_wire_034_counts_at_the_end_that_hold_only_the_output_leave_the_input() -> None:
    message, _ = read(start(input_tokens=9, output_tokens=1), *text(0, "hi"), *end(output_tokens=7))
    assert message.usage == Usage(9, 7)


def test_tokens_read_from_and_written_to_the_cache_are_part_of_the_input() -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
    message, _ = read(start(**usage), *text(0, "hi"), *end(output_tokens=7))
    assert message.usage == Usage(123, 7, cache_read_tokens=100, cache_write_tokens=20)
    assert not message.usage_missing


def test_a_reply_without_counts_says_so() -> None:
    assert read(start(), *text(0, "hi"), *end())[0].usage_missing


def test_wire_036_an_overload_in_the_stream_is_told_by_its_type() -> None:
    overload = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(OverloadedError):
        read(overload)


@pytest.mark.parametrize("stopped", [[], [{"type": "message_stop"}]])
def test_wire_039_a_stream_that_ends_in_a_call_s_arguments_is_an_error(stopped: list[JSON]) -> None:
    half = call(0, "t", "save", '{"code":')[:-1]
    with pytest.raises(ProtocolError):
        read(start(), *half, *stopped)


def test_wire_039_a_call_that_the_output_limit_cut_is_kept_and_told_as_cut() -> None:
    half = call(0, "t", "save", '{"code":')[:-1]
    message, _ = read(start(), *half, *end("max_tokens"))
    assert message.stop_reason == "length"
    assert message.tool_calls == (ToolCall("t", "save", '{"code":'),)


def test_text_thinking_and_calls_keep_their_order_and_are_shown_as_they_come() -> None:
    thinking = [
        {"type": "thinking_delta", "thinking": "let me "},
        {"type": "thinking_delta", "thinking": "see"},
        {"type": "signature_delta", "signature": "c2ln"},
    ]
    message, deltas = read(
        start(),
        {"type": "ping"},
        *block(0, *thinking, type="thinking", thinking="", signature=""),
        *text(1, "I ", "look"),
        *call(2, "a", "f", '{"x"', ":1}"),
        *end("tool_use"),
    )
    assert message.parts == (
        Thinking("let me see", "c2ln"),
        Text("I look"),
        ToolCall("a", "f", '{"x":1}'),
    )
    assert (message.model, message.stop_reason) == ("claude", "tool_calls")
    assert deltas == [
        ThinkingDelta("let me "),
        ThinkingDelta("see"),
        TextDelta("I "),
        TextDelta("look"),
    ]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "pause"),
        ("something new", "stop"),
    ],
)
def test_a_vendor_s_stop_reason_becomes_ours(reason: str, expected: str) -> None:
    assert read(start(), *text(0, "x"), *end(reason))[0].stop_reason == expected


SERVER_BLOCKS: list[JSON] = [
    {"type": "redacted_thinking", "data": "b3BhcXVl"},
    {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": "x", "n": 1.5}},
    {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"url": "http://x"}]},
    {"type": "a_kind_of_tomorrow", "any": {"deep": [1, None]}},
]
CITED: JSON = {"type": "text", "text": "so it is", "citations": [{"url": "http://x", "n": 1}]}
CALLED: JSON = {
    "type": "tool_use",
    "id": "a",
    "name": "f",
    "input": {"x": 1},
    "caller": {"type": "direct"},
}
SIGNED: JSON = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def test_what_the_vendor_sent_goes_back_to_it_unchanged_whole_or_streamed() -> None:
    blocks = [SIGNED, *SERVER_BLOCKS, CITED, CALLED]
    whole = {"type": "message", "model": "claude", "content": blocks, "stop_reason": "tool_use"}
    message = read_reply(API, json.dumps(whole).encode()).message
    assert message.tool_calls == (ToolCall("a", "f", '{"x": 1}'),)
    assert message.text == "so it is"
    assert again(message) == blocks
    search = {"type": "input_json_delta", "partial_json": '{"q":"x",'}
    rest = {"type": "input_json_delta", "partial_json": '"n":1.5}'}
    whole_input = {"type": "input_json_delta", "partial_json": '{"x":1}'}
    cited = [{"type": "text_delta", "text": "so it is"}]
    cited += [{"type": "citations_delta", "citation": one} for one in CITED["citations"]]
    streamed, _ = read(
        start(),
        *block(0, **SIGNED),
        *block(1, **SERVER_BLOCKS[0]),
        *block(2, search, rest, **{**SERVER_BLOCKS[1], "input": {}}),
        *block(3, **SERVER_BLOCKS[2]),
        *block(4, **SERVER_BLOCKS[3]),
        *block(5, *cited, type="text", text="", citations=[]),
        *block(6, whole_input, **{**CALLED, "input": {}}),
        *end("tool_use"),
    )
    assert again(streamed) == blocks


def test_parts_of_other_vendors_and_thinking_without_a_signature_stay_here() -> None:
    parts = (Thinking("hm"), Opaque("openai-chat", "{}"), Text("a"))
    assert again(AssistantMessage(parts)) == [{"type": "text", "text": "a"}]


def test_a_body_that_is_not_streamed_is_read_as_well() -> None:
    usage = {"input_tokens": 5, "output_tokens": 2}
    content = [{"type": "text", "text": "hi"}, {"type": "tool_use", "id": "a", "name": "f"}]
    whole = {"id": "m1", "model": "c", "content": content, "stop_reason": "tool_use"}
    reply = read_reply(API, json.dumps({**whole, "usage": usage}).encode())
    assert reply.message.parts == (Text("hi"), ToolCall("a", "f", "{}"))
    assert (reply.usage, reply.stop_reason, reply.model) == (Usage(5, 2), "tool_calls", "c")
    assert reply.response_id == "m1"


HALF = {"type": "input_json_delta", "partial_json": "{"}


@pytest.mark.parametrize(
    "datas",
    [
        ["{"],
        ["[]"],
        [start(), {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta"}}],
        [start(), {"type": "content_block_start", "index": "x"}],
        [start(), *call(0, "a", ""), *end()],
        [start(), *block(0, HALF, type="mcp_tool_use"), *end()],
        [start(input_tokens=-1), *end()],
        [{"type": "message_stop"}],
        [start(), *text(0, "x")],
    ],
)
def test_what_is_no_reply_is_a_protocol_error(datas: list[JSON | str]) -> None:
    with pytest.raises(ProtocolError):
        read(*datas)


STREAM = b"".join(
    [
        b": keep-alive\r\n\r\n",
        event(start(input_tokens=5)),
        *[event(data) for data in text(0, "na\u00efve ", "\u2603")],
        *[event(data).replace(b"\n", b"\r\n") for data in call(1, "a", "f", '{"x":', '"\u00e9"}')],
        *[event(data).replace(b"\n", b"\r") for data in end("tool_use", output_tokens=2)],
    ]
)
WHOLE = AssistantMessage(
    (Text("na\u00efve \u2603"), ToolCall("a", "f", '{"x":"\u00e9"}')),
    Usage(5, 2),
    "claude",
    "tool_calls",
)


@given(st.integers(0, len(STREAM)))
def test_a_stream_that_is_cut_anywhere_gives_the_whole_reply_or_an_error(length: int) -> None:
    try:
        assert read_reply(API, STREAM[:length]).message.tool_calls == WHOLE.tool_calls
    except ProviderError:
        assert length < len(STREAM)


def test_the_whole_stream_gives_the_whole_reply() -> None:
    assert read_reply(API, STREAM).message == WHOLE


# -- requests -------------------------------------------------------------------------------------


def test_wire_046_the_wire_has_no_empty_text_and_no_white_space_at_the_end() -> None:
    messages = (
        user("hi"),
        AssistantMessage((Text("Say: \n"),)),
        AssistantMessage((Text(""),)),
    )
    body = written(*messages)
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Say:"}]},
    ]
    assert messages[1].text == "Say: \n"
    middle = written(*messages, user("go on"))
    assert middle["messages"][1]["content"] == [{"type": "text", "text": "Say: \n"}]


def test_the_system_prompt_has_a_field_of_its_own_and_a_limit_is_always_sent() -> None:
    body = written(SystemMessage("be brief"), user("hi"))
    assert body == {
        "model": "m",
        "max_tokens": 8192,
        "system": "be brief",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "stream": True,
    }


def test_results_and_the_user_s_next_words_are_one_message_of_the_user() -> None:
    calls = (ToolCall("a", "f", "{}"), ToolCall("b", "g", '{"x": 1}'))
    body = written(
        user("hi"),
        AssistantMessage(calls),
        ToolMessage("a", "f", (Text("1"),)),
        ToolMessage("b", "g", (Text("error: no"),), "error"),
        user("and?"),
    )
    _, assistant, results = body["messages"]
    assert [block["input"] for block in assistant["content"]] == [{}, {"x": 1}]
    assert results["role"] == "user"
    assert results["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "1"}]},
        {
            "type": "tool_result",
            "tool_use_id": "b",
            "content": [{"type": "text", "text": "error: no"}],
            "is_error": True,
        },
        {"type": "text", "text": "and?"},
    ]


@pytest.mark.parametrize("arguments", ['{"x":', "[1]", '"x"'])
def test_arguments_that_are_no_object_go_back_as_the_vendor_says(arguments: str) -> None:
    (found,) = again(AssistantMessage((ToolCall("a", "f", arguments),)))
    assert found["input"] == {"INVALID_JSON": arguments}


def test_images_and_files_go_in_and_into_results() -> None:
    shown = (
        Image("image/png", b"\x00\x01"),
        Image(url="https://example.org/a.png"),
        File("application/pdf", b"%PDF", "a.pdf"),
        File("text/csv", b"1,2", "a.csv"),
    )
    blocks = written(UserMessage(shown))["messages"][0]["content"]
    assert [(block["type"], block["source"]["type"]) for block in blocks] == [
        ("image", "base64"),
        ("image", "url"),
        ("document", "base64"),
        ("document", "text"),
    ]
    assert blocks[0]["source"]["data"] == "AAE=" and blocks[3]["source"]["data"] == "1,2"
    (result,) = written(ToolMessage("a", "f", (*shown, File("audio/mpeg", b"123"))))["messages"]
    inner = result["content"][0]["content"]
    assert inner[:4] == blocks
    assert inner[4] == {
        "type": "text",
        "text": "[audio/mpeg, 3 bytes, which cannot be shown here]",
    }


SPEC = ToolSpec("f", "does f", {"type": "object", "properties": {}})


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", None),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("f", {"type": "tool", "name": "f"}),
    ],
)
def test_tools_and_the_choice_among_them_are_sent_only_where_there_are_tools(
    choice: str, expected: Any
) -> None:
    options = CallOptions(tool_choice=choice)
    body = written(user("hi"), tools=(SPEC,), options=options)
    schema = {"name": "f", "description": "does f", "input_schema": SPEC.parameters}
    assert body["tools"] == [schema]
    assert body.get("tool_choice") == expected
    assert not {"tools", "tool_choice"} & set(written(user("hi"), options=options))


def test_what_json_cannot_hold_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidRequestError, match="JSON"):
        written(user("\ud800"))
    with pytest.raises(InvalidRequestError, match="no JSON object"):
        written(AssistantMessage((Opaque(API, "[1]"),)), user("hi"))


# -- the whole loop, over a real connection -------------------------------------------------------


@tool(effect="read")
def weather(city: str, ctx: ToolContext) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


async def test_an_agent_asks_calls_its_tool_and_answers_over_a_real_server() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    replies = [
        chat_server.events(
            start(input_tokens=20),
            *block(0, **thinking),
            *call(1, "c1", "weather", '{"city":', '"Paris"}'),
            *end("tool_use", output_tokens=10),
        ),
        chat_server.events(start(input_tokens=40), *text(0, "sun"), *end(output_tokens=8)),
    ]
    async with chat_server.chat_server(chat_server.in_turn(replies)) as server:
        model = Anthropic("m", base_url=server.base_url, api_key="sk-secret-1", betas=["b1", "b2"])
        state = await Agent(model, tools=[weather]).run("weather in Paris?")
    assert isinstance(state, Answered)
    assert (state.message.text, state.usage) == ("sun", Usage(60, 18))
    first, second = server.requests
    assert first.headers["anthropic-version"] == "2023-06-01"
    assert first.headers["anthropic-beta"] == "b1,b2"
    assistant, results = second.body["messages"][1:]
    assert assistant["content"] == [
        thinking,
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}},
    ]
    assert results["content"][0]["content"] == [{"type": "text", "text": "sunny in Paris"}]


async def test_a_paused_reply_is_gone_on_with_in_the_same_call() -> None:
    search = block(0, **SERVER_BLOCKS[1])
    replies = [
        chat_server.events(start(input_tokens=5), *search, *end("pause_turn", output_tokens=2)),
        chat_server.fails(529),
        chat_server.events(start(input_tokens=7), *text(0, "found"), *end(output_tokens=3)),
    ]
    shown: list[Delta] = []
    async with chat_server.chat_server(chat_server.in_turn(replies)) as server:
        model = Anthropic("m", base_url=server.base_url, jitter=lambda: 0.0)
        message = await model.complete(Request((user("find it"),)), shown.append)
    assert message.usage == Usage(12, 5)
    assert (message.text, message.stop_reason) == ("found", "stop")
    assert again(message) == [SERVER_BLOCKS[1], {"type": "text", "text": "found"}]
    assert shown == [TextDelta("found")]
    assert [len(request.body["messages"]) for request in server.requests] == [1, 2, 2]
    assert server.requests[2].body["messages"][1]["content"] == [SERVER_BLOCKS[1]]


async def test_a_reply_that_is_paused_without_end_is_an_error() -> None:
    paused = chat_server.events(start(), *text(0, "x"), *end("pause_turn"))
    async with chat_server.chat_server(lambda body: paused) as server:
        with pytest.raises(ProtocolError, match="paused"):
            await Anthropic("m", base_url=server.base_url).complete(
                Request((user("hi"),)), lambda delta: None
            )
    assert len(server.requests) == MAX_PAUSES + 1


@pytest.mark.parametrize(
    "message",
    ["prompt is too long: 213 tokens > 200", "input length and `max_tokens` exceed context limit"],
)
def test_a_context_that_is_too_long_is_told_by_its_text(message: str) -> None:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    with pytest.raises(ContextLengthError):
        read_reply(API, json.dumps(error).encode(), status=400)
