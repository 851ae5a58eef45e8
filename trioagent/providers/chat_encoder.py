"""From messages to the JSON of a chat-completions request.  (pure)

What the format has no place for: an image or a file in a tool's result becomes a sentence that
names it.  Thinking goes back only under the name that `ChatEncoder` is told, since most vendors
refuse a field that they do not know.  Opaque parts go back to the API that they came from and to
no other: their fields join the message's, those of ``tool_call`` the call's before it.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from trioagent.errors import InvalidRequestError
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
    sampling,
    told,
    unwritable,
    whole_message,
    with_list,
)

PROVIDER = "openai-chat"
"""What `Opaque.provider` says of parts that belong to this format."""

MaxTokensField: TypeAlias = Literal["max_completion_tokens", "max_tokens"]
ThinkingField: TypeAlias = Literal["reasoning_content", "reasoning"]

_OWN_KEYS = frozenset({"role", "content", "tool_calls", "tool_call"})


class ChatEncoder:
    """Writes requests for one model; the form of a message is computed once.

    Args:
        model: the vendor's name of the model.
        max_tokens_field: what the option `max_output_tokens` is called.
        include_usage: ask for token counts in a stream.
        stream: ask for events.
        thinking_field: under which name thinking goes back; ``None``: not at all.
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens_field: MaxTokensField = "max_completion_tokens",
        include_usage: bool = True,
        stream: bool = True,
        thinking_field: ThinkingField | None = None,
    ) -> None:
        self._model = model
        self._max_tokens_field = max_tokens_field
        self._include_usage = include_usage
        self._stream = stream
        self._thinking_field = thinking_field
        self._forms = KeptForms(lambda message: msgspec.json.encode(self._message(message)))

    def encode(self, request: Request) -> bytes:
        """The body of `request`.

        Raises:
            InvalidRequestError: JSON cannot hold the messages, an opaque part is no JSON object,
                or an option is not the API's.
        """
        body: dict[str, Any] = {"model": self._model}
        try:
            forms = [self._forms.of(message) for message in request.messages]
            body["messages"] = ()  # no option may say it
            body["stream"] = self._stream
            if self._stream and self._include_usage:
                body["stream_options"] = {"include_usage": True}
            if request.tools:
                wire_names(request.tools)
                body["tools"] = [_tool(tool) for tool in request.tools]
            body |= self._options(request.options, bool(request.tools))
            if request.output is not None:
                form = {"name": OUTPUT_NAME, "schema": checked(request.output), "strict": True}
                body["response_format"] = {"type": "json_schema", "json_schema": form}
            add_extra(body, request.options)
            return with_list(body, "messages", forms)
        except UNWRITABLE as exc:
            raise unwritable(exc) from None

    def _options(self, options: CallOptions, tools: bool) -> dict[str, Any]:
        chosen = sampling(options)
        if options.max_output_tokens is not None:
            chosen[self._max_tokens_field] = options.max_output_tokens
        if options.stop:
            chosen["stop"] = options.stop
        if options.seed is not None:
            chosen["seed"] = options.seed
        if options.reasoning_effort is not None:
            chosen["reasoning_effort"] = options.reasoning_effort
        if tools and options.tool_choice in ("none", "required"):
            chosen["tool_choice"] = options.tool_choice
        elif tools and options.tool_choice != "auto":
            function = {"name": wire_name(options.tool_choice)}
            chosen["tool_choice"] = {"type": "function", "function": function}
        return chosen

    def _message(self, message: Message) -> dict[str, Any]:
        match message:
            case SystemMessage():
                return {"role": "system", "content": message.text}
            case UserMessage():
                if all(type(part) is Text for part in message.parts):
                    return {"role": "user", "content": message.text}
                if (whole := whole_message(message, PROVIDER)) is not None:
                    return dict(whole)
                return {"role": "user", "content": [_content(part) for part in message.parts]}
            case AssistantMessage():
                return self._assistant(message)
            case ToolMessage():
                content = "\n".join([told(part) for part in message.parts])
                return {"role": "tool", "tool_call_id": message.call_id, "content": content}

    def _assistant(self, message: AssistantMessage) -> dict[str, Any]:
        wire: dict[str, Any] = {}
        calls: list[dict[str, Any]] = []
        for part in message.parts:
            if type(part) is ToolCall:
                calls.append(_call(part))
            elif type(part) is Opaque and part.provider == PROVIDER:
                fields = fields_of(part)
                if calls and "tool_call" in fields:
                    more = msgspec.json.decode(fields["tool_call"], type=dict[str, msgspec.Raw])
                    calls[-1] = {**more, **calls[-1]}
                wire |= {key: raw for key, raw in fields.items() if key not in _OWN_KEYS}
        text = message.text
        # The API itself writes null beside calls; without calls null is refused, "" is not.
        wire |= {"role": "assistant", "content": text if text or not calls else None}
        if self._thinking_field is not None:
            thinking = "".join([part.text for part in message.parts if type(part) is Thinking])
            if thinking:
                wire[self._thinking_field] = thinking
        if calls:
            wire["tool_calls"] = calls
        return wire


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {
        "name": wire_name(tool.name),
        "description": tool.description,
        "parameters": checked(tool.parameters),
    }
    return {"type": "function", "function": function}


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = call.arguments if call.arguments.strip() else "{}"
    function = {"name": wire_name(call.name), "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _content(part: ContentPart) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image():
            url = part.url or data_url(part.media_type or "image/png", part.data)
            return {"type": "image_url", "image_url": {"url": url}}
        case Opaque():
            return dict(only_for(part, PROVIDER))
        case File(url=url) if url:
            raise InvalidRequestError(
                f"chat completions takes no file by its URL ({url:.200}); give its bytes"
            )
        case File():
            file = {"file_data": data_url(part.media_type, part.data)}
            if part.name:
                file["filename"] = part.name
            return {"type": "file", "file": file}
