"""One session with an MCP server, in one task that owns it from its start to its end.

    open_mcp ── nursery ── serve: transport, session, handshake ── until `closing`
       │
       └─ the block: calls go to the session by id, from any task, as many at once as there are

The SDK's contexts are entered and left in `serve` alone, so it does not matter which task asks for
the end; `closing` is only a request to it.  Whatever goes wrong in there is kept, not raised: it
is told to those who call.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

import mcp_types as types
import trio
from mcp import ClientSession, MCPError
from mcp.client import IncomingMessage
from pydantic import ValidationError

from trioagent.errors import TrioagentError
from trioagent.mcp.process import Talk
from trioagent.rendering import cut, describe_exception

MAX_SAID = 1000
"""Characters of an error's text that are the server's own words."""

_MAX_PAGES = 1000


class McpError(TrioagentError):
    """An MCP server could not be started, does not do as MCP says, or is gone."""


class Transport(Protocol):
    """How a server is reached."""

    ended: bool

    def run(self, talk: Talk) -> Awaitable[None]:
        """Reach it, let `talk` talk to it, and let go of it."""
        ...

    async def how_it_ended(self) -> str:
        """In words for the model."""
        ...


class Connection:
    """A session with a server; `label` names it in texts."""

    def __init__(self, transport: Transport, label: str) -> None:
        self.label = label
        self.ready = trio.Event()
        self.closing = trio.Event()
        self.closed = trio.Event()
        self.list_changed = trio.Event()
        self.failure: BaseException | None = None
        self._transport = transport
        self._session: ClientSession | None = None

    # -- the task that owns the session -----------------------------------------------------------

    async def serve(self) -> None:
        """Hold the session until `closing`.

        What ends it early is kept in `failure`.  Cancellation: it ends.
        """
        try:
            await self._transport.run(self._talk)
        except BaseException as exc:
            self.failure = _leaf(exc)
        finally:
            self._session = None
            self.ready.set()
            self.closed.set()

    async def _talk(self, incoming: Any, outgoing: Any) -> None:
        session = ClientSession(incoming, outgoing, message_handler=self._heard)
        async with session:
            try:
                await session.initialize()
            except MCPError as refused:
                # Every server of today knows the handshake; one of tomorrow may know only this.
                if self._transport.ended:
                    raise
                try:
                    await session.discover()
                except (MCPError, RuntimeError):
                    raise refused from None
            self._session = session
            self.ready.set()
            await self.closing.wait()

    async def _heard(self, message: IncomingMessage) -> None:
        await trio.lowlevel.checkpoint()
        if isinstance(message, types.ToolListChangedNotification):
            self.list_changed.set()

    # -- what others ask of it --------------------------------------------------------------------

    @property
    def session(self) -> ClientSession:
        """The session.

        Raises:
            McpError: it is closed.
        """
        if self._session is None or self.closing.is_set():
            raise McpError(f"the MCP server {self.label} is closed")
        return self._session

    async def end_told(self, after: str) -> McpError:
        """The error for what was asked of a server that is gone."""
        how = await self._transport.how_it_ended()
        ended = f"has ended ({how})" if how else "has ended"
        return McpError(f"the MCP server {self.label} {ended}{after}")

    async def start_failed(self) -> McpError:
        """The error for a server that `ready` does not find at work."""
        failure = self.failure
        if isinstance(failure, OSError):
            return McpError(f"the MCP server {self.label} cannot be started: {failure}")
        if isinstance(failure, MCPError):
            how = await self._transport.how_it_ended()
            if how and failure.code == types.CONNECTION_CLOSED:
                return McpError(f"the MCP server {self.label} did not start: {how}")
            failure = McpError(self._said(failure.message))
        what = "it is closed" if failure is None else describe_exception(failure)
        return McpError(f"the MCP server {self.label} did not start: {cut(what, MAX_SAID)}")

    async def call(self, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        """Call the tool that the server knows as `name`.

        Raises:
            McpError: the server refuses, answers what is no result, or is gone.

        Cancellation: the server is told, and the session goes on.
        """
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(name=name, arguments=arguments)
        )
        if self._transport.ended and not self.closing.is_set():
            raise await self.end_told("; the call was not made")
        session = self.session
        try:
            return await session.send_request(request, types.CallToolResult)
        except MCPError as exc:
            if self._transport.ended:
                after = "" if not self.closing.is_set() else " as it was asked to"
                raise await self.end_told(f"{after}; the call may have taken effect") from None
            lost = exc.code == types.CONNECTION_CLOSED
            after = "; the call may have taken effect" if lost else ""
            raise McpError(f"{self._said(exc.message)}{after}") from None
        except ValidationError as exc:
            raise McpError(
                f"the MCP server {self.label} ran the call, but its answer is no result: "
                f"{cut(str(exc), MAX_SAID)}"
            ) from None

    async def list_tools(self, most: int) -> list[types.Tool]:
        """The tools, page by page, until there are more than `most`.

        A cursor is opaque, the empty one too: the next page is asked for until there is none, or
        until a cursor repeats.

        Raises:
            McpError: the server refuses, answers what is no list, or is gone.
        """
        session = self.session
        capabilities = session.server_capabilities
        if capabilities is not None and capabilities.tools is None:
            return []
        if self.list_changed.is_set():
            self.list_changed = trio.Event()
        tools: list[types.Tool] = []
        seen: set[str] = set()
        params: types.PaginatedRequestParams | None = None
        try:
            for _ in range(_MAX_PAGES):
                page = await session.list_tools(params=params)
                tools += page.tools
                cursor = page.next_cursor
                if cursor is None or cursor in seen or len(tools) > most:
                    return tools
                seen.add(cursor)
                params = types.PaginatedRequestParams(cursor=cursor)
        except MCPError as exc:
            if self._transport.ended:
                raise await self.end_told("") from None
            raise McpError(f"tools/list: {self._said(exc.message)}") from None
        except ValidationError as exc:
            raise McpError(
                f"the MCP server {self.label} lists what are no tools: {cut(str(exc), MAX_SAID)}"
            ) from None
        raise McpError(f"the MCP server {self.label} lists more than {_MAX_PAGES} pages of tools")

    def _said(self, text: str) -> str:
        return f"the MCP server {self.label}: {cut(text, MAX_SAID)}"


def _leaf(exc: BaseException) -> BaseException:
    """The exception that tells most of a nursery's group: no cancellation, if there is another."""
    if not isinstance(exc, BaseExceptionGroup):
        return exc
    leaves = [_leaf(inner) for inner in exc.exceptions]
    return min(leaves, key=lambda leaf: isinstance(leaf, trio.Cancelled))
