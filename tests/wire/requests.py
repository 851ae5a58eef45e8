"""What every recorded request must hold to: read into messages and written again, it is the same.

Replies are held to it too: what a vendor sent goes back to it as it came.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.wire.asked import has_tool_results, messages_of
from tests.wire.meanings import meaning
from tests.wire.recordings import Recording
from trioagent.messages import Text, UserMessage
from trioagent.provider import Request
from trioagent.providers import Reply
from trioagent.providers.anthropic_encoder import AnthropicEncoder
from trioagent.providers.chat_encoder import ChatEncoder
from trioagent.providers.responses_encoder import ResponsesEncoder

JSON = dict[str, Any]


def counts(recording: Recording) -> bool:
    """Whether the recording's request is one that holds tool results."""
    request = recording.request
    return request is not None and has_tool_results(recording.api, request)


def request_faults(recording: Recording) -> Iterator[str]:
    """Where the request, read and written again, means something else.

    `asked.InexpressibleError` goes through: messages have no place for what it holds.
    """
    request = recording.request
    assert request is not None
    old = any("reasoning" in message for message in request.get("messages", ()))
    encoder: Any = {
        "openai-chat": ChatEncoder("m", thinking_field="reasoning" if old else "reasoning_content"),
        "openai-responses": ResponsesEncoder("m"),
        "anthropic-messages": AnthropicEncoder("m"),
    }[recording.api]
    body = encoder.encode(Request(messages_of(recording.api, request)))
    before, after = meaning(recording.api, request), meaning(recording.api, json.loads(body))
    if before != after:
        pairs = [pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]]
        first = pairs[0] if pairs else (len(before), len(after))
        yield f"the request means another thing: {first}"


def returned_faults(recording: Recording, reply: Reply) -> Iterator[str]:
    """Where a whole reply of blocks or items does not go back as it came."""
    if recording.streaming or recording.api == "openai-chat":
        return
    body = json.loads(recording.body)
    messages = (reply.message, UserMessage((Text("go on"),)))
    if recording.api == "openai-responses":
        wire = json.loads(ResponsesEncoder("m").encode(Request(messages)))
        sent, back = body["output"], wire["input"][:-1]
    else:
        wire = json.loads(AnthropicEncoder("m").encode(Request(messages)))
        groups = [group["content"] for group in wire["messages"] if group["role"] == "assistant"]
        sent, back = body["content"], [block for group in groups for block in group]
    if _said(sent) != _said(back):
        yield f"the reply does not go back as it came: {_said(sent)} came, {_said(back)} goes"


def _said(blocks: list[JSON]) -> list[JSON]:
    """Blocks without the fields and texts that say nothing."""
    said = [
        {name: value for name, value in block.items() if value is not None and value != []}
        for block in blocks
    ]
    return [
        block for block in said if not (block.get("type") == "text" and not block["text"].strip())
    ]
