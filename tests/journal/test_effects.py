"""The table of effects, row by row, against a real journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.scripts import QUESTION, call, calling, saying, tool_texts
from trioagent import (
    Agent,
    Applied,
    Journal,
    NotApplied,
    ReplayMismatchError,
    StillUnknown,
    ToolContext,
    UnknownOutcomeError,
    tool,
)
from trioagent.effects import EFFECTS, TABLE, Effect, Standing

from .acts import World, by_turn, cancelled_in, kinds, leave_open, refused, rows

ROWS = [(effect, standing) for effect in TABLE for standing in TABLE[effect]]


def test_the_table_has_a_row_for_every_effect_and_a_column_for_every_standing() -> None:
    assert tuple(TABLE) == EFFECTS
    for effect in EFFECTS:
        assert list(TABLE[effect]) == ["nothing", "intent", "outcome", "other_request"]


@pytest.mark.parametrize(("effect", "standing"), ROWS)
async def test_a_step_is_run_replayed_or_refused_as_its_row_of_the_table_says(
    effect: Effect, standing: Standing, journal: Journal
) -> None:
    ran: list[int] = []

    def body(number: int) -> int:
        ran.append(number)
        return number * 10

    async def ask() -> Any:
        async with journal.claim("run") as run:
            return await run.step("work", body, 7, effect=effect)

    match standing:
        case "intent":
            await leave_open(journal, "run", "work", 7, effect=effect)
        case "outcome":
            await ask()
        case "other_request":
            async with journal.claim("run") as run:
                await run.step("work", body, 8, effect=effect)
    ran.clear()
    decision = TABLE[effect][standing]
    if decision in ("execute", "again"):
        assert await ask() == 70
        assert ran == [7]
        (step,) = (await journal.view("run")).steps
        assert (step.status, step.effect) == ("completed", effect)
        assert step.attempts == (2 if decision == "again" else 1)
    elif decision == "replay":
        before = rows(journal.path)
        assert await ask() == 70
        assert rows(journal.path) == before
        assert ran == []
    else:
        kind = ReplayMismatchError if decision == "mismatch" else UnknownOutcomeError
        exc = await refused(ask(), kind, journal.path)
        assert isinstance(exc, ReplayMismatchError | UnknownOutcomeError)
        assert exc.step == "work"
        assert ran == []


@pytest.mark.parametrize(("recorded", "now"), [("write", "read"), ("write", "idempotent")])
async def test_what_was_begun_as_a_write_stays_one_whatever_it_is_called_later(
    recorded: Effect, now: Effect, journal: Journal
) -> None:
    await leave_open(journal, "run", "work", effect=recorded)
    ran: list[int] = []

    async def ask() -> None:
        async with journal.claim("run") as run:
            await run.step("work", lambda: ran.append(1), effect=now)

    await refused(ask(), UnknownOutcomeError, journal.path)
    assert ran == []


# -- the same key in every attempt ----------------------------------------------------------------


@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_an_attempt_after_the_first_is_counted_and_has_the_same_key(
    effect: Effect, journal: Journal
) -> None:
    seen: list[tuple[int, str]] = []

    def agent(inside: Callable[[], None] | None) -> Agent:
        @tool(effect=effect)
        async def put(context: ToolContext) -> str:
            seen.append((context.attempt, context.idempotency_key))
            if inside is not None:
                inside()
                await trio.sleep_forever()
            return "put"

        return Agent(by_turn(calling(call("put")), saying("ok")), tools=[put])

    for run_id in ("one", "two"):
        for _ in range(2):
            await cancelled_in(journal, run_id, agent)
        async with journal.claim(run_id) as run:
            await agent(None).run(step_runner=run)
    assert [attempt for attempt, _ in seen] == [1, 2, 3] * 2
    first, second = {key for _, key in seen[:3]}, {key for _, key in seen[3:]}
    assert len(first) == len(second) == 1
    assert first != second


# -- reconcile ------------------------------------------------------------------------------------


def finds(answer: object, asked: list[tuple[Any, str]]) -> Callable[[Any, str], Any]:
    """A `reconcile` that answers so and remembers what it was asked."""

    async def reconcile(arguments: Any, key: str) -> Any:
        await trio.lowlevel.checkpoint()
        asked.append((arguments, key))
        if isinstance(answer, Exception):
            raise answer
        return answer

    return reconcile


async def test_a_step_that_reconcile_finds_applied_has_that_result_and_is_not_run(
    journal: Journal,
) -> None:
    await leave_open(journal, "run", "work", 7)
    (doubt,) = await journal.doubts("run")
    ran: list[int] = []
    asked: list[tuple[Any, str]] = []
    for _ in range(2):
        async with journal.claim("run") as run:
            found = await run.step(
                "work", ran.append, 7, reconcile=finds(Applied({"rows": 3}), asked)
            )
        assert found == {"rows": 3}
    assert ran == []
    assert asked == [((7,), doubt.key)]
    (step,) = (await journal.view("run")).steps
    assert (step.status, step.by, step.attempts) == ("completed", "reconciled", 1)


async def test_a_step_that_reconcile_finds_not_applied_runs_again(journal: Journal) -> None:
    await leave_open(journal, "run", "work", 7)
    asked: list[tuple[Any, str]] = []
    ran: list[int] = []
    async with journal.claim("run") as run:
        await run.step("work", ran.append, 7, reconcile=finds(NotApplied("the log"), asked))
    assert ran == [7]
    assert len(asked) == 1
    assert await kinds(journal, "run") == [
        "run.started",
        "step.started",
        "run.stopped cancelled",
        "signal not_applied",
        "step.started",
        "step.completed",
        "run.completed steps",
    ]


@pytest.mark.parametrize("answer", [StillUnknown(), OSError("the log is away"), None, "yes"])
async def test_a_step_that_reconcile_cannot_tell_about_stays_refused(
    answer: object, journal: Journal
) -> None:
    await leave_open(journal, "run", "work", 7)
    ran: list[int] = []

    async def ask() -> None:
        async with journal.claim("run") as run:
            await run.step("work", ran.append, 7, reconcile=finds(answer, []))

    exc = await refused(ask(), UnknownOutcomeError, journal.path)
    assert ran == []
    notes = getattr(exc, "__notes__", [])
    assert any("the log is away" in note for note in notes) == isinstance(answer, Exception)
    (doubt,) = await journal.doubts()
    assert (doubt.run_id, doubt.step) == ("run", "work")


@pytest.mark.parametrize(
    ("answer", "reads", "runs"),
    [(Applied("filed as 7"), "filed as 7", 0), (NotApplied("the log"), "did file", 1)],
)
async def test_a_tools_reconcile_is_given_the_arguments_and_settles_the_call(
    answer: object, reads: str, runs: int, journal: Journal
) -> None:
    asked: list[tuple[Any, str]] = []
    world = World()

    def agent(inside: Callable[[], None] | None) -> Agent:
        @tool(effect="write", reconcile=finds(answer, asked))
        async def file(what: str) -> str:
            if inside is not None:
                inside()
                await trio.sleep_forever()
            world.did.append(what)
            return "did file"

        replies = calling(call("file", {"what": "a ticket"})), saying("ok")
        return Agent(by_turn(*replies), tools=[file])

    await cancelled_in(journal, "run", agent)
    (doubt,) = await journal.doubts()
    assert doubt.call == call("file", {"what": "a ticket"})
    async with journal.claim("run") as run:
        state = await agent(None).run(step_runner=run)
    assert tool_texts(state.transcript) == [reads]
    assert len(world.did) == runs
    assert asked == [({"what": "a ticket"}, doubt.key)]


async def test_with_tell_model_the_model_reads_that_the_effects_are_unknown(
    journal: Journal,
) -> None:
    calls: list[str] = []

    def agent(inside: Callable[[], None] | None) -> Agent:
        @tool(effect="write")
        async def file() -> str:
            calls.append("file")
            if inside is not None:
                inside()
                await trio.sleep_forever()
            return "filed"

        replies = calling(call("file")), saying("I shall look.")
        return Agent(by_turn(*replies), tools=[file], on_unknown="tell_model")

    await cancelled_in(journal, "run", agent)
    for _ in range(2):
        async with journal.claim("run") as run:
            state = await agent(None).run(QUESTION, step_runner=run)
        (text,) = tool_texts(state.transcript)
        assert text.startswith("error: ")
        assert "effects are unknown" in text
    assert calls == ["file"]
    assert [step.by for step in (await journal.view("run")).steps] == ["", "told", ""]
    assert await journal.doubts() == []
