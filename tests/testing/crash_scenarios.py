"""Scenarios for crash experiments: three that keep the promise, and two with a planted fault."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from tests.scripts import call, calling, saying
from trioagent import (
    Agent,
    Applied,
    AssistantMessage,
    Begun,
    Failure,
    Message,
    NotApplied,
    Start,
    State,
    Step,
    ToolContext,
    tool,
)
from trioagent.effects import Effect
from trioagent.journal import Doubt, Run
from trioagent.messages import ToolResult, encode
from trioagent.providers import Scripted
from trioagent.steps import Body
from trioagent.testing import Scenario


def by_turn(*replies: AssistantMessage) -> Scripted:
    def script(messages: tuple[Message, ...]) -> AssistantMessage:
        return replies[sum(isinstance(message, AssistantMessage) for message in messages)]

    return Scripted(script)


# -- parallel reads -------------------------------------------------------------------------------


def reading(folder: Path) -> Agent:
    @tool(effect="read")
    async def look(city: str) -> str:
        """The weather in a city."""
        await trio.lowlevel.checkpoint()
        return f"sunny in {city}"

    cities = ("Paris", "Rome", "Bern")
    calls = calling(*[call("look", {"city": city}, id=city) for city in cities])
    return Agent(
        by_turn(calls, calling(call("look", {"city": "Oslo"})), saying("Sunny.")), tools=[look]
    )


def no_effects(folder: Path) -> list[str]:
    return []


reads = Scenario(name="parallel reads", build=reading, input="The weather?", observe=no_effects)


# -- a write that appends to a file ---------------------------------------------------------------


def appending(effect: Effect) -> Callable[[Path], Agent]:
    def build(folder: Path) -> Agent:
        @tool(effect=effect)
        async def append(line: str) -> str:
            """Append a line to the file."""
            await trio.lowlevel.checkpoint()
            with open(folder / "lines.txt", "a") as file:  # noqa: ASYNC230 - some bytes
                file.write(f"{line}\n")
            await trio.lowlevel.checkpoint()
            return f"appended {line}"

        turns = (
            calling(call("append", {"line": "one"})),
            calling(*[call("append", {"line": line}, id=line) for line in ("two", "three")]),
            saying("Appended."),
        )
        return Agent(by_turn(*turns), tools=[append])

    return build


def lines(folder: Path) -> list[str]:
    file = folder / "lines.txt"
    return file.read_text().splitlines() if file.exists() else []


def look_at_lines(folder: Path, doubt: Doubt) -> Applied | NotApplied:
    assert doubt.call is not None
    (line,) = [word for word in ("one", "two", "three") if word in doubt.call.arguments]
    applied = line in lines(folder)
    return Applied(f"appended {line}") if applied else NotApplied(by="a look at the file")


writes = Scenario(name="a write", build=appending("write"), input="Append.", observe=lines)
settled_writes = Scenario(
    name="a write, settled",
    build=appending("write"),
    input="Append.",
    observe=lines,
    settle=look_at_lines,
)


# -- a transfer under an idempotency key ----------------------------------------------------------


def transferring(folder: Path) -> Agent:
    @tool(effect="idempotent")
    async def transfer(amount: int, context: ToolContext) -> str:
        """Move an amount from the first account to the second."""
        await trio.lowlevel.checkpoint()
        bank = opened_bank(folder)
        with bank:
            known = bank.execute("SELECT 1 FROM done WHERE key = ?", (context.idempotency_key,))
            if not known.fetchall():
                bank.execute("INSERT INTO done VALUES (?)", (context.idempotency_key,))
                bank.execute("UPDATE accounts SET amount = amount - ? WHERE name = 'a'", (amount,))
                bank.execute("UPDATE accounts SET amount = amount + ? WHERE name = 'b'", (amount,))
        bank.close()
        await trio.lowlevel.checkpoint()
        return f"moved {amount}"

    turns = (
        calling(call("transfer", {"amount": 30})),
        calling(call("transfer", {"amount": 5}, id="1"), call("transfer", {"amount": 5}, id="2")),
        saying("Moved."),
    )
    return Agent(by_turn(*turns), tools=[transfer])


def opened_bank(folder: Path) -> sqlite3.Connection:
    bank = sqlite3.connect(folder / "bank.db")
    with bank:
        bank.execute("CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY)")
        bank.execute("CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, amount INTEGER)")
        bank.execute("INSERT OR IGNORE INTO accounts VALUES ('a', 100), ('b', 0)")
    return bank


def movements(folder: Path) -> list[str]:
    bank = opened_bank(folder)
    found = [f"{name} has {amount}" for name, amount in bank.execute("SELECT * FROM accounts")]
    keys = [f"transfer {n}" for n, _ in enumerate(bank.execute("SELECT key FROM done"))]
    bank.close()
    return [*found, *keys]


transfers = Scenario(name="a transfer", build=transferring, input="Move 40.", observe=movements)


# -- planted faults -------------------------------------------------------------------------------

lying = Scenario(
    name="a tool that lies about its effect",
    build=appending("read"),
    input="Append.",
    observe=lines,
)


class Early:
    """A runner that records a write's outcome before the write."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def begin(self, start: Start) -> Begun:
        return await self._run.begin(start)

    async def end(self, end: State | Failure) -> None:
        await self._run.end(end)

    def recorded(self, name: str) -> bool:
        return self._run.recorded(name)

    async def replay(self, step: Step) -> bytes | None:
        return await self._run.replay(step)

    async def run_step(self, step: Step, body: Body) -> bytes:
        if step.effect != "write":
            return await self._run.run_step(step, body)
        contexts: list[Any] = []

        async def only_record(context: Any) -> bytes:
            contexts.append(context)
            return encode(ToolResult((), "ok"))

        data = await self._run.run_step(step, only_record)
        for context in contexts:
            await body(context)
        return data


early = Scenario(
    name="a runner that records before the effect",
    build=appending("write"),
    input="Append.",
    observe=lines,
    runner=Early,
)
