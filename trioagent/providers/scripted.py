"""A model that says what a script tells it: for tests, examples and the demo."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import trio

from trioagent.errors import ProviderError
from trioagent.events import TextDelta, ThinkingDelta
from trioagent.messages import AssistantMessage, Message, Text, Thinking
from trioagent.provider import Emit, Request, Structured

ScriptedReply: TypeAlias = AssistantMessage | str | Exception
Script: TypeAlias = Sequence[ScriptedReply] | Callable[[tuple[Message, ...]], ScriptedReply]

_WORDS = re.compile(r"\S+\s*|\s+")


class Scripted:
    """Replies in order, or a function of the messages.

    A reply is a message, a text, or an exception to raise.  Text is emitted word by word.
    `requests` keeps every request, in order.

    Args:
        script: the replies, taken one a call; or a function that is given the request's messages,
            which goes on rightly after a resume in a new process.
        model: the name to go by.
        structured: how it is made to answer in a form: by ``schema`` or by a ``tool``.
    """

    def __init__(
        self, script: Script, *, model: str = "scripted", structured: Structured = "tool"
    ) -> None:
        self._script = script
        self.model = model
        self.structured = structured
        self.requests: list[Request] = []

    async def complete(self, request: Request, emit: Emit) -> AssistantMessage:
        """The next reply; a `ProviderError` where the script has none left."""
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        reply = self._next(request)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, str):
            reply = AssistantMessage((Text(reply),), model=self.model)
        for part in reply.parts:
            if isinstance(part, Thinking) and part.text:
                emit(ThinkingDelta(part.text))
            elif isinstance(part, Text):
                for word in _WORDS.findall(part.text):
                    emit(TextDelta(word))
        return reply

    def _next(self, request: Request) -> ScriptedReply:
        if callable(self._script):
            return self._script(request.messages)
        number = len(self.requests)
        if number > len(self._script):
            raise ProviderError(f"the script has {len(self._script)} replies, not {number}")
        return self._script[number - 1]
