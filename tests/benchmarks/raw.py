"""The raw baselines: bare apsw statements in a bare Trio loop, and nothing of this library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
import trio

from .work import TOOLS, Work

Row = tuple[str, bytes]


def remove(path: Path) -> None:
    """A database and all that stands beside it."""
    for file in path.parent.glob(path.name + "*"):
        file.unlink()


class RawTable:
    """A table of step names and payloads, two rows a step, WAL, as fast as apsw goes."""

    def __init__(self, path: Path, *, full: bool) -> None:
        remove(path)
        self.connection = apsw.Connection(str(path))
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        self.connection.wal_autocheckpoint(0)
        self.connection.execute("CREATE TABLE steps (id INTEGER PRIMARY KEY, name TEXT, data BLOB)")
        self._full = full
        self._limiter = trio.CapacityLimiter(1)
        self._waiting: list[Row] = []
        self._done = trio.Event()
        self._busy = False
        self._appended = self._committed = 0

    def write(self, rows: Sequence[Row]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("INSERT INTO steps (name, data) VALUES (?, ?)", rows)
        self.connection.execute("COMMIT")

    async def commit(self, rows: Sequence[Row]) -> None:
        """One commit; a synced one in a thread, as the journal does it."""
        if self._full:
            await trio.to_thread.run_sync(self.write, rows, limiter=self._limiter)
        else:
            self.write(rows)

    async def commit_together(self, rows: Sequence[Row]) -> None:
        """Group commit across runs: whoever finds nobody committing commits for all that wait."""
        self._waiting.extend(rows)
        self._appended += len(rows)
        place = self._appended
        while self._committed < place:
            if self._busy:
                await self._done.wait()
                continue
            self._busy = True
            batch, self._waiting = self._waiting, []
            await trio.to_thread.run_sync(self.write, batch, limiter=self._limiter)
            self._committed += len(batch)
            self._busy = False
            self._done.set()
            self._done = trio.Event()

    async def read(self) -> None:
        """Select every row and decode every payload."""
        for _, data in self.connection.execute("SELECT name, data FROM steps ORDER BY id"):
            if data:
                msgspec.json.decode(data)

    def close(self) -> None:
        self.connection.close()


def encoded(work: Work) -> tuple[list[bytes], list[list[bytes]]]:
    """The payloads as bytes, made before the clock starts."""
    return [msgspec.json.encode(reply) for reply in work.replies], [
        [msgspec.json.encode(result) for result in turn] for turn in work.results
    ]


async def raw_run(work: Work, payloads: tuple[list[bytes], list[list[bytes]]], commit: Any) -> None:
    """The bare loop with 2 commits a turn: the reply and the intents, then the outcomes."""
    replies, results = payloads
    limiter = trio.CapacityLimiter(TOOLS)

    async def act() -> None:
        async with limiter:
            pass

    for turn in range(work.turns):
        names = [f"tool/{turn}/{i}/tool_{i}" for i in range(TOOLS)]
        llm = f"llm/{turn}"
        await commit([(llm, b""), (llm, replies[turn]), *[(name, b"") for name in names]])
        async with trio.open_nursery() as nursery:
            for _ in range(TOOLS):
                nursery.start_soon(act)
        await commit(list(zip(names, results[turn], strict=True)))
        await trio.lowlevel.checkpoint()
    llm = f"llm/{work.turns}"
    await commit([(llm, b""), (llm, replies[work.turns])])
