"""What a journal keeps: append-only records, and how one becomes a row and back.  (pure)

There are six kinds.  The columns `step`, `tag` and `data` mean, by kind:

    kind             step           tag                                     data
    run.started      scope          -                                       `Started` as JSON
    step.started     step's name    effect                                  digest of the request
    step.completed   step's name    "" (its body), "failed", "reconciled",  outcome bytes, or of a
                                    "resolved", "told"                      failure `Failed` as JSON
    signal           step or scope  "approved", "denied", "not_applied",    `Decided` as JSON, who
                                    "not_started", "changed", "forked",     says so, `Changed`,
                                    "followed", "patched"                   `Branched`, `Patch`
    run.stopped      scope          "suspended", "halted", "failed",        `Stopped` as JSON
                                    "cancelled"
    run.completed    scope          "answered", "steps"                     -

A scope is the prefix that `run.scope(name)` puts before step names: "" or "name/".

Every row has a CRC-32 over all that it says, its place and its run included, so that a row that
was changed, moved or copied is seen when it is read.  It guards against accidents, not against
somebody who can write the file.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Literal, TypeAlias, TypeVar

import msgspec

from trioagent.errors import JournalCorruptError
from trioagent.events import Pending

from .payloads import blob_hash

Kind: TypeAlias = Literal[
    "run.started", "step.started", "step.completed", "signal", "run.stopped", "run.completed"
]
KINDS: tuple[Kind, ...] = (
    "run.started",
    "step.started",
    "step.completed",
    "signal",
    "run.stopped",
    "run.completed",
)
"""The number of a kind in the file is its place here, from 1; the order never changes."""

SIGNAL = KINDS.index("signal") + 1
BRANCHES = ("forked", "followed")
"""The tags of a signal that is the first record of a run branched from another."""

_NUMBERS: Mapping[Kind, int] = {kind: number for number, kind in enumerate(KINDS, 1)}

BLOB_ABOVE = 4096
"""Bytes of data above which they are stored once, by hash, outside the row: one database page."""


_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def check_run_id(run_id: str) -> None:
    """Refuse what is no run id, with a `ValueError`."""
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
        raise ValueError(
            f"a run id is 1 to 128 letters, digits or '_ . -', the first a letter or digit; "
            f"not {run_id!r:.200}"
        )


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of a run.  `at` is Unix time in milliseconds, `epoch` the owner's, from 1."""

    kind: Kind
    at: int
    epoch: int
    step: str = ""
    tag: str = ""
    data: bytes = b""


class Started(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a run, or a scope of it, began.

    `nonce` makes its idempotency keys; `input` are the messages' JSON, absent where the run began
    with a plain step; `config` is the SHA-256 of the configuration's JSON; `app_version` is what
    the application called itself.
    """

    nonce: bytes
    input: msgspec.Raw = msgspec.Raw()
    config: bytes = b""
    app_version: str = ""


class Failed(msgspec.Struct, frozen=True):
    """The exception that a step's body ended with."""

    error_type: str
    message: str


class Decided(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person decided about the call of a step that waited."""

    marker: str
    reason: str = ""


class Changed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A changed configuration or input that was accepted."""

    config: bytes = b""
    input: msgspec.Raw = msgspec.Raw()


class Branched(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run `run` that this one was branched from, whose records up to here are its own too.

    A fork keeps the first `turn` turns, from 0, and goes on from there; a follow-up keeps what was
    said and takes the next question.  `nonce` is the new run's.
    """

    run: str
    nonce: bytes
    turn: int = 0


class Patch(msgspec.Struct, frozen=True):
    """Whether code that was changed under `name` goes the new way in this run."""

    name: str
    new: bool


class Stopped(msgspec.Struct, frozen=True, omit_defaults=True):
    """With what and why a run stopped."""

    reason: str = ""
    used: float = 0
    limit: float = 0
    error_type: str = ""
    message: str = ""
    step: str = ""
    pending: tuple[Pending, ...] = ()


_T = TypeVar("_T")


def write_data(value: msgspec.Struct) -> bytes:
    """The JSON of a record's data; what is raw in it was encoded, and so checked, before."""
    return msgspec.json.encode(value)


def read_data(record: Record, as_type: type[_T]) -> _T:
    """The record's data as `as_type`; `JournalCorruptError` where it is something else."""
    try:
        return msgspec.json.decode(record.data, type=as_type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise JournalCorruptError(
            f"a {record.kind} record holds no {as_type.__name__}: {exc}"
        ) from None


def config_of(record: Record) -> bytes:
    """The hash of the configuration that a record names within its data, or none.

    It keeps that payload in the file, as a record's own large data do by their column.
    """
    if record.kind == "run.started":
        return read_data(record, Started).config
    if record.kind == "signal" and record.tag == "changed":
        return read_data(record, Changed).config
    return b""


Row: TypeAlias = tuple[int, int, int, int, int, int, str, str, bytes | None, bytes | None, int]
"""seq, prev, run, epoch, kind, at, step, tag, data, blob, sum: a record where `seq` is its place in
the file, `prev` that of the record before it in its run (0 for the first), `run` the run's number,
and either `data` or the hash of its `blob` is there."""


def to_row(record: Record, run: int, seq: int, prev: int) -> tuple[Row, bytes | None]:
    """The row of a record, and the data to store under its hash, if they are too large for it."""
    data: bytes | None = record.data
    blob: bytes | None = None
    large = None
    if len(record.data) > BLOB_ABOVE:
        data, blob, large = None, blob_hash(record.data), record.data
    place = (seq, prev, run, record.epoch, _NUMBERS[record.kind], record.at)
    stored = (record.step, record.tag, data, blob)
    return (*place, *stored, _checksum(place, *stored)), large


def from_row(row: Row, blobs: Mapping[bytes, bytes]) -> Record:
    """The record of a row, `blobs` being the large data by the hash that they were found to have.

    Raises:
        JournalCorruptError: a wrong checksum, an unknown kind, or data that are not there.
    """
    seq, _prev, _run, epoch, kind, at, step, tag, data, blob, total = row
    try:
        right = _checksum(row[:6], step, tag, data, blob) == total
    except (TypeError, AttributeError):
        right = False
    if not right or (data is None) is (blob is None) or not 1 <= kind <= len(KINDS):
        raise JournalCorruptError(f"record {seq} fails its checksum; nothing was changed")
    if blob is not None:
        data = blobs.get(blob)
        if data is None:
            raise JournalCorruptError(
                f"the payload of record {seq} ({step}) is missing or altered; nothing was changed"
            )
    return Record(KINDS[kind - 1], at, epoch, step, tag, data or b"")


def _checksum(
    place: tuple[int, int, int, int, int, int],
    step: str,
    tag: str,
    data: bytes | None,
    blob: bytes | None,
) -> int:
    total = zlib.crc32(f"{place}\0{step}\0{tag}\0".encode())
    return zlib.crc32(data if blob is None and data is not None else blob or b"", total)
