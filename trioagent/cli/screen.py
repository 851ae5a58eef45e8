"""Where output goes: the one place that writes to standard output and standard error.

All text passes `safe` here, whoever wrote it and whoever formatted it.  Colour is rich's, and only
on a terminal; rich is given spans, never markup.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from trioagent.cli.lines import Line, plain
from trioagent.cli.safe import json_line, one_line, safe


class Screen:
    """Standard output for what was asked for, standard error for what is said about it."""

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            # A character that the terminal's encoding lacks must not end a run.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        self._consoles: dict[TextIO, Console] = {}
        self._at_line_start = True

    @property
    def live(self) -> bool:
        """Whether somebody watches standard error, so that a line there may be rewritten."""
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def lines(self, lines: Iterable[Line]) -> None:
        """Lines on standard output."""
        self.end_line()
        for line in lines:
            self._line(line, sys.stdout)

    def note(self, *lines: Line | str) -> None:
        """Lines on standard error."""
        self.end_line()
        for line in lines:
            self._line([(line, "")] if isinstance(line, str) else line, sys.stderr)

    def error(self, text: str) -> None:
        """One line on standard error that says what went wrong."""
        self.note([("error: ", "bold red"), (one_line(text), "")])

    def json(self, value: Any) -> None:
        """One line of JSON on standard output."""
        sys.stdout.write(json_line(value) + "\n")
        sys.stdout.flush()

    def stream(self, text: str) -> None:
        """A piece of running text on standard output."""
        if text:
            sys.stdout.write(safe(text))
            sys.stdout.flush()
            self._at_line_start = text.endswith("\n")

    def end_line(self) -> None:
        """End the line that running text is in the middle of."""
        if not self._at_line_start:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._at_line_start = True

    def rewrite(self, text: str) -> None:
        """Replace the progress line of a terminal; with ``""`` it is taken away."""
        sys.stderr.write("\r\x1b[2K" + one_line(text))
        sys.stderr.flush()

    def _line(self, line: Line, stream: TextIO) -> None:
        spans = [(one_line(text), style) for text, style in line]
        if stream.isatty():
            self._console(stream).print(Text.assemble(*spans), soft_wrap=True)
        else:
            stream.write(plain(spans) + "\n")
        stream.flush()

    def _console(self, stream: TextIO) -> Console:
        if stream not in self._consoles:
            self._consoles[stream] = Console(
                file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True
            )
        return self._consoles[stream]
