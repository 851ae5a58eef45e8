"""Lines of styled text, tables of them, times and numbers.  (pure)

A line is a list of spans, each a text with a style; where there is no colour the texts stand alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

from trioagent.cli.safe import one_line, safe

Span: TypeAlias = tuple[str, str]
"""A text and its style, a rich style name or ``""``."""

Line: TypeAlias = list[Span]

STATUS_STYLES = {
    "answered": "green",
    "completed": "green",
    "running": "cyan",
    "suspended": "yellow",
    "halted": "yellow",
    "failed": "red",
    "cancelled": "red",
    "interrupted": "red",
    "in_doubt": "bold red",
}


def plain(line: Line) -> str:
    """The line's text, without colour and without white space at its end."""
    return "".join([text for text, _ in line]).rstrip()


def heading(text: str) -> Line:
    """A line that stands above others."""
    return [(text, "bold")]


def table(rows: Sequence[Sequence[Span]], *, indent: str = "") -> list[Line]:
    """`rows` in columns, each as wide as its widest cell, two blanks between them."""
    safe_rows = [[(one_line(text), style) for text, style in row] for row in rows]
    count = max((len(row) for row in safe_rows), default=0)
    widths = [max(len(row[n][0]) for row in safe_rows if n < len(row)) for n in range(count)]
    return [
        [
            (indent, ""),
            *[(text.ljust(widths[n]) + "  ", style) for n, (text, style) in enumerate(row)],
        ]
        for row in safe_rows
    ]


def block(text: str, *, indent: str, limit: int | None = None) -> list[Line]:
    """A text of several lines, each indented, cut to `limit` characters with its full length."""
    shown = text if limit is None or len(text) <= limit else text[:limit]
    lines: list[Line] = [[(indent + line, "")] for line in safe(shown).expandtabs(4).split("\n")]
    if len(shown) < len(text):
        lines.append([(f"{indent}... ({len(text)} characters)", "dim")])
    return lines


def clock(at: int) -> str:
    """The local time of day of a Unix time in milliseconds, to the millisecond."""
    moment = _moment(at)
    return "?" if moment is None else moment.strftime("%H:%M:%S.") + f"{at % 1000:03d}"


def date_and_time(at: int) -> str:
    """The local date and time of a Unix time in milliseconds, to the second."""
    moment = _moment(at)
    return "?" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S")


def _moment(at: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(at / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def duration(milliseconds: int) -> str:
    """How long something took, in a unit that fits."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, rest = divmod(milliseconds // 1000, 60)
    return f"{minutes} min {rest} s"


def counted(number: int, noun: str, nouns: str = "") -> str:
    """A number with its noun: ``1 step``, ``2 steps``."""
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"
