"""Faults that a journal could have, to be planted under the sweeps: each of them must be found.

They stand in for the product's own writer, connection or table, so that a sweep over them goes
through everything else as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import apsw

from trioagent import effects
from trioagent.journal import opening, sqlite
from trioagent.journal.writer import Writer


class NoSyncBeforeTheBody(Writer):
    """The intent of a write is committed but not synced when its body starts."""

    def append(self, owner: Any, record: Any, *, sync: bool, blob: Any = None) -> int:
        sync = sync and record.kind != "step.started"
        return super().append(owner, record, sync=sync, blob=blob)


class NoSyncOfOutcomes(Writer):
    """The outcome of a write is committed but not synced when it is reported."""

    def append(self, owner: Any, record: Any, *, sync: bool, blob: Any = None) -> int:
        sync = sync and record.kind != "step.completed"
        return super().append(owner, record, sync=sync, blob=blob)


class NoSyncOfEnds(Writer):
    """That a run was suspended or answered is committed but not synced when it returns."""

    def append(self, owner: Any, record: Any, *, sync: bool, blob: Any = None) -> int:
        sync = sync and not record.kind.startswith("run.")
        return super().append(owner, record, sync=sync, blob=blob)


class NoSyncOfDecisions(Writer):
    """An approval is committed but not synced when `approve` returns."""

    async def transact(self, action: Any, *, sync: bool) -> Any:
        return await super().transact(action, sync=False)


class ReportsBeforeTheCommit(Writer):
    """An outcome is reported while its record is still in memory."""

    async def record(self, owner: Any, place: int) -> None:
        self.check(owner)


class RunsBeforeTheIntent(Writer):
    """A body starts while its intent is still in memory."""

    _recording = 0

    async def record(self, owner: Any, place: int) -> None:
        self._recording += 1
        try:
            await super().record(owner, place)
        finally:
            self._recording -= 1

    async def flush(self, owner: Any, place: int) -> None:
        if self._recording:
            await super().flush(owner, place)
        else:
            self.check(owner)


class GoesOnAfterAFailedCommit(Writer):
    """More is taken after a commit has failed."""

    def check(self, owner: Any) -> None:
        self._broken = None
        super().check(owner)


class Unsynced(apsw.Connection):
    """Nothing is ever synced, whatever the connection is told."""

    def execute(self, statements: str, *args: Any, **options: Any) -> apsw.Cursor:
        for level in ("FULL", "NORMAL"):
            statements = statements.replace(f"synchronous = {level}", "synchronous = OFF")
        return super().execute(statements, *args, **options)


class _Library:
    """The database library with another `Connection`."""

    def __init__(self, connection: type[apsw.Connection]) -> None:
        self.Connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(apsw, name)


RUNS_A_WRITE_AGAIN = {
    **effects.TABLE,
    "write": {**effects.TABLE["write"], "intent": "again"},
}

WRITERS = (
    NoSyncBeforeTheBody,
    NoSyncOfOutcomes,
    NoSyncOfEnds,
    NoSyncOfDecisions,
    ReportsBeforeTheCommit,
    RunsBeforeTheIntent,
    GoesOnAfterAFailedCommit,
)

PLANTED: Mapping[str, tuple[Any, str, Any]] = {
    **{writer.__name__: (opening, "Writer", writer) for writer in WRITERS},
    "Unsynced": (sqlite, "apsw", _Library(Unsynced)),
    "RunsAWriteAgain": (effects, "TABLE", RUNS_A_WRITE_AGAIN),
}
"""By name, where it is planted: a module, a name in it and what stands there."""


@contextmanager
def plant(name: str) -> Iterator[None]:
    """The fault is there for the block; with an empty name there is none."""
    if not name:
        yield
        return
    module, attribute, value = PLANTED[name]
    before = getattr(module, attribute)
    setattr(module, attribute, value)
    try:
        yield
    finally:
        setattr(module, attribute, before)
