"""Messages, their parts, tool calls and token usage.  (pure)

Everything here is a frozen msgspec struct that is written into journals, so four rules hold:

* every struct carries its tag and leaves out fields that have their default;
* a new field always gets a default, and unknown fields are ignored on reading, so that old
  journals load in new versions and new journals in old ones;
* an unknown tag is an error that names it, never a guess;
* what JSON cannot hold is refused on writing: a lone surrogate in a text and a float that is not
  finite raise `EncodingError`.  Nothing turns silently into ``null`` or ``U+FFFD``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from .errors import EncodingError, TranscriptError

Outcome: TypeAlias = Literal["ok", "error", "denied"]
"""How a tool call ended, as its tool message says it."""

StopReason: TypeAlias = Literal[
    "stop", "tool_calls", "length", "content_filter", "refusal", "pause"
]
"""Why the model stopped: ``length`` means that the output limit cut the reply, ``pause`` that the
vendor wants the call to be gone on with, which its provider does, so no run ever sees it."""


class _Part(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """What all parts share: the field that holds their tag."""


class Text(_Part, frozen=True, tag="text", gc=False):
    """Plain text."""

    text: str


class Thinking(_Part, frozen=True, tag="thinking", gc=False):
    """The model's reasoning; `signature` must go back to the vendor unchanged."""

    text: str = ""
    signature: str = ""


class ToolCall(_Part, frozen=True, tag="tool_call", gc=False):
    """One call that the model asks for; `arguments` is the JSON text that the model wrote."""

    id: str
    name: str
    arguments: str = "{}"


class Opaque(_Part, frozen=True, tag="opaque", gc=False):
    """An item only `provider` understands; its JSON text, of an object, goes to it unchanged.

    One that has a ``role`` and stands alone in a user message is a message of its own, such as a
    system message in the middle of a conversation.  Another vendor's model never sees it: in a
    user message that is an error, a tool's result says that something is left out, and what a
    model itself said just has no such item.
    """

    provider: str
    json: str


class Image(_Part, frozen=True, tag="image", gc=False):
    """An image: its bytes (base64 when stored) with a media type, or a URL."""

    media_type: str = ""
    data: bytes = b""
    url: str = ""


class File(_Part, frozen=True, tag="file", gc=False):
    """A file: its bytes (base64 when stored) with a media type and a name, or a URL."""

    media_type: str = ""
    data: bytes = b""
    name: str = ""
    url: str = ""


AssistantPart: TypeAlias = Text | Thinking | ToolCall | Opaque
ContentPart: TypeAlias = Text | Image | File | Opaque


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens used.  Cached tokens are part of `input_tokens`, reasoning of `output_tokens`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together: what a token budget counts."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


class _Message(msgspec.Struct, frozen=True, tag_field="role", omit_defaults=True, weakref=True):
    """What all messages share: the field that holds their tag.

    Weak references let an encoder keep a message's encoded form for as long as it lives.
    """


class SystemMessage(_Message, frozen=True, tag="system"):
    """The system prompt; it stands once, first."""

    text: str


class UserMessage(_Message, frozen=True, tag="user"):
    """What the user says."""

    parts: tuple[ContentPart, ...]

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return joined_text(self.parts)


class AssistantMessage(_Message, frozen=True, tag="assistant"):
    """One reply of the model, its parts in the order in which the model wrote them.

    `usage_missing`: the vendor reported no token counts, so `usage` says 0 and means unknown.
    `problem`: why this reply is not the answer that the run's ``output`` asks for; the model reads
    it as the result of its call, or in the `correction` after a reply without calls.
    """

    parts: tuple[AssistantPart, ...] = ()
    usage: Usage = Usage()
    model: str = ""
    stop_reason: StopReason = "stop"
    usage_missing: bool = False
    problem: str = ""

    @property
    def text(self) -> str:
        """The text parts, joined; thinking is not part of it."""
        return joined_text(self.parts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls, in the model's order."""
        return tuple([part for part in self.parts if type(part) is ToolCall])


class ToolMessage(_Message, frozen=True, tag="tool"):
    """The result of one call, as the model reads it."""

    call_id: str
    name: str
    parts: tuple[ContentPart, ...] = ()
    outcome: Outcome = "ok"

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return joined_text(self.parts)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one tool call came to: a `ToolMessage` without the names that its call already has.

    `reason` is the gate's or a person's, for a denied call.
    """

    parts: tuple[ContentPart, ...] = ()
    outcome: Outcome = "ok"
    reason: str = ""

    def answering(self, call: ToolCall) -> ToolMessage:
        """The message that answers `call` with this result."""
        return ToolMessage(call.id, call.name, self.parts, self.outcome)


def error_result(text: str) -> ToolResult:
    """An error that the model reads: ``error: <text>``."""
    return ToolResult((Text(f"error: {text}"),), "error")


def denied_result(by: str, reason: str) -> ToolResult:
    """A denial that the model reads: ``error: denied by <by>: <reason>``."""
    return ToolResult((Text(f"error: denied by {by}: {reason}"),), "denied", reason)


def correction(reply: AssistantMessage) -> UserMessage:
    """What the model is told after a reply without calls that has a `problem`.

    It asks nothing new, so what is counted since the last user message goes on past it.
    """
    return UserMessage((Text(reply.problem),))


def joined_text(parts: Iterable[_Part]) -> str:
    """The texts among `parts`, joined without a separator."""
    return "".join([part.text for part in parts if type(part) is Text])


def as_messages(content: str | Message | Sequence[Message]) -> tuple[Message, ...]:
    """What a caller gave a run, as messages: a text is one user message."""
    if isinstance(content, str):
        return (UserMessage((Text(content),)),)
    messages = (content,) if isinstance(content, _Message) else tuple(content)
    for message in messages:
        if not isinstance(message, _Message):
            raise TypeError(
                f"a transcript holds messages, not {type(message).__name__}; "
                "give a str for one user message"
            )
    return messages


def unanswered(transcript: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls of the last turn that have no tool message yet, in call order."""
    answered: set[str] = set()
    for message in reversed(transcript):
        if type(message) is ToolMessage:
            answered.add(message.call_id)
        elif type(message) is AssistantMessage:
            return tuple([call for call in message.tool_calls if call.id not in answered])
        else:
            break
    return ()


def check_transcript(transcript: Sequence[Message]) -> None:
    """Refuse a transcript that no vendor would take, before any request is made of it.

    Rules: a system message is only the first; call ids are unique; every tool message answers a
    call of the assistant message right before its group, once; a user or assistant message comes
    only when every call before it is answered.

    Raises:
        TranscriptError: which names the call or the message at fault.
    """
    seen: set[str] = set()
    open_calls: dict[str, str] = {}
    for position, message in enumerate(transcript):
        if type(message) is ToolMessage:
            if message.call_id not in open_calls:
                what = "is answered twice" if message.call_id in seen else "was never made"
                raise TranscriptError(
                    f"message {position}: the tool message answers call {message.call_id!r}, "
                    f"which {what}; keep each call with exactly one result, in its own turn"
                )
            if open_calls.pop(message.call_id) != message.name:
                raise TranscriptError(
                    f"message {position}: the tool message for call {message.call_id!r} "
                    f"names the tool {message.name!r}, its call names another"
                )
            continue
        if open_calls:
            raise TranscriptError(
                f"message {position}: call {next(iter(open_calls))!r} is not answered before "
                "the next message; answer it or cut the transcript at a turn's end"
            )
        if type(message) is SystemMessage and position != 0:
            raise TranscriptError(f"message {position}: a system message stands only first")
        if type(message) is AssistantMessage:
            for call in message.tool_calls:
                if not call.id or call.id in seen:
                    raise TranscriptError(
                        f"message {position}: the call id {call.id!r} is missing or repeated; "
                        "every call of a transcript has an id of its own"
                    )
                seen.add(call.id)
                open_calls[call.id] = call.name


def with_unique_ids(reply: AssistantMessage, iteration: int, seen: set[str]) -> AssistantMessage:
    """`reply` with every missing or repeated call id replaced, `seen` being those of the run.

    The made id comes from the step's position alone (``call_<iter>_<i>``), so it is the same on a
    replay.  A vendor that reuses short ids ("grep:3" for every block) thus keeps all its calls.
    """
    ids = [call.id for call in reply.tool_calls]
    if "" not in ids and len(set(ids)) == len(ids) and seen.isdisjoint(ids):
        return reply
    used: set[str] = set()
    parts: list[AssistantPart] = []
    for part in reply.parts:
        if isinstance(part, ToolCall):
            call_id = part.id
            if not call_id or call_id in seen or call_id in used:
                call_id = f"call_{iteration}_{len(used)}"
                while call_id in seen or call_id in used:
                    call_id += "_"
                part = msgspec.structs.replace(part, id=call_id)
            used.add(call_id)
        parts.append(part)
    return msgspec.structs.replace(reply, parts=tuple(parts))


_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def encode(value: Any, *, ordered: bool = False) -> bytes:
    """`value` as JSON; with `ordered`, keys are sorted, so that equal values are equal bytes.

    Raises:
        EncodingError: JSON has no form for it (an unknown type, a lone surrogate, NaN, infinity).
    """
    try:
        data = (_encode_sorted if ordered else _encode)(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise EncodingError(f"{type(value).__name__} cannot be encoded: {exc}") from None
    # msgspec writes a float that is not finite as null; only then is a closer look worth its cost.
    if b"null" in data and _has_nonfinite(msgspec.to_builtins(value)):
        raise EncodingError(f"{type(value).__name__} holds NaN or infinity, which JSON cannot")
    return data


def _has_nonfinite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(_has_nonfinite(item) for pair in value.items() for item in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return any(_has_nonfinite(item) for item in value)
    return False


_decode_assistant = msgspec.json.Decoder(AssistantMessage).decode
_decode_result = msgspec.json.Decoder(ToolResult).decode
_decode_messages = msgspec.json.Decoder(tuple[Message, ...]).decode


_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_assistant(data: bytes) -> AssistantMessage:
    """Read an assistant message; `EncodingError` says what is wrong with `data`."""
    try:
        return _decode_assistant(data)
    except _BAD as exc:
        raise EncodingError(f"these bytes are not an assistant message: {exc}") from None


def decode_result(data: bytes) -> ToolResult:
    """Read a tool result; `EncodingError` says what is wrong with `data`."""
    try:
        return _decode_result(data)
    except _BAD as exc:
        raise EncodingError(f"these bytes are not a tool result: {exc}") from None


def decode_messages(data: bytes) -> tuple[Message, ...]:
    """Read a sequence of messages; `EncodingError` says what is wrong with `data`."""
    try:
        return _decode_messages(data)
    except _BAD as exc:
        raise EncodingError(f"these bytes are not messages: {exc}") from None
