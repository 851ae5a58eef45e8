"""The Messages API of Anthropic, which some other vendors speak too."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import httpx2
import msgspec

from trioagent.errors import ProtocolError
from trioagent.messages import AssistantMessage, AssistantPart, Usage
from trioagent.provider import Emit, Request, Structured
from trioagent.providers.anthropic_decoder import AnthropicDecoder
from trioagent.providers.anthropic_encoder import AnthropicEncoder
from trioagent.providers.http import endpoint
from trioagent.providers.names import own_names, wire_names

MAX_PAUSES = 16
"""Times that one call is gone on with after the vendor paused it (``pause_turn``)."""

API_VERSION = "2023-06-01"


class Anthropic:
    """A model behind ``POST <base_url>/messages``.

    One object may serve many runs, one after another or at once, in any number of event loops; it
    holds no connection and needs no closing.

    A reply that the vendor pauses, to go on with its own tools, is gone on with in the same call:
    the run sees one reply, whose usage is that of all its parts.

    Args:
        model: the vendor's name of the model.
        base_url: http or https, up to and with the version; a query is kept.
        api_key: sent as ``x-api-key``.  Without one no credential is sent, and none is taken from
            the environment.
        stream: ask for the reply as it is written; without, it is shown in one piece at its end.
        max_output_tokens: the limit of a reply where the call's options set none; the API requires
            one.
        betas: features to be asked for, sent as ``anthropic-beta``.
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
        base_url: str = "https://api.anthropic.com/v1",
        api_key: str | None = None,
        stream: bool = True,
        max_output_tokens: int = 8192,
        betas: Sequence[str] = (),
        timeout: float = 300.0,
        max_retries: int = 2,
        structured: Structured = "schema",
        client: httpx2.AsyncClient | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        if max_output_tokens < 1:
            raise ValueError("max_output_tokens counts from 1")
        self.model = model
        self.structured = structured
        self._encoder = AnthropicEncoder(model, max_output_tokens=max_output_tokens, stream=stream)
        headers = {"anthropic-version": API_VERSION}
        if betas:
            headers["anthropic-beta"] = ",".join(betas)
        self._endpoint = endpoint(
            base_url,
            "messages",
            {"x-api-key": "{key}"},
            headers=headers,
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

        A request that fails is tried again only while nothing of its own reply was shown, so no
        `ModelReset` is ever needed.

        Raises:
            AuthenticationError: no valid key, or nothing left to spend.
            RateLimitError, OverloadedError, UnavailableError: not now, also after the retries.
            ContextLengthError, ContentFilterError, InvalidRequestError: not this request.
            ProtocolError: a reply that is none, that breaks off, or that is paused without end.

        Cancellation: closes the connection.  Always a checkpoint.
        """
        names = wire_names(request.tools)
        parts: tuple[AssistantPart, ...] = ()
        usage, missing = Usage(), False
        asked = request
        for _ in range(MAX_PAUSES + 1):
            body = self._encoder.encode(asked)
            reply = await self._endpoint.ask(body, lambda: AnthropicDecoder(self.model), emit)
            parts += reply.parts
            usage += reply.usage
            missing = missing or reply.usage_missing
            whole = msgspec.structs.replace(reply, parts=parts, usage=usage, usage_missing=missing)
            if reply.stop_reason != "pause":
                return own_names(whole, names)
            asked = msgspec.structs.replace(request, messages=(*request.messages, whole))
        raise ProtocolError(f"the vendor paused its reply more than {MAX_PAUSES} times")
