"""What a tool returned, as what the model reads: parts, within a budget of characters.

A result that is too long would fill the model's context with what it did not ask for, so it is
shortened, in a way that says so and that nobody can take for the whole:

* JSON stays JSON.  Of a list the first items stand in ``{"items": [...], "truncated": {"shown":
  3, "total": 900, "note": "..."}}``; of an object the longest values are shortened, longest first.
* Text is cut, and what was left out is counted: ``[12345 of 99999 characters left out]``.
* A cut falls neither inside a code point nor before a mark that belongs to the character before
  it, nor inside a run of base64: what is not text is left out whole.
* Images and files are no text and are not counted.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import msgspec

from .errors import EncodingError
from .messages import ContentPart, File, Image, Opaque, Text, ToolResult, encode

DEFAULT_MAX_RESULT_CHARS = 100_000
"""Characters of a result where the tool does not say: some 25,000 tokens, which fits every current
model's context several times, and is more than a person would read."""

_NOTE = "the rest was left out to keep the result short; ask for fewer, or for the next ones"
_BASE64 = re.compile(
    r"[A-Za-z0-9+/_=-]{64,}(?:\r?\n[A-Za-z0-9+/_=-]{60,})*(?:\r?\n[A-Za-z0-9+/_-]+=*(?=\s|$))?"
)
_JOINER = "\u200d"
_LEAST = 200
"""Characters below which shortening a part of an object gives more note than content."""


def describe_exception(exc: BaseException) -> str:
    """Type and message; of a group, those of its leaves."""
    if isinstance(exc, BaseExceptionGroup):
        return "; ".join(describe_exception(inner) for inner in exc.exceptions)
    text = str(exc).encode("utf-8", "backslashreplace").decode()
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def render(value: Any, limit: int | None = None) -> ToolResult:
    """What a tool returned, as what the model reads, its text within `limit` characters.

    A `ToolResult` stands as it is; a `Text`, `Image`, `File` or `Opaque`, or a list or tuple of
    them, become parts; a str is text; anything else is text that holds its JSON, so that "", 0,
    False, None and [] are each a result of their own.

    Raises:
        EncodingError: JSON has no form for it (an unknown type, NaN, a lone surrogate).
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as exc:
            raise EncodingError(f"a text cannot be encoded: {exc}") from None
        short = limit is None or len(value) <= limit
        return ToolResult((Text(value if short else within(value, limit)),))
    if isinstance(value, ToolResult):
        result = value
    elif isinstance(value, Text | Image | File | Opaque):
        result = ToolResult((value,))
    elif isinstance(value, list | tuple) and value and all(_is_part(item) for item in value):
        result = ToolResult(tuple(value))
    else:
        return ToolResult((Text(within(encode(value).decode(), limit)),))
    encode(result)
    return result if limit is None else _parts_within(result, limit)


def _is_part(value: Any) -> bool:
    return isinstance(value, Text | Image | File | Opaque)


def within(text: str, limit: int | None) -> str:
    """`text` in at most `limit` characters: a JSON list or object stays JSON, all else is cut."""
    if limit is None or len(text) <= limit:
        return text
    if text.lstrip()[:1] in ("[", "{"):
        try:
            fitted = _fitted(msgspec.json.decode(text), limit)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            fitted = _NOTHING
        if fitted is not _NOTHING:
            return _json(fitted)
    return cut(text, limit)


def cut(text: str, limit: int) -> str:
    """The beginning of `text` and how much was left out, in at most `limit` characters.

    Where `limit` is less than that note takes, the note stands alone.
    """
    total = len(text)
    if total <= limit:
        return text
    end = max(0, limit - len(_left_out(total, total)))
    for blob in _BASE64.finditer(text):
        if blob.start() >= end:
            break
        if blob.end() > end:
            end = blob.start()
    while end > 0 and _joined(text[end - 1], text[end]):
        end -= 1
    return text[:end] + _left_out(total - end, total).removeprefix("" if end else "\n")


def _left_out(left: int, total: int) -> str:
    return f"\n[{left} of {total} characters left out]"


def _joined(before: str, after: str) -> bool:
    """Whether the two make one character for a reader, or part of one."""
    return _JOINER in (before, after) or unicodedata.category(after) in ("Mn", "Me", "Mc")


def _parts_within(result: ToolResult, limit: int) -> ToolResult:
    if sum([len(part.text) for part in result.parts if type(part) is Text]) <= limit:
        return result
    parts: list[ContentPart] = []
    room = limit
    for part in result.parts:
        if type(part) is Text:
            text = within(part.text, room)
            room = max(0, room - len(text))
            parts.append(Text(text))
        else:
            parts.append(part)
    return msgspec.structs.replace(result, parts=tuple(parts))


# -- JSON that stays JSON -------------------------------------------------------------------------

_NOTHING = object()


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _fitted(value: Any, limit: int) -> Any:
    """`value` shortened so that its JSON has at most `limit` characters; `_NOTHING` if it cannot
    be."""
    if len(_json(value)) <= limit:
        return value
    if isinstance(value, list):
        return _fitted_list(value, limit)
    if isinstance(value, dict):
        return _fitted_object(value, limit)
    return _fitted_text(value, limit) if isinstance(value, str) else _NOTHING


def _fitted_list(items: list[Any], limit: int) -> Any:
    def shortened(shown: list[Any]) -> dict[str, Any]:
        truncated = {"shown": len(shown), "total": len(items), "note": _NOTE}
        return {"items": shown, "truncated": truncated}

    # As if all were shown, which takes the most digits.
    room = limit - len(_json(shortened([]))) - len(str(len(items)))
    if room < 0:
        return _NOTHING
    shown: list[Any] = []
    for item in items:
        size = len(_json(item)) + 1
        if size > room:
            break
        room -= size
        shown.append(item)
    if not shown and room >= _LEAST:
        first = _fitted(items[0], room)
        if first is not _NOTHING:
            shown.append(first)
    return shortened(shown)


def _fitted_object(value: dict[str, Any], limit: int) -> Any:
    sizes = {key: len(_json(item)) for key, item in value.items()}
    total = len(_json(value))
    shortened = dict(value)
    for key in sorted(sizes, key=lambda key: -sizes[key]):
        if total <= limit:
            break
        room = max(limit - (total - sizes[key]), _LEAST)
        item = _fitted(value[key], room)
        if item is _NOTHING:
            return _NOTHING
        shortened[key] = item
        total += len(_json(item)) - sizes[key]
    return shortened if total <= limit else _NOTHING


def _fitted_text(text: str, limit: int) -> Any:
    """Escapes make JSON longer than its text, by how much is only known by writing it."""
    room = limit - 2
    while room > 0:
        shortened = cut(text, room)
        size = len(_json(shortened))
        if size <= limit:
            return shortened
        room = min(room - 1, room * limit // size - 1)
    return _NOTHING
