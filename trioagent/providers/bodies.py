"""The body of a model's reply, as it comes in chunks: events or one JSON value.  (pure)

A live call and `read_reply` read a body through this one class, so a recorded body gives what it
gave when it was live.
"""

from __future__ import annotations

from typing import Protocol

from trioagent.errors import ProtocolError
from trioagent.messages import AssistantMessage
from trioagent.provider import Delta, Emit
from trioagent.providers.reading import MAX_REPLY
from trioagent.providers.sse import SSEDecoder

MAX_ERROR_TEXT = 600
"""Characters of an error's text; what a vendor says beyond that is cut."""

MAX_ERROR_BODY = 64 * 1024
"""Bytes of a refused request's body that are read."""


class ReplyDecoder(Protocol):
    """What reads one reply of a wire format; a new one is made for each attempt."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come, so that reading stops."""
        ...

    @property
    def complete(self) -> bool:
        """Whether nothing of the reply can be missing, should the connection break now."""
        ...

    @property
    def response_id(self) -> str:
        """The vendor's id of the reply, or ""."""
        ...

    def feed(self, data: str) -> list[Delta]:
        """Take the data of one event; a `ProviderError` where it is or tells of an error."""
        ...

    def feed_whole(self, body: bytes) -> list[Delta]:
        """Take the JSON body of a reply that is not streamed; raises as `feed` does."""
        ...

    def finish(self) -> AssistantMessage:
        """The message; `ProtocolError` where the reply is not complete."""
        ...


class BodyReader:
    """Feed it the body's chunks, then `close` it; a `ProviderError` where it is or tells of one.

    Each delta is given to `emit` at once, so that what was shown before an error does not depend
    on how the bytes were cut.  The body's first byte tells events from JSON: gateways set a wrong
    content type more often than not, so `content_type` is only told where the body is neither.
    """

    def __init__(self, decoder: ReplyDecoder, emit: Emit, content_type: str = "") -> None:
        self._decoder = decoder
        self._emit = emit
        self._content_type = content_type
        self._sse = SSEDecoder()
        self._whole = bytearray()
        self._begun = self._streamed = self._told = False

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes; those after the reply's end are passed over."""
        if not self._begun:
            chunk = chunk.lstrip()
            self._begun, self._streamed = bool(chunk), not chunk.startswith(b"{")
        if self._streamed:
            self._take(self._sse.feed(chunk))
            return
        self._whole += chunk
        if len(self._whole) > MAX_REPLY:
            raise ProtocolError(f"the reply is over {MAX_REPLY} bytes")

    def close(self) -> None:
        """The body has ended: take what is left."""
        if self._whole:
            whole = bytes(self._whole)
            try:
                whole.decode()  # JSON that is passed over unparsed is not looked at closely
            except UnicodeDecodeError:
                raise ProtocolError("the body of the reply is not UTF-8") from None
            self._show(self._decoder.feed_whole(whole))
            return
        self._take(self._sse.close())
        if not self._told:
            kind = f" ({self._content_type[:60]})" if self._content_type else ""
            what = "is neither events nor a JSON object" if self._begun else "is empty"
            raise ProtocolError(f"the body of the reply{kind} {what}")

    def _take(self, datas: list[str]) -> None:
        for data in datas:
            if self._decoder.ended:
                return
            self._told = True
            self._show(self._decoder.feed(data))

    def _show(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            self._emit(delta)


def presentable(text: str, secret: str = "") -> str:
    """An error's text without the credential and not longer than `MAX_ERROR_TEXT`."""
    # The credential goes first: a cut could leave a part of it that is not recognised.
    if secret:
        text = text.replace(secret, "[credential]")
    return text if len(text) <= MAX_ERROR_TEXT else text[: MAX_ERROR_TEXT - 1] + "…"
