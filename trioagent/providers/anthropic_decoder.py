"""From an Anthropic Messages reply, streamed or whole, to deltas and one message.  (pure)

A reply is a list of content blocks; a stream opens each at its ``index``, adds deltas and closes
it.  A whole reply is read as blocks that need no deltas, so both ways end in the same code.

What a block becomes:

* ``text`` a `Text`, ``thinking`` a `Thinking` with its signature, ``tool_use`` a `ToolCall`;
* what such a block holds besides (a text's ``citations``, a call's ``caller``) an `Opaque` right
  after the part, with the block's type and these fields alone; the encoder puts them together;
* any other block (server tools and their results, redacted thinking, compaction, what is not known
  yet) an `Opaque` that goes back as it came.

Usage comes twice, at the start and at the end, as totals so far: a value that comes again replaces
the one before, it is never added.  The API's ``input_tokens`` leave out what was read from or
written to the cache, ours count it in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from trioagent.errors import ProtocolError
from trioagent.events import TextDelta, ThinkingDelta
from trioagent.messages import (
    AssistantMessage,
    AssistantPart,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from trioagent.provider import Delta
from trioagent.providers import vendor_errors
from trioagent.providers.reading import Bound, decoded, is_object, tokens

PROVIDER = "anthropic-messages"
"""What `Opaque.provider` says of parts that belong to this format."""

_WHAT = "Anthropic message"

_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "pause",
}

_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)


_NOTHING = msgspec.Raw()
"""Where there is no such field: a union of `Raw` and None would take nothing but null."""


class _Details(msgspec.Struct):
    thinking_tokens: float | None = None
    reasoning_tokens: float | None = None


class _Usage(msgspec.Struct):
    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_read_input_tokens: float | None = None
    cache_creation_input_tokens: float | None = None
    output_tokens_details: _Details | None = None


class _Message(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    content: list[dict[str, msgspec.Raw]] | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Delta(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: msgspec.Raw = _NOTHING
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str | None = None
    message: msgspec.Raw = _NOTHING
    index: int | None = None
    content_block: dict[str, msgspec.Raw] | None = None
    delta: msgspec.Raw = _NOTHING
    usage: _Usage | None = None
    error: Any = None


class _Whole(_Message):
    type: str | None = None
    error: Any = None


@dataclass(slots=True)
class _Block:
    """A content block under way: its fields as they came at its start, and what deltas added."""

    kind: str
    fields: dict[str, bytes]
    text: list[str] = field(default_factory=list)
    json: list[str] = field(default_factory=list)
    citations: list[bytes] = field(default_factory=list)
    signature: str = ""
    closed: bool = False


class AnthropicDecoder:
    """One reply.  Feed it the data of each event, or the one body; `finish` gives the message."""

    def __init__(self, model: str = "") -> None:
        self.ended = False
        self.response_id = ""
        self._model = model
        self._blocks: list[_Block] = []
        self._by_index: dict[int, _Block] = {}
        self._counts: dict[str, float] = {}
        self._reasoning: float | None = None
        self._reason: str | None = None
        self._started = False
        self._bound = Bound()

    @property
    def complete(self) -> bool:
        """Whether the reply has said that it ends, so that nothing of it can be missing."""
        return self.ended or self._reason is not None

    def feed(self, data: str) -> list[Delta]:
        """What the event with this data adds to the reply.

        Raises:
            ProviderError: the event reports an error.
            ProtocolError: it is no event of a message.
        """
        # Gateways that speak several formats end this one, too, with [DONE].
        if self.ended or not data.strip() or data.strip() == "[DONE]":
            return []
        event = decoded(data, _Event, _WHAT)
        match event.type:
            case "message_start":
                self._start(decoded(event.message, _Message, _WHAT))
            case "content_block_start":
                return self._open(event.index, event.content_block or {})
            case "content_block_delta":
                return self._add(event.index, event.delta)
            case "content_block_stop":
                self._block_at(event.index).closed = True
            case "message_delta":
                self._end(event)
            case "message_stop":
                self.ended = True
            case _ if event.type == "error" or event.error:
                raise vendor_errors.from_error(event.error)
        return []

    def feed_whole(self, body: bytes) -> list[Delta]:
        """The reply of a request that was not streamed; raises as `feed` does."""
        whole = decoded(body, _Whole, _WHAT)
        if whole.error or whole.type == "error":
            raise vendor_errors.from_error(whole.error)
        if whole.content is None:
            raise ProtocolError("the reply has no content, so it is no message")
        self._start(whole)
        self._reason = whole.stop_reason
        deltas: list[Delta] = []
        for index, block in enumerate(whole.content):
            deltas += self._open(index, block)
            self._blocks[-1].closed = True
        self.ended = True
        return deltas

    def finish(self) -> AssistantMessage:
        """The message.

        Raises:
            ProtocolError: the reply ended before its end (neither a stop reason nor
                ``message_stop``), has nothing in it, or a tool call of it is not whole.
        """
        if not self.complete:
            raise ProtocolError("the reply ends without a stop reason and without message_stop")
        if not self._started and not self._blocks:
            raise ProtocolError("the reply has no message in it")
        parts: list[AssistantPart] = []
        for block in self._blocks:
            parts += self._parts(block)
        usage, missing = self._usage(), not self._counts
        return AssistantMessage(tuple(parts), usage, self._model, self._stop_reason(), missing)

    def _stop_reason(self) -> StopReason:
        if self._reason is None:
            called = any(block.kind == "tool_use" for block in self._blocks)
            return "tool_calls" if called else "stop"
        return _STOP_REASONS.get(self._reason, "stop")

    # -- events -----------------------------------------------------------------------------------

    def _start(self, message: _Message) -> None:
        """Take the head of the message; one that is sent twice says the same twice."""
        self._started = True
        self.response_id = message.id or self.response_id
        self._model = message.model or self._model
        self._count(message.usage)

    def _end(self, event: _Event) -> None:
        if event.delta:
            self._reason = decoded(event.delta, _Delta, _WHAT).stop_reason or self._reason
        self._count(event.usage)

    def _count(self, usage: _Usage | None) -> None:
        if usage is None:
            return
        for name in _COUNTS:
            count = getattr(usage, name)
            if count is not None:
                self._counts[name] = count
        details = usage.output_tokens_details
        if details is not None:
            self._reasoning = details.thinking_tokens or details.reasoning_tokens

    def _usage(self) -> Usage:
        count = {name: tokens(self._counts.get(name)) for name in _COUNTS}
        read, written = count["cache_read_input_tokens"], count["cache_creation_input_tokens"]
        return Usage(
            input_tokens=count["input_tokens"] + read + written,
            output_tokens=count["output_tokens"],
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=tokens(self._reasoning),
        )

    def _open(self, index: int | None, fields: dict[str, msgspec.Raw]) -> list[Delta]:
        kept = {name: bytes(raw) for name, raw in fields.items()}
        self._bound.add(sum(map(len, kept.values())))
        block = _Block(_text(kept.get("type")), kept)
        self._blocks.append(block)
        if index is not None:
            self._by_index[index] = block
        block.signature = _text(kept.get("signature"))
        if block.kind in ("text", "thinking"):
            return self._write(block, _text(kept.get(block.kind)))
        return []

    def _write(self, block: _Block, piece: str) -> list[Delta]:
        if not piece:
            return []
        block.text.append(piece)
        return [TextDelta(piece) if block.kind == "text" else ThinkingDelta(piece)]

    def _block_at(self, index: int | None) -> _Block:
        block = self._by_index.get(-1 if index is None else index)
        if block is None and self._blocks and index is None:
            block = self._blocks[-1]
        if block is None:
            raise ProtocolError("the reply goes on with a content block that it never began")
        return block

    def _add(self, index: int | None, raw: msgspec.Raw) -> list[Delta]:
        block = self._block_at(index)
        self._bound.add(len(raw))
        delta = decoded(raw, _Delta, _WHAT)
        match delta.type:
            case "text_delta" if block.kind == "text":
                return self._write(block, delta.text or "")
            case "thinking_delta" if block.kind == "thinking":
                return self._write(block, delta.thinking or "")
            case "signature_delta":
                block.signature = delta.signature or block.signature
            case "input_json_delta":
                block.json.append(delta.partial_json or "")
            case "citations_delta" if delta.citation:
                block.citations.append(bytes(delta.citation))
            case _ if block.kind not in ("text", "thinking", "tool_use"):
                more = decoded(raw, dict[str, msgspec.Raw], _WHAT)
                block.fields |= {key: bytes(value) for key, value in more.items() if key != "type"}
        return []

    # -- blocks -----------------------------------------------------------------------------------

    def _parts(self, block: _Block) -> list[AssistantPart]:
        """The parts of a block; an empty text says nothing and is left out."""
        text = "".join(block.text)
        match block.kind:
            case "text":
                fields = dict(block.fields)
                if block.citations:
                    fields["citations"] = b"[" + b",".join(block.citations) + b"]"
                parts = [Text(text)] if text else []
                rest = _rest(fields, "text") if text else []
                return [*parts, *rest]
            case "thinking":
                rest = _rest(block.fields, "thinking", "signature")
                return [Thinking(text, block.signature), *rest]
            case "tool_use":
                return self._called(block)
            case _:
                fields = dict(block.fields)
                streamed = "".join(block.json)
                if streamed.strip():
                    if not is_object(streamed):
                        raise ProtocolError("the input of a server tool's call is no JSON object")
                    fields["input"] = streamed.encode()
                return [_opaque(fields)]

    def _called(self, block: _Block) -> list[AssistantPart]:
        name = _text(block.fields.get("name"))
        if not name:
            raise ProtocolError("the reply has a tool call without a name")
        arguments = "".join(block.json)
        if not arguments.strip():
            arguments = block.fields.get("input", b"{}").decode()
        # Cut by the output limit it is told as such; by anything else it is half a call.
        if self._reason is None and not block.closed and not is_object(arguments):
            raise ProtocolError("the reply ends within the arguments of a tool call")
        call = ToolCall(_text(block.fields.get("id")), name, arguments)
        return [call, *_rest(block.fields, "id", "name", "input")]


def _rest(fields: dict[str, bytes], *known: str) -> list[AssistantPart]:
    """What a block holds besides its type and the `known` fields, if it holds anything."""
    rest = {
        name: raw
        for name, raw in fields.items()
        if name not in known and raw not in (b"null", b"[]")
    }
    return [_opaque(rest)] if rest.keys() - {"type"} else []


def _opaque(fields: dict[str, bytes]) -> Opaque:
    raws = {name: msgspec.Raw(raw) for name, raw in fields.items()}
    try:
        return Opaque(PROVIDER, msgspec.json.encode(raws).decode())
    except (msgspec.MsgspecError, ValueError):
        raise ProtocolError("the reply holds a field whose name is no text") from None


def _text(raw: bytes | None) -> str:
    """The text that is the JSON value `raw`, or "" where there is none."""
    if raw is None or raw == b"null":
        return ""
    return decoded(raw, str, _WHAT)
