"""Text that others wrote, made harmless for a terminal.  (pure)

What models, tools and journals say is hostile: an escape sequence can clear the screen, set the
window's title or type for the user, and a change of writing direction can show another text than
the one that is there.  Every such character is shown as its escape, one at a time, so that a
sequence cut into several deltas is caught as well.  Carriage returns are dropped: alone they
overwrite the line, before a line end they say nothing.
"""

from __future__ import annotations

import re
from typing import Any

from trioagent.messages import encode

_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f"
_DIRECTIONS = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_HOSTILE = re.compile(f"[{_CONTROLS}{_DIRECTIONS}\ud800-\udfff]")
_LINE_BREAKING = re.compile(f"[\t\n{_CONTROLS}{_DIRECTIONS}\ud800-\udfff]")
_SHORT = {"\r": "", "\t": "\\t", "\n": "\\n"}


def safe(text: str) -> str:
    """`text` with every character that could steer a terminal as its escape; lines stay lines."""
    return _HOSTILE.sub(_escaped, text)


def one_line(text: str, limit: int | None = None) -> str:
    """`text` as `safe` makes it, on one line, cut to `limit` characters with its full length."""
    if limit is not None and len(text) > limit:
        return f"{_LINE_BREAKING.sub(_escaped, text[:limit])}... ({len(text)} characters)"
    return _LINE_BREAKING.sub(_escaped, text)


def json_line(value: Any) -> str:
    """`value` as one line of JSON in which every character that could steer a terminal is escaped.

    Such characters occur only inside JSON's strings, where the escape means the same.
    """
    return _HOSTILE.sub(lambda found: f"\\u{ord(found[0]):04x}", encode(value).decode())


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
