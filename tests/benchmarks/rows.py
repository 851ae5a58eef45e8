"""The rows that time a run: what each measures, against what, and the bar it must stay under."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from trioagent import Agent, AssistantMessage, Journal, Text, TextDelta, open_journal
from trioagent.effects import Effect
from trioagent.provider import Emit, Request

from .measure import exponent, pair, seconds
from .raw import RawTable, encoded, raw_run, remove
from .work import bare_turns, make_agent, make_work, run_agent

Row = dict[str, Any]


async def loop_without_journal(_: Path, runs: int) -> list[Row]:
    """The loop with `Direct`, against the bare loop, a turn, at three lengths."""
    rows, sizes = [], [20, 100, 400]
    for turns in sizes:
        agent = make_agent(make_work(turns), "read")

        async def ours(agent: Any = agent) -> float:
            return await seconds(lambda: run_agent(agent))

        async def base(turns: int = turns) -> float:
            return await seconds(lambda: bare_turns(turns))

        rows.append(_row(f"loop, T={turns}", await pair(ours, base, runs), turns, "turn", 1.5))
    growth = exponent(
        sizes, [row["us_per_turn"] * size for row, size in zip(rows, sizes, strict=True)]
    )
    for row in rows:
        row |= {"exponent": round(growth, 3), "exponent_bar": 1.05}
    return rows


async def journal_of_reads(folder: Path, runs: int) -> list[Row]:
    """A journaled run whose tools are all reads, against raw commits without a sync."""
    return [await _journal_row(folder, runs, "read", full=False, bar=1.8)]


async def journal_of_writes(folder: Path, runs: int) -> list[Row]:
    """A journaled run whose tools are all writes, against raw commits with a sync."""
    return [await _journal_row(folder, runs, "write", full=True, bar=1.5)]


async def _journal_row(folder: Path, runs: int, effect: Effect, *, full: bool, bar: float) -> Row:
    turns = 20
    work = make_work(turns)
    payloads, agent = encoded(work), make_agent(work, effect)

    async def ours() -> float:
        remove(folder / "ours.db")
        async with open_journal(folder / "ours.db") as journal, journal.claim("run") as run:
            return await seconds(lambda: run_agent(agent, run))

    async def base() -> float:
        table = RawTable(folder / "raw.db", full=full)
        try:
            return await seconds(lambda: raw_run(work, payloads, table.commit))
        finally:
            table.close()

    return _row(
        f"journal, all {effect}s, T={turns}", await pair(ours, base, runs), turns, "turn", bar
    )


async def many_runs(folder: Path, runs: int) -> list[Row]:
    """200 runs at once, all writes, against raw group commit across as many."""
    count, turns = 200, 10
    works = [make_work(turns, seed) for seed in range(count)]
    payloads = [encoded(work) for work in works]
    agents = [make_agent(work, "write") for work in works]

    async def ours() -> float:
        remove(folder / "ours.db")
        async with open_journal(folder / "ours.db") as journal:

            async def one(number: int, journal: Journal = journal) -> None:
                async with journal.claim(f"run-{number}") as run:
                    await run_agent(agents[number], run)

            return await seconds(lambda: _all(one, count))

    async def base() -> float:
        table = RawTable(folder / "raw.db", full=True)

        async def one(number: int) -> None:
            await raw_run(works[number], payloads[number], table.commit_together)

        try:
            return await seconds(lambda: _all(one, count))
        finally:
            table.close()

    return [
        _row(
            f"{count} runs at once, all writes, T={turns}",
            await pair(ours, base, runs),
            count * turns,
            "turn",
            1.6,
        )
    ]


class Talking:
    """A model that says `count` words, letting its reader take each one before the next."""

    model = "talking"

    def __init__(self, count: int) -> None:
        self._count = count

    async def complete(self, request: Request, emit: Emit) -> AssistantMessage:
        for _ in range(self._count):
            emit(TextDelta("word "))
            await trio.lowlevel.checkpoint()
        return AssistantMessage((Text("word " * self._count),))


async def text_deltas(_: Path, runs: int) -> list[Row]:
    """Text deltas through `agent.stream`, each received by itself, against a memory channel."""
    count = 5000
    agent = Agent(Talking(count))

    async def ours() -> float:
        async def read() -> None:
            received = 0
            async with agent.stream("go") as stream:
                async for event in stream:
                    received += isinstance(event, TextDelta)
            assert received == count, received

        return await seconds(read)

    async def base() -> float:
        async def read() -> None:
            send, receive = trio.open_memory_channel[TextDelta](math.inf)

            async def say() -> None:
                async with send:
                    for _ in range(count):
                        await send.send(TextDelta("word "))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(say)
                received = [event async for event in receive]
            assert len(received) == count

        return await seconds(read)

    return [_row("text deltas", await pair(ours, base, runs), count, "delta", 1.0)]


async def _all(one: Callable[[int], Awaitable[None]], count: int) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(one, number)


def _row(name: str, found: Any, units: int, unit: str, bar: float) -> Row:
    return {
        "row": name,
        "ratio": round(found.ratio, 2),
        "bar": bar,
        f"us_per_{unit}": round(found.ours / units * 1e6, 1),
        f"base_us_per_{unit}": round(found.base / units * 1e6, 1),
        "runs": found.runs,
    }
