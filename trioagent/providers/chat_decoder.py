"""From a chat-completions reply, streamed or whole, to deltas and one message.  (pure)

The format says that a tool call comes in fragments, each with the `index` of its call, the first
with `id` and `name`.  Gateways leave out any of the three, or repeat them.  A fragment belongs to

1. the call with its id, where one has it; an id never seen opens a call, also at a used index,
   and after that the server's indexes are not trusted;
2. else the call at its index; an index never seen opens a call, unless the indexes are not trusted
   and the fragment has no name: then it is more of the call opened last;
3. else, with neither, the call opened last.

A fragment that names a call which has a name already goes on with it only where the name is the
same and the arguments are not complete; otherwise it opens a call.  Nothing is merged on a guess:
two calls read as two fail loudly at worst, two read as one may do the wrong thing.

A call that has no id keeps ``""``; the machine makes ids, the same on each replay.

What must go back to the vendor and has no place in a message is kept in opaque parts: the
``reasoning_details`` of OpenRouter, the ``extra_content`` of a call to Gemini (its signature).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from trioagent.errors import OverloadedError, ProtocolError, ProviderError, UnavailableError
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
from trioagent.providers.chat_encoder import PROVIDER
from trioagent.providers.reading import Bound, decoded, is_object, json_text, tokens

_DONE = "[DONE]"
_WHAT = "chat completion"

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}
_FAILED: dict[str, type[ProviderError]] = {
    "error": UnavailableError,
    "insufficient_system_resource": OverloadedError,
}
"""Finish reasons that say that the vendor gave up: what came before them is no reply."""


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Fragment(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: msgspec.Raw = msgspec.Raw()


class _Delta(msgspec.Struct):
    content: str | list[Any] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: list[msgspec.Raw] | None = None
    refusal: str | None = None
    tool_calls: list[_Fragment] | None = None
    function_call: _Function | None = None


class _Details(msgspec.Struct):
    cached_tokens: float | None = None
    cache_write_tokens: float | None = None
    reasoning_tokens: float | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: float | None = None


class _Choice(msgspec.Struct):
    index: int | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    model: str | None = None
    id: Any = None
    error: Any = None
    # Some servers report an error without a wrapper, as {"object": "error", "message": ...}.
    object: Any = None
    message: Any = None
    type: Any = None
    code: Any = None


@dataclass(slots=True)
class _Call:
    """A tool call under way."""

    id: str = ""
    index: int | None = None
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: bytes = b""

    def goes_on(self, name: str, more: str) -> bool:
        """Whether a fragment with this `name` may be more of this call."""
        if not name or not self.name:
            return True
        return name == self.name and (not more or not self.complete)

    @property
    def complete(self) -> bool:
        """Whether the arguments are a whole JSON object."""
        # Looked at first because a server that repeats the name makes this be asked each time.
        if not self.arguments or not self.arguments[-1].rstrip().endswith("}"):
            return False
        return is_object("".join(self.arguments))


@dataclass(slots=True)
class _Prose:
    """A text or thinking part under way."""

    part: type[Text] | type[Thinking]
    pieces: list[str] = field(default_factory=list)


class ChatDecoder:
    """One reply.  Feed it the data of each event, or the one body; `finish` gives the message."""

    def __init__(self, model: str = "") -> None:
        self.ended = False
        self._model = model
        self._parts: list[_Prose | _Call] = []
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, _Call] = {}
        self._indexes_trusted = True
        self._details: list[msgspec.Raw] = []
        self._usage: Usage | None = None
        self.response_id = ""
        self._reason: str | None = None
        self._refused = self._answered = False
        self._bound = Bound()

    @property
    def complete(self) -> bool:
        """Whether the reply has said that it ends, so that nothing of it can be missing."""
        return self.ended or self._reason is not None

    def feed(self, data: str) -> list[Delta]:
        """What the event with this data adds to the reply.

        Raises:
            ProviderError: the event reports an error.
            ProtocolError: it is no chunk of a chat completion.
        """
        if self.ended or not data.strip():
            return []
        if data.strip() == _DONE:
            self.ended = True
            return []
        return self._take(decoded(data, _Chunk, _WHAT), whole=False)

    def feed_whole(self, body: bytes) -> list[Delta]:
        """The reply of a server that does not stream; raises as `feed` does."""
        self.ended = True
        return self._take(decoded(body, _Chunk, _WHAT), whole=True)

    def finish(self) -> AssistantMessage:
        """The message.

        Raises:
            ProtocolError: the reply ended before its end (no finish reason and no ``[DONE]``), it
                has nothing in it, or a tool call of it cannot be whole.
            ProviderError: the vendor gave up in the middle of the reply.
        """
        if not self.complete:
            raise ProtocolError("the reply ends without a finish reason and without [DONE]")
        if not self._answered:
            raise ProtocolError("the reply has no choices, so it is no chat completion")
        if self._reason in _FAILED:
            raise _FAILED[self._reason](
                f"the vendor gave up in the middle of the reply (finish reason {self._reason})"
            )
        parts: list[AssistantPart] = []
        if self._details:
            parts.append(_opaque("reasoning_details", msgspec.json.encode(self._details)))
        for part in self._parts:
            if isinstance(part, _Prose):
                parts.append(part.part("".join(part.pieces)))
            elif part.name or self._reason != "length":
                parts.append(self._called(part))
                if part.extra:
                    extra = b'{"extra_content":' + part.extra + b"}"
                    parts.append(_opaque("tool_call", extra))
        usage, missing = self._usage or Usage(), self._usage is None
        return AssistantMessage(tuple(parts), usage, self._model, self._stop_reason(), missing)

    def _stop_reason(self) -> StopReason:
        if self._refused:
            return "refusal"
        if self._reason is None and self._calls:
            return "tool_calls"
        return _STOP_REASONS.get(self._reason or "stop", "stop")

    def _called(self, call: _Call) -> ToolCall:
        if not call.name:
            raise ProtocolError("the reply has a tool call without a name")
        arguments = "".join(call.arguments)
        # Gateways add [DONE] to whatever they got, so without a finish reason it proves nothing.
        if self._reason is None and arguments.strip() and not call.complete:
            raise ProtocolError("the reply ends within the arguments of a tool call")
        return ToolCall(call.id, call.name, arguments if arguments.strip() else "{}")

    # -- one chunk --------------------------------------------------------------------------------

    def _take(self, chunk: _Chunk, *, whole: bool) -> list[Delta]:
        if chunk.error:
            raise vendor_errors.from_error(chunk.error)
        if chunk.object == "error":
            bare = {"message": chunk.message, "type": chunk.type, "code": chunk.code}
            raise vendor_errors.from_error(bare)
        self._model = chunk.model or self._model
        if not self.response_id and isinstance(chunk.id, str):
            self.response_id = chunk.id
        self._count(chunk.usage)
        deltas: list[Delta] = []
        for choice in chunk.choices or ():
            if choice.index:
                continue
            self._answered = True
            self._count(choice.usage)
            delta = (choice.message or choice.delta) if whole else (choice.delta or choice.message)
            if delta is not None:
                self._add(delta, deltas)
            self._reason = choice.finish_reason or self._reason
        return deltas

    def _count(self, usage: _Usage | None) -> None:
        """Take a report of usage: reports are totals so far, so the last one stands."""
        if usage is None or (usage.prompt_tokens is None and usage.completion_tokens is None):
            return
        prompt = usage.prompt_tokens_details or _Details()
        completion = usage.completion_tokens_details or _Details()
        self._usage = Usage(
            input_tokens=tokens(usage.prompt_tokens),
            output_tokens=tokens(usage.completion_tokens),
            cache_read_tokens=tokens(prompt.cached_tokens or usage.prompt_cache_hit_tokens),
            cache_write_tokens=tokens(prompt.cache_write_tokens),
            reasoning_tokens=tokens(completion.reasoning_tokens),
        )

    def _add(self, delta: _Delta, deltas: list[Delta]) -> None:
        # A server that sends its reasoning under both names means it once.
        thinking = _prose(delta.reasoning_content) or _prose(delta.reasoning)
        if isinstance(delta.content, list):
            thinking += _prose(delta.content, "thinking")
        if thinking:
            self._write(Thinking, thinking)
            deltas.append(ThinkingDelta(thinking))
        text = _prose(delta.content)
        if delta.refusal:
            self._refused = True
            text += delta.refusal
        if text:
            self._write(Text, text)
            deltas.append(TextDelta(text))
        for detail in delta.reasoning_details or ():
            self._bound.add(len(detail))
            self._details.append(detail.copy())
        for fragment in delta.tool_calls or ():
            self._add_fragment(fragment)
        if delta.function_call is not None:
            self._add_fragment(_Fragment(function=delta.function_call))

    def _write(self, part: type[Text] | type[Thinking], piece: str) -> None:
        self._bound.add(len(piece))
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, _Prose) or last.part is not part:
            last = _Prose(part)
            self._parts.append(last)
        last.pieces.append(piece)

    # -- tool calls -------------------------------------------------------------------------------

    def _add_fragment(self, fragment: _Fragment) -> None:
        call_id, index, function = fragment.id or "", fragment.index, fragment.function
        name = (function and function.name) or ""
        more = _arguments(function)
        self._bound.add(len(more))
        call = self._call_of(call_id, index, name)
        if call is None and not (call_id or name or more):
            return  # Typed clients write out an empty call where there is none.
        if call is None or not call.goes_on(name, more):
            call = self._open(call_id, index)
        call.name = call.name or name
        if more:
            call.arguments.append(more)
        if fragment.extra_content:
            call.extra = bytes(fragment.extra_content)
            self._bound.add(len(call.extra))

    def _call_of(self, call_id: str, index: int | None, name: str) -> _Call | None:
        """The call that a fragment belongs to; ``None`` opens one."""
        if call_id:
            call = self._by_id.get(call_id)
            if call is not None:
                moved = name and call.name and index is not None and index != call.index
                return None if moved else call
            # The id may come late, for a call that was opened without one.
            call = None if index is None else self._by_index.get(index)
            if call is not None and not call.id and not (name and call.name):
                call.id = call_id
                self._by_id[call_id] = call
                return call
            if call is not None:
                self._indexes_trusted = False
            return None
        last = self._calls[-1] if self._calls else None
        if index is None:
            return last
        call = self._by_index.get(index)
        if call is None and not self._indexes_trusted and not name:
            return last
        return call

    def _open(self, call_id: str, index: int | None) -> _Call:
        call = _Call(call_id, index)
        self._calls.append(call)
        self._parts.append(call)
        if call_id:
            self._by_id[call_id] = call
        if index is not None:
            self._by_index[index] = call
        return call


def _opaque(key: str, raw: bytes) -> Opaque:
    return Opaque(PROVIDER, f'{{"{key}":{raw.decode()}}}')


def _prose(value: Any, kind: str = "text") -> str:
    """The text of a content that is a string or a list of parts, of which `kind` are wanted."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    wanted = [part for part in value if isinstance(part, dict) and part.get("type") == kind]
    return "".join([_prose(part.get(kind)) for part in wanted])


def _arguments(function: _Function | None) -> str:
    """The arguments of a fragment; some servers write the object itself, not its JSON text."""
    if function is None or function.arguments is None:
        return ""
    if isinstance(function.arguments, str):
        return function.arguments
    return json_text(function.arguments)
