"""A process that does with a journal what it is told, one command a line, one line an answer.

claim ID | takeover ID | release          own a run
step NAME | stuck NAME                    run a write, or one whose body says "in NAME" first and
                                          goes on when it is told anything
many COUNT                                that many writes, one after another
approve ID MARKER | resolve ID STEP | status ID | doubts
reopen                                    close the journal and open it again
"""

from __future__ import annotations

import os
import sys
from contextlib import AsyncExitStack

import trio

from trioagent import Applied, Journal, Run, open_journal

from .children import Lines


def say(text: str) -> None:
    """One line, at once."""
    print(text, flush=True)


class Told:
    """What the process has open."""

    def __init__(self, path: str, lines: Lines) -> None:
        self.path = path
        self.lines = lines
        self.opened = AsyncExitStack()
        self.claimed = AsyncExitStack()
        self.journal: Journal
        self.run: Run

    async def open(self) -> None:
        """Open the journal."""
        self.journal = await self.opened.enter_async_context(open_journal(self.path))

    async def do(self, command: str, words: list[str]) -> str:
        """Do one command."""
        journal = self.journal
        match command:
            case "claim" | "takeover":
                claim = journal.claim(words[0], take_over=command == "takeover")
                self.run = await self.claimed.enter_async_context(claim)
            case "release":
                await self.claimed.aclose()
            case "step":
                await self.run.step(words[0], self.write)
            case "stuck":
                await self.run.step(words[0], self.stuck, words[0])
            case "many":
                for number in range(int(words[0])):
                    await self.run.step(f"write-{number}", self.write)
            case "approve":
                await journal.approve(*words)
            case "resolve":
                await journal.resolve(*words, Applied("looked"))
            case "status":
                return (await journal.view(words[0])).status
            case "doubts":
                found = [f"{doubt.run_id} {doubt.step}" for doubt in await journal.doubts()]
                return ", ".join(found) or "none"
            case "reopen":
                await self.opened.aclose()
                await self.open()
            case "make":
                async with open_journal(words[0]) as made, made.claim(f"run-{os.getpid()}") as run:
                    await run.step("one", self.write)
            case _:
                return f"no command {command}"
        return "ok"

    def write(self) -> str:
        """A write that is quickly done."""
        return "written"

    async def stuck(self, name: str) -> str:
        """A write that goes on when it is told to."""
        say(f"in {name}")
        await self.lines.next()
        return "written"


async def main(path: str) -> None:
    """Do what standard input says until it ends."""
    async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
        lines = Lines(stdin)
        told = Told(path, lines)
        async with told.opened:
            await told.open()
            async with told.claimed:
                while line := await lines.next():
                    command, *words = line.split()
                    try:
                        say(await told.do(command, words))
                    except Exception as exc:
                        say(type(exc).__name__)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
