"""A run as JSON lines: what is exported, imported and kept beside a test.  (pure)

    {"format":"trioagent.journal","version":1}
    {"config":{...}}                               a configuration, before the runs that name it
    {"run":"paris"}                                a run begins; its records follow in their order
    {"kind":"step.started","at":...,"epoch":1,"step":"llm/1","tag":"read","base64":"..."}
    {"kind":"step.completed",...,"data":{...}}
    {"sha256":"..."}                               of every byte before this line

A record's data stand as the JSON that they are, byte for byte, or as base64 where they are none,
so a file written again from what was read is the same file.  The last line is missing or wrong
where a file was cut off or edited.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from trioagent.errors import JournalCorruptError, JournalFormatError

from .payloads import blob_hash
from .records import KINDS, Record, check_run_id, config_of

FORMAT: Final = "trioagent.journal"
VERSION: Final = 1

LINE_BYTES: Final = 256 << 20
"""Bytes of the longest line that is read; a record's data are part of one."""


_EPOCHS: Final = 1 << 31
_MILLISECONDS: Final = 1 << 53


class Recording(msgspec.Struct, frozen=True):
    """What is recorded of a run: its records in order, and by hash the configurations they name."""

    run_id: str
    records: tuple[Record, ...]
    configs: Mapping[bytes, bytes] = {}


class _Line(msgspec.Struct, omit_defaults=True):
    """Every kind of line; which one it is follows from the field that it has."""

    format: str = ""
    version: int = 0
    config: msgspec.Raw = msgspec.Raw()
    run: str = ""
    kind: str = ""
    at: int = 0
    epoch: int = 0
    step: str = ""
    tag: str = ""
    data: msgspec.Raw = msgspec.Raw()
    base64: str = ""
    sha256: str = ""


_read = msgspec.json.Decoder(_Line).decode


# -- writing --------------------------------------------------------------------------------------


def write_lines(recordings: Iterable[Recording]) -> Iterator[bytes]:
    """The lines of a file that holds `recordings`, each with its line feed."""
    total = hashlib.sha256()
    for line in _lines(recordings):
        total.update(line)
        yield line
    yield b'{"sha256":"%s"}\n' % total.hexdigest().encode()


def _lines(recordings: Iterable[Recording]) -> Iterator[bytes]:
    yield _encode(_Line(format=FORMAT, version=VERSION))
    written: set[bytes] = set()
    for recording in recordings:
        for key, config in recording.configs.items():
            if key not in written:
                written.add(key)
                yield _encode(_Line(config=msgspec.Raw(config)))
        yield _encode(_Line(run=recording.run_id))
        for record in recording.records:
            yield _encode(_record_line(record))


def _record_line(record: Record) -> _Line:
    line = _Line(
        kind=record.kind, at=record.at, epoch=record.epoch, step=record.step, tag=record.tag
    )
    if _is_line_of_json(record.data):
        line.data = msgspec.Raw(record.data)
    else:
        line.base64 = base64.b64encode(record.data).decode()
    return line


def _is_line_of_json(data: bytes) -> bool:
    """Whether `data` can stand in a line as they are and be read as they were."""
    if not data or b"\n" in data or b"\r" in data or data != data.strip():
        return False
    try:
        data.decode()
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _encode(line: _Line) -> bytes:
    return msgspec.json.encode(line) + b"\n"


# -- reading --------------------------------------------------------------------------------------


def read_lines(lines: Iterable[bytes]) -> Iterator[Recording]:
    """The runs of a file, each with all its records; nothing is to be believed before the end.

    Raises:
        JournalFormatError: no such file, or one of a newer version.
        JournalCorruptError: a line that is none of ours, or a file that was cut off or edited.
    """
    reading = _Reading()
    for number, line in enumerate(lines, 1):
        if (recording := reading.take(number, line)) is not None:
            yield recording
    if not reading.ended:
        raise JournalCorruptError("the file is cut off: its last line, with the hash, is missing")


class _Reading:
    """What was read so far of one file."""

    def __init__(self) -> None:
        self.ended = False
        self._total = hashlib.sha256()
        self._configs: dict[bytes, bytes] = {}
        self._run = ""
        self._records: list[Record] = []

    def take(self, number: int, text: bytes) -> Recording | None:
        """Take the next line; the run that it ends, if it does."""
        if self.ended:
            raise JournalCorruptError(f"line {number} follows the last line of the file")
        line = _decode(number, text)
        if not line.sha256:
            self._total.update(text)
        if number == 1:
            _check_format(line)
        elif line.sha256:
            if line.sha256 != self._total.hexdigest():
                raise JournalCorruptError(
                    f"line {number}: the file is not what was written: its hash is another"
                )
            self.ended = True
        elif line.run:
            return self._next_run(number, line.run)
        elif line.kind:
            self._add(number, line)
        elif line.config:
            config = bytes(line.config)
            self._configs[blob_hash(config)] = config
        else:
            raise JournalCorruptError(f"line {number} is no line of a journal")
        return self._done() if self.ended else None

    def _next_run(self, number: int, run_id: str) -> Recording | None:
        try:
            check_run_id(run_id)
        except ValueError as exc:
            raise JournalCorruptError(f"line {number}: {exc}") from None
        done, self._run = self._done(), run_id
        return done

    def _done(self) -> Recording | None:
        run_id, records = self._run, tuple(self._records)
        self._run, self._records = "", []
        if not run_id:
            return None
        named = {key: None for record in records if (key := config_of(record))}
        missing = [key for key in named if key not in self._configs]
        if missing:
            raise JournalCorruptError(f"{run_id}: its configuration is missing or altered")
        return Recording(run_id, records, {key: self._configs[key] for key in named})

    def _add(self, number: int, line: _Line) -> None:
        if not self._run or line.kind not in KINDS:
            raise JournalCorruptError(f"line {number} is a record out of its place")
        if not (0 <= line.epoch < _EPOCHS and 0 <= line.at < _MILLISECONDS):
            raise JournalCorruptError(f"line {number} has a number out of its range")
        data = bytes(line.data)
        if line.base64:
            try:
                data = base64.b64decode(line.base64, validate=True)
            except binascii.Error as exc:
                raise JournalCorruptError(f"line {number}: {exc}") from None
        kind = KINDS[KINDS.index(line.kind)]
        self._records.append(Record(kind, line.at, line.epoch, line.step, line.tag, data))


def _decode(number: int, text: bytes) -> _Line:
    if len(text) > LINE_BYTES:
        raise JournalCorruptError(f"line {number} is longer than {LINE_BYTES} bytes")
    try:
        return _read(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        if number == 1:
            raise JournalFormatError(
                f"this is no journal of trioagent as JSON lines: {exc}"
            ) from None
        raise JournalCorruptError(f"line {number} cannot be read: {exc}") from None


def _check_format(line: _Line) -> None:
    if line.format != FORMAT:
        raise JournalFormatError("this is no journal of trioagent as JSON lines")
    if line.version > VERSION:
        raise JournalFormatError(
            f"the file has version {line.version} and this library reads {VERSION}; upgrade it"
        )
