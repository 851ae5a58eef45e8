"""From what an MCP server answers to what the model reads.  (pure)

Text stands; an image becomes an `Image`; a resource that is text stands as text.  Everything else
(audio, binary resources, links, kinds of images that no vendor takes) is named with its type and
size: base64 is never shown as text.  A structured result is shown as JSON where the text blocks do
not hold it already.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import mcp_types as types
import msgspec

from trioagent.messages import ContentPart, Image, Text, ToolResult, encode

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What every vendor that takes images takes."""

NO_TEXT = "the server says that the call failed, and not why"


def as_result(answer: types.CallToolResult) -> ToolResult:
    """The answer of a server as a result.

    Raises:
        EncodingError: it holds NaN or infinity, which JSON cannot.
    """
    parts = [_part(block) for block in answer.content]
    structured = answer.structured_content
    if structured is not None and not _is_shown(structured, parts):
        parts.append(Text(encode(structured).decode()))
    if not answer.is_error:
        return ToolResult(tuple(parts))
    first = next((index for index, part in enumerate(parts) if isinstance(part, Text)), None)
    if first is None:
        parts.insert(0, Text(f"error: {NO_TEXT}"))
    else:
        text = parts[first]
        assert isinstance(text, Text)
        parts[first] = Text(f"error: {text.text.removeprefix('error: ')}")
    return ToolResult(tuple(parts), "error")


def _is_shown(structured: Any, parts: Iterable[ContentPart]) -> bool:
    """Whether a text holds the structured value, or the value that was wrapped to be an object."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    if isinstance(structured, dict) and list(structured) == ["result"] and texts:
        return True  # how the SDKs wrap what is no object; they write the same as text
    return any(_holds(text, structured) for text in texts)


def _holds(text: str, value: Any) -> bool:
    try:
        return bool(msgspec.json.decode(text) == value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def _part(block: types.ContentBlock) -> ContentPart:
    match block:
        case types.TextContent():
            return Text(block.text)
        case types.ImageContent():
            return _binary("image", block.mime_type, block.data)
        case types.AudioContent():
            return _binary("audio", block.mime_type, block.data)
        case types.ResourceLink():
            size = "" if block.size is None else f", {block.size} bytes"
            kind = _short(block.mime_type or "unknown type")
            return Text(f"[link to {_short(block.uri, 500)}: {kind}{size}]")
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return Text(resource.text)
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            return _binary("resource", resource.mime_type or "unknown type", resource.blob)
        case _:
            return Text(f"[{_short(str(block.type))}, not shown]")


def _binary(what: str, media_type: str, data: str) -> ContentPart:
    """The bytes as an image, where they are one; else a line that names their type and size."""
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return Text(f"[{what}: {_short(media_type)}, {len(data)} characters that are no base64]")
    if media_type in IMAGE_TYPES and what != "audio" and decoded:
        return Image(media_type, decoded)
    return Text(f"[{what}: {_short(media_type)}, {len(decoded)} bytes, not shown]")


def _short(text: str, limit: int = 100) -> str:
    """A name from the server, on one line and short."""
    return "".join([char if char.isprintable() else " " for char in text[:limit]])
