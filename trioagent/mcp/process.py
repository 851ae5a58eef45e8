"""An MCP server as a child process: messages over its standard input and output.

The SDK's own transport keeps neither a bound on a line nor what the server wrote to its standard
error, so this file has one of its own; all above the bytes is the SDK's.

**What is bounded.**  A line is a message: one longer than `max_message_bytes` ends the server,
since nobody can tell which call it was to answer.  Of standard error the last `TAIL_BYTES` are
kept.  A line that is no message is skipped, as servers print what they should not; one that is an
answer which cannot be read (a lone surrogate, a wrong shape) ends its call with an error.

**How it ends.**  Closing goes as MCP says: standard input is closed, then the process group gets
SIGTERM, then SIGKILL, with a bounded wait before each; it is shielded, so that a cancellation
leaves no process behind.  When the process ends by itself, what it wrote is still read, unless a
child of its own holds the pipe.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import anyio
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

Incoming: TypeAlias = SessionMessage | Exception
Talk: TypeAlias = Callable[[Any, Any], Awaitable[None]]
"""What talks to a server over the stream of its messages and the one that takes ours."""

TAIL_BYTES = 2048
"""Bytes of standard error that are kept: the last frames of a traceback, or some thirty lines."""

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
"""What a server gets of our environment.  The rest may hold credentials that are not its own."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_CHUNK = 64 * 1024
_DRAIN = 1.0
"""Seconds to read on after a process ended, where a child of it holds its pipes."""
_UNSENT = 64
"""Messages of ours that may wait for a server that does not read; then calls wait to be sent."""


class Process:
    """A server's process and what is known of how it ended."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        max_message_bytes: int,
        stop_timeout: float,
    ) -> None:
        self._command = list(command)
        self._env = {key: os.environ[key] for key in INHERITED if key in os.environ} | dict(env)
        self._cwd = cwd
        self._max = max_message_bytes
        self._grace = stop_timeout
        self._tail = bytearray()
        self._process: trio.Process | None = None
        self._fault = ""
        self._heard_all = trio.Event()
        self._told_all = trio.Event()
        self.ended = False

    async def run(self, talk: Talk) -> None:
        """Start the process, let `talk` talk to it, and stop it.

        Raises:
            OSError: there is no such program, or it cannot be started.
        """
        process = self._process = await trio.lowlevel.open_process(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env,
            cwd=self._cwd,
            start_new_session=True,
        )
        heard, incoming = anyio.create_memory_object_stream[Incoming](0)
        outgoing, unsent = anyio.create_memory_object_stream[SessionMessage](_UNSENT)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hear, process, heard)
                nursery.start_soon(self._tell, process, unsent, heard)
                nursery.start_soon(self._keep_tail, process)
                nursery.start_soon(self._watch, process, heard)
                try:
                    await talk(incoming, outgoing)
                finally:
                    with trio.CancelScope(shield=True):
                        await self._stop(process)
                    nursery.cancel_scope.cancel()
        finally:
            for stream in (heard, incoming, outgoing, unsent):
                stream.close()

    async def how_it_ended(self) -> str:
        """How, in words for the model: the exit code or the signal, and the end of its stderr."""
        process = self._process
        with trio.move_on_after(_DRAIN):
            if process is not None:
                await process.wait()
            await self._told_all.wait()
        code = None if process is None else process.returncode
        if self._fault:
            how = self._fault
        elif code is None:
            how = "it closed its output"
        else:
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        tail = printable(bytes(self._tail))
        return f"{how}; the end of its standard error: {tail}" if tail else how

    # -- the tasks --------------------------------------------------------------------------------

    async def _hear(self, process: trio.Process, heard: MemoryObjectSendStream[Incoming]) -> None:
        """Read lines and pass on the messages among them."""
        assert process.stdout is not None
        pieces: list[bytes] = []
        size = 0
        try:
            while chunk := await process.stdout.receive_some(_CHUNK):
                *lines, rest = chunk.split(b"\n")
                for line in lines:
                    whole = b"".join([*pieces, line])
                    pieces, size = [], 0
                    if len(whole) > self._max:
                        self._too_long(process)
                        return
                    message = read_line(whole)
                    if message is not None:
                        await heard.send(message)
                size += len(rest)
                if size > self._max:
                    self._too_long(process)
                    return
                pieces.append(bytes(rest))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # nobody listens any more
        finally:
            self.ended = True
            self._heard_all.set()
            heard.close()

    def _too_long(self, process: trio.Process) -> None:
        self._fault = f"it sent a message of more than {self._max} bytes"
        self._signal(process, signal.SIGKILL)

    async def _tell(
        self,
        process: trio.Process,
        unsent: MemoryObjectReceiveStream[SessionMessage],
        heard: MemoryObjectSendStream[Incoming],
    ) -> None:
        assert process.stdin is not None
        try:
            async for message in unsent:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send_all(line.encode() + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # It reads no more, so no call can be answered; what it had sent has been heard.
            with trio.move_on_after(_DRAIN):
                await self._heard_all.wait()
            self.ended = True
            heard.close()

    async def _keep_tail(self, process: trio.Process) -> None:
        assert process.stderr is not None
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while chunk := await process.stderr.receive_some(_CHUNK):
                self._tail += chunk
                del self._tail[:-TAIL_BYTES]
        self._told_all.set()

    async def _watch(self, process: trio.Process, heard: MemoryObjectSendStream[Incoming]) -> None:
        await process.wait()
        with trio.move_on_after(_DRAIN):
            await self._heard_all.wait()
        if not self._heard_all.is_set():
            self._signal(process, signal.SIGKILL)  # a child of it holds the pipe
        self.ended = True
        heard.close()

    # -- the end ----------------------------------------------------------------------------------

    async def _stop(self, process: trio.Process) -> None:
        assert process.stdin is not None
        await process.stdin.aclose()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with trio.move_on_after(self._grace):
                await process.wait()
            if process.returncode is not None:
                break
            self._signal(process, number)
        await process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                await pipe.aclose()

    def _signal(self, process: trio.Process, number: signal.Signals) -> None:
        """Signal the server and its children: it leads a process group of its own."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def read_line(line: bytes) -> SessionMessage | None:
    """The message in `line`, or ``None`` where it holds none.

    An answer that the SDK cannot read becomes an error for the call that it answers.
    """
    if not line.strip():
        return None
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as exc:
        problem = str(exc)
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not {"result", "error"} & found.keys():
        return None
    call = found.get("id")
    if not isinstance(call, int | str) or isinstance(call, bool):
        return None
    first = printable(problem.encode("utf-8", "replace"))[:200]
    error = types.ErrorData(code=types.PARSE_ERROR, message=f"its answer cannot be read: {first}")
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=call, error=error))


def printable(data: bytes) -> str:
    """`data` as text, without what changes what a reader sees: control characters and escapes."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    kept = [char for char in text.replace("\t", " ") if char.isprintable() or char == "\n"]
    return "".join(kept).strip()
