"""How a run goes on: after a failed turn, with one step in doubt, with decisions from elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from tests.scripts import (
    ASK,
    MAIL,
    MAIL_MARKER,
    QUESTION,
    ByName,
    call,
    calling,
    saying,
    tokens,
    tool_texts,
)
from trioagent import (
    Agent,
    Answered,
    Applied,
    Budget,
    Halted,
    Journal,
    NotApplied,
    NotPendingError,
    ProviderError,
    RunOwnedError,
    StepError,
    Suspended,
    UnknownOutcomeError,
    tool,
)

from .acts import World, by_turn, cancelled_in, kinds, refused, rows, weather
from .children import child

TURN = calling(call("read"), call("write"), call("other"))


def three(
    world: World, inside: Callable[[], None] | None = None, wait: trio.Event | None = None
) -> Agent:
    """A read, a write that may be cut off, and another write that waits for nobody."""

    @tool(effect="write")
    async def write() -> str:
        world.did.append("write")
        if inside is not None:
            assert wait is not None
            await wait.wait()
            inside()
            await trio.sleep_forever()
        return "wrote"

    @tool(effect="write")
    async def other() -> str:
        world.did.append("other")
        return "wrote too"

    tools = [world.doing("read", "read", "read it"), write, other]
    return Agent(by_turn(TURN, saying("ok")), tools=tools)


async def one_in_doubt(journal: Journal, world: World) -> None:
    """Cut the turn off when its siblings are recorded and `write` is not."""
    with trio.CancelScope() as scope:
        async with journal.claim("run") as run:
            done = trio.Event()

            async def watch() -> None:
                while True:
                    steps = (await journal.view("run")).steps
                    if sum(step.status == "completed" for step in steps) == 3:
                        done.set()
                        return

            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch)
                await three(world, scope.cancel, done).run(QUESTION, step_runner=run)
    assert scope.cancelled_caught
    assert sorted(world.did) == ["other", "read", "write"]


async def test_a_step_in_doubt_beside_recorded_siblings_refuses_the_turn_until_it_is_resolved(
    journal: Journal,
) -> None:
    world = World()
    await one_in_doubt(journal, world)
    view = await journal.view("run")
    assert view.status == "in_doubt"
    assert view.doubts == ("tool/1/1/write",)
    assert view.transcript[-1] == TURN
    world.did.clear()
    for attempt in range(2):
        before = rows(journal.path)
        with pytest.raises(UnknownOutcomeError) as caught:
            async with journal.claim("run") as run:
                await three(world).run(step_runner=run)
        assert caught.value.step == "tool/1/1/write"
        assert caught.value.transcript[-1] == TURN
        # The first refusal is recorded as the run's end; it is not recorded again.
        assert len(rows(journal.path)) == len(before) + (attempt == 0)
    assert world.did == []
    await journal.resolve("run", "tool/1/1/write", Applied("wrote, as the log says"))
    async with journal.claim("run") as run:
        state = await three(world).run(step_runner=run)
    assert tool_texts(state.transcript) == ["read it", "wrote, as the log says", "wrote too"]
    assert world.did == []


async def test_a_write_that_was_found_not_applied_runs_and_its_siblings_do_not(
    journal: Journal,
) -> None:
    world = World()
    await one_in_doubt(journal, world)
    world.did.clear()
    await journal.resolve("run", "tool/1/1/write", NotApplied("the log"))
    assert await journal.doubts() == []
    async with journal.claim("run") as run:
        state = await three(world).run(step_runner=run)
    assert tool_texts(state.transcript) == ["read it", "wrote", "wrote too"]
    assert world.did == ["write"]


async def test_a_failed_model_call_is_asked_again_and_the_tools_before_it_are_not(
    journal: Journal,
) -> None:
    """openai-agents#3852: the input of a failed run is recorded."""
    world = World()
    down = by_turn(calling(call("lookup")), ProviderError("the vendor is down"))
    with pytest.raises(ProviderError, match="down") as caught:
        async with journal.claim("run") as run:
            await weather(world, down).run(QUESTION, step_runner=run)
    assert tool_texts(caught.value.transcript) == ["sunny"]
    view = await journal.view("run")
    assert view.status == "failed"
    assert view.transcript == caught.value.transcript
    assert view.stopped is not None
    assert (view.stopped.error_type, view.stopped.message) == (
        "ProviderError",
        "the vendor is down",
    )
    up = by_turn(calling(call("lookup")), saying("It is sunny."))
    async with journal.claim("run") as run:
        state = await weather(world, up).run(step_runner=run)
    assert isinstance(state, Answered)
    assert world.did == ["lookup"]
    assert len(up.requests) == 1
    assert state.usage == (await journal.view("run")).usage


async def test_a_suspended_run_goes_on_when_another_process_approves(journal: Journal) -> None:
    for owned in (True, False):
        world, run_id = World(), f"owned-{owned}"
        model = by_turn(calling(call("send_email", MAIL)), saying("Sent."))
        email = tool(name="send_email")(_send(world))
        agent = Agent(model, tools=[email], gate=ByName(send_email=ASK))
        async with child("child", journal.path) as other:
            async with journal.claim(run_id) as run:
                state = await agent.run(QUESTION, step_runner=run)
                assert isinstance(state, Suspended)
                if owned:
                    assert await other.do("approve", run_id, MAIL_MARKER) == "ok"
                    state = await agent.run(step_runner=run)
            if not owned:
                assert (await journal.view(run_id)).status == "suspended"
                assert await other.do("approve", run_id, MAIL_MARKER) == "ok"
                assert await other.do("approve", run_id, MAIL_MARKER) == "NotPendingError"
                async with journal.claim(run_id) as run:
                    state = await agent.run(step_runner=run)
        assert isinstance(state, Answered)
        assert world.did == ["bob@corp.example"]
        assert len(model.requests) == 2


def _send(world: World) -> Callable[[str, str], str]:
    def send_email(to: str, body: str) -> str:
        world.did.append(to)
        return "sent"

    return send_email


async def test_a_denial_from_elsewhere_is_read_by_the_model_with_its_reason(
    journal: Journal,
) -> None:
    world = World()
    agent = Agent(
        by_turn(calling(call("send_email", MAIL)), saying("I shall not.")),
        tools=[tool(name="send_email")(_send(world))],
        gate=ByName(send_email=ASK),
    )
    async with journal.claim("run") as run:
        await agent.run(QUESTION, step_runner=run)
    (waiting,) = await journal.pending()
    assert (waiting.run_id, waiting.pending.marker) == ("run", MAIL_MARKER)
    await journal.deny("run", MAIL_MARKER, "not to him")
    assert await journal.pending() == []
    await refused(journal.approve("run", MAIL_MARKER), NotPendingError, journal.path)
    async with journal.claim("run") as run:
        state = await agent.run(step_runner=run)
    assert tool_texts(state.transcript) == ["error: denied by a person: not to him"]
    assert world.did == []


async def test_an_approval_is_for_the_pending_call_only_and_is_consumed_when_it_starts(
    journal: Journal,
) -> None:
    world = World()
    agent = Agent(
        by_turn(calling(call("pay", id="1")), calling(call("pay", id="2")), saying("Paid.")),
        tools=[world.doing("pay", "write")],
        gate=ByName(pay=ASK),
    )
    async with journal.claim("run") as run:
        state = await agent.run(QUESTION, step_runner=run)
        assert isinstance(state, Suspended)
        (first,) = state.pending
        state = await agent.run(step_runner=run, approvals=[first.marker])
        assert isinstance(state, Suspended)
        assert world.did == ["pay"]
        again = await agent.run(step_runner=run)
        assert again == state
    assert world.did == ["pay"]


async def test_a_suspended_run_without_a_change_ends_the_same_way_and_adds_no_record(
    journal: Journal,
) -> None:
    world = World()
    model = by_turn(calling(call("pay")), saying("Paid."))
    agent = Agent(model, tools=[world.doing("pay", "write")], gate=ByName(pay=ASK))
    async with journal.claim("run") as run:
        first = await agent.run(QUESTION, step_runner=run)
    before = rows(journal.path)
    for given in (None, QUESTION):
        async with journal.claim("run") as run:
            assert await agent.run(given, step_runner=run) == first
    assert rows(journal.path) == before
    assert len(model.requests) == 1
    assert world.did == []


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ({"max_iter": 1}, {"max_iter": 2}),
        ({"budget": Budget(max_tokens=10)}, {"budget": Budget(max_tokens=1000)}),
        ({"budget": Budget(max_tool_calls=0)}, {}),
    ],
)
async def test_a_halted_run_goes_on_only_under_a_higher_limit(
    limits: dict[str, object], raised: dict[str, object], journal: Journal
) -> None:
    world = World()
    replies = calling(call("lookup"), usage=tokens(20)), saying("It is sunny.")
    model = by_turn(*replies)
    async with journal.claim("run") as run:
        first = await weather(world, model, **limits).run(QUESTION, step_runner=run)
    assert isinstance(first, Halted)
    view = await journal.view("run")
    assert view.status == "halted"
    assert view.stopped is not None
    assert (view.stopped.reason, view.stopped.limit) == (first.reason, first.limit)
    before, ran = rows(journal.path), list(world.did)
    async with journal.claim("run") as run:
        assert await weather(world, model, **limits).run(step_runner=run) == first
    assert rows(journal.path) == before
    assert (len(model.requests), world.did) == (1, ran)
    async with journal.claim("run") as run:
        state = await weather(world, model, **raised).run(step_runner=run)
    assert isinstance(state, Answered)
    assert (len(model.requests), world.did) == (2, ["lookup"])


async def test_an_answered_run_gives_its_answer_without_a_call_and_without_a_record(
    journal: Journal,
) -> None:
    """pydantic-ai-harness#531: usage equals the original, once."""
    world = World()
    model = by_turn(calling(call("lookup"), usage=tokens(9)), saying("Sunny.", usage=tokens(4)))
    async with journal.claim("run") as run:
        first = await weather(world, model).run(QUESTION, step_runner=run)
    before = rows(journal.path)
    async with journal.claim("run") as run:
        for _ in range(2):
            assert await weather(world, model).run(QUESTION, step_runner=run) == first
    assert rows(journal.path) == before
    assert first.usage.total_tokens == 13
    assert (await journal.view("run")).usage == first.usage
    assert (len(model.requests), world.did) == (2, ["lookup"])


async def test_a_step_that_could_not_run_fails_the_turn_and_what_its_siblings_did_stands(
    journal: Journal,
) -> None:
    world = World()
    await one_in_doubt(journal, world)
    with pytest.raises(StepError):
        async with journal.claim("run") as run:
            await three(world).run(step_runner=run)
    view = await journal.view("run")
    assert view.stopped is not None
    assert view.stopped.step == "tool/1/1/write"
    done = {step.name for step in view.steps if step.status == "completed"}
    assert done == {"llm/1", "tool/1/0/read", "tool/1/2/other"}


async def test_one_turn_may_call_a_tool_twice_and_each_call_has_a_record_of_its_own(
    journal: Journal,
) -> None:
    """inngest-js#1019"""
    world = World()
    twice = calling(call("lookup", {"what": "a"}, id="1"), call("lookup", {"what": "a"}, id="2"))
    async with journal.claim("run") as run:
        await weather(world, by_turn(twice, saying("ok"))).run(QUESTION, step_runner=run)
    names = [step.name for step in (await journal.view("run")).steps]
    assert sorted(names) == ["llm/1", "llm/2", "tool/1/0/lookup", "tool/1/1/lookup"]
    assert world.did == ["lookup a", "lookup a"]


async def test_a_run_in_doubt_is_not_resolved_by_its_owner_either(journal: Journal) -> None:
    def agent(inside: Callable[[], None]) -> Agent:
        @tool
        async def write() -> None:
            inside()
            await trio.sleep_forever()

        return Agent(by_turn(calling(call("write")), saying("ok")), tools=[write])

    await cancelled_in(journal, "run", agent)
    async with journal.claim("run"):
        await refused(
            journal.resolve("run", "tool/1/0/write", Applied("x")), RunOwnedError, journal.path
        )
    assert "run.stopped cancelled" in await kinds(journal, "run")


async def test_an_answer_is_final_whatever_limit_or_cancellation_a_later_run_meets(
    journal: Journal,
) -> None:
    async with journal.claim("run") as run:
        first = await weather(World()).run(QUESTION, step_runner=run)
    before = rows(journal.path)
    with trio.CancelScope() as scope:
        async with journal.claim("run") as run:
            scope.cancel()
            await weather(World()).run(step_runner=run)
    assert scope.cancelled_caught
    async with journal.claim("run") as run:
        await weather(World(), max_iter=1).run(step_runner=run)
    assert rows(journal.path) == before
    view = await journal.view("run")
    assert (view.status, view.transcript) == ("answered", first.transcript)


async def test_a_plain_step_beside_an_agents_run_leaves_its_end_and_what_waits_as_they_are(
    journal: Journal,
) -> None:
    for gate, status in ((ByName(lookup=ASK), "suspended"), (ByName(), "answered")):
        world = World()
        async with journal.claim(status) as run:
            await weather(world, gate=gate).run(QUESTION, step_runner=run)
            await run.step("tell-somebody", lambda: "told")
        assert (await journal.view(status)).status == status
    (waiting,) = await journal.pending()
    await journal.approve(waiting.run_id, waiting.pending.marker)
    world = World()
    async with journal.claim("suspended") as run:
        state = await weather(world, gate=ByName(lookup=ASK)).run(step_runner=run)
    assert isinstance(state, Answered)
    assert world.did == ["lookup Paris"]


async def test_a_lower_limit_does_not_undo_a_recorded_answer(journal: Journal) -> None:
    world = World()
    agent = Agent(
        by_turn(calling(call("read")), calling(call("read")), saying("ok")),
        tools=[world.doing("read", "read", "ok")],
    )
    async with journal.claim("run") as run:
        answered = await agent.run(QUESTION, step_runner=run)
    tight = Agent(
        by_turn(),
        tools=[world.doing("read", "read", "ok")],
        max_iter=1,
        budget=Budget(max_tokens=0, max_tool_calls=0, max_seconds=1e-9),
    )
    async with journal.claim("run") as run:
        assert await tight.run(step_runner=run) == answered
    assert world.did == ["read", "read"]
