"""Recorded bodies, read as a live call would read them.  (pure)"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import msgspec

from trioagent.errors import ProviderError
from trioagent.messages import AssistantMessage, StopReason, Usage
from trioagent.provider import Delta
from trioagent.providers import vendor_errors
from trioagent.providers.anthropic_decoder import AnthropicDecoder
from trioagent.providers.bodies import MAX_ERROR_BODY, BodyReader, ReplyDecoder, presentable
from trioagent.providers.chat_decoder import ChatDecoder
from trioagent.providers.responses_decoder import ResponsesDecoder

API: TypeAlias = Literal["openai-chat", "openai-responses", "anthropic-messages"]

DECODERS: Mapping[str, Callable[[], ReplyDecoder]] = {
    "openai-chat": ChatDecoder,
    "openai-responses": ResponsesDecoder,
    "anthropic-messages": AnthropicDecoder,
}
"""What reads each wire format."""


class Reply(msgspec.Struct, frozen=True):
    """What a recorded body says.

    `stop_reason` is ``pause`` where the vendor wants to be asked again to go on.  `model` and
    `response_id` are the vendor's own, "" where the body has none.
    """

    message: AssistantMessage
    usage: Usage
    stop_reason: StopReason
    model: str
    response_id: str


def read_reply(api: API, body: bytes, *, status: int = 200, content_type: str = "") -> Reply:
    """The reply that a model's vendor sent, streamed or whole, through the code of a live call.

    Args:
        api: the wire format.
        body: the response's body: JSON, or the bytes of its server-sent events.
        status: the HTTP status.
        content_type: the response's; what the body is, its first byte says.

    Raises:
        ProviderError: of the kind that a live call ends with once its retries are used up.
        ValueError: an `api` that is none of the three.
    """
    if api not in DECODERS:
        raise ValueError(f"api is one of {', '.join(DECODERS)}, not {api!r}")
    decoder = DECODERS[api]()
    try:
        if status >= 300:
            raise vendor_errors.from_body(status, body[:MAX_ERROR_BODY])
        reader = BodyReader(decoder, _unshown, content_type)
        reader.feed(body)
        if not decoder.ended:
            reader.close()
        message = decoder.finish()
    except ProviderError as exc:
        exc.args = (presentable(str(exc)),)
        raise
    return Reply(message, message.usage, message.stop_reason, message.model, decoder.response_id)


def _unshown(delta: Delta) -> None:
    """Nobody watches."""
