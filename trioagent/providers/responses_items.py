"""The output items of the Responses API, as parts of a message.  (pure)"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from trioagent.messages import AssistantPart, Opaque, Text, Thinking, ToolCall
from trioagent.providers.reading import decoded

PROVIDER = "openai-responses"
"""What `Opaque.provider` says of parts that belong to this format."""

_CALL = ("call_id", "name", "arguments")


class Content(msgspec.Struct):
    """A part of an item's content or summary."""

    type: str | None = None
    text: str | None = None
    refusal: str | None = None


class Item(msgspec.Struct):
    """What is read of an item."""

    type: str | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    content: Any = None
    summary: Any = None


@dataclass(slots=True)
class Parts:
    """The parts of one item, and what was found in it."""

    all: list[AssistantPart] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: int = 0
    refused: bool = False


def parts_of(item: Item, raw: bytes) -> Parts:
    """The parts of `item`, whose JSON is `raw`; `ProtocolError` where it is not as it should be."""
    parts = Parts()
    match item.type:
        case "message":
            _message(parts, item, raw)
        case "function_call":
            arguments = item.arguments if isinstance(item.arguments, str) else ""
            call_id = item.call_id or ""
            parts.calls = 1
            parts.all.append(
                ToolCall(call_id, item.name or "", arguments if arguments.strip() else "{}")
            )
            parts.all += _rest(_fields(raw), _CALL)
        case "reasoning":
            parts.thinking = [c.text for c in _contents(item.summary, item.content) if c.text]
            if parts.thinking:
                parts.all.append(Thinking("\n\n".join(parts.thinking)))
            parts.all.append(Opaque(PROVIDER, raw.decode()))
        case _:
            parts.all.append(Opaque(PROVIDER, raw.decode()))
    return parts


def _message(parts: Parts, item: Item, raw: bytes) -> None:
    """A message's texts; what else it holds is kept, its contents each without their text."""
    fields = _fields(raw)
    contents = _contents(item.content)
    for content in contents:
        text = content.refusal if content.type == "refusal" else content.text
        parts.refused = parts.refused or (content.type == "refusal" and bool(text))
        parts.texts.append(text or "")
        parts.all.append(Text(text or ""))
    if isinstance(item.content, list):
        each = decoded(fields["content"], list[dict[str, msgspec.Raw]], "message item")
        kept = [
            {name: value for name, value in one.items() if name not in ("text", "refusal")}
            for one in each
        ]
        fields["content"] = msgspec.Raw(msgspec.json.encode(kept))
        if fields.keys() <= {"type", "role", "content"} and all(map(_is_bare, kept)):
            return
    parts.all += _rest(fields, ("role",))


def _is_bare(content: dict[str, msgspec.Raw]) -> bool:
    """Whether a content says nothing but that it is a text."""
    return content.keys() == {"type"} and bytes(content["type"]) == b'"output_text"'


def _contents(*values: Any) -> list[Content]:
    """The contents of an item: lists of parts, a bare text, or nothing."""
    found: list[Content] = []
    for value in values:
        if isinstance(value, str):
            found.append(Content("output_text", value))
        elif isinstance(value, list):
            for one in value:
                try:
                    found.append(msgspec.convert(one, Content))
                except msgspec.ValidationError:
                    found.append(Content())
    return found


def _fields(raw: bytes) -> dict[str, msgspec.Raw]:
    return decoded(raw, dict[str, msgspec.Raw], "output item")


def _rest(fields: dict[str, msgspec.Raw], known: tuple[str, ...]) -> list[AssistantPart]:
    rest = {name: value for name, value in fields.items() if name not in known}
    if rest.keys() <= {"type"}:
        return []
    return [Opaque(PROVIDER, msgspec.json.encode(rest).decode())]
