"""An open journal: claims, decisions, doubts and views.

A run that nobody owns can be decided about by anybody: approvals and resolutions are records in a
transaction of their own, with epoch 0, since they are no owner's.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec
import trio

from trioagent.errors import JournalError, NotPendingError, RunOwnedError, StepError
from trioagent.events import Pending
from trioagent.messages import encode
from trioagent.rendering import render
from trioagent.steps import Applied, NotApplied

from . import prune, sqlite
from .backup import backup_file
from .branching import Forked, follow, fork
from .claim import Claim, Holds, now
from .configuration import system_of
from .doubts import Doubt, doubt_of
from .fold import Fold, Status, StepState, View, fold, split_step
from .locks import LockFile, lock_place
from .prune import Over, Pruned, Rules
from .recording import Recording
from .records import Decided, Record, Stopped, check_run_id, write_data
from .run import Run
from .sqlite import RunRow
from .transfer import read_recordings, recording_of, take_in, write_recordings
from .verify import Report
from .writer import Owner, Writer

_T = TypeVar("_T")


class RunSummary(msgspec.Struct, frozen=True):
    """A line of the list of runs; times are Unix milliseconds."""

    run_id: str
    status: Status
    steps: int
    started_at: int
    changed_at: int


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
    async def claim(
        self,
        run_id: str,
        *,
        take_over: bool = False,
        after: str | None = None,
        app_version: str = "",
    ) -> AsyncIterator[Run]:
        """Own the run `run_id`, made if it is new, for the block.

        A run whose owner died can be claimed at once.

        Args:
            take_over: a live owner loses the run: it can record nothing more, and its open writes
                are doubts.
            after: the answered run whose conversation a new run goes on with: the agent is given
                the next question alone and knows what was said.  Nothing of that run is copied.
            app_version: what the application calls itself, kept with a new run; `Run.app_version`
                tells the one under which a run began.

        Raises:
            ValueError: a bad run id.
            LookupError: there is no run `after`.
            JournalError: the run `after` is not answered, or this run is there and follows another.
            RunOwnedError: somebody owns it, here or in another process.
            JournalCorruptError: its records cannot be read.
        """
        check_run_id(run_id)

        owner, state = await self._take(run_id, take_over, after)
        place = lock_place(owner.number, owner.epoch)
        holds = Holds(partial(self._locks.release, place))
        claim = Claim(self._writer, owner, state, holds, app_version)
        try:
            yield Run(claim)
        except BaseException as exc:
            await _close(claim, exc)
            raise
        else:
            await _close(claim, None)

    async def _take(self, run_id: str, take_over: bool, after: str | None) -> tuple[Owner, Fold]:
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
            is_new = known is None or not known.last
            if after is not None and is_new:
                row = follow(connection, _known(connection, after), run_id, now())
            else:
                row = sqlite.next_epoch(connection, run_id)
            state = fold(sqlite.load(connection, row))
            if after is not None and state.follows != after:
                follows = f"follows {state.follows}" if state.follows else "follows no other"
                raise JournalError(f"{run_id} is there already and {follows}, not {after}")
            return lock(row), state

        try:
            owner = None if after else await self._writer.transact_here(take_new)
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
            row = _claimed(connection, run_id)
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
            row = _claimed(connection, run_id)
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

    # -- branching --------------------------------------------------------------------------------

    async def fork(self, run_id: str, new_run_id: str, *, at_turn: int) -> Forked:
        """Make a new run of the first turns of another, which stays as it is.

        The new run refers to the old one up to the cut: what was recorded there is replayed, and
        the model is asked anew for the turn after.  Decisions and the run's end are not taken
        along.  Its idempotency keys are its own.

        Args:
            run_id: the run to fork, which may be owned.
            new_run_id: the new run, whose id is free.
            at_turn: how many turns to keep, each a reply with the results of its calls; from 0,
                which keeps the input alone.

        Raises:
            ValueError: a bad run id, or a negative turn.
            LookupError: no such run.
            JournalError: the new id is taken, or the turn is not there or not complete.
            UnknownOutcomeError: a write before the cut is in doubt.
        """
        check_run_id(new_run_id)
        if at_turn < 0:
            raise ValueError(f"turns are counted from 0, not {at_turn}")

        def make(connection: apsw.Connection) -> Forked:
            return fork(connection, _known(connection, run_id), new_run_id, at_turn, now())

        self._check_open()
        return await self._writer.transact(make, sync=True)

    # -- looking ----------------------------------------------------------------------------------

    async def doubts(self, run_id: str | None = None) -> list[Doubt]:
        """The writes in doubt of runs that nobody owns, and those of earlier owners; of one run or
        of all.  `LookupError` for a run that is not there."""

        def find(connection: apsw.Connection) -> list[Doubt]:
            found: list[Doubt] = []
            for row in _rows(connection, run_id):
                state = fold(sqlite.load(connection, row))
                for step in self._doubtful(row, state):
                    found.append(doubt_of(row.run_id, state, step))
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
        """The run as recorded, with its ownership laid over; `LookupError` if it is not there, or
        was pruned."""

        def find(connection: apsw.Connection) -> View:
            row = _known(connection, run_id)
            state = fold(sqlite.load(connection, row))
            view = state.view(run_id, system_of(connection, state))
            doubts = tuple([step.name for step in self._doubtful(row, state)])
            return msgspec.structs.replace(
                view,
                status=self._status(row, state),
                doubts=doubts,
                epoch=row.epoch,
                imported=bool(row.imported),
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

    # -- out of the file and into it --------------------------------------------------------------

    async def recording(self, run_id: str) -> Recording:
        """All that is recorded of a run, for `write_recordings`; `LookupError` if it is not there.

        One that was branched from another has with it what both share.
        """
        return await self._read(
            lambda connection: recording_of(connection, _known(connection, run_id))
        )

    async def export(
        self, target: str | os.PathLike[str], run_ids: Iterable[str] | None = None
    ) -> tuple[str, ...]:
        """Write runs to a new file of JSON lines, as they are at one moment; returns their ids.

        Args:
            run_ids: which runs, in which order; by default every one, the oldest first.

        Raises:
            LookupError: a run that is not there; nothing was written.
            JournalError: the file is there already, or cannot be written.
        """
        asked = None if run_ids is None else tuple(run_ids)

        def write(connection: apsw.Connection) -> tuple[str, ...]:
            if asked is None:
                rows = [row for row in sqlite.all_runs(connection) if row.last]
            else:
                rows = [_known(connection, run_id) for run_id in asked]
            write_recordings(target, (recording_of(connection, row) for row in rows))
            return tuple([row.run_id for row in rows])

        return await self._read(write)

    async def import_file(self, source: str | os.PathLike[str]) -> tuple[str, ...]:
        """Take in the runs of a file that `export` wrote, all of them or none; returns their ids.

        They can be looked at and forked; decided about and gone on with only once they are claimed.

        Raises:
            JournalError: the file cannot be read, or an id is taken, and then every one is named.
            JournalFormatError: it is no such file, or one of a newer version.
            JournalCorruptError: it was cut off or edited, or holds what makes no run.
        """

        def take(connection: apsw.Connection) -> tuple[str, ...]:
            return take_in(connection, read_recordings(source))

        self._check_open()
        return await self._writer.transact(take, sync=True)

    # -- keeping the file ------------------------------------------------------------------------

    async def prune(
        self,
        *,
        older_than: float | None = None,
        keep: int | None = None,
        max_bytes: int | None = None,
        statuses: Collection[Over] = prune.OVER,
        dry_run: bool = False,
        vacuum: bool = False,
    ) -> Pruned:
        """Remove runs that are over and owned by nobody, with the payloads that only they used.

        A run goes only if every rule given lets it go.  It leaves a tombstone: `view` says when it
        was pruned, and its id may be claimed anew.

        Args:
            older_than: seconds since the run's last record.
            keep: how many of the runs that are over stay, those that ended last.
            max_bytes: what the file's pages in use may come to; while they come to more, the runs
                that ended first go.
            statuses: how the runs stand that may go; to ``answered`` and ``completed`` may be added
                ``failed``, ``cancelled`` and ``halted``, which could still go on.
            dry_run: only say what would go.  The work is done and taken back, so it is exact, and
                others who record wait for it.
            vacuum: give the free pages back to the file system, where else they are used again by
                what is recorded next.  The whole file is written anew; others who record wait, and
                fail after `sqlite.BUSY_SECONDS`, so it is refused while any run is owned.

        Raises:
            ValueError: no rule, or a bad one.
            JournalCorruptError: a run cannot be read; nothing was removed.
            JournalError: `vacuum` while somebody owns a run; nothing was removed.
        """
        rules = Rules(older_than, keep, max_bytes, tuple(statuses))
        rules.check()
        at = now()
        if vacuum:
            await self._read(self._check_idle)
        ended = await self._read(lambda connection: prune.ended_runs(connection, rules.statuses))
        chosen = prune.choose(ended, rules, at)

        def portion(connection: apsw.Connection) -> Pruned:
            act = prune.rehearse if dry_run else prune.remove
            return act(connection, chosen, rules, at, self._is_owned)

        if dry_run:
            return await self._writer.transact(portion, sync=False)
        total = await self._writer.transact(portion, sync=True)
        while chosen:
            total = prune.added(total, await self._writer.transact(portion, sync=True))
        if vacuum:
            await trio.to_thread.run_sync(prune.vacuum, self._path)
        return total

    def _check_idle(self, connection: apsw.Connection) -> None:
        for row in sqlite.all_runs(connection):
            if self._is_owned(row):
                raise JournalError(
                    f"{row.run_id} is owned; vacuum when no run is, or prune without"
                )

    async def backup(self, target: str | os.PathLike[str]) -> Report:
        """Copy the journal as it is now to `target`, and verify the copy; others may record
        meanwhile.

        Cancellation: not once it has begun.

        Raises:
            JournalError: the target or a file of its is there already, or cannot be written.
            JournalCorruptError: the copy has faults, so the journal has; it was removed.
        """
        self._check_open()
        path = Path(os.path.abspath(target))  # noqa: ASYNC240 - no look at the file system
        return await trio.to_thread.run_sync(backup_file, self._path, path)

    # -- what several of these need ---------------------------------------------------------------

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


async def _close(claim: Claim, exc: BaseException | None) -> None:
    """End a claim: what its plain steps came to is recorded, the rest written, the run let go."""
    try:
        own = claim.fold.scopes.get("")
        plain = own is not None and not (own.input or own.earlier) and own.status == "running"
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
    if row.pruned and not row.last:
        when = datetime.fromtimestamp(row.pruned / 1000, UTC)
        raise LookupError(f"the run {run_id!r} was pruned on {when:%Y-%m-%d at %H:%M:%S} UTC")
    return row


def _claimed(connection: apsw.Connection, run_id: str) -> RunRow:
    """The run, which is one of this journal's own: what is imported is read-only till then."""
    row = _known(connection, run_id)
    if row.imported:
        raise JournalError(f"{run_id} was imported and is read-only until it is claimed")
    return row


def _rows(connection: apsw.Connection, run_id: str | None) -> list[RunRow]:
    return sqlite.all_runs(connection) if run_id is None else [_known(connection, run_id)]


def _undecided(state: Fold) -> list[Pending]:
    return [pending for scope in state.scopes.values() for pending in scope.undecided()]
