"""A process that dies by SIGKILL at the point of a run that it is told, or reports on the world.

    python -m tests.journal.killed run DIRECTORY POINT     0: do not die, say how many points passed
    python -m tests.journal.killed resume DIRECTORY        until the run ends, looking at the world

Points lie before and after each intent, effect and record: around every step, at the start and the
end of its body, around each write's effect on a real file, and around each COMMIT of SQLite's.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import apsw
import trio

from tests.scripts import call, calling, saying, tokens
from trioagent import (
    Agent,
    Applied,
    Begun,
    Failure,
    NotApplied,
    Start,
    State,
    Step,
    StepContext,
    StepRunner,
    ToolContext,
    UnknownOutcomeError,
    open_journal,
    tool,
)
from trioagent.provider import Emit, Request
from trioagent.steps import Body

from .acts import by_turn


class Points:
    """Counts the points passed and dies at the one that it is given."""

    def __init__(self, fatal: int) -> None:
        self.fatal = fatal
        self.passed = 0
        self.armed = False
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self.passed += self.armed
            if self.armed and self.passed == self.fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, connection: apsw.Connection) -> None:
        """Points before and after each commit, in whatever thread it is."""

        def traced(event: dict[str, Any]) -> None:
            if event["sql"] == "COMMIT":
                self()

        connection.trace_v2(apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_PROFILE, traced)


class Dying:
    """A step runner with a point before and after whatever it passes on."""

    def __init__(self, inner: StepRunner, point: Points) -> None:
        self.inner = inner
        self.point = point

    async def begin(self, start: Start) -> Begun:
        self.point()
        begun = await self.inner.begin(start)
        self.point()
        return begun

    async def end(self, end: State | Failure) -> None:
        self.point()
        await self.inner.end(end)
        self.point()

    def recorded(self, name: str) -> bool:
        return self.inner.recorded(name)

    async def replay(self, step: Step) -> bytes | None:
        return await self.inner.replay(step)

    async def run_step(self, step: Step, body: Body) -> bytes:
        async def wrapped(context: StepContext) -> bytes:
            self.point()
            data = await body(context)
            self.point()
            return data

        self.point()
        data = await self.inner.run_step(step, wrapped)
        self.point()
        return data


def note(directory: Path, file: str, line: str) -> None:
    """Append a line in one write, which is there or is not when the process dies."""
    descriptor = os.open(directory / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def noted(directory: Path, file: str) -> list[str]:
    """The lines appended so far."""
    try:
        return (directory / file).read_text().splitlines()
    except FileNotFoundError:
        return []


class Model:
    """A scripted model that notes each call."""

    model = "scripted"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.scripted = by_turn(
            calling(call("read", {"what": "a"}, id="1"), call("read", {"what": "b"}, id="2")),
            calling(
                call("append", {"what": "x"}, id="3"),
                call("append_in_thread", {"what": "y"}, id="4"),
                call("read", {"what": "c"}, id="5"),
                usage=tokens(10),
            ),
            calling(call("put", {"what": "z"}, id="6"), call("append", {"what": "x"}, id="7")),
            saying("done", usage=tokens(5)),
        )

    async def complete(self, request: Request, emit: Emit) -> Any:
        reply = await self.scripted.complete(request, emit)
        turn = sum(type(message).__name__ == "AssistantMessage" for message in request.messages)
        note(self.directory, "ran", f"llm/{turn + 1}")
        return reply


def agent(directory: Path, point: Points) -> Agent:
    """Reads and writes, some in parallel; what a write does is a line with its key."""

    def write(context: ToolContext, what: str) -> str:
        note(directory, "ran", context.step)
        point()
        note(directory, "world", f"{context.idempotency_key} {what}")
        point()
        return f"appended {what}"

    @tool(effect="read")
    async def read(what: str, context: ToolContext) -> str:
        note(directory, "ran", context.step)
        return f"read {what}"

    @tool(effect="write")
    async def append(what: str, context: ToolContext) -> str:
        return write(context, what)

    @tool(effect="write")
    def append_in_thread(what: str, context: ToolContext) -> str:
        return write(context, what)

    @tool(effect="idempotent")
    async def put(what: str, context: ToolContext) -> str:
        note(directory, "ran", context.step)
        point()
        (directory / context.idempotency_key).write_text(what)
        point()
        return f"put {what}"

    return Agent(
        Model(directory), tools=[read, append, append_in_thread, put], system="Be careful."
    )


async def run(directory: Path, fatal: int) -> None:
    """Run from the start, and die at the given point."""
    point = Points(fatal)
    apsw.connection_hooks.append(point.watch)
    async with open_journal(directory / "runs.db") as journal:
        point.armed = True
        async with journal.claim("run") as claimed:
            await agent(directory, point).run("Go.", step_runner=Dying(claimed, point))
    print(point.passed)


async def resume(directory: Path) -> None:
    """Go on until the run ends; whoever resolves a doubt looks at what there is."""
    async with open_journal(directory / "runs.db") as journal:
        while True:
            try:
                async with journal.claim("run") as claimed:
                    state = await agent(directory, Points(0)).run("Go.", step_runner=claimed)
                    state.unwrap()
                    return
            except UnknownOutcomeError:
                pass
            for doubt in await journal.doubts("run"):
                lines = [line.split() for line in noted(directory, "world")]
                found = [what for key, what in lines if key == doubt.key]
                seen = Applied(f"appended {found[0]}") if found else NotApplied("the file")
                await journal.resolve("run", doubt.step, seen)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        trio.run(run, Path(sys.argv[2]), int(sys.argv[3]))
    else:
        trio.run(resume, Path(sys.argv[2]))
