"""Watching a run: its events never hold it up, and leaving early ends it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from trioagent import (
    Agent,
    Answered,
    AssistantMessage,
    Done,
    ProviderError,
    Request,
    TextDelta,
    ToolCalled,
    ToolFinished,
    Usage,
    UsageReported,
    tool,
)
from trioagent.provider import Emit
from trioagent.providers import Scripted
from trioagent.stream import MERGE_ABOVE

from .runners import Remembering
from .scripts import call, calling, saying, tokens, user


class Chunks:
    """A model that streams `count` numbered chunks, one a second, then asks for `reply`."""

    model = "chunks"

    def __init__(self, count: int, reply: AssistantMessage | None = None) -> None:
        self.count = count
        self.reply = reply
        self.sent = 0
        self.closed = False

    async def complete(self, request: Request, emit: Emit) -> AssistantMessage:
        try:
            for number in range(self.count):
                emit(TextDelta(f"{number} "))
                self.sent += 1
                await trio.sleep(1)
        finally:
            self.closed = True
        text = "".join(f"{number} " for number in range(self.count))
        return self.reply or saying(text, usage=tokens(7))


class Hangs:
    """A model that emits one delta, does `then`, and waits for ever."""

    model = "hangs"

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.then = then

    async def complete(self, request: Request, emit: Emit) -> AssistantMessage:
        emit(TextDelta("half"))
        await trio.testing.wait_all_tasks_blocked()
        self.then()
        await trio.sleep_forever()
        raise AssertionError


class BlockError(Exception):
    """What a test's block raises."""


# -- far behind, or not reading at all ------------------------------------------------------------


async def test_a_result_comes_without_reading_two_thousand_events() -> None:
    text = "word " * 2000
    async with Agent(Scripted([saying(text)])).stream("go") as stream:
        state = await stream.result()
        events = [event async for event in stream]
    assert state.unwrap().text == text
    texts = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(texts) == text
    assert MERGE_ABOVE < len(texts) <= MERGE_ABOVE + 2
    assert [type(event) for event in events[-2:]] == [UsageReported, Done]


async def test_a_reader_that_keeps_up_gets_every_delta_of_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with Agent(Chunks(2 * MERGE_ABOVE)).stream("go") as stream:
        texts = [event.text async for event in stream if isinstance(event, TextDelta)]
    assert texts == [f"{number} " for number in range(2 * MERGE_ABOVE)]


async def test_texts_merge_with_neighbours_only_and_order_is_kept() -> None:
    @tool
    async def t() -> str:
        return "ran"

    # Each reply is longer than what a reader may leave unread.
    first = AssistantMessage((*saying("a " * 400).parts, call("t")), stop_reason="tool_calls")
    model = Scripted([first, saying("b " * 400)])
    async with Agent(model, tools=[t]).stream("go") as stream:
        await stream.result()
        events = [event async for event in stream]
    order = [type(event).__name__ for event in events if not isinstance(event, TextDelta)]
    assert order == ["UsageReported", "ToolCalled", "ToolFinished", "UsageReported", "Done"]
    called = next(i for i, event in enumerate(events) if isinstance(event, ToolCalled))
    before = "".join(event.text for event in events[:called] if isinstance(event, TextDelta))
    after = "".join(event.text for event in events[called:] if isinstance(event, TextDelta))
    assert (before, after) == ("a " * 400, "b " * 400)


async def test_a_reader_that_comes_late_misses_nothing_and_iterating_twice_ends_twice() -> None:
    async with Agent(Scripted([saying("one two")])).stream("go") as stream:
        await trio.testing.wait_all_tasks_blocked()
        assert len([event async for event in stream]) == 4
        assert [event async for event in stream] == []
        assert isinstance(await stream.result(), Answered)
        assert await stream.result() == await stream.result()


async def test_reading_and_waiting_for_the_result_are_checkpoints() -> None:
    async with Agent(Scripted([saying("one two")])).stream("go") as stream:
        await stream.result()
        with trio.testing.assert_checkpoints():
            await stream.result()
        with trio.testing.assert_checkpoints():
            await anext(stream)


# -- leaving early --------------------------------------------------------------------------------


async def test_stream_093_leaving_the_block_ends_the_model_call_and_keeps_no_half_reply(
    autojump_clock: trio.testing.MockClock,
) -> None:
    model, runner = Chunks(1000), Remembering()
    async with Agent(model).stream("go", step_runner=runner) as stream:
        assert await anext(stream) == TextDelta("0 ")
    assert model.closed
    assert model.sent < 5
    assert runner.outcomes == {}
    assert stream.transcript == (user("go"),)
    assert stream.usage == Usage()
    with pytest.raises(trio.Cancelled):
        await stream.result()


async def test_stream_105_a_run_left_while_its_calls_stream_runs_no_tool(
    autojump_clock: trio.testing.MockClock,
) -> None:
    runs = []

    @tool
    async def t() -> None:
        runs.append("t")

    agent = Agent(Chunks(5, calling(call("t"))), tools=[t])
    async with agent.stream("go") as stream:
        await anext(stream)
        await anext(stream)
    assert runs == []
    assert stream.transcript == (user("go"),)


async def test_an_exception_in_the_block_leaves_bare_and_ends_the_run() -> None:
    error = BlockError()
    with pytest.raises(BlockError) as caught:
        async with Agent(Hangs()).stream("go") as stream:
            async for _ in stream:
                raise error
    assert caught.value is error
    assert error.__context__ is None


async def test_a_cancellation_from_outside_ends_the_run_and_goes_on_untouched(
    autojump_clock: trio.testing.MockClock,
) -> None:
    runner = Remembering()
    with trio.move_on_after(5) as scope:
        async with Agent(Chunks(1000)).stream("go", step_runner=runner) as stream:
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(5)
    assert stream.transcript == (user("go"),)
    assert len(runner.ends) == 1


async def test_no_task_outlives_the_block() -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    async with Agent(Hangs()).stream("go") as stream:
        await anext(stream)
    assert trio.lowlevel.current_statistics().tasks_living == before


@pytest.mark.parametrize("protected", [False, True], ids=["in the run", "in the reader"])
def test_stream_094_an_interrupt_during_a_read_comes_out_and_nothing_else(
    protected: bool,
) -> None:
    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        # Where the run is protected, Trio gives the interrupt to the reader, its main task.
        then = trio.lowlevel.enable_ki_protection(interrupt) if protected else interrupt
        async with Agent(Hangs(then)).stream("go") as stream:
            async for _ in stream:
                pass

    with pytest.raises(KeyboardInterrupt) as caught:
        trio.run(main)
    assert type(caught.value) is KeyboardInterrupt


async def test_stream_096_a_readers_time_is_never_under_a_scope_of_the_library(
    autojump_clock: trio.testing.MockClock,
) -> None:
    @tool(effect="read", timeout=1)
    async def t() -> str:
        await trio.sleep(0.5)
        return "ran"

    seen: list[Any] = []
    model = Scripted([calling(call("t")), saying("done")])
    async with Agent(model, tools=[t]).stream("go") as stream:
        async for event in stream:
            assert trio.current_effective_deadline() == float("inf")
            await trio.sleep(5)
            seen.append(event)
    finished = [event.message.text for event in seen if isinstance(event, ToolFinished)]
    assert finished == ["ran"]
    assert isinstance(seen[-1], Done)


# -- failures -------------------------------------------------------------------------------------


async def test_a_failure_comes_after_the_events_that_went_before_it() -> None:
    error = ProviderError("down")

    @tool
    async def t() -> str:
        return "ran"

    first = calling(call("t"), usage=tokens(5))
    seen = []
    async with Agent(Scripted([first, error]), tools=[t]).stream("go") as stream:
        with pytest.raises(ProviderError) as caught:
            async for event in stream:
                seen.append(type(event))
    assert caught.value is error
    assert seen == [UsageReported, ToolCalled, ToolFinished]
    assert stream.usage == tokens(5)
    assert stream.transcript == error.transcript
    assert len(stream.transcript) == 3


async def test_a_failure_is_raised_by_result_and_then_not_again_on_leaving() -> None:
    async with Agent(Scripted([ProviderError("down")])).stream("go") as stream:
        with pytest.raises(ProviderError, match="down"):
            await stream.result()


async def test_a_failure_that_nobody_was_told_is_raised_bare_when_the_block_is_left() -> None:
    error = ProviderError("down")
    with pytest.raises(ProviderError) as caught:
        async with Agent(Scripted([error])).stream("go"):
            await trio.testing.wait_all_tasks_blocked()
    assert caught.value is error
