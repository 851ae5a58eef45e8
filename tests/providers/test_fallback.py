"""What `FallbackProvider` promises: the next model is asked on the kinds of error it is told."""

from __future__ import annotations

import pytest

from tests import chat_server
from tests.chat_server import Reply, in_turn
from tests.providers.wires import ANTHROPIC, CHAT
from trioagent import Agent
from trioagent.errors import (
    AuthenticationError,
    OverloadedError,
    ProtocolError,
    RateLimitError,
    UnavailableError,
)
from trioagent.events import Answered, ModelReset, TextDelta
from trioagent.messages import AssistantMessage, Text, UserMessage
from trioagent.provider import Delta, Emit, Provider, Request
from trioagent.providers import FallbackProvider, Scripted

REQUEST = Request((UserMessage((Text("hi"),)),))


class Breaking:
    """A model that shows some words and then fails."""

    def __init__(self, error: Exception, *words: str) -> None:
        self.model = "breaking"
        self._error = error
        self._words = words

    async def complete(self, request: Request, emit: Emit) -> AssistantMessage:
        for word in self._words:
            emit(TextDelta(word))
        raise self._error


async def asked(*providers: Provider, **options: object) -> tuple[str, list[Delta]]:
    shown: list[Delta] = []
    fallback = FallbackProvider(providers, **options)  # type: ignore[arg-type]
    message = await fallback.complete(REQUEST, shown.append)
    return message.text, shown


@pytest.mark.parametrize("kind", [RateLimitError, OverloadedError, UnavailableError])
async def test_the_next_model_answers_where_the_first_cannot(
    kind: type[RateLimitError],
) -> None:
    text, shown = await asked(Scripted([kind("no")]), Scripted(["yes"]))
    assert text == "yes" and shown == [TextDelta("yes")]


async def test_the_first_model_that_answers_is_the_only_one_asked() -> None:
    second = Scripted(["no"])
    text, _ = await asked(Scripted(["yes"]), second)
    assert text == "yes" and second.requests == []


async def test_what_was_shown_of_a_reply_that_broke_is_taken_back_first() -> None:
    text, shown = await asked(
        Breaking(UnavailableError("x"), "half", "way"),
        Breaking(UnavailableError("x")),
        Scripted(["whole"]),
    )
    assert text == "whole"
    assert shown == [TextDelta("half"), TextDelta("way"), ModelReset(), TextDelta("whole")]


async def test_an_error_of_another_kind_is_raised_and_nobody_else_is_asked() -> None:
    second = Scripted(["no"])
    with pytest.raises(AuthenticationError):
        await asked(Scripted([AuthenticationError("no key")]), second)
    assert second.requests == []


async def test_the_kinds_are_the_caller_s_to_choose() -> None:
    first, second = Scripted([ProtocolError("odd")] * 2), Scripted(["yes"])
    with pytest.raises(ProtocolError):
        await asked(first, second)
    text, _ = await asked(first, second, on=(ProtocolError,))
    assert text == "yes"


async def test_the_last_error_is_raised_with_a_note_of_those_before() -> None:
    with pytest.raises(OverloadedError) as caught:
        await asked(
            Scripted([RateLimitError("slow down")], model="a"), Scripted([OverloadedError("full")])
        )
    assert caught.value.__notes__ == ["asked before it: a: RateLimitError: slow down"]


def test_its_name_is_those_of_its_models_in_their_order() -> None:
    inner = FallbackProvider([Scripted([], model="b"), Scripted([], model="c")])
    fallback = FallbackProvider([Scripted([], model="a"), inner])
    assert fallback.model == "a|b|c" and fallback.models == ("a", "b", "c")
    assert repr(fallback) == "FallbackProvider('a|b|c')"
    with pytest.raises(ValueError, match="at least one"):
        FallbackProvider([])


async def test_a_run_goes_on_with_another_vendor_in_another_format() -> None:
    busy = chat_server.fails(429, headers=[("retry-after", "3600")])

    def first(body: chat_server.JSON) -> Reply:
        return busy

    async with (
        chat_server.chat_server(first) as one,
        chat_server.chat_server(in_turn([ANTHROPIC.says("hel", "lo")])) as two,
    ):
        models = [CHAT.at(one.base_url), ANTHROPIC.at(two.base_url)]
        state = await Agent(FallbackProvider(models)).run("hi")
    assert isinstance(state, Answered) and state.message.text == "hello"
    assert (len(one.requests), len(two.requests)) == (1, 1)
