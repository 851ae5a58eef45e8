"""`open_mcp`: a server's tools for as long as a block lasts."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, overload
from urllib.parse import urlsplit

import trio

from trioagent.mcp.connection import Connection, McpError
from trioagent.mcp.endpoint import Endpoint
from trioagent.mcp.process import Process
from trioagent.mcp.tools import McpLimits, McpTool, Policy, listed

if TYPE_CHECKING:
    import httpx2

CALL_TIMEOUT = 60.0
"""Seconds for a call, as the reference clients have it."""

_CLOSE_TIMEOUT = 10.0
"""Seconds for a session over HTTP to be ended at the server too."""


class McpTools(Sequence[McpTool]):
    """The tools of an MCP server, as they were listed last; made by `open_mcp`.

    **When the server changes its list**, this sequence stays as it is, since an agent's tools are
    part of what a run records: `changed` says so, `wait_changed` waits for it, and `refresh` reads
    the list anew, for the next agent.  A call of a tool that the server has dropped is answered
    with the server's own error.  (A server of the 2026 protocol alone announces no changes here.)
    """

    def __init__(self, connection: Connection, policy: Policy) -> None:
        self._connection = connection
        self._policy = policy
        self._tools: Sequence[McpTool] = ()
        self._left_out: Mapping[str, str] = {}

    def __len__(self) -> int:
        return len(self._tools)

    @overload
    def __getitem__(self, index: int) -> McpTool: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[McpTool]: ...
    def __getitem__(self, index: int | slice) -> McpTool | Sequence[McpTool]:
        return self._tools[index]

    def __iter__(self) -> Iterator[McpTool]:
        return iter(self._tools)

    def __repr__(self) -> str:
        return f"<McpTools of {self._connection.label}: {[tool.name for tool in self]}>"

    @property
    def left_out(self) -> Mapping[str, str]:
        """What the server listed and cannot be used, each with why."""
        return self._left_out

    @property
    def instructions(self) -> str:
        """What the server says of its use; a stranger's text, so nothing here puts it anywhere."""
        return self._connection.session.instructions or ""

    @property
    def changed(self) -> bool:
        """Whether the server said, since the list was read, that it is another now."""
        return self._connection.list_changed.is_set()

    async def wait_changed(self) -> None:
        """Wait until `changed`."""
        await self._connection.list_changed.wait()

    async def refresh(self) -> None:
        """Read the list of tools anew.

        Raises:
            McpError: the server refuses, or is gone; the sequence stays as it was.
        """
        originals = await self._connection.list_tools(self._policy.limits.max_tools)
        tools, self._left_out = listed(self._connection, originals, self._policy)
        self._tools = tuple(tools)

    async def aclose(self) -> None:
        """Ask the session to end, from any task, and wait until it has.

        Calls that wait, and later ones, get an error result.
        """
        self._connection.closing.set()
        await self._connection.closed.wait()


@asynccontextmanager
async def open_mcp(
    *,
    command: Sequence[str] | str | None = None,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    headers: Mapping[str, str] | None = None,
    auth: httpx2.Auth | None = None,
    prefix: str = "",
    trust_annotations: bool = False,
    timeout: float | None = CALL_TIMEOUT,
    limits: McpLimits | None = None,
) -> AsyncIterator[McpTools]:
    """A server's tools, for ``Agent(tools=[*tools])``, as long as the block lasts.

    Args:
        command: a program and its arguments, to be spoken to over standard input and output; a
            str is split as a shell would, and no shell runs it.
        url: where a server of streamable HTTP is.  Exactly one of `command` and `url` is given.
        env: variables for the program, over the few that it inherits (`INHERITED` in
            `trioagent.mcp.process`).
        cwd: the program's folder.
        headers: for each request to `url`, such as ``{"authorization": "Bearer ..."}``.
        auth: httpx2's own form of the same, for what a header cannot say.
        prefix: what the model reads before each tool's name, for servers whose names meet.
        trust_annotations: believe the server where it calls a tool read-only (``read``) or
            idempotent (``idempotent``).  Otherwise each is a ``write``: what a stranger says must
            not decide what may run twice.
        timeout: seconds for each call; ``None`` for no limit.
        limits: what else is bounded.

    Raises:
        McpError: the server cannot be started or reached, or does not speak MCP.
        ValueError: not exactly one of `command` and `url`, or one that cannot be.

    Cancellation: the session ends, and the program with it, within seconds.  What is raised in the
    block leaves it bare, not in a group.
    """
    limits = McpLimits() if limits is None else limits
    if (command is None) == (url is None):
        raise ValueError("give one of command and url")
    if url is not None:
        connection = _to_address(url, headers or {}, auth, limits)
    else:
        connection = _to_program(command or (), env or {}, cwd, limits)
    policy = Policy(prefix, trust_annotations, timeout, limits)
    async with _holding(connection):
        tools = McpTools(connection, policy)
        await _start(connection, tools, limits.start_timeout)
        yield tools


def _to_address(
    url: str, headers: Mapping[str, str], auth: httpx2.Auth | None, limits: McpLimits
) -> Connection:
    endpoint = Endpoint(url, headers=headers, auth=auth, max_message_bytes=limits.max_message_bytes)
    return Connection(endpoint, _address(url))


def _to_program(
    command: Sequence[str] | str,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None,
    limits: McpLimits,
) -> Connection:
    words = shlex.split(command) if isinstance(command, str) else list(command)
    if not words:
        raise ValueError("the command is empty")
    process = Process(
        words,
        env=env,
        cwd=None if cwd is None else os.fspath(cwd),
        max_message_bytes=limits.max_message_bytes,
        stop_timeout=limits.stop_timeout,
    )
    return Connection(process, Path(words[0]).name)


@asynccontextmanager
async def _holding(connection: Connection) -> AsyncIterator[None]:
    """Hold the session in a task while the block lasts; the block's exception leaves bare."""
    raised: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.serve)
            try:
                yield
            except BaseException as exc:
                raised = exc
            connection.closing.set()
            if connection.ready.is_set():
                nursery.cancel_scope.deadline = trio.current_time() + _CLOSE_TIMEOUT
            else:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup:
        # Only cancellations can be in it: `serve` keeps all else, and the block's own is ours.
        if raised is None:
            await trio.lowlevel.checkpoint_if_cancelled()
            raise
    if raised is not None:
        raise raised


async def _start(connection: Connection, tools: McpTools, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await connection.ready.wait()
        if connection.closed.is_set():
            raise await connection.start_failed()
        await tools.refresh()
        return
    raise McpError(f"the MCP server {connection.label} did not start within {seconds:g} s")


def _address(url: str) -> str:
    """`url` for texts: without what may be a credential in it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an MCP server's url is http://host/path or https://host/path")
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
