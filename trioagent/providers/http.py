"""HTTP to a model's vendor: one request, its retries and time-outs, every failure typed.

What this file knows of a wire format is a `ReplyDecoder`: event data in, deltas out, a message at
the end.  What it adds:

* a failure is one of the `ProviderError` kinds, whatever httpx2 or the vendor called it;
* a retry happens only while nothing of the reply was shown (see `trioagent.providers.retries`);
* no text of an error holds the credential, and none is longer than `MAX_ERROR_TEXT`.

**Connections.**  By default each call opens a client and closes it, so a provider may be made
anywhere, used by many runs and many event loops, and never has to be closed.  That costs a
connection per call, which a model call does not notice: its TLS context, the slow part to make, is
kept.  A caller that wants connections kept opens an `httpx2.AsyncClient` and passes it, and closes
it when its own work is done; the time-outs below apply to it all the same.

**Cancellation** closes the connection: everything here is a context manager, nothing is shielded
and no task is started.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field

import httpx2
import trio

from trioagent.errors import (
    InvalidRequestError,
    ProtocolError,
    ProviderError,
    UnavailableError,
)
from trioagent.messages import AssistantMessage
from trioagent.provider import Delta, Emit
from trioagent.providers import vendor_errors
from trioagent.providers.bodies import MAX_ERROR_BODY, BodyReader, ReplyDecoder, presentable
from trioagent.providers.retries import RetryPolicy, retry_after, should_retry

CONNECT_TIMEOUT = 10.0
"""Seconds for a connection to be made, where the time-out as a whole is not less."""

_DRAIN = 0.1
"""Seconds to wait for the end of a body whose reply is complete, so that its connection can be
used again."""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(slots=True)
class _Attempt:
    """One attempt: what it showed, and what the vendor said of trying again."""

    decoder: ReplyDecoder
    show: Emit
    shown: bool = False
    advice: bool | None = None

    def emit(self, delta: Delta) -> None:
        self.shown = True
        self.show(delta)


@dataclass(slots=True)
class Endpoint:
    """Where a model is asked: ``POST url``.

    Args:
        url: http or https.
        headers: sent with each request, the credential among them.
        secret: the credential, for it to be struck out of error texts.
        timeout: seconds without a byte, from 0 (exclusive), after which a call fails; making the
            connection has `CONNECT_TIMEOUT` at most.
        policy: the retries.
        client: an open client whose connections are used; ``None``: one for each call.

    Proxies of the environment are used, except for this machine's own addresses.
    """

    url: httpx2.URL
    headers: Mapping[str, str] = field(repr=False)
    secret: str = field(repr=False)
    timeout: float
    policy: RetryPolicy
    client: httpx2.AsyncClient | None = None
    _tls: ssl.SSLContext | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise ValueError(f"timeout is a number of seconds above 0, not {self.timeout!r}")
        if self.policy.max_retries < 0:
            raise ValueError("max_retries counts from 0")

    async def ask(
        self, body: bytes, decoder: Callable[[], ReplyDecoder], emit: Emit
    ) -> AssistantMessage:
        """Send `body` (JSON) and read the reply, trying again as the policy says.

        Raises:
            ProviderError: the call failed, or failed after something of it was shown.

        Cancellation: closes the connection and goes on.  Always a checkpoint.
        """
        retries = 0
        async with self._opened() as client:
            while True:
                attempt = _Attempt(decoder(), emit)
                try:
                    return await self._attempt(client, body, attempt)
                except ProviderError as exc:
                    wait = self.policy.wait(retries, exc, attempt.advice)
                    if wait is None or attempt.shown:
                        exc.args = (presentable(str(exc), self.secret),)
                        raise
                retries += 1
                await trio.sleep(wait)

    def _opened(self) -> AbstractAsyncContextManager[httpx2.AsyncClient]:
        if self.client is not None:
            return nullcontext(self.client)
        trust_env = self.url.host not in _LOOPBACK
        if self._tls is None and self.url.scheme == "https":
            self._tls = httpx2.create_ssl_context(trust_env=trust_env)
        # Without https there is nothing to verify, and a context is slow to make.
        verify = self._tls if self._tls is not None else False
        return httpx2.AsyncClient(verify=verify, trust_env=trust_env)

    async def _attempt(
        self, client: httpx2.AsyncClient, body: bytes, attempt: _Attempt
    ) -> AssistantMessage:
        began = False
        # Compression would hold back the events of a stream, and its bombs would need a bound.
        headers = {**self.headers, "accept-encoding": "identity"}
        timeout = httpx2.Timeout(self.timeout, connect=min(self.timeout, CONNECT_TIMEOUT))
        try:
            async with client.stream(
                "POST", self.url, content=body, headers=headers, timeout=timeout
            ) as response:
                began = True
                if response.status_code >= 300:
                    raise await self._refused(response, attempt)
                await self._read(response, attempt)
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            # A server that breaks off after the whole reply has still given it.
            if not attempt.decoder.complete:
                raise self._typed(exc, began) from None
        return attempt.decoder.finish()

    async def _refused(self, response: httpx2.Response, attempt: _Attempt) -> ProviderError:
        """The error of a response that is not 2xx, with as much of its body as comes."""
        headers = {name.lower(): value for name, value in response.headers.items()}
        attempt.advice = should_retry(headers)
        body = bytearray()
        with suppress(httpx2.HTTPError, ProtocolError):
            async with _chunks(response) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > MAX_ERROR_BODY:
                        break
        wait = retry_after(headers, time.time())
        return vendor_errors.from_body(response.status_code, bytes(body), wait)

    async def _read(self, response: httpx2.Response, attempt: _Attempt) -> None:
        content_type = response.headers.get("content-type", "")
        body = BodyReader(attempt.decoder, attempt.emit, content_type)
        async with _chunks(response) as chunks:
            async for chunk in chunks:
                body.feed(chunk)
                if attempt.decoder.ended:
                    await self._drain(chunks)
                    return
        body.close()

    async def _drain(self, chunks: AsyncIterator[bytes]) -> None:
        """Read to the end of the body, where the connection may serve a later call."""
        if self.client is not None:
            with suppress(httpx2.HTTPError), trio.move_on_after(_DRAIN):
                async for _ in chunks:
                    pass

    def _typed(self, exc: httpx2.HTTPError | httpx2.InvalidURL, began: bool) -> ProviderError:
        host = self.url.host
        said = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
        match exc:
            case httpx2.ConnectTimeout():
                return UnavailableError(f"no connection to {host} in time ({said})")
            case httpx2.PoolTimeout():
                return UnavailableError(f"no free connection to {host} in time ({said})")
            case httpx2.TimeoutException():
                return UnavailableError(f"{host} was silent for {self.timeout:g} seconds ({said})")
            case httpx2.RemoteProtocolError() if began:
                return ProtocolError(f"the reply of {host} breaks off ({said})")
            case httpx2.InvalidURL() | httpx2.UnsupportedProtocol() | httpx2.LocalProtocolError():
                return InvalidRequestError(f"the request cannot be sent to {host} ({said})")
            case _:
                return UnavailableError(f"no answer of {host} ({said})")


def endpoint(
    base_url: str,
    path: str,
    key_header: Mapping[str, str],
    *,
    api_key: str | None,
    stream: bool,
    timeout: float,
    max_retries: int,
    client: httpx2.AsyncClient | None,
    jitter: Callable[[], float],
    headers: Mapping[str, str] | None = None,
) -> Endpoint:
    """The endpoint at `path` below `base_url`.

    `key_header` says how the key is sent: header names to values, in which ``{key}`` stands for it.

    Raises:
        ValueError: an argument out of its range.  Its text does not hold the key.
    """
    accept = "text/event-stream" if stream else "application/json"
    sent = {"content-type": "application/json", "accept": accept, **(headers or {})}
    if api_key:
        key = _sendable(api_key)
        sent |= {name: value.format(key=key) for name, value in key_header.items()}
    return Endpoint(
        _url(base_url, path),
        sent,
        secret=api_key or "",
        timeout=timeout,
        policy=RetryPolicy(max_retries, jitter),
        client=client,
    )


def _url(base_url: str, path: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        raise ValueError("base_url is no URL") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("base_url starts with http:// or https:// and a host")
    if url.userinfo:
        raise ValueError("base_url holds a user name or password; give it as api_key")
    return url.copy_with(path=f"{url.path.rstrip('/')}/{path}")


def _sendable(key: str) -> str:
    """`key`, if a header can hold it; found here because later errors would quote the header."""
    if not all("!" <= character <= "~" for character in key):
        raise ValueError(
            "api_key holds white space or what is not ASCII; "
            "a key that was read from a file often ends with a line end"
        )
    return key


@asynccontextmanager
async def _chunks(response: httpx2.Response) -> AsyncIterator[AsyncGenerator[bytes, None]]:
    """The body's chunks; closed when their block is left, also in the middle.

    `aclose` alone does not do that: httpx2 nests generators, and the inner ones would wait for
    the garbage collector, which Trio warns of.  A cancellation is raised in the innermost and
    unwinds them all.  Chunks that are in memory already are passed over on the way.
    """
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise ProtocolError(f"the reply is compressed ({encoding:.40}), which was ruled out")
    chunks = response.aiter_bytes()
    try:
        yield chunks
    finally:
        with trio.CancelScope() as scope, suppress(httpx2.HTTPError):
            scope.cancel()
            async for _ in chunks:
                pass
