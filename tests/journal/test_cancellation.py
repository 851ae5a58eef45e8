"""What a cancellation leaves: a step that was not started, a doubt, or an outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import trio
import trio.testing

from tests.scripts import QUESTION, call, calling, saying, tool_texts
from trioagent import (
    Agent,
    Answered,
    Applied,
    Budget,
    Halted,
    Journal,
    Request,
    RunOwnedError,
    UnknownOutcomeError,
    tool,
)
from trioagent.effects import Effect
from trioagent.provider import Emit

from .acts import by_turn, cancelled_in, kinds, leave_open, rows


@pytest.mark.parametrize("effect", ["idempotent", "write"])
async def test_a_cancellation_before_the_body_is_entered_is_recorded_as_not_started(
    effect: Effect, journal: Journal
) -> None:
    ran: list[int] = []

    async def body() -> None:
        ran.append(1)

    with trio.CancelScope() as scope:
        async with journal.claim("run") as run:
            await run.step("zero", lambda: 0)
            scope.cancel()
            await run.step("one", body, effect=effect)
    assert scope.cancelled_caught
    assert ran == []
    assert await journal.doubts() == []
    async with journal.claim("run") as run:
        await run.step("one", body, effect=effect)
    assert ran == [1]


@pytest.mark.parametrize("effect", ["read", "idempotent", "write"])
async def test_a_cancellation_in_the_body_leaves_the_intent_and_only_of_a_write_a_doubt(
    effect: Effect, journal: Journal
) -> None:
    """langgraph#5672: the intent is visible."""
    await leave_open(journal, "run", "one", effect=effect)
    view = await journal.view("run")
    (step,) = view.steps
    assert (step.status, step.effect, step.attempts) == ("open", effect, 1)
    doubts = [doubt.step for doubt in await journal.doubts()]
    assert doubts == (["one"] if effect == "write" else [])
    assert view.status == ("in_doubt" if effect == "write" else "cancelled")


@pytest.mark.parametrize("effect", ["read", "idempotent", "write"])
async def test_a_cancellation_at_completion_records_the_outcome_and_then_goes_on(
    effect: Effect, journal: Journal
) -> None:
    """sdk-python#620"""
    with trio.CancelScope() as scope:
        async with journal.claim("run") as run:

            async def body() -> str:
                scope.cancel()
                return "done"

            await run.step("one", body, effect=effect)
            raise AssertionError("the cancellation was swallowed")
    assert scope.cancelled_caught
    (step,) = (await journal.view("run")).steps
    assert step.status == "completed"
    ran: list[int] = []
    async with journal.claim("run") as run:
        assert await run.step("one", ran.append, effect=effect) == "done" or ran
    assert ran == []


@pytest.mark.parametrize("effect", ["idempotent", "write"])
async def test_a_sync_writes_thread_is_waited_for_and_its_outcome_recorded(
    effect: Effect, journal: Journal
) -> None:
    go = threading.Event()
    with trio.CancelScope() as scope:
        async with journal.claim("run") as run:
            token = trio.lowlevel.current_trio_token()

            def body() -> str:
                token.run_sync_soon(scope.cancel)
                token.run_sync_soon(go.set)
                assert go.wait(60)
                return "done"

            await run.step("one", body, effect=effect)
            raise AssertionError("the cancellation was swallowed")
    assert scope.cancelled_caught
    async with journal.claim("run") as run:
        assert await run.step("one", lambda: "again", effect=effect) == "done"


async def test_a_run_is_owned_until_the_thread_of_a_write_that_timed_out_ends(
    journal: Journal, autojump_clock: trio.testing.MockClock
) -> None:
    go = threading.Event()

    @tool(effect="write", timeout=5)
    def slow() -> str:
        assert go.wait(60)
        return "too late"

    agent = Agent(by_turn(calling(call("slow")), saying("I shall look.")), tools=[slow])
    async with journal.claim("run") as run:
        state = await agent.run(QUESTION, step_runner=run)
    assert isinstance(state, Answered)
    (text,) = tool_texts(state.transcript)
    assert "timed out after 5 s" in text
    assert "may have taken effect" in text
    before = rows(journal.path)
    with pytest.raises(RunOwnedError):
        async with journal.claim("run"):
            raise AssertionError("claimed while the thread runs")
    go.set()
    for _ in range(100_000):
        try:
            async with journal.claim("run") as run:
                assert await agent.run(step_runner=run) == state
            break
        except RunOwnedError:
            await trio.lowlevel.checkpoint()
    else:
        raise AssertionError("the thread has ended and the run is still owned")
    assert rows(journal.path) == before


async def test_a_timeout_of_an_async_tool_is_its_outcome(
    journal: Journal, autojump_clock: trio.testing.MockClock
) -> None:
    @tool(effect="write", timeout=5)
    async def slow() -> None:
        await trio.sleep_forever()

    agent = Agent(by_turn(calling(call("slow")), saying("ok")), tools=[slow])
    for _ in range(2):
        async with journal.claim("run") as run:
            state = await agent.run(QUESTION, step_runner=run)
        assert "timed out after 5 s" in tool_texts(state.transcript)[0]
    assert await journal.doubts() == []


class Hangs:
    """A model that never answers its second call."""

    model = "hangs"

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, request: Request, emit: Emit):  # type: ignore[no-untyped-def]
        self.calls += 1
        if len(request.messages) > 1:
            await trio.sleep_forever()
        return calling(call("write"))


async def test_a_deadline_ends_a_model_call_and_the_run_halts_with_what_it_had(
    journal: Journal, autojump_clock: trio.testing.MockClock
) -> None:
    @tool
    async def write() -> str:
        return "wrote"

    model = Hangs()
    agent = Agent(model, tools=[write], budget=Budget(max_seconds=5))
    async with journal.claim("run") as run:
        state = await agent.run(QUESTION, step_runner=run)
    assert isinstance(state, Halted)
    assert state.reason == "deadline"
    assert tool_texts(state.transcript) == ["wrote"]
    view = await journal.view("run")
    assert view.status == "halted"
    assert view.transcript == state.transcript


async def test_a_deadline_never_cuts_a_write_off(
    journal: Journal, autojump_clock: trio.testing.MockClock
) -> None:
    @tool
    async def write() -> str:
        await trio.sleep(60)
        return "wrote"

    agent = Agent(Hangs(), tools=[write], budget=Budget(max_seconds=5))
    async with journal.claim("run") as run:
        state = await agent.run(QUESTION, step_runner=run)
    assert isinstance(state, Halted)
    assert tool_texts(state.transcript) == ["wrote"]
    assert await journal.doubts() == []


@pytest.mark.parametrize("effect", ["read", "write"])
async def test_a_cancelled_run_is_recorded_as_cancelled_and_runs_again_where_nothing_is_in_doubt(
    effect: Effect, journal: Journal
) -> None:
    """pydantic-ai#8166: the partial transcript is still there."""
    inside: Callable[[], None] | None = None
    ran: list[str] = []

    def agent(cancel: Callable[[], None] | None) -> Agent:
        @tool(effect=effect)
        async def work() -> str:
            ran.append("work")
            if cancel is not None:
                cancel()
                await trio.sleep_forever()
            return "worked"

        return Agent(by_turn(calling(call("work")), saying("ok")), tools=[work])

    await cancelled_in(journal, "run", agent)
    assert (await kinds(journal, "run"))[-1] == "run.stopped cancelled"
    view = await journal.view("run")
    assert view.transcript[-1] == calling(call("work"))
    if effect == "write":
        assert view.status == "in_doubt"
        with pytest.raises(UnknownOutcomeError):
            async with journal.claim("run") as run:
                await agent(inside).run(step_runner=run)
        await journal.resolve("run", "tool/1/0/work", Applied("worked"))
    async with journal.claim("run") as run:
        state = await agent(inside).run(step_runner=run)
    assert tool_texts(state.transcript) == ["worked"]
    assert ran == ["work"] * (1 if effect == "write" else 2)


async def test_a_write_in_doubt_is_refused_within_the_claim_that_began_it_too(
    journal: Journal,
) -> None:
    ran: list[str] = []

    @tool
    async def work() -> None:
        ran.append("work")
        scope.cancel()
        await trio.sleep_forever()

    agent = Agent(by_turn(calling(call("work")), saying("ok")), tools=[work])
    async with journal.claim("run") as run:
        with trio.CancelScope() as scope:
            await agent.run(QUESTION, step_runner=run)
        with pytest.raises(UnknownOutcomeError):
            await agent.run(step_runner=run)
    assert ran == ["work"]
    assert [doubt.step for doubt in await journal.doubts()] == ["tool/1/0/work"]


async def test_leaving_the_event_stream_early_cancels_the_run_and_leaves_it_to_go_on(
    journal: Journal,
) -> None:
    """claude-agent-sdk-python#454"""
    ran: list[str] = []

    @tool(effect="read")
    async def work() -> str:
        ran.append("work")
        return "worked"

    def agent() -> Agent:
        return Agent(by_turn(calling(call("work")), saying("ok")), tools=[work])

    async with (
        journal.claim("run") as run,
        agent().stream(QUESTION, step_runner=run) as stream,
    ):
        async for _ in stream:
            break
    async with journal.claim("run") as run:
        state = await agent().run(step_runner=run)
    assert tool_texts(state.transcript) == ["worked"]
    steps = {step.name: step.attempts for step in (await journal.view("run")).steps}
    assert steps["llm/1"] == 1
