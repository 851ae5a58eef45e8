"""What holds for every wire format alike: options, names, kept forms, hostile bytes, real runs."""

from __future__ import annotations

import gc
import json
import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from tests import chat_server
from tests.chat_server import event
from tests.providers.wires import ANTHROPIC, WIRES, Wire
from trioagent import Agent, ToolContext, tool
from trioagent.errors import (
    ContextLengthError,
    InvalidRequestError,
    ProtocolError,
    ProviderError,
    RateLimitError,
    UnavailableError,
)
from trioagent.events import Answered
from trioagent.messages import (
    AssistantMessage,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from trioagent.provider import CallOptions, Request, ToolSpec
from trioagent.providers import read_reply
from trioagent.providers.anthropic_encoder import AnthropicEncoder
from trioagent.providers.bodies import MAX_ERROR_TEXT, BodyReader
from trioagent.providers.chat_encoder import ChatEncoder
from trioagent.providers.names import own_names, wire_name, wire_names
from trioagent.providers.recorded import DECODERS
from trioagent.providers.responses_encoder import ResponsesEncoder

JSON = dict[str, Any]
Encoder = ChatEncoder | ResponsesEncoder | AnthropicEncoder
ENCODERS: dict[str, Callable[[], Encoder]] = {
    "openai-chat": lambda: ChatEncoder("m"),
    "openai-responses": lambda: ResponsesEncoder("m"),
    "anthropic-messages": lambda: AnthropicEncoder("m"),
}
SPEC = ToolSpec("f", "does f", {"type": "object", "properties": {}})


@pytest.fixture(params=WIRES, ids=lambda wire: wire.name)
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


@pytest.fixture(params=ENCODERS)
def encoder(request: pytest.FixtureRequest) -> Encoder:
    return ENCODERS[request.param]()


def user(text: str) -> UserMessage:
    return UserMessage((Text(text),))


def written(encoder: Encoder, **fields: Any) -> JSON:
    request = Request((user("hi"),), **fields)
    body: JSON = json.loads(encoder.encode(request))
    return body


# -- options --------------------------------------------------------------------------------------

FIELDS = {
    "temperature": ("temperature", "temperature", "temperature"),
    "top_p": ("top_p", "top_p", "top_p"),
    "max_output_tokens": ("max_completion_tokens", "max_output_tokens", "max_tokens"),
    "stop": ("stop", None, "stop_sequences"),
    "seed": ("seed", None, None),
    "reasoning_effort": ("reasoning_effort", "reasoning", "output_config"),
}
VALUES: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.25,
    "max_output_tokens": 9,
    "stop": ("END",),
    "seed": 7,
    "reasoning_effort": "low",
}


@pytest.mark.parametrize("option", VALUES)
@pytest.mark.parametrize("place", range(3), ids=list(ENCODERS))
def test_an_option_means_the_same_everywhere_and_one_that_is_lacking_is_an_error(
    option: str, place: int
) -> None:
    encoder, value = list(ENCODERS.values())[place](), VALUES[option]
    options = CallOptions(**{option: value})
    field = FIELDS[option][place]
    if field is None:
        with pytest.raises(InvalidRequestError, match=option):
            written(encoder, options=options)
        return
    found = written(encoder, options=options)[field]
    expected = {"effort": "low"} if isinstance(found, dict) else value
    assert found == (list(expected) if isinstance(expected, tuple) else expected)
    plain = written(encoder)
    assert plain.get(field) == (8192 if field == "max_tokens" else None)


async def test_an_option_that_a_vendor_lacks_is_told_before_any_request(wire: Wire) -> None:
    async with chat_server.chat_server(lambda body: wire.says("hi")) as server:
        model = wire.at(server.base_url)
        agent = Agent(model, options=CallOptions(seed=7, stop=("END",)))
        if wire.name == "openai-chat":
            await agent.run("hi")
            assert server.requests[0].body["seed"] == 7
            return
        with pytest.raises(InvalidRequestError, match="no option"):
            await agent.run("hi")
    assert server.requests == []


def test_an_extra_body_adds_fields_and_tools_and_replaces_nothing(encoder: Encoder) -> None:
    extra = {"service_tier": "flex", "tools": [{"type": "web_search"}]}
    options = CallOptions(extra_body=extra)
    body = written(encoder, tools=(SPEC,), options=options)
    assert body["service_tier"] == "flex"
    assert [one.get("type") for one in body["tools"]][1:] == ["web_search"]
    assert len(written(encoder, options=options)["tools"]) == 1
    for own in ("model", "stream"):
        with pytest.raises(InvalidRequestError, match=own):
            written(encoder, options=CallOptions(extra_body={own: "x"}))


@pytest.mark.parametrize(
    "bad", [{"temperature": float("nan")}, {"extra_body": {"x": float("inf")}}]
)
def test_an_option_that_json_cannot_hold_is_refused(encoder: Encoder, bad: JSON) -> None:
    with pytest.raises(InvalidRequestError, match="NaN"):
        written(encoder, options=CallOptions(**bad))


@tool(effect="read")
def weather(city: str, ctx: ToolContext) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


# -- names ----------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=80), max_size=8, unique=True))
def test_names_are_legal_unique_and_reversible(names: list[str]) -> None:
    wired = [wire_name(name) for name in names]
    assert all(0 < len(name) <= 64 for name in wired)
    assert all(name.isascii() and name.replace("_", "").replace("-", "") + "x" for name in wired)
    assert len(set(wired)) == len(names)
    back = wire_names([ToolSpec(name, "", {}) for name in names])
    assert [back.get(name, name) for name in wired] == names


def test_a_name_that_is_another_s_made_name_is_refused(encoder: Encoder) -> None:
    made = wire_name("a.b")
    tools = (ToolSpec("a.b", "", {}), ToolSpec(made, "", {}))
    with pytest.raises(InvalidRequestError, match=r"a\.b"):
        written(encoder, tools=tools)


def test_only_names_of_this_request_s_tools_are_turned_back() -> None:
    names = wire_names([ToolSpec("fs.read", "", {})])
    calls = (ToolCall("1", wire_name("fs.read")), ToolCall("2", "fs_read"), Text("x"))
    found = own_names(AssistantMessage(calls), names)
    assert [call.name for call in found.tool_calls] == ["fs.read", "fs_read"]


async def test_a_tool_with_an_illegal_name_is_called_by_its_own(wire: Wire) -> None:
    spec = ToolSpec("m\u00e9t\u00e9o/du jour", "", {"type": "object", "properties": {}})
    async with chat_server.chat_server(lambda body: calling(wire, body)) as server:
        model = wire.at(server.base_url)
        reply = await model.complete(Request((user("?"),), (spec,)), lambda delta: None)
        (call,) = reply.tool_calls
        assert call.name == spec.name
        result = ToolMessage(call.id, call.name, (Text("beau"),))
        await model.complete(Request((user("?"), reply, result), (spec,)), lambda delta: None)
    sent = json.dumps(server.requests[1].body)
    assert sent.count(wire_name(spec.name)) == 2 and spec.name not in sent


def calling(wire: Wire, body: JSON) -> chat_server.Reply:
    """A call of the one tool that `body` declares, in Paris."""
    spec = body["tools"][0]
    name, arguments = spec.get("name") or spec["function"]["name"], {"city": "Paris"}
    if wire.name == "openai-chat":
        return chat_server.calls(("c1", name, arguments))
    if wire is ANTHROPIC:
        block = {"type": "tool_use", "id": "c1", "name": name, "input": arguments}
        usage = {"input_tokens": 5, "output_tokens": 2}
        whole = {"content": [block], "stop_reason": "tool_use", "usage": usage}
        return chat_server.answers(200, whole)
    text = json.dumps(arguments)
    item = {"type": "function_call", "call_id": "c1", "name": name, "arguments": text}
    return chat_server.answers(200, {"status": "completed", "output": [item]})


# -- kept forms -----------------------------------------------------------------------------------


def conversation(turns: int) -> list[Message]:
    messages: list[Message] = [user("go")]
    for turn in range(turns):
        call = ToolCall(f"c{turn}", "f", '{"x": 1}')
        messages.append(AssistantMessage((Text("look " * 20), call)))
        messages.append(ToolMessage(f"c{turn}", "f", (Text("found " * 20),)))
    return messages


def test_a_request_is_the_same_from_kept_forms_as_from_none(encoder: Encoder) -> None:
    messages = conversation(5)
    for end in range(1, len(messages) + 1):
        fresh = type(encoder)("m")
        request = Request(tuple(messages[:end]), (SPEC,))
        assert encoder.encode(request) == fresh.encode(request)
    messages[2] = ToolMessage("c0", "f", (Text("changed"),))
    body = encoder.encode(Request(tuple(messages)))
    assert body == type(encoder)("m").encode(Request(tuple(messages))) and b"changed" in body


def test_each_message_is_encoded_once_and_its_form_goes_with_it(encoder: Encoder) -> None:
    messages = conversation(50)
    for end in range(1, len(messages) + 1, 2):
        encoder.encode(Request(tuple(messages[:end])))
    # A reply that ends a request is encoded apart by one of the formats, so it may be one less.
    assert len(messages) - 1 <= len(encoder._forms) <= len(messages)
    del messages
    gc.collect()
    assert len(encoder._forms) == 0


# -- hostile bytes --------------------------------------------------------------------------------

KEYS = [
    *("type", "index", "delta", "content_block", "message", "usage", "content", "text", "id"),
    *("input", "name", "item", "output_index", "response", "output", "status", "arguments"),
    *("choices", "tool_calls", "function", "finish_reason", "error", "stop_reason", "summary"),
]
WORDS = [
    *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
    *("message_delta", "message_stop", "text", "tool_use", "thinking", "text_delta", "end_turn"),
    *("input_json_delta", "citations_delta", "signature_delta", "error", "reasoning", "message"),
    *("response.created", "response.completed", "response.output_item.added", "completed"),
    *("response.output_item.done", "response.output_text.delta", "function_call", "stop"),
    *("response.function_call_arguments.delta", "response.function_call_arguments.done"),
]
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats(allow_nan=False)
    | st.sampled_from(WORDS)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=15,
)
objects = st.dictionaries(st.sampled_from(KEYS), json_values, max_size=6)
pieces = st.binary(max_size=40) | objects.map(lambda value: event(json.dumps(value)))


@pytest.mark.parametrize("api", DECODERS)
@given(body=st.lists(pieces, max_size=12).map(b"".join) | objects.map(json.dumps).map(str.encode))
def test_no_bytes_raise_anything_but_a_provider_error(api: Any, body: bytes) -> None:
    with suppress(ProviderError):
        read_reply(api, body)


def mutated(body: bytes, chance: random.Random) -> bytes:
    """A body with some bytes changed, cut out or said twice."""
    data = bytearray(body)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data) or 1)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del data[at : at + chance.randrange(1, 40)]
            case 2:
                data[at:at] = data[at : at + chance.randrange(1, 40)]
            case _:
                data[at:at] = chance.choice([b"null", b"{}", b"[]", b'"x"', b"-1", b"\r", b"\n\n"])
    return bytes(data)


def test_good_replies_with_bytes_changed_raise_nothing_but_a_provider_error(wire: Wire) -> None:
    chance = random.Random(7)
    stream = b"".join(wire.events(*wire.half_call, wire.word("x"), *wire.closing(["x"])).pieces)
    bodies = [stream, json.dumps(wire.whole("hello")).encode()]
    for number in range(3000):
        with suppress(ProviderError):
            read_reply(wire.name, mutated(bodies[number % 2], chance))  # type: ignore[arg-type]


@pytest.mark.parametrize("start", [b"data: ", b"{", b"x"])
def test_an_endless_line_ends_in_an_error_and_not_in_all_the_memory(
    start: bytes, wire: Wire
) -> None:
    piece = start + b" " * 100_000
    reader = BodyReader(DECODERS[wire.name](), lambda delta: None)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="is over"):
            for _ in range(10_000):
                reader.feed(piece)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 200 * 1024 * 1024


def test_an_endless_reply_of_small_events_ends_in_an_error(wire: Wire) -> None:
    reader = BodyReader(DECODERS[wire.name](), lambda delta: None)
    for piece in wire.events().pieces:
        reader.feed(piece)
    many = event(wire.word("x" * 100_000))
    with pytest.raises(ProtocolError, match="is over"):
        for _ in range(1000):
            reader.feed(many)


# -- recorded bodies ------------------------------------------------------------------------------


def test_a_recorded_error_is_the_error_of_a_live_call(wire: Wire) -> None:
    api: Any = wire.name
    body = json.dumps({"error": {"type": "rate_limit_error", "message": "slow " * 400}}).encode()
    with pytest.raises(RateLimitError) as caught:
        read_reply(api, body, status=429)
    assert caught.value.status == 429 and len(str(caught.value)) == MAX_ERROR_TEXT
    for status in (500, 502, 503):
        with pytest.raises(UnavailableError):
            read_reply(api, b"<html>Bad gateway</html>", status=status, content_type="text/html")
    long = json.dumps({"error": {"message": "maximum context length is 8", "code": None}})
    with pytest.raises(ContextLengthError):
        read_reply(api, long.encode(), status=400)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_recorded_stream_is_read_with_each_kind_of_line_end(end: bytes, wire: Wire) -> None:
    api: Any = wire.name
    body = b"".join(wire.says("hel", "lo").pieces).replace(b"\n", end)
    reply = read_reply(api, body, content_type="text/event-stream")
    assert reply.message == read_reply(api, json.dumps(wire.whole("hello")).encode()).message
    assert (reply.message.text, reply.usage, reply.model) == ("hello", Usage(5, 2), "served")
    assert reply.stop_reason == "stop"
    assert read_reply(api, body + b"\n\ndata: {not read any more").message == reply.message


@pytest.mark.parametrize("body", [b"", b"\n \n", b"<html>hello</html>", b"[1]"])
def test_a_body_that_is_neither_events_nor_json_is_told_with_its_content_type(
    body: bytes, wire: Wire
) -> None:
    api: Any = wire.name
    with pytest.raises(ProtocolError, match="text/html"):
        read_reply(api, body, content_type="text/html")


def test_an_api_that_is_none_of_the_three_is_refused() -> None:
    with pytest.raises(ValueError, match="openai-chat"):
        read_reply("openai", b"{}")  # type: ignore[arg-type]


# -- runs over a real connection ------------------------------------------------------------------


async def test_stream_093_a_reader_that_leaves_closes_the_body_and_reads_no_further(
    wire: Wire,
) -> None:
    words = [wire.word("word " * 10_000)] * 1000
    async with chat_server.chat_server(lambda body: wire.events(*words, end="stall")) as server:
        agent = Agent(wire.at(server.base_url))
        async with agent.stream("hi") as stream:
            async for _ in stream:
                break
        await server.over.wait()
    assert len(server.requests) == 1 and server.sent < 500
    assert stream.usage == Usage()
    assert not any(isinstance(message, AssistantMessage) for message in stream.transcript)


async def test_stream_105_a_run_cancelled_while_arguments_stream_runs_no_tool(wire: Wire) -> None:
    ran: list[str] = []

    @tool(name="f")
    def never(x: int) -> None:
        ran.append("ran")

    async with chat_server.chat_server(
        lambda body: wire.events(*wire.half_call, end="stall")
    ) as server:
        agent = Agent(wire.at(server.base_url), tools=[never])
        async with agent.stream("hi") as stream:
            await server.stalled.wait()
            await trio.testing.wait_all_tasks_blocked()
        await server.hung_up.wait()
    assert ran == []
    assert [type(message) for message in stream.transcript] == [UserMessage]


async def test_an_agent_runs_a_tool_and_answers(wire: Wire) -> None:
    sent: list[JSON] = []

    def handler(body: JSON) -> chat_server.Reply:
        sent.append(body)
        return calling(wire, body) if len(sent) == 1 else wire.says("sunny")

    async with chat_server.chat_server(handler) as server:
        state = await Agent(wire.at(server.base_url), tools=[weather]).run("weather?")
    assert isinstance(state, Answered) and state.message.text == "sunny"
    assert "sunny in Paris" in json.dumps(sent[1])
