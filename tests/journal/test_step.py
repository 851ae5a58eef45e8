"""`run.step`: any Trio code as a recorded step."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest
import trio

from tests.scripts import QUESTION, call, calling, saying, tool_texts
from trioagent import (
    Agent,
    Answered,
    DuplicateStepError,
    Journal,
    ReplayMismatchError,
    StepError,
    StepFailedError,
    tool,
)
from trioagent.effects import EFFECTS, Effect
from trioagent.errors import EncodingError

from .acts import World, by_turn, refused, rows, weather


class Point(msgspec.Struct):
    """A type of the application's own."""

    x: int
    y: float = 0.0


async def twice(journal: Journal, function: Any, *args: Any, **options: Any) -> list[Any]:
    """The same step, live and replayed."""
    found = []
    for _ in range(2):
        async with journal.claim("run") as run:
            found.append(await run.step("one", function, *args, **options))
    return found


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        ((1, 2), [1, 2]),
        ({"b": {1}, "a": None}, {"b": [1], "a": None}),
        (Point(1), {"x": 1, "y": 0.0}),
        (b"\x00\xff", "AP8="),
        *[(empty, empty) for empty in ("", 0, False, None, [], {}, 0.0)],
        ("a\x00b\u2028\U0001f600", "a\x00b\u2028\U0001f600"),
        (2**63, 2**63),
        (1e-320, 1e-320),
    ],
)
async def test_a_live_step_and_a_replayed_one_give_the_same_decoded_value(
    value: object, decoded: object, journal: Journal
) -> None:
    """langgraph#1878, langgraph PR6395, and that no value's falsiness means "not recorded"."""
    ran: list[int] = []

    def body() -> object:
        ran.append(1)
        return value

    live, replayed = await twice(journal, body)
    assert live == replayed == decoded
    assert type(live) is type(replayed) is type(decoded)
    assert ran == [1]


async def test_with_a_result_type_the_value_is_of_that_type_both_times(journal: Journal) -> None:
    assert await twice(journal, lambda: {"x": 1}, result_type=Point) == [Point(1), Point(1)]


async def test_a_recorded_value_that_is_not_of_the_type_is_an_error_and_is_not_run_again(
    journal: Journal,
) -> None:
    ran: list[int] = []

    async def ask() -> None:
        async with journal.claim("run") as run:
            await run.step("one", ran.append, 1, result_type=Point)

    with pytest.raises(EncodingError, match="Point"):
        await ask()
    with pytest.raises(EncodingError, match="Point"):
        await ask()
    assert ran == [1]


# -- failures -------------------------------------------------------------------------------------


class OddError(Exception):
    """Its arguments cannot be given back to it."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.lock = threading.Lock()


class SilentError(Exception):
    """Has nothing to say."""


@pytest.mark.parametrize(
    ("exc", "error_type", "message"),
    [
        (OddError(code=7), "OddError", "code 7"),
        (SilentError(), "SilentError", ""),
        (KeyError("k"), "KeyError", "'k'"),
        (ValueError("a \ud800 b"), "ValueError", "a \\ud800 b"),
    ],
)
@pytest.mark.parametrize("effect", EFFECTS)
async def test_an_exception_is_the_same_outcome_live_and_on_replay(
    exc: Exception, error_type: str, message: str, effect: Effect, journal: Journal
) -> None:
    """dbos-transact-py#371, dbos-transact-py#730, azure durable-extension#3049."""
    ran: list[int] = []

    async def body() -> None:
        ran.append(1)
        raise exc

    found: list[StepFailedError] = []
    for _ in range(2):
        with pytest.raises(StepFailedError) as caught:
            async with journal.claim("run") as run:
                await run.step("one", body, effect=effect)
        found.append(caught.value)
    assert ran == [1]
    assert [(e.step, e.error_type, e.message) for e in found] == [("one", error_type, message)] * 2
    assert str(found[0]) == str(found[1])
    assert (await journal.view("run")).status == "failed"


async def test_a_failed_step_that_is_caught_lets_the_run_go_on(journal: Journal) -> None:
    for _ in range(2):
        async with journal.claim("run") as run:
            with pytest.raises(StepFailedError):
                await run.step("one", int, "no number")
            assert await run.step("two", lambda: 2) == 2
    assert (await journal.view("run")).status == "completed"


# -- what JSON cannot hold ------------------------------------------------------------------------

UNENCODABLE = [float("nan"), float("inf"), "\ud800", object(), {"a": [float("-inf")]}, {1j: 2}]


@pytest.mark.parametrize("value", UNENCODABLE, ids=repr)
async def test_arguments_that_cannot_be_encoded_are_refused_and_nothing_is_recorded(
    value: object, journal: Journal
) -> None:
    """msgspec#826, langgraph#1878"""
    ran: list[object] = []
    async with journal.claim("run") as run:
        await refused(run.step("one", ran.append, value), EncodingError, journal.path)
        assert await run.step("one", lambda: 1) == 1
    assert ran == []


@pytest.mark.parametrize("value", UNENCODABLE, ids=repr)
async def test_a_result_that_cannot_be_encoded_is_recorded_as_done_and_never_run_again(
    value: object, journal: Journal
) -> None:
    """msgspec#826, langgraph#1878"""
    ran: list[int] = []

    def body() -> object:
        ran.append(1)
        return value

    texts = set()
    for _ in range(2):
        with pytest.raises(StepFailedError, match="its result is lost") as caught:
            async with journal.claim("run") as run:
                await run.step("one", body)
        assert caught.value.error_type == "EncodingError"
        texts.add(str(caught.value))
    assert ran == [1]
    assert len(texts) == 1
    assert await journal.doubts() == []


async def test_a_tools_result_that_cannot_be_encoded_is_told_to_the_model_and_not_run_again(
    journal: Journal,
) -> None:
    ran: list[int] = []

    @tool
    async def odd() -> float:
        ran.append(1)
        return float("nan")

    agent = Agent(by_turn(calling(call("odd")), saying("ok")), tools=[odd])
    for _ in range(2):
        async with journal.claim("run") as run:
            state = await agent.run(QUESTION, step_runner=run)
        assert tool_texts(state.transcript)[0].startswith("error: odd ran, but its result is lost")
    assert ran == [1]


# -- names ----------------------------------------------------------------------------------------


async def test_the_same_name_twice_in_one_claim_is_refused(journal: Journal) -> None:
    """mastra#17319"""
    ran: list[int] = []
    async with journal.claim("run") as run:
        await run.step("one", ran.append, 1)
        exc = await refused(run.step("one", ran.append, 1), DuplicateStepError, journal.path)
    assert isinstance(exc, DuplicateStepError)
    assert exc.step == "one"
    assert ran == [1]
    async with journal.claim("run") as run:
        await run.step("one", ran.append, 1)
        await refused(run.step("one", ran.append, 1), DuplicateStepError, journal.path)
    assert ran == [1]


async def test_the_same_name_twice_at_once_is_refused_and_the_first_is_not_disturbed(
    journal: Journal,
) -> None:
    ran: list[int] = []
    refusals: list[DuplicateStepError] = []

    async def body(number: int) -> int:
        ran.append(number)
        await trio.testing.wait_all_tasks_blocked()
        return number

    async with journal.claim("run") as run:

        async def ask() -> None:
            try:
                await run.step("one", body, 1)
            except DuplicateStepError as exc:
                refusals.append(exc)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
    assert ran == [1]
    assert len(refusals) == 2
    assert (await journal.view("run")).status == "completed"


@pytest.mark.parametrize(
    "name",
    ["", "llm/1", "tool/1/0/x", "a/llm/b", "llm", "a//b", "/a", "a/", "a\nb", "a\x00", "x" * 201],
)
async def test_a_bad_or_reserved_name_is_refused_and_nothing_is_recorded(
    name: str, journal: Journal
) -> None:
    async with journal.claim("run") as run:
        await refused(run.step(name, lambda: 1), ValueError, journal.path)


@pytest.mark.parametrize("name", ["", "a/b", "llm", "tool", ".a", "a b", "x" * 65])
async def test_a_bad_or_reserved_scope_is_refused(name: str, journal: Journal) -> None:
    async with journal.claim("run") as run:
        with pytest.raises(ValueError, match="scope"):
            run.scope(name)


async def test_an_unknown_effect_is_refused(journal: Journal) -> None:
    effect: Any = "readonly"
    async with journal.claim("run") as run:
        await refused(run.step("one", lambda: 1, effect=effect), ValueError, journal.path)


async def test_a_scope_keeps_the_steps_of_two_agents_apart(journal: Journal) -> None:
    worlds = World(), World()
    for _ in range(2):
        async with journal.claim("run") as run:
            for number, world in enumerate(worlds):
                state = await weather(world).run(f"{number}?", step_runner=run.scope(f"s{number}"))
                assert isinstance(state, Answered)
            assert await run.scope("deep").scope("er").step("one", lambda: 1) == 1
            assert await run.step("one", lambda: 2) == 2
    assert [world.did for world in worlds] == [["lookup Paris"]] * 2
    names = [step.name for step in (await journal.view("run")).steps]
    assert names == [
        *[f"s{n}/{rest}" for n in (0, 1) for rest in ("llm/1", "tool/1/0/lookup", "llm/2")],
        "deep/er/one",
        "one",
    ]
    assert await journal.doubts() == []


async def test_a_step_inside_the_body_of_another_is_refused(journal: Journal) -> None:
    ran: list[str] = []

    async with journal.claim("run") as run:

        async def outer() -> None:
            ran.append("outer")
            await run.step("inner", ran.append, "inner")

        with pytest.raises(StepFailedError, match="inside the body"):
            await run.step("outer", outer)

        def outer_in_thread() -> None:
            trio.from_thread.run(run.step, "inner", ran.append, "inner")

        with pytest.raises(StepFailedError, match="inside the body"):
            await run.step("in-thread", outer_in_thread)
    assert ran == ["outer"]
    assert [step.name for step in (await journal.view("run")).steps] == ["outer", "in-thread"]


async def test_an_agent_is_not_run_inside_the_body_of_its_own_runs_step(journal: Journal) -> None:
    world = World()
    async with journal.claim("run") as run:

        async def outer() -> None:
            await weather(world).run(QUESTION, step_runner=run.scope("inner"))

        with pytest.raises(StepFailedError, match="inside the body"):
            await run.step("outer", outer)
    assert world.did == []


async def test_another_run_may_take_a_step_inside_a_body(journal: Journal) -> None:
    async with journal.claim("a") as a, journal.claim("b") as b:

        async def outer() -> int:
            return int(await b.step("inner", lambda: 3))

        assert await a.step("outer", outer) == 3


@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_sync_function_runs_in_a_thread_of_its_own(
    effect: Effect, journal: Journal
) -> None:
    here = threading.get_ident()
    async with journal.claim("run") as run:
        there = await run.step("one", threading.get_ident, effect=effect)
        assert await run.step("two", max, 1, 2, effect=effect) == 2
    assert there != here


async def test_changed_arguments_under_a_recorded_name_are_a_mismatch_and_nothing_runs(
    journal: Journal,
) -> None:
    """vercel-py#132, durable-js#122: and the run is marked, not left running."""
    ran: list[int] = []
    async with journal.claim("run") as run:
        await run.step("one", ran.append, 1)
    with pytest.raises(ReplayMismatchError) as caught:
        async with journal.claim("run") as run:
            await run.step("one", ran.append, 2)
    assert caught.value.step == "one"
    assert ran == [1]
    assert (await journal.view("run")).status not in ("running", "interrupted")
    async with journal.claim("run") as run:
        await run.step("one", ran.append, 1)
    assert ran == [1]


async def test_a_plain_runs_end_is_recorded_as_what_it_was(journal: Journal) -> None:
    async with journal.claim("done") as run:
        await run.step("one", lambda: 1)
    with pytest.raises(OSError, match="mine"):
        async with journal.claim("failed") as run:
            await run.step("one", lambda: 1)
            raise OSError("mine")
    with trio.CancelScope() as scope:
        async with journal.claim("cancelled") as run:
            await run.step("one", lambda: 1)
            scope.cancel()
            await trio.lowlevel.checkpoint()
    found = {summary.run_id: summary.status for summary in await journal.runs()}
    assert found == {"done": "completed", "failed": "failed", "cancelled": "cancelled"}
    before = rows(journal.path)
    async with journal.claim("done") as run:
        await run.step("one", lambda: 1)
    assert rows(journal.path) == before
    async with journal.claim("failed") as run:
        assert await run.step("one", lambda: 2) == 1
        await run.step("two", lambda: 2)
    assert (await journal.view("failed")).status == "completed"


async def test_a_step_is_a_checkpoint_live_and_replayed(journal: Journal) -> None:
    for _ in range(2):
        async with journal.claim("run") as run:
            with trio.testing.assert_checkpoints():
                await run.step("one", lambda: 1, effect="read")


async def test_a_step_error_names_the_run_whose_claim_has_ended(journal: Journal) -> None:
    async with journal.claim("run") as run:
        pass
    with pytest.raises(StepError, match="run"):
        await run.step("one", lambda: 1)
