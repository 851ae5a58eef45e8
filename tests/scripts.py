"""Short forms for what a scripted model says, and what a test reads off a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from trioagent import (
    Allow,
    AssistantMessage,
    CallContext,
    Deny,
    Message,
    NeedApproval,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    Verdict,
)
from trioagent.messages import StopReason

QUESTION = "What is the weather in Paris?"
MAIL = {"body": "hi", "to": "bob@corp.example"}
MAIL_MARKER = "2d5fbffff5685a7a"


def user(text: str) -> UserMessage:
    """What the user says."""
    return UserMessage((Text(text),))


def call(name: str, arguments: dict[str, Any] | str | None = None, *, id: str = "") -> ToolCall:
    """A call; its id is the name, where none is given."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolCall(id or name, name, text)


def calling(
    *calls: ToolCall, usage: Usage | None = None, stop: StopReason = "tool_calls"
) -> AssistantMessage:
    """A reply that asks for `calls`."""
    return AssistantMessage(calls, usage=usage or Usage(), stop_reason=stop)


def saying(text: str, *, usage: Usage | None = None, stop: StopReason = "stop") -> AssistantMessage:
    """A reply without calls."""
    return AssistantMessage((Text(text),), usage=usage or Usage(), stop_reason=stop)


def tokens(total: int) -> Usage:
    """A usage of `total` tokens, both kinds together."""
    return Usage(total // 2, total - total // 2)


def tool_messages(transcript: Iterable[Message]) -> list[ToolMessage]:
    """The tool messages, in order."""
    return [message for message in transcript if isinstance(message, ToolMessage)]


def tool_texts(transcript: Iterable[Message]) -> list[str]:
    """What the model read of its calls, in order."""
    return [message.text for message in tool_messages(transcript)]


class ByName:
    """A gate that knows a verdict for some names, allows the rest, and remembers what it saw."""

    def __init__(self, **verdicts: Verdict) -> None:
        self.verdicts = verdicts
        self.asked: list[tuple[str, CallContext]] = []

    def check(self, call: ToolCall, context: CallContext) -> Verdict:
        self.asked.append((call.name, context))
        return self.verdicts.get(call.name, Allow())


class Always:
    """A gate with one verdict for every call; an exception is raised."""

    def __init__(self, verdict: object) -> None:
        self.verdict = verdict

    def check(self, call: ToolCall, context: CallContext) -> Any:
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


DENY = Deny("not today")
ASK = NeedApproval("a person decides")


def roles(transcript: Sequence[Message]) -> list[str]:
    """Who said what, by class name without its ending."""
    return [type(message).__name__.removesuffix("Message").lower() for message in transcript]
