"""Other processes, told what to do line by line: nothing is synchronised by waiting for a while."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

ROOT = Path(__file__).parents[2]


class Lines:
    """Whole lines of a stream of bytes."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._rest = b""

    async def next(self) -> str:
        """The next line without its end; "" at the stream's end."""
        while b"\n" not in self._rest:
            data = await self._stream.receive_some()
            if not data:
                return ""
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode()


class Child:
    """A process of `tests.journal.child`."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdout is not None
        self.process = process
        self._lines = Lines(process.stdout)

    async def says(self) -> str:
        """Its next line."""
        return await self._lines.next()

    async def tell(self, *words: object) -> None:
        """Give it a command without waiting for what comes of it."""
        assert self.process.stdin is not None
        await self.process.stdin.send_all(" ".join(map(str, words)).encode() + b"\n")

    async def do(self, *words: object) -> str:
        """Give it a command; its answer is "ok", a value, or an error's class."""
        await self.tell(*words)
        return await self.says()

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        assert await self.process.wait() == -signal.SIGKILL


@asynccontextmanager
async def child(module: str, *arguments: object) -> AsyncIterator[Child]:
    """``async with child("child", path) as other``: alive at most until the block ends."""
    command = [sys.executable, "-m", f"tests.journal.{module}", *map(str, arguments)]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        yield Child(process)
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                await stream.aclose()
