"""The one owner of a run: what it has recorded, what it may record, and until when."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import apsw

from trioagent.errors import DuplicateStepError, StepError
from trioagent.steps import StepKind

from . import sqlite
from .fold import Fold
from .records import Kind, Record
from .writer import Owner, Writer

inside: ContextVar[tuple[Claim, ...]] = ContextVar("trioagent_inside_a_body_of", default=())
"""The claims of which this task runs a body."""


def now() -> int:
    """Unix time in milliseconds, for people who read the journal; nothing is decided by it but
    how many seconds a run was held."""
    return time.time_ns() // 1_000_000


class Claim:
    """The one owner of a run: its records, in memory and on their way to the file."""

    def __init__(
        self, writer: Writer, owner: Owner, state: Fold, holds: Holds, app_version: str = ""
    ) -> None:
        self.writer = writer
        self.owner = owner
        self.fold = state
        self.running: set[str] = set()
        self.plain: set[str] = set()
        self.asked: dict[str, set[str]] = {}
        self.holds = holds
        self.closed = False
        self.app_version = app_version
        self.ahead = set(state.steps)
        """The recorded steps that this claim has not come to yet."""
        self._place = 0

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self.owner.run_id

    def append(
        self,
        kind: Kind,
        step: str,
        tag: str = "",
        data: bytes = b"",
        *,
        sync: bool = False,
        blob: bytes | None = None,
    ) -> None:
        """Record, in memory at once and on disk with the next flush."""
        if self.closed:
            raise StepError(f"{self.run_id}: the claim has ended; claim the run again")
        record = Record(kind, now(), self.owner.epoch, step, tag, data)
        self.fold.apply(record)  # first, so that what it refuses never reaches the file
        self._place = self.writer.append(self.owner, record, sync=sync, blob=blob)

    def flush(self) -> Awaitable[None]:
        """Wait until all that was appended is committed; cancellable while waiting for a turn."""
        return self.writer.flush(self.owner, self._place)

    def record(self) -> Awaitable[None]:
        """`flush` for what has already happened: shielded and bounded."""
        return self.writer.record(self.owner, self._place)

    async def refresh(self) -> None:
        """Take in what others recorded of this run meanwhile: approvals and denials."""
        owner = self.owner
        if not any(scope.pending for scope in self.fold.scopes.values()):
            return  # an owned run takes no other records of others

        def load(connection: apsw.Connection) -> list[Record]:
            row = sqlite.find_run(connection, owner.run_id)
            assert row is not None
            records = sqlite.load(connection, row, owner.seen)
            owner.seen = row.last
            return [record for record in records if record.epoch == 0]

        await self.flush()
        for record in await self.writer.transact(load, sync=False):
            self.fold.apply(record)

    def use(self, prefix: str, name: str, kind: StepKind) -> None:
        """Take a step's name; `DuplicateStepError` for the second time: an agent's since its run
        under `prefix` began, any other in this claim."""
        self.check_outside(f"the step {name}")
        asked = self.plain if kind == "step" else self.asked.setdefault(prefix, set())
        if name in asked or name in self.running:
            raise DuplicateStepError(name)
        asked.add(name)
        self.ahead.discard(name)

    def check_outside(self, what: str) -> None:
        """Refuse what is asked for inside a body of this run."""
        if self in inside.get():
            raise StepError(
                f"{what} was asked for inside the body of a step of {self.run_id}; "
                "a body is one piece of work, so let it end first"
            )


def mending(claim: Claim) -> str:
    """What keeps a run on the code that began it, for the error that it met other code."""
    began, now_is = claim.fold.app_version, claim.app_version
    versions = ""
    if began != now_is:
        versions = f"It began under version {began or '(none)'}, this is {now_is or '(none)'}. "
    return (
        f"{versions}The old code can go on with it: choose it by `run.app_version`, or by "
        "`await run.patched(name)` where it changed"
    )


class Holds:
    """Why a run is still owned: its claim's block, and bodies whose threads outlived them."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._count = 1
        self._lock = threading.Lock()

    def hold(self) -> Callable[[], None]:
        """Keep the run owned until the returned function is called, from any thread."""
        with self._lock:
            self._count += 1
        return self.let_go

    def let_go(self) -> None:
        """One reason less; after the last one the run is free."""
        with self._lock:
            self._count -= 1
            last = self._count == 0
        if last:
            self._release()
