"""One process of the demo: runs the agent, and dies where its setup says.

``python -m trioagent.cli.demo_child SETUP``, the setup as JSON.  The process kills itself by
SIGKILL, which nothing can catch: no handler runs, nothing is flushed.  That is as close to a crash
as a program can come by its own hand.
"""

from __future__ import annotations

import os
import signal
import sys

import msgspec
import trio

from trioagent.cli.demo_agent import PROMPT, RUN_ID, Setup, demo_agent
from trioagent.cli.ending import Ending, describe
from trioagent.cli.safe import one_line
from trioagent.events import Event, State, ToolCalled, ToolFinished
from trioagent.journal import open_journal


class Doomed:
    """Where this process dies.

    In the middle of reading: the read number `victim` (from 1) waits until the others of its turn
    are recorded, which is so once their events are shown, and then takes the process with it.
    """

    def __init__(self, setup: Setup) -> None:
        self._crash = setup.crash
        self._victim = setup.victim
        self._called = self._finished = self._started = 0
        self._changed = trio.Event()

    def see(self, event: Event) -> None:
        """Count the turn's reads."""
        if isinstance(event, ToolCalled) and event.call.name == "read_file":
            self._called += 1
        elif isinstance(event, ToolFinished) and event.message.name == "read_file":
            self._finished += 1
            self._changed.set()
            self._changed = trio.Event()

    async def in_read(self) -> None:
        """Die here, if this is the read to die in."""
        self._started += 1
        if self._crash != "reading" or self._started != self._victim:
            return
        while self._finished < max(self._called - 1, self._victim - 1):
            await self._changed.wait()
        _die()

    def after_write(self) -> None:
        """Die here, if this is the place."""
        if self._crash == "writing":
            _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def run_act(setup: Setup) -> State:
    """Begin the run, or go on with it."""
    fate = Doomed(setup)
    agent = demo_agent(setup, fate)
    prompt = PROMPT if setup.act == 1 else None
    async with (
        open_journal(setup.journal) as journal,
        journal.claim(RUN_ID) as run,
        agent.stream(prompt, step_runner=run) as stream,
    ):
        async for event in stream:
            fate.see(event)
        return await stream.result()


def main() -> int:
    """Run the act; returns its exit code, as ``trioagent run`` would."""
    setup = msgspec.json.decode(sys.argv[1], type=Setup)
    try:
        return Ending(trio.run(run_act, setup)).exit_code
    except Exception as exc:
        print(f"{type(exc).__name__}: {one_line(describe(exc))}", file=sys.stderr)
        return Ending(error=exc).exit_code


if __name__ == "__main__":
    sys.exit(main())
