"""The Responses API of OpenAI, which some other vendors and servers speak too."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import httpx2

from trioagent.messages import AssistantMessage
from trioagent.provider import Emit, Request, Structured
from trioagent.providers.http import endpoint
from trioagent.providers.names import own_names, wire_names
from trioagent.providers.responses_decoder import ResponsesDecoder
from trioagent.providers.responses_encoder import ResponsesEncoder


class OpenAIResponses:
    """A model behind ``POST <base_url>/responses``.

    One object may serve many runs, one after another or at once, in any number of event loops; it
    holds no connection and needs no closing.  Each request holds the whole transcript: no state
    that the vendor keeps is relied upon.

    Args:
        model: the vendor's name of the model.
        base_url: http or https; a query is kept.
        api_key: sent as a bearer token.  Without one no credential is sent, and none is taken from
            the environment.
        stream: ask for the reply as it is written; without, it is shown in one piece at its end.
        store: whether the vendor keeps the response; ``None`` leaves it to the vendor.  A model
            that reasons needs ``include=("reasoning.encrypted_content",)`` with ``store=False``,
            since its reasoning goes back with the next request.
        include: what the vendor sends besides; not every model takes every value.
        timeout: seconds without a byte after which a call has failed.
        max_retries: attempts after the first, from 0; only while nothing of the reply was shown.
            A vendor's ``Retry-After`` is followed up to 60 seconds.
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
        store: bool | None = None,
        include: Sequence[str] = (),
        timeout: float = 300.0,
        max_retries: int = 2,
        structured: Structured = "schema",
        client: httpx2.AsyncClient | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.model = model
        self.structured = structured
        self._encoder = ResponsesEncoder(model, stream=stream, store=store, include=include)
        self._endpoint = endpoint(
            base_url,
            "responses",
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
        message = await self._endpoint.ask(body, lambda: ResponsesDecoder(self.model), emit)
        return own_names(message, wire_names(request.tools))
