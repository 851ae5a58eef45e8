"""Server-sent events: bytes in, the events' data out, however the bytes were cut.  (pure)

A line ends with CR, LF or CRLF, also where the pair is split between two chunks.  An event is the
``data`` lines up to an empty line, joined by LF.  Comments and all other fields are passed over:
every wire format here repeats in its JSON what an ``event`` field would say.

Memory is bounded: a line, or the data of one event, over `limit` bytes ends the decoding.
"""

from __future__ import annotations

import re

from trioagent.errors import ProtocolError

MAX_EVENT = 8 * 1024 * 1024
"""Bytes that one line or event may have: far more than any vendor sends in one piece."""

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class SSEDecoder:
    """Feed it chunks as they come; each call gives the data of the events that are complete."""

    def __init__(self, *, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._line: list[bytes] = []
        self._line_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._after_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[str]:
        """The data of each event that `chunk` completes, in order.

        Raises:
            ProtocolError: a line or an event over the limit, or data that is not UTF-8.
        """
        if not chunk:
            return []
        # A CR at a chunk's end has already ended its line; the LF of that pair says nothing more.
        # Ending the line at once, not at the next byte, shows an event when it is there.
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        events: list[str] = []
        *complete, rest = _LINE_END.split(chunk)
        for piece in complete:
            self._keep(piece)
            self._end_line(events)
        self._keep(rest)
        return events

    def close(self) -> list[str]:
        """The data of a last event that no empty line ended.

        The standard drops such an event.  Servers that end with a bare ``data: [DONE]`` are common,
        and a cut event is found out anyway, because its JSON is cut.
        """
        events: list[str] = []
        self._end_line(events)
        self._end_event(events)
        return events

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._line.append(piece)
            self._line_size += len(piece)
            if self._line_size > self._limit:
                raise ProtocolError(f"a line of the event stream is over {self._limit} bytes")

    def _end_line(self, events: list[str]) -> None:
        line = b"".join(self._line)
        self._line.clear()
        self._line_size = 0
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            self._end_event(events)
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._data_size += len(value) + 1
            if self._data_size > self._limit:
                raise ProtocolError(f"an event of the stream is over {self._limit} bytes")

    def _end_event(self, events: list[str]) -> None:
        if not self._data:
            return
        data = b"\n".join(self._data)
        self._data.clear()
        self._data_size = 0
        try:
            events.append(data.decode())
        except UnicodeDecodeError:
            raise ProtocolError("an event of the stream is not UTF-8") from None
