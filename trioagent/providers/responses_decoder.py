"""From an OpenAI Responses reply, streamed or whole, to deltas and one message.  (pure)

A reply is a list of output items.  A stream adds each at its ``output_index``, writes it in deltas,
sends it whole when it is done, and ends with the whole response.  What is sent later is taken for
what was sent before it: the response's items where it has them all, else the item as done, else
what its deltas came to.

Deltas belong to the item at their ``output_index``.  The item's id is asked only where there is no
such index, since gateways leave ids empty, repeat them, or give another one at each event.

What an item becomes:

* ``message`` a `Text` for each of its texts and refusals, ``function_call`` a `ToolCall`, and then
  an `Opaque` of what the item holds besides (its id, annotations, phase, namespace), which the
  encoder puts together again;
* ``reasoning`` a `Thinking` to be read, if it has any text, and an `Opaque` that is the whole item;
* any other an `Opaque` that is the whole item.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from trioagent.errors import InvalidRequestError, ProtocolError
from trioagent.events import TextDelta, ThinkingDelta
from trioagent.messages import AssistantMessage, StopReason, ToolCall, Usage
from trioagent.provider import Delta
from trioagent.providers import vendor_errors
from trioagent.providers.reading import Bound, decoded, is_object, json_text, tokens
from trioagent.providers.responses_items import Item, Parts, parts_of

_WHAT = "response of the Responses API"
_NOTHING = msgspec.Raw()

_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THINKING = frozenset({"response.reasoning_text.delta", "response.reasoning_summary_text.delta"})
_ENDS = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)
_UNFINISHED = frozenset({"queued", "in_progress", "cancelled"})


class _InputDetails(msgspec.Struct):
    cached_tokens: float | None = None
    cache_write_tokens: float | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: float | None = None


class _Usage(msgspec.Struct):
    input_tokens: float | None = None
    output_tokens: float | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    status: str | None = None
    error: Any = None
    incomplete_details: _Incomplete | None = None
    output: list[msgspec.Raw] | None = None
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    type: str | None = None
    output_index: int | None = None
    item_id: str | None = None
    content_index: int | None = None
    item: msgspec.Raw = _NOTHING
    delta: Any = None
    arguments: str | None = None
    response: _Response | None = None
    error: Any = None
    # An error event has its fields beside its type.
    code: Any = None
    message: Any = None


@dataclass(slots=True)
class _Open:
    """An output item under way: as it was added, and what its deltas came to."""

    added: bytes
    done: bytes = b""
    texts: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)


class ResponsesDecoder:
    """One reply.  Feed it the data of each event, or the one body; `finish` gives the message."""

    def __init__(self, model: str = "") -> None:
        self.ended = False
        self.response_id = ""
        self._model = model
        self._items: list[_Open] = []
        self._by_index: dict[int, _Open] = {}
        self._by_id: dict[str, _Open] = {}
        self._response: _Response | None = None
        self._usage: Usage | None = None
        self._bound = Bound()

    @property
    def complete(self) -> bool:
        """Whether the reply has said that it ends, so that nothing of it can be missing."""
        return self._response is not None

    def feed(self, data: str) -> list[Delta]:
        """What the event with this data adds to the reply.

        Raises:
            ProviderError: the event reports an error.
            ProtocolError: it is no event of a response.
        """
        if self.ended or not data.strip():
            return []
        if data.strip() == "[DONE]":
            self.ended = True
            return []
        event = decoded(data, _Event, _WHAT)
        kind = event.type or ""
        if kind == "error" or event.error:
            bare = {"code": event.code, "message": event.message}
            raise vendor_errors.from_error(event.error or bare)
        if kind in _TEXT or kind in _THINKING:
            return self._write(event, kind)
        if kind == "response.output_item.added":
            self._add(event)
        elif kind == "response.output_item.done":
            item = self._item_at(event) or self._add(event)
            item.done = self._kept(event.item)
        elif kind == "response.function_call_arguments.delta":
            self._argue(event, event.delta)
        elif kind == "response.function_call_arguments.done" and event.arguments is not None:
            self._known(event).arguments = [event.arguments]
            self._bound.add(len(event.arguments))
        elif event.response is not None:
            self._take(event.response, ends=kind in _ENDS)
        return []

    def feed_whole(self, body: bytes) -> list[Delta]:
        """The reply of a request that was not streamed; raises as `feed` does."""
        response = decoded(body, _Response, _WHAT)
        if response.error is None and response.output is None:
            raise ProtocolError("the reply has no output, so it is no response")
        self._take(response, ends=True)
        deltas: list[Delta] = []
        for raw in response.output or ():
            parts = parts_of(decoded(raw, Item, _WHAT), bytes(raw))
            deltas += [ThinkingDelta(text) for text in parts.thinking if text]
            deltas += [TextDelta(text) for text in parts.texts if text]
        return deltas

    def finish(self) -> AssistantMessage:
        """The message.

        Raises:
            ProtocolError: the reply ended before its end (no final response), or has a tool call
                that cannot be whole.
            InvalidRequestError: a response that the vendor goes on with in the background.
        """
        response = self._response
        if response is None:
            raise ProtocolError("the reply ends without its final response")
        if response.status in _UNFINISHED:
            # No protocol error, which would be tried again: each try would start another response.
            raise InvalidRequestError(
                f"the response is {response.status}, not finished; "
                "one that runs in the background is not read here"
            )
        raws = [bytes(raw) for raw in response.output or ()]
        if len(raws) < len(self._items):
            raws = [item.done or self._written(item) for item in self._items]
        found = [parts_of(decoded(raw, Item, _WHAT), raw) for raw in raws]
        usage, missing = self._usage or Usage(), self._usage is None
        parts = tuple([part for parts in found for part in parts.all])
        reason = self._stop_reason(response, found)
        if reason != "length":
            for part in parts:
                if isinstance(part, ToolCall) and not part.name:
                    raise ProtocolError("the reply has a tool call without a name")
        return AssistantMessage(parts, usage, self._model, reason, missing)

    def _stop_reason(self, response: _Response, found: list[Parts]) -> StopReason:
        if response.status == "incomplete":
            details = response.incomplete_details or _Incomplete()
            return "content_filter" if details.reason == "content_filter" else "length"
        if any(parts.refused for parts in found):
            return "refusal"
        return "tool_calls" if any(parts.calls for parts in found) else "stop"

    # -- the response -----------------------------------------------------------------------------

    def _take(self, response: _Response, *, ends: bool) -> None:
        self.response_id = response.id or self.response_id
        self._model = response.model or self._model
        if response.usage is not None:
            self._count(response.usage)
        if response.error or response.status == "failed":
            raise vendor_errors.from_error(response.error)
        if ends:
            self.ended = True
            self._response = response
            self._bound.add(sum(map(len, response.output or ())))

    def _count(self, usage: _Usage) -> None:
        if usage.input_tokens is None and usage.output_tokens is None:
            return
        details = usage.input_tokens_details or _InputDetails()
        output = usage.output_tokens_details or _OutputDetails()
        self._usage = Usage(
            input_tokens=tokens(usage.input_tokens),
            output_tokens=tokens(usage.output_tokens),
            cache_read_tokens=tokens(details.cached_tokens),
            cache_write_tokens=tokens(details.cache_write_tokens),
            reasoning_tokens=tokens(output.reasoning_tokens),
        )

    # -- items under way --------------------------------------------------------------------------

    def _kept(self, raw: msgspec.Raw) -> bytes:
        self._bound.add(len(raw))
        return bytes(raw) or b"{}"

    def _add(self, event: _Event) -> _Open:
        item = _Open(self._kept(event.item))
        self._items.append(item)
        if event.output_index is not None:
            self._by_index[event.output_index] = item
        item_id = decoded(item.added, Item, _WHAT).id
        if item_id:
            self._by_id[item_id] = item
        return item

    def _item_at(self, event: _Event) -> _Open | None:
        if event.output_index is not None:
            return self._by_index.get(event.output_index)
        if event.item_id:
            return self._by_id.get(event.item_id)
        return self._items[-1] if self._items else None

    def _known(self, event: _Event) -> _Open:
        item = self._item_at(event)
        if item is None:
            raise ProtocolError("the reply goes on with an output item that it never added")
        return item

    def _argue(self, event: _Event, piece: Any) -> None:
        if isinstance(piece, str):
            self._bound.add(len(piece))
            self._known(event).arguments.append(piece)

    def _write(self, event: _Event, kind: str) -> list[Delta]:
        piece = event.delta
        if not isinstance(piece, str) or not piece:
            return []
        self._bound.add(len(piece))
        item = self._item_at(event)
        if item is not None:
            key = (kind, event.content_index or 0)
            item.texts.setdefault(key, []).append(piece)
        return [TextDelta(piece) if kind in _TEXT else ThinkingDelta(piece)]

    def _written(self, item: _Open) -> bytes:
        """An item that was never sent whole: as it was added, with what its deltas came to."""
        fields = decoded(item.added, dict[str, Any], _WHAT)
        if item.arguments:
            fields["arguments"] = "".join(item.arguments)
        if fields.get("type") == "function_call":
            arguments = fields.get("arguments") or "{}"
            if self._is_cut(arguments):
                raise ProtocolError("the reply ends within the arguments of a tool call")
        if fields.get("type") == "message" and item.texts:
            fields["content"] = [
                {"type": "refusal", "refusal": "".join(pieces)}
                if kind.startswith("response.refusal")
                else {"type": "output_text", "text": "".join(pieces)}
                for (kind, _), pieces in item.texts.items()
            ]
        return json_text(fields).encode()

    def _is_cut(self, arguments: Any) -> bool:
        assert self._response is not None
        whole = isinstance(arguments, str) and is_object(arguments)
        return not whole and self._response.status != "incomplete"
