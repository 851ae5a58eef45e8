"""From messages to the JSON of an Anthropic Messages request.  (pure)

The API wants user and assistant to take turns, no empty text, and no white space at the end of a
last assistant message.  So neighbours of one role become one message on the wire, an empty text is
left out, and the end is trimmed; the transcript itself stays as it is.  Thinking goes back with
its signature, without one it stays here, since the API refuses it.

A tool's arguments that are no JSON object, because the model wrote them badly, go back as
``{"INVALID_JSON": "..."}``, as the API's documentation says.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from trioagent.messages import (
    AssistantMessage,
    ContentPart,
    File,
    Image,
    Message,
    Opaque,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from trioagent.provider import CallOptions, Request, ToolSpec
from trioagent.providers.anthropic_decoder import PROVIDER
from trioagent.providers.kept_forms import KeptForms
from trioagent.providers.names import wire_name, wire_names
from trioagent.providers.reading import is_object
from trioagent.providers.requests import (
    UNWRITABLE,
    add_extra,
    checked,
    fields_of,
    only_for,
    refuse_lacking,
    sampling,
    told,
    unwritable,
    whole_message,
    with_list,
)

_ILLEGAL_ID = re.compile(r"[^A-Za-z0-9_-]")
_WHOLE = "whole"
"""In place of a role: a message that stands as it came."""

_SHOWN_IN_RESULTS = re.compile(r"image/|application/pdf$|text/")


class AnthropicEncoder:
    """Writes requests for one model; the form of a message is computed once.

    Args:
        model: the vendor's name of the model.
        max_output_tokens: sent where the call's options set none, since the API requires it.
        stream: ask for events.
    """

    def __init__(self, model: str, *, max_output_tokens: int = 8192, stream: bool = True) -> None:
        self._model = model
        self._max_output_tokens = max_output_tokens
        self._stream = stream
        self._forms = KeptForms(lambda message: _joined(_blocks(message)))

    def encode(self, request: Request) -> bytes:
        """The body of `request`.

        Raises:
            InvalidRequestError: JSON cannot hold the messages, an opaque part is no JSON object,
                or an option is not the API's.
        """
        options = request.options
        refuse_lacking(options, "Anthropic's Messages API", ("seed",))
        limit = options.max_output_tokens
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": self._max_output_tokens if limit is None else limit,
        }
        try:
            forms = self._messages(request.messages)
            body["messages"] = ()  # no option may say it
            system = [message.text for message in request.messages if _is_system(message)]
            if any(system):
                body["system"] = "\n\n".join(system)
            body["stream"] = self._stream
            if request.tools:
                wire_names(request.tools)
                body["tools"] = [_tool(tool) for tool in request.tools]
            body |= _options(options, bool(request.tools))
            if request.output is not None:
                form = {"type": "json_schema", "schema": checked(request.output)}
                body["output_config"] = {**body.get("output_config", {}), "format": form}
            add_extra(body, options)
            return with_list(body, "messages", forms)
        except UNWRITABLE as exc:
            raise unwritable(exc) from None

    def _messages(self, messages: Sequence[Message]) -> list[bytes]:
        """The messages as the API takes them, neighbours of one role put together."""
        groups: list[tuple[str, list[bytes]]] = []
        end = len(messages)
        while end and isinstance(messages[end - 1], AssistantMessage):
            end -= 1
        for message in messages[:end]:
            if isinstance(message, UserMessage) and whole_message(message, PROVIDER) is not None:
                groups.append((_WHOLE, [self._forms.of(message)]))
            elif not isinstance(message, SystemMessage):
                role = "assistant" if isinstance(message, AssistantMessage) else "user"
                _append(groups, role, self._forms.of(message))
        blocks = [block for message in messages[end:] for block in _blocks(message)]
        _append(groups, "assistant", _joined(_trimmed(blocks)))
        return [
            forms[0]
            if role == _WHOLE
            else b'{"role":"%b","content":[%b]}' % (role.encode(), b",".join(forms))
            for role, forms in groups
        ]


def _append(groups: list[tuple[str, list[bytes]]], role: str, form: bytes) -> None:
    if not form:
        return
    if groups and groups[-1][0] == role:
        groups[-1][1].append(form)
    else:
        groups.append((role, [form]))


def _trimmed(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks that end a transcript, without white space at their end."""
    if blocks and blocks[-1]["type"] == "text":
        blocks[-1] = {**blocks[-1], "text": blocks[-1]["text"].rstrip()}
    return blocks


def _is_system(message: Message) -> bool:
    return isinstance(message, SystemMessage)


def _joined(blocks: Iterable[dict[str, Any]]) -> bytes:
    return b",".join([msgspec.json.encode(block) for block in blocks])


def _options(options: CallOptions, tools: bool) -> dict[str, Any]:
    chosen = sampling(options)
    if options.stop:
        chosen["stop_sequences"] = options.stop
    if options.reasoning_effort is not None:
        chosen["output_config"] = {"effort": options.reasoning_effort}
    if tools and options.tool_choice == "none":
        chosen["tool_choice"] = {"type": "none"}
    elif tools and options.tool_choice == "required":
        chosen["tool_choice"] = {"type": "any"}
    elif tools and options.tool_choice != "auto":
        chosen["tool_choice"] = {"type": "tool", "name": wire_name(options.tool_choice)}
    return chosen


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": wire_name(tool.name),
        "description": tool.description,
        "input_schema": checked(tool.parameters),
    }


# -- blocks ---------------------------------------------------------------------------------------


def _blocks(message: Message) -> list[dict[str, Any]]:
    match message:
        case SystemMessage():
            return []
        case UserMessage():
            return [_content(part) for part in message.parts if not _is_empty(part)]
        case AssistantMessage():
            return _assistant(message)
        case ToolMessage():
            return [_result(message)]


def _is_empty(part: object) -> bool:
    return isinstance(part, Text) and not part.text.strip()


def _assistant(message: AssistantMessage) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case Text() if not _is_empty(part):
                blocks.append({"type": "text", "text": part.text})
            case Thinking(signature=signature) if signature:
                blocks.append({"type": "thinking", "thinking": part.text, "signature": signature})
            case ToolCall():
                blocks.append(_call(part))
            case Opaque(provider=provider) if provider == PROVIDER:
                _add_opaque(blocks, part)
    return blocks


def _add_opaque(blocks: list[dict[str, Any]], part: Opaque) -> None:
    """Put a block that came with others back, or the rest of a block into the one before it."""
    fields = fields_of(part)
    kind = msgspec.json.decode(fields.get("type", msgspec.Raw(b'""')), type=str)
    if kind not in ("text", "thinking", "tool_use"):
        blocks.append(dict(fields))
    elif blocks and blocks[-1]["type"] == kind:
        blocks[-1] = {**fields, **blocks[-1]}


def _call(call: ToolCall) -> dict[str, Any]:
    arguments: Any = {}
    if call.arguments.strip():
        whole = is_object(call.arguments)
        arguments = msgspec.Raw(call.arguments) if whole else {"INVALID_JSON": call.arguments}
    return {
        "type": "tool_use",
        "id": _wire_id(call.id),
        "name": wire_name(call.name),
        "input": arguments,
    }


def _result(message: ToolMessage) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _wire_id(message.call_id)}
    content = [_shown(part) for part in message.parts if not _is_empty(part)]
    if content:
        block["content"] = content
    if message.outcome != "ok":
        block["is_error"] = True
    return block


def _wire_id(call_id: str) -> str:
    """The id as the API takes it, which is stricter than the vendors that ids may come from."""
    if call_id and not _ILLEGAL_ID.search(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_ILLEGAL_ID.sub('_', call_id)}_{digest}"


def _shown(part: ContentPart) -> dict[str, Any]:
    """A part of a result.  A kind that the API does not take is told: the transcript must go on."""
    match part:
        case Opaque():
            shown = part.provider == PROVIDER
        case File():
            shown = bool(part.url or _SHOWN_IN_RESULTS.match(part.media_type))
        case _:
            shown = True
    if shown:
        return _content(part)
    return {"type": "text", "text": told(part)}


def _content(part: ContentPart) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image(url=url) if url:
            return {"type": "image", "source": {"type": "url", "url": url}}
        case Image():
            return {"type": "image", "source": _base64(part.media_type or "image/png", part.data)}
        case Opaque():
            return dict(only_for(part, PROVIDER))
        case File(url=url) if url:
            named = {"title": part.name} if part.name else {}
            return {"type": "document", "source": {"type": "url", "url": url}, **named}
        case File():
            source = _base64(part.media_type, part.data)
            if part.media_type.startswith("text/"):
                text = part.data.decode("utf-8", "replace")
                source = {"type": "text", "media_type": "text/plain", "data": text}
            named = {"title": part.name} if part.name else {}
            return {"type": "document", "source": source, **named}


def _base64(media_type: str, data: bytes) -> dict[str, Any]:
    return {"type": "base64", "media_type": media_type, "data": b64encode(data).decode()}
