"""From messages to the JSON of a chat-completions request.  (pure)

What the format has no place for: thinking is not sent back, and an image or a file in a tool's
result becomes a sentence that names it, since base64 as text would cost tokens and tell the model
nothing.  Opaque parts go back to the API that they came from and to no other.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any, Literal, TypeAlias

import msgspec

from trioagent.errors import EncodingError, InvalidRequestError
from trioagent.messages import (
    AssistantMessage,
    ContentPart,
    File,
    Image,
    Message,
    Opaque,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    encode,
)
from trioagent.provider import CallOptions, Request, ToolSpec

PROVIDER = "openai-chat"
"""What `Opaque.provider` says of parts that belong to this format."""

MaxTokensField: TypeAlias = Literal["max_completion_tokens", "max_tokens"]

_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_OWN_KEYS = frozenset({"role", "content", "tool_calls"})


def encode_request(
    request: Request,
    model: str,
    *,
    max_tokens_field: MaxTokensField = "max_completion_tokens",
    include_usage: bool = True,
) -> bytes:
    """The body of a streaming request.

    Raises:
        InvalidRequestError: JSON cannot hold the messages, or an opaque part is no JSON object.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": [_message(message) for message in request.messages],
        "stream": True,
    }
    if include_usage:
        body["stream_options"] = {"include_usage": True}
    try:
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        body |= _options(request.options, bool(request.tools), max_tokens_field)
        return msgspec.json.encode(body)
    except (EncodingError, ValueError, TypeError, RecursionError) as exc:
        raise InvalidRequestError(f"the request cannot be written as JSON: {exc}") from None


def _options(options: CallOptions, tools: bool, max_tokens_field: str) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    if options.temperature is not None:
        chosen["temperature"] = _checked(options.temperature)
    if options.max_output_tokens is not None:
        chosen[max_tokens_field] = options.max_output_tokens
    if tools and options.tool_choice in ("none", "required"):
        chosen["tool_choice"] = options.tool_choice
    elif tools and options.tool_choice != "auto":
        chosen["tool_choice"] = {"type": "function", "function": {"name": options.tool_choice}}
    return chosen


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": _checked(tool.parameters),
    }
    return {"type": "function", "function": function}


def _checked(value: Any) -> msgspec.Raw:
    """`value` encoded apart, by the encoder that refuses NaN; nothing else here holds floats."""
    return msgspec.Raw(encode(value))


def _message(message: Message) -> dict[str, Any]:
    match message:
        case SystemMessage():
            return {"role": "system", "content": message.text}
        case UserMessage():
            if all(type(part) is Text for part in message.parts):
                return {"role": "user", "content": message.text}
            return {"role": "user", "content": [_content(part) for part in message.parts]}
        case AssistantMessage():
            return _assistant(message)
        case ToolMessage():
            content = "\n".join([_told(part) for part in message.parts])
            return {"role": "tool", "tool_call_id": message.call_id, "content": content}


def _assistant(message: AssistantMessage) -> dict[str, Any]:
    calls = [_call(call) for call in message.tool_calls]
    text = message.text
    wire: dict[str, Any] = {}
    for part in message.parts:
        if type(part) is Opaque and part.provider == PROVIDER:
            wire |= {key: raw for key, raw in _fields(part).items() if key not in _OWN_KEYS}
    # The API itself writes null beside calls; without calls null is refused, "" is not.
    wire |= {"role": "assistant", "content": text if text or not calls else None}
    if calls:
        wire["tool_calls"] = calls
    return wire


def _fields(part: Opaque) -> dict[str, msgspec.Raw]:
    """The fields of an opaque part, their values as they stand: never parsed and written anew."""
    try:
        return msgspec.json.decode(part.json, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise InvalidRequestError(
            f"an opaque part of {PROVIDER} holds no JSON object; it must go back as it came"
        ) from None


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = call.arguments if call.arguments.strip() else "{}"
    function = {"name": legal_name(call.name), "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def legal_name(name: str) -> str:
    """`name` as the API takes it; a model that made up an illegal name must not end the run."""
    return _ILLEGAL.sub("_", name)[:64] or "_"


def _content(part: ContentPart) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image():
            return {"type": "image_url", "image_url": {"url": _image_url(part)}}
        case File():
            file = {"file_data": _data_url(part.media_type, part.data)}
            if part.name:
                file["filename"] = part.name
            return {"type": "file", "file": file}


def _image_url(image: Image) -> str:
    return image.url or _data_url(image.media_type or "image/png", image.data)


def _data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{b64encode(data).decode()}"


def _told(part: ContentPart) -> str:
    match part:
        case Text():
            return part.text
        case Image(url=url) if url:
            return f"[image at {url}, which cannot be shown here]"
        case Image():
            kind, name = part.media_type or "image", ""
        case File():
            kind, name = part.media_type or "file", part.name
    called = f" {name!r}" if name else ""
    return f"[{kind}{called}, {len(part.data)} bytes, which cannot be shown here]"
