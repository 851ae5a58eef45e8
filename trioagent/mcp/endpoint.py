"""An MCP server over streamable HTTP: the SDK's transport on a client that is bounded.

The SDK reads a JSON body whole and lets a failed connection end the session.  Here a body is
counted while it comes, compressed ones are refused (a few bytes of them can be gigabytes), and a
request that fails is answered with an error of its own, so that the session goes on.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping

import httpx2
import mcp_types as types
from mcp.client.streamable_http import streamable_http_client

from trioagent.mcp.process import Talk

_CONNECT = 30.0
"""Seconds for a connection to be made, and for a request to be sent.  How long an answer may take
is the call's own time-out."""


class Endpoint:
    """A server's address."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        auth: httpx2.Auth | None,
        max_message_bytes: int,
    ) -> None:
        self._url = url
        self._headers = {"accept-encoding": "identity"} | dict(headers)
        self._auth = auth
        self._max = max_message_bytes
        self.ended = False

    async def run(self, talk: Talk) -> None:
        """Let `talk` talk to the server; at the end the session is ended there too."""
        client = httpx2.AsyncClient(
            transport=_Bounded(httpx2.AsyncHTTPTransport(), self._max),
            headers=self._headers,
            auth=self._auth,
            timeout=httpx2.Timeout(_CONNECT, read=None),
        )
        try:
            async with (
                client,
                streamable_http_client(
                    self._url, http_client=client, max_sse_event_size=self._max
                ) as (incoming, outgoing),
            ):
                await talk(incoming, outgoing)
        finally:
            self.ended = True

    async def how_it_ended(self) -> str:
        """Nothing more is known than that it did."""
        return ""


class _Bounded(httpx2.AsyncBaseTransport):
    """Counts what comes back, and answers where nothing does."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as exc:
            return _failed(f"{type(exc).__name__}: {exc}")
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return _failed("the server compressed its answer, which it was asked not to do")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Counted(response.stream, self._limit)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Counted(httpx2.AsyncByteStream):
    """The bytes of a body, at most `limit` of them."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if size > self._limit:
                    raise httpx2.StreamError(f"a body of more than {self._limit} bytes")
                yield chunk
        except httpx2.TransportError as exc:
            raise httpx2.StreamError(f"{type(exc).__name__}: {exc}") from None

    async def aclose(self) -> None:
        await self._inner.aclose()


def _failed(what: str) -> httpx2.Response:
    """A refusal that the SDK hands to the one request that it answers."""
    error = {"code": types.CONNECTION_CLOSED, "message": what}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    return httpx2.Response(502, headers={"content-type": "application/json"}, content=body)
