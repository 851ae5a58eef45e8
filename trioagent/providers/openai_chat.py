"""The chat-completions API of OpenAI, which most other vendors and local servers speak too."""

from __future__ import annotations

import random
from collections.abc import Callable

import httpx2

from trioagent.messages import AssistantMessage
from trioagent.provider import Emit, Request

from .chat_decoder import ChatDecoder
from .chat_encoder import MaxTokensField, encode_request
from .http import Endpoint
from .retries import RetryPolicy


class OpenAIChat:
    """A model behind ``POST <base_url>/chat/completions``, always streamed.

    One object may serve many runs, one after another or at once, in any number of event loops; it
    holds no connection and needs no closing.

    Args:
        model: the vendor's name of the model.
        base_url: http or https; a query (``?api-version=...``) is kept.
        api_key: sent as a bearer token.  Without one no credential is sent: none is taken from the
            environment, since a key for one vendor must not go to another.
        timeout: seconds without a byte after which a call has failed.  The default leaves a model
            that thinks before its first word five minutes.
        max_retries: attempts after the first, from 0; only while nothing of the reply was shown.
            A vendor's ``Retry-After`` is followed up to 60 seconds.
        max_tokens_field: what `CallOptions.max_output_tokens` is called; the default is the API's
            name of today, servers that know only the old one need ``max_tokens``.
        include_usage: ask for token counts.  To be switched off only for a server that refuses
            the field: token budgets then see nothing.
        client: an open `httpx2.AsyncClient` of the running event loop, for connections to be kept
            between calls (or for a proxy of one's own); the caller closes it.
        jitter: numbers from 0 to 1 that the back-off is multiplied by.

    Raises:
        ValueError: an argument out of its range.  Its text does not hold the key.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "https://api.openai.com/v1",
        api_key: str | None = None,
        timeout: float = 300.0,
        max_retries: int = 2,
        max_tokens_field: MaxTokensField = "max_completion_tokens",
        include_usage: bool = True,
        client: httpx2.AsyncClient | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.model = model
        self._max_tokens_field: MaxTokensField = max_tokens_field
        self._include_usage = include_usage
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if api_key:
            headers["authorization"] = f"Bearer {_sendable(api_key)}"
        self._endpoint = Endpoint(
            _url(base_url),
            headers,
            secret=api_key or "",
            timeout=timeout,
            policy=RetryPolicy(max_retries, jitter),
            client=client,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    async def complete(self, request: Request, emit: Emit) -> AssistantMessage:
        """The reply to `request`; `emit` is called with its text and thinking as they come.

        A call that fails is tried again only while `emit` was not called, so no `ModelReset` is
        ever needed.

        Raises:
            AuthenticationError: no valid key, or nothing left to spend.
            RateLimitError, OverloadedError, UnavailableError: not now, also after the retries.
            ContextLengthError, ContentFilterError, InvalidRequestError: not this request.
            ProtocolError: a reply that is none, or that breaks off.

        Cancellation: closes the connection.  Always a checkpoint.
        """
        body = encode_request(
            request,
            self.model,
            max_tokens_field=self._max_tokens_field,
            include_usage=self._include_usage,
        )
        return await self._endpoint.ask(body, lambda: ChatDecoder(self.model), emit)


def _sendable(key: str) -> str:
    """`key`, if a header can hold it; found here because later errors would quote the header."""
    if not all("!" <= character <= "~" for character in key):
        raise ValueError(
            "api_key holds white space or what is not ASCII; "
            "a key that was read from a file often ends with a line end"
        )
    return key


def _url(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        raise ValueError("base_url is no URL") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("base_url starts with http:// or https:// and a host")
    if url.userinfo:
        raise ValueError("base_url holds a user name or password; give it as api_key")
    return url.copy_with(path=url.path.rstrip("/") + "/chat/completions")
