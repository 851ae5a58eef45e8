"""The chat-completions API of OpenAI, which most other vendors and local servers speak too."""

from __future__ import annotations

import random
from collections.abc import Callable

import httpx2

from trioagent.messages import AssistantMessage
from trioagent.provider import Emit, Request, Structured
from trioagent.providers.chat_decoder import ChatDecoder
from trioagent.providers.chat_encoder import ChatEncoder, MaxTokensField, ThinkingField
from trioagent.providers.http import endpoint
from trioagent.providers.names import own_names, wire_names


class OpenAIChat:
    """A model behind ``POST <base_url>/chat/completions``.

    One object may serve many runs, one after another or at once, in any number of event loops; it
    holds no connection and needs no closing.

    Args:
        model: the vendor's name of the model.
        base_url: http or https; a query (``?api-version=...``) is kept.
        api_key: sent as a bearer token.  Without one no credential is sent: none is taken from the
            environment, since a key for one vendor must not go to another.
        stream: ask for the reply as it is written.  Without, it is shown in one piece at its end,
            and `timeout` must leave time for the whole of it.
        timeout: seconds without a byte after which a call has failed.  The default leaves a model
            that thinks before its first word five minutes.
        max_retries: attempts after the first, from 0; only while nothing of the reply was shown.
            A vendor's ``Retry-After`` is followed up to 60 seconds.
        max_tokens_field: what `CallOptions.max_output_tokens` is called; the default is the API's
            name of today, servers that know only the old one need ``max_tokens``.
        include_usage: ask for token counts.  To be switched off only for a server that refuses
            the field: a token budget then ends a run that goes on after such a reply.
        thinking_field: the name under which the model's thinking is sent back, for the vendors
            that want it back (DeepSeek's and Moonshot's is ``reasoning_content``).
        structured: how the model is made to answer in a form: by the API's ``schema`` mode, or by
            a ``tool`` where the model or the server has none.
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
        stream: bool = True,
        timeout: float = 300.0,
        max_retries: int = 2,
        max_tokens_field: MaxTokensField = "max_completion_tokens",
        include_usage: bool = True,
        thinking_field: ThinkingField | None = None,
        structured: Structured = "schema",
        client: httpx2.AsyncClient | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.model = model
        self.structured = structured
        self._encoder = ChatEncoder(
            model,
            max_tokens_field=max_tokens_field,
            include_usage=include_usage,
            stream=stream,
            thinking_field=thinking_field,
        )
        self._endpoint = endpoint(
            base_url,
            "chat/completions",
            {"authorization": "Bearer {key}"},
            api_key=api_key,
            stream=stream,
            timeout=timeout,
            max_retries=max_retries,
            client=client,
            jitter=jitter,
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
        body = self._encoder.encode(request)
        message = await self._endpoint.ask(body, lambda: ChatDecoder(self.model), emit)
        return own_names(message, wire_names(request.tools))
