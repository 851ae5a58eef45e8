"""A process that is interrupted by a real SIGINT at a place that it says it has reached.

python -m tests.journal.interrupted DIRECTORY model|read|write|thread     says "in", then waits
python -m tests.journal.interrupted DIRECTORY commit                      interrupts itself
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import apsw
import trio

from tests.scripts import call, calling
from trioagent import Agent, AssistantMessage, Request, open_journal, tool
from trioagent.provider import Emit

from .child import say


class Model:
    """Asks for one tool, or hangs."""

    model = "scripted"

    def __init__(self, place: str) -> None:
        self.place = place

    async def complete(self, request: Request, emit: Emit) -> AssistantMessage:
        if self.place == "model":
            say("in")
            await trio.sleep_forever()
        return calling(call(self.place))


def agent(place: str) -> Agent:
    """An agent that stays at `place` until it is interrupted."""

    @tool(effect="read")
    async def read() -> None:
        say("in")
        await trio.sleep_forever()

    @tool(effect="write")
    async def write() -> None:
        say("in")
        await trio.sleep_forever()

    @tool(effect="write")
    def thread() -> str:
        say("in")
        os.read(0, 1)
        return "wrote"

    return Agent(Model(place), tools=[read, write, thread])


async def main(directory: Path, place: str) -> None:
    """Run until the interruption."""
    async with open_journal(directory / "runs.db") as journal, journal.claim("run") as run:
        await agent(place).run("Go.", step_runner=run)


class Interrupting:
    """Sends SIGINT to its own process right after a commit that the loop's thread makes."""

    def __init__(self) -> None:
        self.armed = False

    def watch(self, connection: apsw.Connection) -> None:
        """Look at every statement of a connection."""

        def traced(event: dict[str, Any]) -> None:
            here = threading.current_thread() is threading.main_thread()
            if self.armed and here and event["sql"] == "COMMIT":
                self.armed = False
                os.kill(os.getpid(), signal.SIGINT)

        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, traced)


async def commits(directory: Path) -> None:
    """Go on after an interruption by one's own commit, as an application might."""
    interrupting = Interrupting()
    apsw.connection_hooks.append(interrupting.watch)
    async with open_journal(directory / "runs.db") as journal, journal.claim("run") as run:
        await run.step("one", lambda: 1, effect="read")
        interrupting.armed = True
        try:
            await run.step("two", time.time, effect="read")
            await trio.lowlevel.checkpoint()
        except KeyboardInterrupt:
            say("interrupted")
        await run.step("three", lambda: 3, effect="read")
    say("ended")


if __name__ == "__main__":
    if sys.argv[2] == "commit":
        trio.run(commits, Path(sys.argv[1]))
    else:
        trio.run(main, Path(sys.argv[1]), sys.argv[2])
