"""The three wire formats as a server on the loopback interface speaks them.

What the HTTP side promises holds for each, so its tests are written once over a `Wire`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests import chat_server
from tests.chat_server import JSON, Reply, chunk
from trioagent.providers import Anthropic, OpenAIChat, OpenAIResponses

Event = JSON | str
End = Literal["whole", "close", "stall"]


@dataclass(frozen=True, slots=True)
class Wire:
    """One format: how its provider is made, and the events of a reply.

    `opening` shows nothing, `word` shows a text, `half_call` are events of a call whose arguments
    are cut, `ending` are the events that say why the reply ends, `last` what may come after them.
    `whole` is a reply that is not streamed, `error` the event that holds an error object.
    """

    name: str
    path: str
    provider: Any
    opening: tuple[Event, ...]
    word: Callable[[str], Event]
    half_call: tuple[Event, ...]
    ending: Callable[[str, int, int], tuple[Event, ...]]
    last: tuple[Event, ...]
    whole: Callable[[str], JSON]
    error: Callable[[JSON], Event]

    def at(self, base_url: str, **options: Any) -> Any:
        """A provider of this format at `base_url`."""
        return self.provider("m", base_url=base_url, **options)

    def events(self, *datas: Event, end: End = "whole") -> Reply:
        """A stream of these events after the opening."""
        return chat_server.events(*self.opening, *datas, end=end)

    def says(self, *words: str, tokens: tuple[int, int] = (5, 2), end: End = "whole") -> Reply:
        """A streamed answer."""
        return self.events(*map(self.word, words), *self.closing(words, tokens), end=end)

    def closing(self, words: Sequence[str], tokens: tuple[int, int] = (5, 2)) -> tuple[Event, ...]:
        """The events that end an answer of these words."""
        return (*self.ending("".join(words), *tokens), *self.last)


# -- chat completions -----------------------------------------------------------------------------


def _chat_ending(text: str, given: int, made: int) -> tuple[Event, ...]:
    return (chat_server.usage(given, made), chunk({}, "stop"))


def _chat_whole(text: str) -> JSON:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    counts = {"prompt_tokens": 5, "completion_tokens": 2}
    return {"id": "r1", "model": "served", "choices": [choice], "usage": counts}


CHAT = Wire(
    name="openai-chat",
    path="/v1/chat/completions",
    provider=OpenAIChat,
    opening=(chunk({"role": "assistant", "content": ""}),),
    word=lambda text: chunk({"content": text}),
    half_call=(
        chunk(
            {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}]}
        ),
    ),
    ending=_chat_ending,
    last=("[DONE]",),
    whole=_chat_whole,
    error=lambda error: {"error": error},
)

# -- Responses ------------------------------------------------------------------------------------


def _response(status: str, output: list[JSON], given: int = 0, made: int = 0) -> JSON:
    counts = {"input_tokens": given, "output_tokens": made}
    response: JSON = {"id": "r1", "object": "response", "model": "served", "status": status}
    return {**response, "output": output, "error": None, "usage": counts if given else None}


def _message_item(text: str) -> JSON:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": content}


def _responses_ending(text: str, given: int, made: int) -> tuple[Event, ...]:
    item = _message_item(text)
    final = _response("completed", [item], given, made)
    return (
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": final},
    )


_CALL_ITEM = {"type": "function_call", "id": "fc", "call_id": "a", "name": "f", "arguments": ""}

RESPONSES = Wire(
    name="openai-responses",
    path="/v1/responses",
    provider=OpenAIResponses,
    opening=(
        {"type": "response.created", "response": _response("in_progress", [])},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "message", "role": "assistant", "content": []},
        },
    ),
    word=lambda text: {
        "type": "response.output_text.delta",
        "output_index": 0,
        "content_index": 0,
        "delta": text,
    },
    half_call=(
        {"type": "response.output_item.added", "output_index": 1, "item": _CALL_ITEM},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{"},
    ),
    ending=_responses_ending,
    last=(),
    whole=lambda text: _response("completed", [_message_item(text)], 5, 2),
    error=lambda error: {**error, "code": error.get("code", error.get("type")), "type": "error"},
)

# -- Anthropic Messages ---------------------------------------------------------------------------


def _start(**fields: Any) -> JSON:
    message = {"id": "r1", "type": "message", "role": "assistant", "model": "served"}
    return {**message, "content": [], "stop_reason": None, **fields}


def _anthropic_ending(text: str, given: int, made: int) -> tuple[Event, ...]:
    counts = {"input_tokens": given, "output_tokens": made}
    return (
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": counts},
    )


def _anthropic_whole(text: str) -> JSON:
    content = [{"type": "text", "text": text}]
    counts = {"input_tokens": 5, "output_tokens": 2}
    return _start(content=content, stop_reason="end_turn", usage=counts)


ANTHROPIC = Wire(
    name="anthropic-messages",
    path="/v1/messages",
    provider=Anthropic,
    opening=(
        {"type": "message_start", "message": _start()},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        {"type": "ping"},
    ),
    word=lambda text: {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": text},
    },
    half_call=(
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": "{"},
        },
    ),
    ending=_anthropic_ending,
    last=({"type": "message_stop"},),
    whole=_anthropic_whole,
    error=lambda error: {"type": "error", "error": error},
)

WIRES = (CHAT, RESPONSES, ANTHROPIC)
