"""From messages to the JSON of a Responses request.  (pure)

The input is a flat list of items.  An item that the vendor sent goes back as it came: as it is
where it is a whole `Opaque`, else put together of the parts and of the `Opaque` after them that
holds the rest.  Thinking alone, which came from another vendor, has no place and stays here.
"""

from __future__ import annotations

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
    ToolCall,
    ToolMessage,
    UserMessage,
)
from trioagent.provider import CallOptions, Request, ToolSpec
from trioagent.providers.kept_forms import KeptForms
from trioagent.providers.names import wire_name, wire_names
from trioagent.providers.requests import (
    OUTPUT_NAME,
    UNWRITABLE,
    add_extra,
    checked,
    data_url,
    fields_of,
    only_for,
    refuse_lacking,
    sampling,
    told,
    unwritable,
    whole_message,
    with_list,
)
from trioagent.providers.responses_items import PROVIDER


class ResponsesEncoder:
    """Writes requests for one model; the form of a message is computed once.

    Args:
        model: the vendor's name of the model.
        stream: ask for events.
        store: whether the vendor is to keep the response; ``None`` leaves it to the vendor.
        include: what the vendor is to send besides, such as ``reasoning.encrypted_content``.
    """

    def __init__(
        self,
        model: str,
        *,
        stream: bool = True,
        store: bool | None = None,
        include: Sequence[str] = (),
    ) -> None:
        self._model = model
        self._stream = stream
        self._store = store
        self._include = tuple(include)
        self._forms = KeptForms(lambda message: _joined(_items(message)))

    def encode(self, request: Request) -> bytes:
        """The body of `request`.

        Raises:
            InvalidRequestError: JSON cannot hold the messages, an opaque part is no JSON object,
                or an option is not the API's.
        """
        options = request.options
        refuse_lacking(options, "the Responses API", ("stop", "seed"))
        body: dict[str, Any] = {"model": self._model}
        try:
            forms = [self._forms.of(message) for message in request.messages]
            body["input"] = ()  # no option may say it
            system = [m.text for m in request.messages if isinstance(m, SystemMessage)]
            if any(system):
                body["instructions"] = "\n\n".join(system)
            body["stream"] = self._stream
            if self._store is not None:
                body["store"] = self._store
            if self._include:
                body["include"] = self._include
            if request.tools:
                wire_names(request.tools)
                body["tools"] = [_tool(tool) for tool in request.tools]
            body |= _options(options, bool(request.tools))
            if request.output is not None:
                form = {"name": OUTPUT_NAME, "schema": checked(request.output), "strict": True}
                body["text"] = {"format": {"type": "json_schema", **form}}
            add_extra(body, options)
            return with_list(body, "input", [form for form in forms if form])
        except UNWRITABLE as exc:
            raise unwritable(exc) from None


def _options(options: CallOptions, tools: bool) -> dict[str, Any]:
    chosen = sampling(options)
    if options.max_output_tokens is not None:
        chosen["max_output_tokens"] = options.max_output_tokens
    if options.reasoning_effort is not None:
        chosen["reasoning"] = {"effort": options.reasoning_effort}
    if tools and options.tool_choice in ("none", "required"):
        chosen["tool_choice"] = options.tool_choice
    elif tools and options.tool_choice != "auto":
        chosen["tool_choice"] = {"type": "function", "name": wire_name(options.tool_choice)}
    return chosen


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": wire_name(tool.name),
        "description": tool.description,
        "parameters": checked(tool.parameters),
        # The vendor's default is true, which refuses schemas with optional parameters.
        "strict": False,
    }


# -- items ----------------------------------------------------------------------------------------


def _joined(items: Iterable[dict[str, Any]]) -> bytes:
    return b",".join([msgspec.json.encode(item) for item in items])


def _items(message: Message) -> list[dict[str, Any]]:
    match message:
        case SystemMessage():
            return []
        case UserMessage():
            if all(isinstance(part, Text) for part in message.parts):
                return [{"role": "user", "content": message.text}]
            if (whole := whole_message(message, PROVIDER)) is not None:
                return [dict(whole)]
            return [{"role": "user", "content": [_content(part) for part in message.parts]}]
        case AssistantMessage():
            return _assistant(message)
        case ToolMessage():
            output = {"type": "function_call_output", "call_id": message.call_id}
            return [{**output, "output": _output(message)}]


def _output(message: ToolMessage) -> Any:
    if all(isinstance(part, Text) for part in message.parts):
        return "\n".join([part.text for part in message.parts if isinstance(part, Text)])
    return [_shown(part) for part in message.parts]


def _shown(part: ContentPart) -> dict[str, Any]:
    """A part of a result.  Another vendor's own is told: the transcript must go on."""
    if isinstance(part, Opaque) and part.provider != PROVIDER:
        return {"type": "input_text", "text": told(part)}
    return _content(part)


def _assistant(message: AssistantMessage) -> list[dict[str, Any]]:
    """The items of a reply; texts wait for the rest of the item that they are part of."""
    items: list[dict[str, Any]] = []
    texts: list[str] = []
    for part in message.parts:
        match part:
            case Text():
                texts.append(part.text)
            case ToolCall():
                _flush(items, texts)
                items.append(_call(part))
            case Opaque(provider=provider) if provider == PROVIDER:
                _add_opaque(items, texts, fields_of(part))
    _flush(items, texts)
    return items


def _flush(items: list[dict[str, Any]], texts: list[str]) -> None:
    """Write texts that no item was kept for."""
    text = "".join(texts)
    texts.clear()
    if text:
        items.append({"role": "assistant", "content": text})


def _add_opaque(
    items: list[dict[str, Any]], texts: list[str], fields: dict[str, msgspec.Raw]
) -> None:
    kind = msgspec.json.decode(fields.get("type", msgspec.Raw(b'""')), type=str)
    if kind == "message":
        contents = msgspec.json.decode(fields["content"], type=list[dict[str, msgspec.Raw]])
        if len(contents) > len(texts):
            return
        own = texts[len(texts) - len(contents) :]
        del texts[len(texts) - len(contents) :]
        _flush(items, texts)
        content = [_told(kept, text) for kept, text in zip(contents, own, strict=True)]
        items.append({**fields, "role": "assistant", "content": content})
        return
    _flush(items, texts)
    if kind != "function_call":
        items.append(dict(fields))
    elif items and items[-1].get("type") == kind:
        items[-1] = {**fields, **items[-1]}


def _told(kept: dict[str, msgspec.Raw], text: str) -> dict[str, Any]:
    kind = msgspec.json.decode(kept.get("type", msgspec.Raw(b'"output_text"')), type=str)
    return {**kept, ("refusal" if kind == "refusal" else "text"): text}


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": wire_name(call.name),
        "arguments": call.arguments if call.arguments.strip() else "{}",
    }


def _content(part: ContentPart) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "input_text", "text": part.text}
        case Image():
            url = part.url or data_url(part.media_type or "image/png", part.data)
            return {"type": "input_image", "image_url": url}
        case Opaque():
            return dict(only_for(part, PROVIDER))
        case File(url=url) if url:
            return {"type": "input_file", "file_url": url}
        case File():
            file = {"type": "input_file", "file_data": data_url(part.media_type, part.data)}
            # The API refuses data without a name.
            return {**file, "filename": part.name or "file"}
