"""What the journal's tests share: models that survive a resume, and looks at the file itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import trio

from tests.scripts import QUESTION, call, calling, saying
from trioagent import Agent, AssistantMessage, Journal, Message, tool
from trioagent.effects import Effect
from trioagent.providers import Scripted

Row = tuple[Any, ...]


def by_turn(*replies: AssistantMessage | Exception) -> Scripted:
    """A model whose reply follows from the transcript alone, so that any process may ask it."""

    def script(messages: tuple[Message, ...]) -> AssistantMessage | Exception:
        return replies[sum(isinstance(message, AssistantMessage) for message in messages)]

    return Scripted(script)


def rows(path: Path, table: str = "records") -> list[Row]:
    """All that a table of the file holds, read through a connection of its own.

    Never with `open`: closing such a file would drop the locks of a journal open in this process.
    """
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return connection.execute(f"SELECT * FROM {table}").fetchall()
    finally:
        connection.close()


def names(folder: Path) -> list[str]:
    """The files in a folder."""
    return sorted(file.name for file in folder.iterdir())


def alter(path: Path, statement: str, *values: Any) -> None:
    """Do to the file what no journal would."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute(statement, values)
    finally:
        connection.close()


async def kinds(journal: Journal, run_id: str) -> list[str]:
    """The kinds of a run's records, with tag where one says how it ended."""
    shown = ("signal", "run.stopped", "run.completed")
    return [
        f"{record.kind} {record.tag}" if record.kind in shown else record.kind
        for record in await journal.records(run_id)
    ]


async def leave_open(
    journal: Journal, run_id: str, name: str, *args: Any, effect: Effect = "write"
) -> None:
    """Begin a step and be cancelled within its body, so that only its intent is recorded."""
    with trio.CancelScope() as scope:
        async with journal.claim(run_id) as run:

            async def body(*_: Any) -> None:
                scope.cancel()
                await trio.sleep_forever()

            await run.step(name, body, *args, effect=effect)
    assert scope.cancelled_caught


class World:
    """What a test's tools did, outside of any journal."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def doing(self, name: str, effect: Effect, result: Any = None, **options: Any) -> Any:
        """A tool ``name(what: str = "")`` that says here that it ran."""

        async def function(what: str = "") -> Any:
            await trio.lowlevel.checkpoint()
            self.did.append(f"{name} {what}".strip())
            if isinstance(result, Exception):
                raise result
            return f"did {name} {what}".strip() if result is None else result

        return tool(name=name, effect=effect, **options)(function)


def weather(world: World, model: Scripted | None = None, **options: Any) -> Agent:
    """The worked example: two model calls and one tool call, a read."""
    model = model or by_turn(calling(call("lookup", {"what": "Paris"})), saying("It is sunny."))
    return Agent(model, tools=[world.doing("lookup", "read", "sunny")], **options)


async def cancelled_in(
    journal: Journal, run_id: str, make: Callable[[Callable[[], None]], Agent]
) -> None:
    """Run the agent that `make` gives until it calls what `make` was given, which cancels it."""
    with trio.CancelScope() as scope:
        async with journal.claim(run_id) as run:
            await make(scope.cancel).run(QUESTION, step_runner=run)
    assert scope.cancelled_caught


async def refused(attempt: Awaitable[Any], kind: type[Exception], path: Path) -> Exception:
    """`attempt` raises `kind`, and afterwards the file holds what it held."""
    before = rows(path)
    try:
        await attempt
    except kind as exc:
        assert rows(path) == before
        return exc
    raise AssertionError(f"nothing was refused, so no {kind.__name__} came")
