"""The one writer of an open journal: group commit, and who waits for whom.

    append -> buffer -> the first who must wait commits for all -> everybody whose records are in

There is no writer task: a task could be cancelled away from the steps that it serves.  Whoever
needs its records on disk and finds nobody committing takes the whole buffer and commits it.

* A batch without a record that must survive a power cut is committed on the loop's thread: it is a
  write into the system's cache, of some tens of microseconds.  If another process holds the
  database, the batch goes to a thread, which may wait.
* A batch with one goes to a thread, whole, and is synced there; so does one with more than
  `HERE_BYTES` of data, whose hashing and compressing would hold up the loop.
* A commit under way is never cancelled, nor broken off by Ctrl-C, after which nobody would know
  whether the batch is in the file.  Who records what has already happened waits for his turn
  whatever is cancelled: that is at most the commit under way and the next one.
* A record whose run was taken over is left out of the batch, and its owner is told (`FencedError`).
* After a commit that failed nothing more is accepted, of anybody: what the memory holds is ahead of
  the file, and only the file counts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import apsw
import trio

from trioagent.errors import FencedError, JournalError

from . import sqlite
from .records import Record, to_row
from .sqlite import RunRow

CHECKPOINT_FRAMES = 1000
"""Pages in the write-ahead log above which they are brought home; SQLite's own default."""

HERE_BYTES = 65_536
"""Bytes of data in a batch up to which it may be committed on the loop's thread."""

Durability: TypeAlias = Literal["effect", "power", "process"]
"""What is synced before the loop goes on; `open_journal` says what each may lose."""

_T = TypeVar("_T")


class Owner:
    """Who appends records: a claimed run, fenced when somebody else took it over.

    `last` is the place of the run's newest record as far as this process knows, `seen` the place
    up to which the records of others were taken in.
    """

    __slots__ = ("epoch", "fenced", "last", "number", "run_id", "seen")

    def __init__(self, row: RunRow) -> None:
        self.run_id = row.run_id
        self.number = row.number
        self.epoch = row.epoch
        self.last = row.last
        self.seen = row.last
        self.fenced = False


class Writer:
    """Appends and commits, for every run of one open journal."""

    def __init__(
        self, connection: apsw.Connection, path: Path, durability: Durability = "effect"
    ) -> None:
        self._connection = connection
        self.syncs_all = durability == "power"
        self._syncs = durability != "process"
        self._path = path
        self._pid = os.getpid()
        self._buffer: list[tuple[Owner, Record]] = []
        self._blobs: list[tuple[Owner, bytes]] = []
        self._bytes = 0
        self._must_sync = False
        self._appended = self._committed = 0
        self._busy = False
        self._turn = trio.Event()
        self._broken: JournalError | None = None
        self._limiter = trio.CapacityLimiter(1)
        self._frames = 0
        self.bodies = 0
        self._seq: int | None = None
        self._syncing: bool | None = None
        connection.set_wal_hook(self._count_frames)

    @trio.lowlevel.enable_ki_protection
    def append(self, owner: Owner, record: Record, *, sync: bool, blob: bytes | None = None) -> int:
        """Take in a record; returns the place to `flush` to.

        With `sync` the record and all before it survive a loss of power once flushed, unless the
        journal's durability says otherwise.

        Raises:
            FencedError: the run was taken over.
            JournalError: an earlier commit failed.
        """
        self.check(owner)
        self._buffer.append((owner, record))
        self._bytes += len(record.data)
        if blob is not None:
            self._blobs.append((owner, blob))
            self._bytes += len(blob)
        self._must_sync = self._must_sync or (sync and self._syncs) or self.syncs_all
        self._appended += 1
        return self._appended

    def check(self, owner: Owner) -> None:
        """Raise what keeps `owner` from recording anything more, if something does."""
        if os.getpid() != self._pid:
            raise JournalError(f"{self._path} was opened before a fork; open it again in the child")
        self._check_whole()
        if owner.fenced:
            raise FencedError(owner.run_id)

    def _check_whole(self) -> None:
        # After a sync that failed no later one proves anything: the system may have dropped what it
        # could not write and call it clean, and what is written behind it would be lost with it.
        if self._broken is not None:
            raise JournalError(f"an earlier commit failed: {self._broken}") from self._broken

    async def flush(self, owner: Owner, place: int) -> None:
        """Wait until everything up to `place` is committed, and synced where it must be.

        Cancellation: while waiting for a turn; a commit under way is finished first.
        """
        while self._committed < place:
            if self._busy:
                await self._turn.wait()
                # Whom the last commit let go on may have more to record in this tick.
                await trio.lowlevel.cancel_shielded_checkpoint()
                continue
            self.check(owner)
            if self._must_sync or not self._commit_here():
                await self._commit_in_thread()
        if self._frames > CHECKPOINT_FRAMES:
            await self._bring_home()
        if owner.fenced:
            raise FencedError(owner.run_id)

    async def record(self, owner: Owner, place: int) -> None:
        """`flush` for what has already happened: shielded from cancellation.

        The wait is bounded without a clock: the commit under way ends, within `sqlite.BUSY_SECONDS`
        and what the disk takes, and the next one has all that waits.
        """
        if self._committed < place and not self._busy and not self._must_sync:
            self.check(owner)
            self._commit_here()
        if self._committed < place:
            with trio.CancelScope(shield=True):
                await self.flush(owner, place)
        if self._frames > CHECKPOINT_FRAMES:
            await self._bring_home()
        if owner.fenced:
            raise FencedError(owner.run_id)

    async def transact(self, action: Callable[[apsw.Connection], _T], *, sync: bool) -> _T:
        """Run `action` in a transaction of its own, in a thread.

        Cancellation: while waiting for a turn; an action under way is finished first.
        """
        while self._busy:
            await self._turn.wait()
        self._check_whole()

        def run() -> _T:
            self._set_sync(sync and self._syncs)
            self._seq = None
            with sqlite.transaction(self._connection):
                return action(self._connection)

        self._busy = True
        try:
            return await self._in_thread(run)
        except apsw.BusyError as exc:
            raise sqlite.translate(exc, str(self._path)) from exc
        except apsw.Error as exc:
            raise self._break(exc) from exc
        finally:
            self._pass_turn()

    @trio.lowlevel.enable_ki_protection
    async def transact_here(self, action: Callable[[apsw.Connection], _T]) -> _T:
        """`transact` for a small action without a sync, on the loop's thread if it may."""
        while self._busy:
            await self._turn.wait()
        self._check_whole()
        connection = self._connection
        connection.set_busy_timeout(0)
        try:
            self._set_sync(False)
            with sqlite.transaction(connection):
                return action(connection)
        except apsw.BusyError:
            pass
        except apsw.Error as exc:
            raise self._break(exc) from exc
        finally:
            connection.set_busy_timeout(sqlite.BUSY_SECONDS * 1000)
        return await self.transact(action, sync=False)

    @trio.lowlevel.enable_ki_protection
    def _commit_here(self) -> bool:
        """Commit on the loop's thread, unless it is much or another process has the database."""
        if self._bytes > HERE_BYTES:
            return False
        connection = self._connection
        connection.set_busy_timeout(0)
        try:
            self._write(self._buffer, self._blobs, False)
        except apsw.BusyError:
            return False
        except apsw.Error as exc:
            raise self._break(exc) from exc
        finally:
            connection.set_busy_timeout(sqlite.BUSY_SECONDS * 1000)
        self._buffer, self._blobs, self._bytes = [], [], 0
        self._committed = self._appended
        return True

    @trio.lowlevel.enable_ki_protection
    async def _commit_in_thread(self) -> None:
        """Commit the whole buffer in a thread, synced if any of it must be."""
        batch, self._buffer = self._buffer, []
        blobs, self._blobs = self._blobs, []
        size, self._bytes = self._bytes, 0
        sync, self._must_sync = self._must_sync, False
        place = self._appended
        begun = False

        def write() -> None:
            nonlocal begun
            begun = True
            self._write(batch, blobs, sync)

        self._busy = True
        try:
            await self._in_thread(write)
            self._committed = place
        except apsw.Error as exc:
            raise self._break(exc) from exc
        except BaseException:
            if begun:
                raise
            # Ctrl-C came before the thread did: whoever flushes next takes it all again.
            self._buffer, self._blobs = batch + self._buffer, blobs + self._blobs
            self._bytes += size
            self._must_sync = self._must_sync or sync
            raise
        finally:
            self._pass_turn()

    def mend(self) -> None:
        """Before the last connection is closed, which brings the log home: see to it that after a
        failed commit the log is on the disk, or else that it stays where it is."""
        if self._broken is None:
            return
        try:
            sqlite.write_log_again(self._connection, self._path)
        except apsw.Error:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def _break(self, exc: apsw.Error) -> JournalError:
        self._broken = sqlite.translate(exc, str(self._path))
        return self._broken

    def _write(
        self, batch: list[tuple[Owner, Record]], blobs: list[tuple[Owner, bytes]], sync: bool
    ) -> None:
        self._set_sync(sync)
        while True:
            try:
                with sqlite.transaction(self._connection):
                    seq, places = self._write_batch(batch, blobs)
            except apsw.ConstraintError as exc:
                if getattr(exc, "extendedresult", 0) not in sqlite.PLACE_TAKEN:
                    raise
                self._seq = None  # another process has appended since; look where the file ends
                continue
            self._seq = seq
            for owner, place in places.items():
                owner.last = place
            return

    def _write_batch(
        self, batch: list[tuple[Owner, Record]], blobs: list[tuple[Owner, bytes]]
    ) -> tuple[int, dict[Owner, int]]:
        """Write the records of all who still own their runs; returns where the file and each of
        their chains end then."""
        connection = self._connection
        first = sqlite.last_seq(connection) if self._seq is None else self._seq
        while True:
            seq, rows, places = first, [], dict[Owner, int]()
            large = [blob for owner, blob in blobs if not owner.fenced]
            for owner, record in batch:
                if not owner.fenced:
                    seq += 1
                    prev = places.get(owner, owner.last)
                    row, data = to_row(record, owner.number, seq, prev)
                    rows.append(row)
                    places[owner] = seq
                    if data is not None:
                        large.append(data)
            moved = [self._advance(owner, place) for owner, place in places.items()]
            if all(moved):
                break
            # Somebody was fenced, or others gave signals to a run: their places are known now.
            connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
        for data in large:
            sqlite.store_blob(connection, data)
        sqlite.insert(connection, rows)
        return seq, places

    def _advance(self, owner: Owner, place: int) -> bool:
        """Move the run's end; every record is fenced by that statement's epoch."""
        try:
            last = sqlite.advance(self._connection, owner.number, owner.epoch, owner.last, place)
        except sqlite.FencedOffError:
            owner.fenced = True
            return False
        moved, owner.last = last == owner.last, last
        return moved

    def _set_sync(self, sync: bool) -> None:
        # In WAL mode NORMAL commits into the system's cache and FULL syncs the log as well.
        # https://www.sqlite.org/pragma.html#pragma_synchronous
        if sync is not self._syncing:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
            self._syncing = sync

    @trio.lowlevel.enable_ki_protection
    async def _bring_home(self) -> None:
        """Move a long log into the database, in a thread; others go on appending meanwhile."""
        if self._busy:
            return
        self._busy = True
        try:
            await self._in_thread(self._checkpoint)
        except apsw.Error as exc:
            raise self._break(exc) from exc
        finally:
            self._pass_turn()

    def _checkpoint(self) -> None:
        """Checkpoint as far as readers let it; the next one gets the rest."""
        self._frames = 0
        with contextlib.suppress(apsw.BusyError):
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _count_frames(self, _connection: apsw.Connection, _name: str, frames: int) -> int:
        self._frames = frames
        return apsw.SQLITE_OK

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        """Not cancellable: the connection must not be touched before the work has ended."""
        with trio.CancelScope(shield=True):
            return await trio.to_thread.run_sync(work, limiter=self._limiter)
        raise AssertionError("nothing cancels this scope")

    def _pass_turn(self) -> None:
        self._busy = False
        self._turn.set()
        self._turn = trio.Event()
