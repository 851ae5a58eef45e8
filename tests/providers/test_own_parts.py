"""What only one vendor understands, beside a model's own items: parts of the user's and of results,
messages of their own, and files that are named by a URL."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trioagent import Agent, Answered, tool
from trioagent.errors import InvalidRequestError
from trioagent.messages import (
    AssistantMessage,
    ContentPart,
    File,
    Message,
    Opaque,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    decode_messages,
    encode,
)
from trioagent.provider import Request
from trioagent.providers import Scripted
from trioagent.providers.anthropic_encoder import AnthropicEncoder
from trioagent.providers.chat_encoder import ChatEncoder
from trioagent.providers.responses_encoder import ResponsesEncoder

CHAT, RESPONSES, ANTHROPIC = "openai-chat", "openai-responses", "anthropic-messages"
ENCODERS: dict[str, Any] = {
    CHAT: ChatEncoder,
    RESPONSES: ResponsesEncoder,
    ANTHROPIC: AnthropicEncoder,
}
STORED = {
    CHAT: {"type": "file", "file": {"file_id": "file-1"}},
    RESPONSES: {"type": "input_image", "detail": "auto", "file_id": "file-1"},
    ANTHROPIC: {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
}
HI = UserMessage((Text("hi"),))
CALL = ToolCall("a", "find", "{}")


def written(api: str, *messages: Message) -> list[dict[str, Any]]:
    body = json.loads(ENCODERS[api]("m").encode(Request(messages)))
    wire: list[dict[str, Any]] = body["input" if api == RESPONSES else "messages"]
    return wire


def asked(part: ContentPart) -> UserMessage:
    return UserMessage((Text("look"), part))


def answered(*parts: ContentPart) -> tuple[Message, ...]:
    return HI, AssistantMessage((CALL,)), ToolMessage("a", "find", parts)


@pytest.mark.parametrize("api", ENCODERS)
def test_a_part_that_the_vendor_keeps_goes_to_it_as_it_is(api: str) -> None:
    (message,) = written(api, asked(Opaque(api, json.dumps(STORED[api]))))
    assert message["role"] == "user"
    assert message["content"][1] == STORED[api]


@pytest.mark.parametrize("api", ENCODERS)
def test_a_user_s_part_for_another_vendor_is_refused_and_named(api: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"a part for other only, which {api}"):
        written(api, asked(Opaque("other", "{}")))
    with pytest.raises(InvalidRequestError, match="for other only"):
        written(api, HI, UserMessage((Opaque("other", '{"role":"system"}'),)))


@pytest.mark.parametrize("api", ENCODERS)
def test_a_result_s_part_for_another_vendor_is_told_so_that_the_run_can_go_on(api: str) -> None:
    text = json.dumps(written(api, *answered(Text("found"), Opaque("other", '{"secret":1}'))))
    assert "found" in text
    assert "[something for other only, which cannot be shown here]" in text
    assert "secret" not in text


def test_a_result_of_references_to_tools_goes_back_as_it_is() -> None:
    reference = {"type": "tool_reference", "tool_name": "lookup_rate"}
    *_, last = written(ANTHROPIC, *answered(Opaque(ANTHROPIC, json.dumps(reference))))
    assert last["content"] == [{"type": "tool_result", "tool_use_id": "a", "content": [reference]}]


@pytest.mark.parametrize(
    ("api", "message"),
    [
        (CHAT, {"role": "system", "content": "be brief from now on"}),
        (CHAT, {"role": "developer", "content": "be brief from now on"}),
        (RESPONSES, {"role": "developer", "content": "be brief from now on"}),
        (ANTHROPIC, {"role": "system", "content": [{"type": "text", "text": "be brief"}]}),
    ],
)
def test_a_system_message_in_the_middle_stays_where_it_is(
    api: str, message: dict[str, Any]
) -> None:
    middle = UserMessage((Opaque(api, json.dumps(message)),))
    wire = written(api, HI, AssistantMessage((Text("hello"),)), middle, HI)
    assert wire[2] == message
    assert [one["role"] for one in wire] == ["user", "assistant", message["role"], "user"]


@pytest.mark.parametrize("api", ENCODERS)
def test_a_part_of_one_s_own_without_a_role_is_a_part_also_where_it_stands_alone(api: str) -> None:
    (message,) = written(api, UserMessage((Opaque(api, json.dumps(STORED[api])),)))
    assert message == {"role": "user", "content": [STORED[api]]}


def test_a_file_by_its_url_goes_in_where_the_api_takes_one() -> None:
    url = "https://files.example/a.pdf"
    (message,) = written(RESPONSES, asked(File(url=url)))
    assert message["content"][1] == {"type": "input_file", "file_url": url}
    document = {"type": "document", "source": {"type": "url", "url": url}, "title": "a"}
    (message,) = written(ANTHROPIC, asked(File(url=url, name="a")))
    assert message["content"][1] == document
    *_, last = written(ANTHROPIC, *answered(File(url=url, name="a")))
    assert last["content"][0]["content"] == [document]
    *_, last = written(RESPONSES, *answered(File(url=url)))
    assert last["output"] == [{"type": "input_file", "file_url": url}]
    with pytest.raises(InvalidRequestError, match="no file by its URL"):
        written(CHAT, asked(File(url=url)))
    *_, last = written(CHAT, *answered(File(url=url)))
    assert last["content"] == f"[file at {url}, which cannot be shown here]"


def test_such_parts_are_read_as_they_were_written() -> None:
    parts: tuple[ContentPart, ...] = (
        Opaque(ANTHROPIC, '{"type":"x","n":1.50}'),
        File(url="https://files.example/a"),
        File("text/plain", b"a", "a.txt"),
    )
    messages = (UserMessage(parts), *answered(*parts)[1:])
    assert decode_messages(encode(messages)) == messages


async def test_a_tool_may_return_what_only_its_vendor_understands() -> None:
    reference = Opaque(ANTHROPIC, '{"type":"tool_reference","tool_name":"f"}')

    @tool(effect="read")
    async def find() -> Opaque:
        """Find a tool."""
        return reference

    model = Scripted([AssistantMessage((CALL,)), AssistantMessage((Text("done"),))])
    state = await Agent(model, tools=[find]).run("go")
    assert isinstance(state, Answered)
    assert isinstance(state.transcript[2], ToolMessage)
    assert state.transcript[2].parts == (reference,)
