"""Faults that others' users reported, each as a test that names its report's case."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
import trio.testing

from tests.scripts import ASK, QUESTION, call, calling, saying, tool_messages, tool_texts
from trioagent import (
    Agent,
    Allow,
    Answered,
    Applied,
    Deny,
    Journal,
    NeedApproval,
    NotPendingError,
    Suspended,
    ToolContext,
    UnavailableError,
    UnknownOutcomeError,
    Verdict,
    tool,
)

from .acts import World, by_turn, cancelled_in, kinds, refused


async def test_stream_111_a_tool_may_clean_up_when_cancelled_and_the_cancellation_is_recorded(
    journal: Journal, autojump_clock: trio.testing.MockClock
) -> None:
    cleaned: list[float] = []

    def make(cancel: Any) -> Agent:
        @tool(effect="read")
        async def look() -> None:
            """Look until cancelled."""
            cancel()
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(0.05)
                cleaned.append(trio.current_time())

        return Agent(by_turn(calling(call("look"))), tools=[look])

    start = trio.current_time()
    await cancelled_in(journal, "run", make)
    assert cleaned == [pytest.approx(start + 0.05)]
    assert trio.current_time() == pytest.approx(start + 0.05)
    assert (await kinds(journal, "run"))[-1] == "run.stopped cancelled"
    assert (await journal.view("run")).status == "cancelled"


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_loop_063_a_tool_that_was_cancelled_is_unknown_or_recorded_and_the_run_goes_on(
    how: str, journal: Journal
) -> None:
    """A write whose body was cut off is in doubt; one in a thread is waited for, and recorded."""
    did: list[str] = []
    model = by_turn(calling(call("act")), saying("Done."))
    token = trio.lowlevel.current_trio_token()
    finish = threading.Event()

    def make(cancel: Any) -> Agent:
        def sync_act() -> str:
            did.append("act")
            token.run_sync_soon(cancel)
            token.run_sync_soon(finish.set)
            assert finish.wait(60)
            return "acted"

        async def async_act() -> str:
            did.append("act")
            cancel()
            await trio.sleep_forever()
            return "never"

        return Agent(model, tools=[tool(name="act")(sync_act if how == "sync" else async_act)])

    await cancelled_in(journal, "run", make)
    agent = make(lambda: None)
    if how == "async":
        assert [doubt.step for doubt in await journal.doubts()] == ["tool/1/0/act"]
        async with journal.claim("run") as run:
            with pytest.raises(UnknownOutcomeError):
                await agent.run(step_runner=run)
        await journal.resolve("run", "tool/1/0/act", Applied("acted"))
    assert await journal.doubts() == []
    async with journal.claim("run") as run:
        state = await agent.run(step_runner=run)
    assert state.unwrap().text == "Done."
    assert [m.outcome for m in tool_messages(state.transcript)] == ["ok"]
    assert did == ["act"]


async def suspended_run(journal: Journal, agent: Agent, **options: Any) -> str:
    """Run until one call waits for a person; its marker."""
    async with journal.claim("run") as run:
        state = await agent.run(QUESTION, step_runner=run, **options)
    assert isinstance(state, Suspended)
    (pending,) = state.pending
    return pending.marker


async def test_approval_079_an_approval_holds_whatever_dependencies_the_resumed_run_is_given(
    journal: Journal,
) -> None:
    seen: list[object] = []

    @tool
    async def pay(context: ToolContext) -> str:
        """Pay."""
        seen.append(context.deps)
        return "paid"

    model = by_turn(calling(call("pay")), saying("Paid."))
    asked_before: list[int] = []

    class Gate:
        def check(self, call: Any, context: Any) -> Verdict:
            asked_before.append(len(model.requests))
            return ASK

    agent = Agent(model, tools=[pay], gate=Gate())
    marker = await suspended_run(journal, agent, deps={"user": 0})
    async with journal.claim("run") as run:
        state = await agent.run(step_runner=run, approvals=[marker], deps={"user": 1})
    assert isinstance(state, Answered)
    assert seen == [{"user": 1}]
    assert asked_before == [1, 1]  # no model call came before the approved tool
    assert len(model.requests) == 2


async def test_approval_080_an_approved_tool_is_not_run_again_when_the_model_fails_after_it(
    journal: Journal,
) -> None:
    world = World()
    tools = [world.doing("pay", "write")]
    down = Agent(
        by_turn(calling(call("pay")), UnavailableError("500 from the vendor")),
        tools=tools,
        gate=ByAsking(),
    )
    up = Agent(by_turn(calling(call("pay")), saying("Paid.")), tools=tools, gate=ByAsking())
    marker = await suspended_run(journal, down)
    await journal.approve("run", marker)
    async with journal.claim("run") as run:
        with pytest.raises(UnavailableError):
            await down.run(step_runner=run)
    assert world.did == ["pay"]
    async with journal.claim("run") as run:
        state = await up.run(step_runner=run)
    assert state.unwrap().text == "Paid."
    assert tool_texts(state.transcript) == ["did pay"]
    assert world.did == ["pay"]


class ByAsking:
    """A gate that gives the verdicts in turn and then the last again, and counts."""

    def __init__(self, *verdicts: Verdict) -> None:
        self.verdicts = verdicts or (ASK,)
        self.asked = 0

    def check(self, call: Any, context: Any) -> Verdict:
        self.asked += 1
        return self.verdicts[min(self.asked, len(self.verdicts)) - 1]


@pytest.mark.parametrize("marker", [None, "a-question"])
@pytest.mark.parametrize(
    ("decision", "today", "told"),
    [
        ("approve", ASK, "did pay"),
        ("approve", Allow(), "did pay"),
        ("approve", Deny("closed"), "error: denied by policy: closed"),
        ("deny", ASK, "error: denied by a person: no"),
        ("deny", Allow(), "error: denied by a person: no"),
        ("deny", Deny("closed"), "error: denied by policy: closed"),
    ],
)
async def test_approval_082_a_gate_asked_again_can_tighten_a_persons_decision_and_never_loosen_it(
    decision: str, today: Verdict, told: str, marker: str | None, journal: Journal
) -> None:
    world = World()
    model = by_turn(calling(call("pay")), saying("Done."))
    first = NeedApproval("a person decides", marker)
    again = first if today is ASK else today
    agent = Agent(model, tools=[world.doing("pay", "write")], gate=ByAsking(first, again))
    waiting = await suspended_run(journal, agent)
    assert waiting == marker or marker is None
    if decision == "approve":
        await journal.approve("run", waiting)
    else:
        await journal.deny("run", waiting, "no")
    async with journal.claim("run") as run:
        state = await agent.run(step_runner=run)
    assert tool_texts(state.transcript) == [told]
    assert world.did == (["pay"] if told == "did pay" else [])


async def test_approval_085_of_two_resumes_of_one_approval_the_second_runs_nothing(
    journal: Journal,
) -> None:
    world = World()
    model = by_turn(calling(call("pay")), saying("Paid."))
    agent = Agent(model, tools=[world.doing("pay", "write")], gate=ByAsking())
    marker = await suspended_run(journal, agent)
    async with journal.claim("run") as run:
        state = await agent.run(step_runner=run, approvals=[marker])
    async with journal.claim("run") as run:
        await refused(agent.run(step_runner=run, approvals=[marker]), NotPendingError, journal.path)
        assert await agent.run(step_runner=run) == state
    assert world.did == ["pay"]
    assert len(model.requests) == 2
