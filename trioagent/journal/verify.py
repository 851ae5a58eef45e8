"""Checking every invariant of a journal's file, without changing it.

Each check names what it looked at and how much of it there was, and lists every fault it found.
All of them look at one state of the file, so others may record meanwhile.  What is held:

    file      SQLite finds its pages and indexes in order, and the tables are those of this version
    payload   it has the bytes that its hash names, and some record refers to it
    record    it has its checksum, a kind that is known, and its payload
    chain     from a run's newest record back to its first each is the run's own, and no record is
              left over: one that no chain reaches belongs to no run
    owner     a run's id is one; no record is of a later owner than its run's, nor of an earlier one
              than the record before it
    run       its records fold, and the view of them can be made
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import apsw
import msgspec
import trio

from trioagent.errors import JournalCorruptError, JournalError

from . import sqlite
from .configuration import system_of
from .fold import fold
from .payloads import is_intact
from .records import BRANCHES, SIGNAL, Row, check_run_id, config_of, from_row
from .sqlite import RunRow


class Check(msgspec.Struct, frozen=True):
    """One check: what was looked at, how many of it there were, and what was wrong."""

    what: str
    count: int
    faults: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """What was checked of a file, in order."""

    path: str
    checks: tuple[Check, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """Everything that was found wrong."""
        return tuple([fault for check in self.checks for fault in check.faults])

    @property
    def ok(self) -> bool:
        """Whether nothing was found wrong."""
        return not self.faults


async def verify(path: str | os.PathLike[str]) -> Report:
    """Check every invariant of the journal at `path`, which may be in use; it is not changed.

    Cancellation: at once; a thread may read on for a while.

    Raises:
        JournalError: there is no file, or it cannot be read at all.
    """
    return await trio.to_thread.run_sync(
        lambda: verify_file(Path(path).resolve()), abandon_on_cancel=True
    )


def verify_file(path: Path) -> Report:
    """`verify`, in the caller's thread."""
    if not path.is_file():
        raise JournalError(f"{path} {'is no file' if path.exists() else 'is not there'}")
    header = _found("header and version", _header, path)
    if header.faults:
        return Report(str(path), (header,))
    try:
        connection = _open(path)
        try:
            connection.execute("BEGIN")
            return Report(str(path), (header, *_Verification(connection).checks()))
        finally:
            connection.close()
    except apsw.Error as exc:
        raise sqlite.translate(exc, str(path)) from exc


def _found(what: str, check: Callable[..., Iterator[str | int]], *arguments: object) -> Check:
    """Run a check, which yields faults as texts and counts as numbers."""
    count, faults = 0, []
    try:
        for found in check(*arguments):
            if isinstance(found, int):
                count += found
            else:
                faults.append(found)
    except Exception as exc:  # a damaged file may hold anything, so anything may come of it
        faults.append(f"{what}: {exc}")
    return Check(what, count, tuple(faults))


def _header(path: Path) -> Iterator[str | int]:
    sqlite.check_header(path)
    yield 1
    connection = _open(path)
    try:
        version = int(connection.pragma("user_version"))
        marked = int(connection.pragma("application_id"))
    finally:
        connection.close()
    if version != sqlite.SCHEMA_VERSION:
        yield f"the journal is of version {version}, this trioagent of {sqlite.SCHEMA_VERSION}"
    if marked != sqlite.APPLICATION_ID:
        yield "the file is no journal of trioagent"


def _open(path: Path) -> apsw.Connection:
    """A connection that changes nothing, not even when it is closed.

    Not a read-only one: that would leave an empty log beside a file that nobody uses.
    """
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.set_busy_timeout(sqlite.BUSY_SECONDS * 1000)
    connection.execute("PRAGMA query_only = 1")
    return connection


class _Verification:
    """The checks of one open file, and what the later ones need of the earlier."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._intact: dict[bytes, bytes] = {}
        self._places: dict[int, tuple[int, int, int, bool]] = {}
        self._whole: list[RunRow] = []
        self._named: set[bytes] = set()

    def checks(self) -> list[Check]:
        """Every check, in order."""
        checks = [
            _found("SQLite's integrity check", self._integrity),
            _found("schema", self._schema),
            _found("payloads by their hash", self._payloads),
            _found("records by their checksum", self._records),
            _found("chains of records", self._chains),
            _found("owners of records", self._owners),
            _found("runs and their views", self._runs),
        ]
        if not any(check.faults for check in checks):  # else what refers to what is not known
            checks.append(_found("payloads by who refers to them", self._unreferred))
        return checks

    def _integrity(self) -> Iterator[str | int]:
        yield 1
        for (told,) in self._connection.execute("PRAGMA integrity_check"):
            if told != "ok":
                yield f"SQLite: {told}"

    def _schema(self) -> Iterator[str | int]:
        fresh = apsw.Connection(":memory:")
        for statements in sqlite.MIGRATIONS:
            fresh.execute(statements).fetchall()
        right, found = _tables(fresh), _tables(self._connection)
        fresh.close()
        for name, statement in right.items():
            yield 1
            if found.get(name) != statement:
                yield f"the table {name} is {'another one' if name in found else 'missing'}"

    def _payloads(self) -> Iterator[str | int]:
        for key, size, kept in self._connection.execute("SELECT hash, size, data FROM blobs"):
            yield 1
            if is_intact(key, size, kept):
                self._intact[key] = b""
            else:
                yield f"the payload {key.hex()[:16]} is altered"

    def _records(self) -> Iterator[str | int]:
        numbers = self._connection.execute(
            "SELECT seq, prev, run, epoch, kind = ? AND tag IN (?, ?) FROM records ORDER BY seq",
            (SIGNAL, *BRANCHES),
        )
        for seq, prev, run, epoch, branches in numbers:
            yield 1
            self._places[seq] = (prev, run, epoch, bool(branches))
            # Each by itself: one that holds no text must not keep the others from being read.
            found = self._connection.execute("SELECT * FROM records WHERE seq = ?", (seq,))
            try:
                for row in found:
                    from_row(cast("Row", row), self._intact)
            except JournalCorruptError as exc:
                yield str(exc).removesuffix("; nothing was changed")
            except UnicodeDecodeError:
                yield f"record {seq} holds no text where it should"

    def _chains(self) -> Iterator[str | int]:
        left = dict(self._places)
        for row in sqlite.all_runs(self._connection):
            yield 1
            place, fault = row.last, ""
            while place and not fault:
                prev, number, _, branches = left.pop(place, (0, 0, 0, False))
                if not number:
                    known = "in the chain of another" if place in self._places else "missing"
                    fault = f"{row.run_id}: record {place} is {known}"
                elif number != row.number:
                    fault = f"{row.run_id}: record {place} is of run number {number}"
                elif prev >= place or prev < 0:
                    fault = f"{row.run_id}: record {place} follows record {prev}"
                elif branches and not self._is_own(prev, number):
                    if self._places.get(prev, (0, 0))[1] != row.parent:
                        fault = f"{row.run_id}: record {place} is branched from another run"
                    break  # what is below belongs to the other run's chain
                place = prev
            if fault:
                yield fault
            else:
                self._whole.append(row)
        for place in left:
            yield f"record {place} is in the chain of no run"

    def _is_own(self, place: int, number: int) -> bool:
        """Whether a record is that run's: an imported branch has its parent's records with it."""
        return place in self._places and self._places[place][1] == number

    def _owners(self) -> Iterator[str | int]:
        for row in sqlite.all_runs(self._connection):
            yield 1
            try:
                check_run_id(row.run_id)
            except ValueError as exc:
                yield str(exc)
            if row.epoch < 1:
                yield f"{row.run_id}: its owner is number {row.epoch}"
        for row in self._whole:
            later, place = row.epoch, row.last
            while place:
                prev, number, epoch, branches = self._places[place]
                if epoch < 0 or epoch > later:
                    yield f"{row.run_id}: record {place} is of owner {epoch}, after it {later}"
                later = row.epoch if branches else epoch or later
                place = 0 if branches and not self._is_own(prev, number) else prev

    def _runs(self) -> Iterator[str | int]:
        for row in self._whole:
            yield 1
            try:
                records = sqlite.load(self._connection, row)
                self._named.update([config_of(record) for record in records])
                state = fold(records)
                for scope in state.scopes.values():
                    if scope.config and scope.config not in self._intact:
                        raise JournalCorruptError("a configuration is missing or altered")
                state.view(row.run_id, system_of(self._connection, state))
            except Exception as exc:  # whatever it is, others would meet it when they look
                yield f"{row.run_id}: {exc}"

    def _unreferred(self) -> Iterator[str | int]:
        used = self._connection.execute("SELECT DISTINCT blob FROM records WHERE blob IS NOT NULL")
        self._named.update([key for (key,) in used])
        for key in self._intact:
            yield 1
            if key not in self._named:
                yield f"the payload {key.hex()[:16]} is referred to by no record"


def _tables(connection: apsw.Connection) -> dict[str, str]:
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'")
    return {str(name): str(statement) for name, statement in rows}
