"""An open journal: claims, decisions, doubts and views.

A run that nobody owns can be decided about by anybody: approvals and resolutions are records in a
transaction of their own, with epoch 0, since they are no owner's.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec
import trio

from trioagent.errors import (
    JournalCorruptError,
    JournalError,
    NotPendingError,
    RunOwnedError,
    StepError,
)
from trioagent.events import Pending
from trioagent.messages import ToolCall, decode_assistant, encode
from trioagent.rendering import render
from trioagent.steps import Applied, NotApplied, idempotency_key

from . import sqlite
from .claim import Claim, Holds, now
from .fold import Fold, Status, StepState, View, fold, split_step
from .locks import LockFile, lock_place
from .records import Decided, Record, Stopped, blob_hash, write_data
from .run import Run
from .sqlite import RunRow
from .writer import Owner, Writer

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_T = TypeVar("_T")


class RunSummary(msgspec.Struct, frozen=True):
    """A line of the list of runs; times are Unix milliseconds."""

    run_id: str
    status: Status
    steps: int
    started_at: int
    changed_at: int


class Doubt(msgspec.Struct, frozen=True):
    """A write that was begun and whose outcome nobody recorded.

    `call` is the model's, where it is an agent's tool call; `key` is the idempotency key that its
    body was given; `began_at` is Unix milliseconds.
    """

    run_id: str
    step: str
    key: str
    attempt: int
    began_at: int
    call: ToolCall | None = None


class PendingApproval(msgspec.Struct, frozen=True):
    """A call that waits for a person."""

    run_id: str
    pending: Pending


class Journal:
    """An open journal; made by `open_journal` only.

    Its methods are checkpoints.  All but `claim` may be used on runs that others own.
    """

    def __init__(
        self, path: Path, writer: Writer, reader: apsw.Connection, locks: LockFile
    ) -> None:
        self._path = path
        self._writer = writer
        self._reader = reader
        self._locks = locks
        self._reading = trio.CapacityLimiter(1)
        self._claims = 0
        self._closed = False
        self._pid = os.getpid()

    @property
    def path(self) -> Path:
        """The journal's file."""
        return self._path

    # -- owning a run -----------------------------------------------------------------------------

    @asynccontextmanager
    async def claim(self, run_id: str, *, take_over: bool = False) -> AsyncIterator[Run]:
        """Own the run `run_id`, made if it is new, for the block.

        A run whose owner died can be claimed at once.  With `take_over` a live owner loses it: the
        owner can record nothing more, and its open writes are doubts.

        Raises:
            ValueError: a bad run id.
            RunOwnedError: somebody owns it, here or in another process.
            JournalCorruptError: its records cannot be read.
        """
        check_run_id(run_id)

        owner, state = await self._take(run_id, take_over)
        place = lock_place(owner.number, owner.epoch)
        claim = Claim(self._writer, owner, state, Holds(partial(self._locks.release, place)))
        try:
            yield Run(claim)
        except BaseException as exc:
            await _close(claim, exc)
            raise
        else:
            await _close(claim, None)

    async def _take(self, run_id: str, take_over: bool) -> tuple[Owner, Fold]:
        """Lock the run and raise its epoch; the lock is let go where that is not committed."""
        self._check_open()
        places: list[int] = []

        def lock(row: RunRow) -> Owner:
            place = lock_place(row.number, row.epoch)
            if not self._locks.acquire(place):
                raise RunOwnedError(run_id, "claimed")
            places.append(place)
            return Owner(row)

        def take_new(connection: apsw.Connection) -> Owner | None:
            known = sqlite.find_run(connection, run_id)
            return None if known else lock(sqlite.next_epoch(connection, run_id))

        def take(connection: apsw.Connection) -> tuple[Owner, Fold]:
            known = sqlite.find_run(connection, run_id)
            if known is not None and not take_over and self._is_owned(known):
                raise RunOwnedError(run_id, "claimed")
            row = sqlite.next_epoch(connection, run_id)
            state = fold(sqlite.load(connection, row))
            return lock(row), state

        try:
            owner = await self._writer.transact_here(take_new)
            return (owner, Fold()) if owner else await self._writer.transact(take, sync=False)
        except BaseException:
            for place in places:
                self._locks.release(place)
            raise

    def _is_owned(self, row: RunRow) -> bool:
        return self._locks.is_held(lock_place(row.number, row.epoch))

    # -- deciding ---------------------------------------------------------------------------------

    async def approve(self, run_id: str, marker: str) -> None:
        """Let the waiting call with `marker` run when its run goes on; synced before it returns.

        Raises:
            LookupError: no such run.
            NotPendingError: nothing waits under that marker, or it was decided already.
        """
        await self._signal(run_id, marker, "approved", "")

    async def deny(self, run_id: str, marker: str, reason: str) -> None:
        """Keep the waiting call with `marker` from running; the model reads the reason.

        Raises as `approve` does.
        """
        await self._signal(run_id, marker, "denied", reason)

    async def _signal(self, run_id: str, marker: str, tag: str, reason: str) -> None:
        def signal(connection: apsw.Connection) -> None:
            row = _known(connection, run_id)
            state = fold(sqlite.load(connection, row))
            waiting = {p.marker: p for p in _undecided(state)}
            if marker not in waiting:
                raise NotPendingError(marker, list(waiting))
            data = write_data(Decided(marker, reason))
            record = Record("signal", now(), 0, waiting[marker].step, tag, data)
            sqlite.append(connection, row, record)

        self._check_open()
        await self._writer.transact(signal, sync=True)

    async def resolve(self, run_id: str, step: str, resolution: Applied | NotApplied) -> None:
        """Say what became of a write in doubt; synced before it returns.

        ``Applied(result)`` stands as what the step's body would have returned, for an agent's tool
        what the tool would have; ``NotApplied(by)`` lets it run again.

        Raises:
            LookupError: no such run, or the step is not in doubt.
            RunOwnedError: somebody owns the run and may still be at it.
            EncodingError: JSON has no form for the result.
        """
        if isinstance(resolution, Applied):
            is_tool = split_step(step)[1].startswith("tool/")
            result = resolution.result
            data = encode(render(result) if is_tool else result, ordered=not is_tool)
            made = Record("step.completed", now(), 0, step, "resolved", data)
        elif isinstance(resolution, NotApplied):
            made = Record("signal", now(), 0, step, "not_applied", encode(resolution.by))
        else:
            raise TypeError(f"a resolution is Applied or NotApplied, not {resolution!r}")

        def resolve(connection: apsw.Connection) -> None:
            row = _known(connection, run_id)
            if self._is_owned(row):
                raise RunOwnedError(run_id, "resolved")
            state = fold(sqlite.load(connection, row))
            doubts = [doubt.name for doubt in state.open_writes()]
            if step not in doubts:
                found = ", ".join(doubts) or "nothing"
                raise LookupError(f"{run_id}: {step} is not in doubt; in doubt: {found}")
            sqlite.append(connection, row, made)

        self._check_open()
        await self._writer.transact(resolve, sync=True)

    # -- looking ----------------------------------------------------------------------------------

    async def doubts(self, run_id: str | None = None) -> list[Doubt]:
        """The writes in doubt of runs that nobody owns, and those of earlier owners; of one run or
        of all.  `LookupError` for a run that is not there."""

        def find(connection: apsw.Connection) -> list[Doubt]:
            found: list[Doubt] = []
            for row in _rows(connection, run_id):
                state = fold(sqlite.load(connection, row))
                for step in self._doubtful(row, state):
                    key = idempotency_key(state.nonce, step.name)
                    call = _call_of(state, step.name)
                    found.append(
                        Doubt(row.run_id, step.name, key, step.attempts, step.started_at, call)
                    )
            return found

        return await self._read(find)

    async def pending(self, run_id: str | None = None) -> list[PendingApproval]:
        """The calls that wait for a person; of one run or of all.

        `LookupError` for a run that is not there.
        """

        def find(connection: apsw.Connection) -> list[PendingApproval]:
            return [
                PendingApproval(row.run_id, pending)
                for row in _rows(connection, run_id)
                for pending in _undecided(fold(sqlite.load(connection, row)))
            ]

        return await self._read(find)

    async def view(self, run_id: str) -> View:
        """The run as recorded, with its ownership laid over; `LookupError` if it is not there."""

        def find(connection: apsw.Connection) -> View:
            row = _known(connection, run_id)
            state = fold(sqlite.load(connection, row))
            view = state.view(run_id, _system(connection, state))
            doubts = tuple([step.name for step in self._doubtful(row, state)])
            return msgspec.structs.replace(
                view, status=self._status(row, state), doubts=doubts, epoch=row.epoch
            )

        return await self._read(find)

    async def records(self, run_id: str) -> list[Record]:
        """All that is recorded of the run, in order, for a timeline; `LookupError` if it is not
        there."""

        def find(connection: apsw.Connection) -> list[Record]:
            return sqlite.load(connection, _known(connection, run_id))

        return await self._read(find)

    async def runs(self) -> list[RunSummary]:
        """Every run that has a record, the oldest first."""

        def find(connection: apsw.Connection) -> list[RunSummary]:
            found = []
            for row in sqlite.all_runs(connection):
                records = sqlite.load(connection, row)
                if records:
                    state = fold(records)
                    status = self._status(row, state)
                    first, last = records[0].at, records[-1].at
                    found.append(RunSummary(row.run_id, status, len(state.steps), first, last))
            return found

        return await self._read(find)

    def _doubtful(self, row: RunRow, state: Fold) -> list[StepState]:
        owned = self._is_owned(row)
        return [s for s in state.open_writes() if not owned or s.epoch < row.epoch]

    def _status(self, row: RunRow, state: Fold) -> Status:
        if self._doubtful(row, state):
            return "in_doubt"
        if state.status == "running" and not self._is_owned(row):
            return "interrupted"
        return state.status

    async def _read(self, find: Callable[[apsw.Connection], _T]) -> _T:
        """Look from one state of the file, in a thread, on a connection that only reads."""
        self._check_open()

        def read() -> _T:
            self._reader.execute("BEGIN")
            try:
                return find(self._reader)
            finally:
                self._reader.execute("COMMIT")

        try:
            return await trio.to_thread.run_sync(read, limiter=self._reading)
        except apsw.Error as exc:
            raise sqlite.translate(exc, str(self._path)) from exc

    def _check_open(self) -> None:
        if self._closed:
            raise JournalError(f"{self._path}: this journal was closed; open it again")
        if os.getpid() != self._pid:
            raise JournalError(f"{self._path} was opened before a fork; open it again in the child")


@asynccontextmanager
async def open_journal(path: str | os.PathLike[str]) -> AsyncIterator[Journal]:
    """Open the journal at `path`, made if there is none, for the block.

    Beside the file stand its lock file (``.lock``) and, while it is open, SQLite's ``-wal`` and
    ``-shm``.

    Raises:
        JournalFormatError: the file is no journal, or of a newer version; it was not changed.
        JournalCorruptError: it is damaged; it was not changed.
        JournalError: it cannot be opened.
    """
    file = await trio.to_thread.run_sync(lambda: Path(path).resolve())

    def connect() -> tuple[apsw.Connection, apsw.Connection]:
        writer = sqlite.connect(file)
        try:
            return writer, sqlite.connect(file)
        except BaseException:
            writer.close()
            raise

    connection, reader = await trio.to_thread.run_sync(connect)
    pid = os.getpid()
    try:
        locks = LockFile(file.with_name(file.name + ".lock"))
    except BaseException:
        reader.close()
        connection.close()
        raise
    journal = Journal(file, Writer(connection, file), reader, locks)
    try:
        yield journal
    finally:
        journal._closed = True
        if os.getpid() == pid:  # a forked child's copy must not touch its parent's connections
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(
                    _close_connections, journal._writer, reader, connection
                )
            locks.close()


def _close_connections(writer: Writer, *connections: apsw.Connection) -> None:
    writer.mend()
    for connection in connections:
        # Here the log is brought home, as far as the disk lets it; the rest stays in the log, where
        # the next to open the file finds it.  So nothing is lost, and no failure is hidden by this.
        with contextlib.suppress(apsw.Error):
            connection.close()


def check_run_id(run_id: str) -> None:
    """Refuse what is no run id."""
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
        raise ValueError(
            f"a run id is 1 to 128 letters, digits or '_ . -', the first a letter or digit; "
            f"not {run_id!r:.200}"
        )


async def _close(claim: Claim, exc: BaseException | None) -> None:
    """End a claim: what its plain steps came to is recorded, the rest written, the run let go."""
    try:
        own = claim.fold.scopes.get("")
        plain = own is not None and not own.input and own.status == "running"
        if not claim.owner.fenced:
            if plain and exc is None and not claim.fold.open_writes():
                claim.append("run.completed", "", "steps", sync=True)
            elif plain and exc is not None:
                stopped = Stopped(
                    error_type=type(exc).__name__,
                    message=str(exc) if isinstance(exc, Exception) else "",
                    step=exc.step if isinstance(exc, StepError) else "",
                )
                tag = "failed" if isinstance(exc, Exception) else "cancelled"
                claim.append("run.stopped", "", tag, write_data(stopped), sync=True)
            await claim.record()
    except StepError as unrecorded:
        if exc is None:
            raise
        exc.add_note(f"the run's end could not be recorded: {unrecorded}")
    finally:
        claim.closed = True
        claim.holds.let_go()


def _known(connection: apsw.Connection, run_id: str) -> RunRow:
    check_run_id(run_id)
    row = sqlite.find_run(connection, run_id)
    if row is None:
        raise LookupError(f"there is no run {run_id!r} in this journal")
    return row


def _rows(connection: apsw.Connection, run_id: str | None) -> list[RunRow]:
    return sqlite.all_runs(connection) if run_id is None else [_known(connection, run_id)]


def _undecided(state: Fold) -> list[Pending]:
    return [pending for scope in state.scopes.values() for pending in scope.undecided()]


def _call_of(state: Fold, step: str) -> ToolCall | None:
    """The model's call that a tool step runs, from the reply that asked for it."""
    prefix, name = split_step(step)
    parts = name.split("/")
    if parts[0] != "tool" or len(parts) < 4:
        return None
    reply = state.steps.get(f"{prefix}llm/{parts[1]}")
    if reply is None or reply.status != "completed":
        return None
    calls = decode_assistant(reply.data).tool_calls
    index = int(parts[2])
    return calls[index] if index < len(calls) else None


class _SystemOnly(msgspec.Struct):
    system: str = ""


def _system(connection: apsw.Connection, state: Fold) -> str:
    """The recorded system prompt of the run's own scope."""
    scope = state.scopes.get("")
    if scope is None or not scope.config:
        return ""
    config = sqlite.load_blob(connection, scope.config)
    if config is None or blob_hash(config) != scope.config:
        raise JournalCorruptError("the run's configuration is missing or altered")
    return msgspec.json.decode(config, type=_SystemOnly).system
