"""What `OpenAIResponses` promises of the format: replies read, requests written.

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
    AuthenticationError,
    ContextLengthError,
    InvalidRequestError,
    OverloadedError,
    ProtocolError,
    ProviderError,
    RateLimitError,
    UnavailableError,
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
from trioagent.providers import OpenAIResponses, read_reply
from trioagent.providers.responses_decoder import ResponsesDecoder
from trioagent.providers.responses_encoder import ResponsesEncoder

JSON = dict[str, Any]
API: Final = "openai-responses"


def response(*output: JSON, status: str = "completed", **fields: Any) -> JSON:
    head = {"id": "resp_1", "object": "response", "model": "gpt", "status": status}
    return {**head, "error": None, "output": list(output), **fields}


def completed(*output: JSON, status: str = "completed", **fields: Any) -> JSON:
    return {"type": f"response.{status}", "response": response(*output, status=status, **fields)}


def added(index: int, **item: Any) -> JSON:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, **item: Any) -> JSON:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def delta(kind: str, index: int | None, text: str, item_id: str = "") -> JSON:
    data = {"type": f"response.{kind}.delta", "item_id": item_id, "delta": text}
    return data if index is None else {**data, "output_index": index}


def call_item(call_id: str, name: str, arguments: str = "", **fields: Any) -> JSON:
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
    return {**item, **fields}


def read(*datas: JSON | str) -> tuple[AssistantMessage, list[Delta]]:
    decoder = ResponsesDecoder("asked")
    deltas: list[Delta] = []
    for data in datas:
        deltas += decoder.feed(data if isinstance(data, str) else json.dumps(data))
    return decoder.finish(), deltas


def calls_of(*datas: JSON) -> list[tuple[str, str, str]]:
    message, _ = read(*datas)
    return [(call.id, call.name, call.arguments) for call in message.tool_calls]


def written(*messages: Message, **fields: Any) -> JSON:
    body: JSON = json.loads(ResponsesEncoder("m").encode(Request(messages, **fields)))
    return body


def user(text: str) -> UserMessage:
    return UserMessage((Text(text),))


# -- replies --------------------------------------------------------------------------------------


def test_wire_010_deltas_are_routed_by_output_index_where_ids_are_empty() -> None:
    found = calls_of(
        added(0, **call_item("c1", "a", id="")),
        added(1, **call_item("c2", "b", id="")),
        delta("function_call_arguments", 1, '{"k":2}'),
        delta("function_call_arguments", 0, '{"k":1}'),
        completed(),
    )
    assert found == [("c1", "a", '{"k":1}'), ("c2", "b", '{"k":2}')]


def test_wire_010_ids_that_repeat_or_change_at_each_event_do_no_harm() -> None:
    found = calls_of(
        added(0, **call_item("c1", "a", id="same")),
        added(1, **call_item("c2", "b", id="same")),
        delta("function_call_arguments", 1, '{"k":2}', "same"),
        delta("function_call_arguments", 0, '{"k":1}', "another"),
        completed(),
    )
    assert found == [("c1", "a", '{"k":1}'), ("c2", "b", '{"k":2}')]


def test_without_an_index_deltas_go_by_id_and_without_an_id_to_the_last_item() -> None:
    found = calls_of(
        {"type": "response.output_item.added", "item": call_item("c1", "a", id="fc1")},
        {"type": "response.output_item.added", "item": call_item("c2", "b", id="fc2")},
        delta("function_call_arguments", None, '{"k":1}', "fc1"),
        delta("function_call_arguments", None, '{"k":2}'),
        completed(),
    )
    assert found == [("c1", "a", '{"k":1}'), ("c2", "b", '{"k":2}')]


def test_wire_011_a_result_names_the_call_id_and_the_item_s_own_id_is_kept_apart() -> None:
    item = call_item("call_1", "f", "{}", id="fc_1", status="completed")
    message = read_reply(API, json.dumps(response(item)).encode()).message
    (call,) = message.tool_calls
    assert call == ToolCall("call_1", "f", "{}")
    back = written(user("hi"), message, ToolMessage("call_1", "f", (Text("1"),)))["input"]
    assert back[1:] == [
        item,
        {"type": "function_call_output", "call_id": "call_1", "output": "1"},
    ]


def test_an_id_that_the_run_made_replaces_the_call_s_and_not_the_item_s() -> None:
    item = call_item("c", "f", "{}", id="fc_1")
    message = read_reply(API, json.dumps(response(item)).encode()).message
    _, rest = message.parts
    renamed = AssistantMessage((ToolCall("call_2_0", "f", "{}"), rest))
    (back,) = written(renamed)["input"]
    assert (back["call_id"], back["id"]) == ("call_2_0", "fc_1")


def test_what_is_sent_later_is_taken_for_what_was_sent_before() -> None:
    item = call_item("c", "f", '{"x":1}')
    head = added(0, **call_item("c", "f"))
    half = delta("function_call_arguments", 0, '{"x"')
    assert calls_of(head, half, done(0, **item), completed()) == [("c", "f", '{"x":1}')]
    assert calls_of(head, half, completed(item)) == [("c", "f", '{"x":1}')]
    arguments = {"type": "response.function_call_arguments.done", "output_index": 0}
    ended = {**arguments, "arguments": '{"x":1}'}
    assert calls_of(head, half, ended, completed()) == [("c", "f", '{"x":1}')]


def test_a_reply_whose_items_were_never_sent_whole_is_what_its_deltas_came_to() -> None:
    message, _ = read(
        added(0, type="message", id="m", role="assistant", content=[]),
        delta("output_text", 0, "hel"),
        delta("output_text", 0, "lo"),
        completed(),
    )
    assert message.text == "hello"


@pytest.mark.parametrize("ending", [[], ["[DONE]"], [completed()]])
def test_a_stream_that_ends_in_a_call_s_arguments_is_an_error(ending: list[Any]) -> None:
    with pytest.raises(ProtocolError):
        read(added(0, **call_item("c", "f")), delta("function_call_arguments", 0, '{"x'), *ending)


def test_text_and_thinking_are_shown_as_they_come() -> None:
    summary = [{"type": "summary_text", "text": "let me see"}]
    reasoning = {"type": "reasoning", "id": "rs", "summary": summary, "encrypted_content": "x"}
    text = [{"type": "output_text", "text": "Hello", "annotations": []}]
    message_item = {"type": "message", "id": "m", "role": "assistant", "content": text}
    message, deltas = read(
        {"type": "response.created", "response": response(status="in_progress")},
        added(0, type="reasoning", id="rs", summary=[]),
        delta("reasoning_summary_text", 0, "let me "),
        delta("reasoning_summary_text", 0, "see"),
        done(0, **reasoning),
        added(1, type="message", id="m", role="assistant", content=[]),
        delta("output_text", 1, "Hel"),
        delta("output_text", 1, "lo"),
        completed(reasoning, message_item, usage={"input_tokens": 5, "output_tokens": 2}),
        "[DONE]",
    )
    assert deltas == [
        ThinkingDelta("let me "),
        ThinkingDelta("see"),
        TextDelta("Hel"),
        TextDelta("lo"),
    ]
    assert [part for part in message.parts if not isinstance(part, Opaque)] == [
        Thinking("let me see"),
        Text("Hello"),
    ]
    assert (message.usage, message.model, message.stop_reason) == (Usage(5, 2), "gpt", "stop")
    assert written(message)["input"] == [reasoning, message_item]


OUTPUT: list[JSON] = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "b3BhcXVl"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "phase": "commentary",
        "content": [
            {"type": "output_text", "text": "I look", "annotations": [{"url": "http://x"}]},
            {"type": "refusal", "refusal": " no"},
        ],
    },
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"n": 1.5}},
    call_item("call_1", "f", '{"x": 1}', id="fc_1", namespace="ns", status="completed"),
    call_item("call_2", "g", "{}", id="fc_2", status="completed"),
    {"type": "a_kind_of_tomorrow", "any": {"deep": [1, None]}},
]


def test_what_the_vendor_sent_goes_back_to_it_unchanged() -> None:
    message = read_reply(API, json.dumps(response(*OUTPUT)).encode()).message
    assert message.text == "I look no" and message.stop_reason == "refusal"
    assert [call.name for call in message.tool_calls] == ["f", "g"]
    assert written(message)["input"] == OUTPUT
    assert written(message, user("go on"))["input"][:-1] == OUTPUT


def test_parts_of_other_vendors_stay_here_and_text_alone_is_a_message() -> None:
    parts = (Thinking("hm", "sig"), Opaque("anthropic-messages", "{}"), Text("a"), Text("b"))
    assert written(AssistantMessage(parts))["input"] == [{"role": "assistant", "content": "ab"}]


def test_usage_with_cache_and_reasoning_is_read_and_its_absence_told() -> None:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 6},
        "total_tokens": 19,
    }
    message, _ = read(completed(usage=usage))
    assert message.usage == Usage(10, 9, cache_read_tokens=4, reasoning_tokens=6)
    assert not message.usage_missing
    assert read(completed(usage=None))[0].usage_missing


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("max_output_tokens", "length"), ("content_filter", "content_filter"), (None, "length")],
)
def test_a_response_that_is_incomplete_says_why(reason: str | None, expected: str) -> None:
    half = call_item("c", "f", '{"x":')
    details = {"incomplete_details": {"reason": reason}}
    message, _ = read(completed(half, status="incomplete", **details))
    assert message.stop_reason == expected
    assert message.tool_calls == (ToolCall("c", "f", '{"x":'),)


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled"])
def test_a_response_that_is_not_finished_is_refused_and_not_asked_for_again(status: str) -> None:
    with pytest.raises(InvalidRequestError, match=status) as caught:
        read_reply(API, json.dumps(response(status=status)).encode())
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("server_error", UnavailableError),
        ("rate_limit_exceeded", RateLimitError),
        ("insufficient_quota", AuthenticationError),
        ("context_length_exceeded", ContextLengthError),
        ("overloaded", OverloadedError),
        ("invalid_prompt", InvalidRequestError),
    ],
)
def test_an_error_inside_http_200_is_typed(code: str, expected: type[ProviderError]) -> None:
    error = {"code": code, "message": "m"}
    for data in (
        {"type": "error", **error},
        {"type": "error", "error": error},
        completed(status="failed", error=error),
    ):
        with pytest.raises(ProviderError) as caught:
            read(data)
        assert type(caught.value) is expected
    with pytest.raises(expected):
        read_reply(API, json.dumps(response(status="failed", error=error)).encode())


@pytest.mark.parametrize(
    "datas",
    [
        ["{"],
        ["[]"],
        [],
        ["[DONE]"],
        [completed({"type": "message", "content": "\ud800"})],
        [completed(call_item("c", ""))],
        [completed(usage={"input_tokens": -1})],
        [delta("function_call_arguments", 3, "x"), completed()],
        [{"type": "response.output_item.added", "output_index": "x"}],
    ],
)
def test_what_is_no_reply_is_a_protocol_error(datas: list[JSON | str]) -> None:
    with pytest.raises(ProtocolError):
        read(*datas)


STREAM = b"".join(
    [
        b": keep-alive\r\n\r\n",
        event({"type": "response.created", "response": response(status="in_progress")}),
        event(added(0, type="message", role="assistant", content=[])),
        event(delta("output_text", 0, "na\u00efve \u2603")).replace(b"\n", b"\r\n"),
        event(added(1, **call_item("a", "f"))),
        event(delta("function_call_arguments", 1, '{"x":')).replace(b"\n", b"\r"),
        event(delta("function_call_arguments", 1, '"\u00e9"}')),
        event(completed(usage={"input_tokens": 5, "output_tokens": 2})),
    ]
)


@given(st.integers(0, len(STREAM)))
def test_a_stream_that_is_cut_anywhere_gives_the_whole_reply_or_an_error(length: int) -> None:
    try:
        message = read_reply(API, STREAM[:length]).message
    except ProviderError:
        assert length < len(STREAM)
    else:
        assert message.text == "na\u00efve \u2603"
        assert message.tool_calls == (ToolCall("a", "f", '{"x":"\u00e9"}'),)
        assert message.usage == Usage(5, 2)


# -- requests -------------------------------------------------------------------------------------


def test_the_system_prompt_has_a_field_of_its_own() -> None:
    assert written(SystemMessage("be brief"), user("hi")) == {
        "model": "m",
        "instructions": "be brief",
        "input": [{"role": "user", "content": "hi"}],
        "stream": True,
    }


def test_images_and_files_go_in_and_into_results() -> None:
    shown = (
        Text("see"),
        Image("image/png", b"\x00\x01"),
        Image(url="https://example.org/a.png"),
        File("application/pdf", b"%PDF", "a.pdf"),
    )
    content = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAE="},
        {"type": "input_image", "image_url": "https://example.org/a.png"},
        {
            "type": "input_file",
            "file_data": "data:application/pdf;base64,JVBERg==",
            "filename": "a.pdf",
        },
    ]
    assert written(UserMessage(shown))["input"] == [{"role": "user", "content": content}]
    (result,) = written(ToolMessage("a", "f", shown))["input"]
    assert result == {"type": "function_call_output", "call_id": "a", "output": content}


SPEC = ToolSpec("f", "does f", {"type": "object", "properties": {}})


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", None),
        ("none", "none"),
        ("required", "required"),
        ("f", {"type": "function", "name": "f"}),
    ],
)
def test_tools_and_the_choice_among_them_are_sent_only_where_there_are_tools(
    choice: str, expected: Any
) -> None:
    options = CallOptions(tool_choice=choice)
    body = written(user("hi"), tools=(SPEC,), options=options)
    function = {"name": "f", "description": "does f", "parameters": SPEC.parameters}
    assert body["tools"] == [{"type": "function", **function, "strict": False}]
    assert body.get("tool_choice") == expected
    assert not {"tools", "tool_choice"} & set(written(user("hi"), options=options))


def test_what_the_vendor_keeps_and_sends_besides_is_asked_for_where_it_is_wanted() -> None:
    include = ["reasoning.encrypted_content"]
    encoder = ResponsesEncoder("m", store=False, include=include)
    body = json.loads(encoder.encode(Request((user("hi"),))))
    assert (body["store"], body["include"]) == (False, include)
    assert not {"store", "include"} & set(written(user("hi")))


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
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    call = call_item("c1", "weather", '{"city":"Paris"}', id="fc_1", status="completed")
    text = {"type": "message", "role": "assistant", "content": "sun"}
    used = {"input_tokens": 20, "output_tokens": 10}
    replies = [
        chat_server.events(
            added(0, **reasoning),
            added(1, **call_item("c1", "weather", id="fc_1")),
            delta("function_call_arguments", 1, '{"city":"Paris"}'),
            completed(reasoning, call, usage=used),
        ),
        chat_server.events(completed(text, usage=used)),
    ]
    async with chat_server.chat_server(chat_server.in_turn(replies)) as server:
        model = OpenAIResponses("m", base_url=server.base_url, api_key="sk-secret-1")
        state = await Agent(model, tools=[weather], system="be brief").run("weather in Paris?")
    assert isinstance(state, Answered)
    assert (state.message.text, state.usage) == ("sun", Usage(40, 20))
    first, second = server.requests
    assert (first.path, first.body["instructions"]) == ("/v1/responses", "be brief")
    assert second.body["input"] == [
        {"role": "user", "content": "weather in Paris?"},
        reasoning,
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "sunny in Paris"},
    ]
