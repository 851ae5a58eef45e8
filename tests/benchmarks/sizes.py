"""The rows about bytes, memory, starting and stalling."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import apsw
import trio

from trioagent import open_journal

from .measure import exponent, pair, seconds
from .raw import RawTable, encoded, raw_run, remove
from .work import make_agent, make_work, run_agent

Row = dict[str, Any]


def _bytes_of(path: Path) -> int:
    """What the file has when its log is brought home."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return path.stat().st_size


async def bytes_per_step(folder: Path, _: int) -> list[Row]:
    """The file of a run of reads, against a raw two-row table of the same payloads."""
    sizes, rows, ours = [10, 100, 400], [], []
    for turns in sizes:
        work = make_work(turns)
        remove(folder / "ours.db")
        async with open_journal(folder / "ours.db") as journal, journal.claim("run") as run:
            await run_agent(make_agent(work, "read"), run)
        table = RawTable(folder / "raw.db", full=False)
        await raw_run(work, encoded(work), table.commit)
        table.close()
        mine, raw = _bytes_of(folder / "ours.db"), _bytes_of(folder / "raw.db")
        ours.append(float(mine))
        steps = turns * 5 + 1
        rows.append(
            {
                "row": f"bytes, T={turns}",
                "ratio": round(mine / raw, 3),
                "bar": 1.3,
                "bytes_per_step": round(mine / steps),
                "base_bytes_per_step": round(raw / steps),
            }
        )
    for row in rows:
        row |= {"exponent": round(exponent(sizes, ours), 3), "exponent_bar": 1.02}
    return rows


async def importing(folder: Path, runs: int) -> list[Row]:
    """``import trioagent`` in a new process, against the packages that it stands on; both sides
    compiled once before, as an installed package is."""
    compiled = {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}

    async def start(code: str) -> float:
        began = time.perf_counter()
        await trio.run_process([sys.executable, "-c", code], env={**os.environ, **compiled})
        return time.perf_counter() - began

    found = await pair(
        lambda: start("import trioagent"), lambda: start("import trio, msgspec, apsw"), runs
    )
    return [
        {
            "row": "import",
            "ratio": round(found.ratio, 2),
            "bar": 1.3,
            "ms": round(found.ours * 1e3, 1),
            "base_ms": round(found.base * 1e3, 1),
            "runs": found.runs,
        }
    ]


class Stalls(trio.abc.Instrument):
    """The longest time that the loop's thread spent in one task's step."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._began = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.perf_counter()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._began:  # the step that added this instrument began before it
            self.longest = max(self.longest, time.perf_counter() - self._began)


async def stalls(folder: Path, _: int) -> list[Row]:
    """20,000 steps of reads in 10 runs, one after the other: no commit or checkpoint may stall."""
    turns, longest, steps = 400, 0.0, 0
    agent = make_agent(make_work(turns), "read")
    remove(folder / "ours.db")
    async with open_journal(folder / "ours.db") as journal:
        for number in range(10):
            async with journal.claim(f"run-{number}") as run:
                watch = Stalls()
                trio.lowlevel.add_instrument(watch)
                await run_agent(agent, run)
                trio.lowlevel.remove_instrument(watch)
                longest = max(longest, watch.longest)
                steps += turns * 5 + 1
    return [{"row": f"longest stall in {steps} steps", "ms": round(longest * 1e3, 2), "bar_ms": 10}]


MEMORY = """
import resource, sys, trio
from pathlib import Path
import trioagent
from tests.benchmarks import sizes
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
trio.run(sizes.{side}, Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
_COUNT, _TURNS = 200, 10


async def ours_in_memory(folder: Path) -> None:
    """200 runs at once, journaled."""
    remove(folder / "ours.db")
    async with open_journal(folder / "ours.db") as journal, trio.open_nursery() as nursery:

        async def one(number: int) -> None:
            async with journal.claim(f"run-{number}") as run:
                await run_agent(make_agent(make_work(_TURNS, number), "write"), run)

        for number in range(_COUNT):
            nursery.start_soon(one, number)


async def raw_in_memory(folder: Path) -> None:
    """The same with bare statements."""
    table = RawTable(folder / "raw.db", full=True)
    async with trio.open_nursery() as nursery:

        async def one(number: int) -> None:
            work = make_work(_TURNS, number)
            await raw_run(work, encoded(work), table.commit_together)

        for number in range(_COUNT):
            nursery.start_soon(one, number)
    table.close()


async def memory(folder: Path, _: int) -> list[Row]:
    """Peak memory over import, 200 runs at once, against the raw loop, each in a new process."""

    def peak(side: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", MEMORY.format(side=side), str(folder)],
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout) * 1024

    mine = await trio.to_thread.run_sync(peak, "ours_in_memory")
    raw = await trio.to_thread.run_sync(peak, "raw_in_memory")
    return [
        {
            "row": f"peak memory over import, {_COUNT} runs at once, T={_TURNS}",
            "ratio": round(mine / raw, 2),
            "bar": 3,
            "mib": round(mine / 2**20, 1),
            "base_mib": round(raw / 2**20, 1),
        }
    ]


async def resuming(folder: Path, runs: int) -> list[Row]:
    """Claim a long run whose last reply is missing and run its last turn, against a raw select
    that decodes every payload."""
    sizes, rows, ours_s = [20, 100, 400], [], []
    for turns in sizes:
        found = await _resume(folder, turns, runs)
        ours_s.append(found.ours)
        rows.append(
            {
                "row": f"resume, T={turns}",
                "ratio": round(found.ratio, 2),
                "bar": 2.0,
                "ms": round(found.ours * 1e3, 2),
                "base_ms": round(found.base * 1e3, 2),
                "runs": found.runs,
            }
        )
    for row in rows:
        row |= {"exponent": round(exponent(sizes, ours_s), 3), "exponent_bar": 1.05}
    return rows


async def _resume(folder: Path, turns: int, runs: int) -> Any:
    work = make_work(turns)
    agent = make_agent(work, "read")
    payloads = encoded(work)
    table = RawTable(folder / "raw.db", full=False)
    await raw_run(work, payloads, table.commit)
    full, cut = folder / "full.db", folder / "ours.db"
    remove(full)
    async with open_journal(full) as journal, journal.claim("run") as run:
        await run_agent(agent, run)
    _without_the_end(full)

    async def ours() -> float:
        remove(cut)
        cut.write_bytes(full.read_bytes())
        async with open_journal(cut) as journal:

            async def go_on() -> None:
                async with journal.claim("run") as run:
                    await run_agent(agent, run)

            return await seconds(go_on)

    async def base() -> float:
        return await seconds(table.read)

    found = await pair(ours, base, runs)
    table.close()
    return found


def _without_the_end(path: Path) -> None:
    """Take the last reply and the end away from a finished run, as if it had died before them."""
    connection = apsw.Connection(str(path))
    last = connection.execute("SELECT max(seq) FROM records").fetchone()
    assert last is not None
    connection.execute("DELETE FROM records WHERE seq > ?", (last[0] - 3,))
    connection.execute("UPDATE runs SET last = ?", (last[0] - 3,))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
