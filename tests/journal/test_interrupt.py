"""Ctrl-C: a real SIGINT leaves a run that goes on, or one whose doubt is named."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.scripts import call, calling, saying, tool_texts
from trioagent import Agent, Answered, Applied, open_journal, tool

from .acts import World, by_turn
from .children import child


def again(world: World, place: str) -> Agent:
    """The same agent without the waiting."""

    def made(name: str, effect: str) -> object:
        async def function() -> str:
            world.did.append(name)
            return f"{name} again"

        return tool(name=name, effect=effect)(function)  # type: ignore[call-overload]

    tools = [made("read", "read"), made("write", "write"), made("thread", "write")]
    return Agent(by_turn(calling(call(place)), saying("ok")), tools=tools)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("place", "status", "reads", "runs"),
    [
        ("model", "cancelled", "read again", ["read"]),
        ("read", "cancelled", "read again", ["read"]),
        ("write", "in_doubt", "found", []),
    ],
)
async def test_ctrl_c_leaves_a_run_that_resume_continues_or_that_doubts_names(
    place: str, status: str, reads: str, runs: list[str], tmp_path: Path
) -> None:
    async with child("interrupted", tmp_path, place) as other:
        assert await other.says() == "in"
        other.process.send_signal(signal.SIGINT)
        assert await other.process.wait() in (-signal.SIGINT, 128 + signal.SIGINT, 1)
    async with open_journal(tmp_path / "runs.db") as journal:
        assert (await journal.view("run")).status == status
        doubts = await journal.doubts()
        assert [doubt.step for doubt in doubts] == (
            [f"tool/1/0/{place}"] if status == "in_doubt" else []
        )
        for doubt in doubts:
            await journal.resolve("run", doubt.step, Applied("found"))
        world = World()
        agent = again(world, "read" if place == "model" else place)
        async with journal.claim("run") as run:
            state = await agent.run(step_runner=run, accept_changes=True)
    assert isinstance(state, Answered)
    assert tool_texts(state.transcript) == [reads]
    assert world.did == runs


async def test_ctrl_c_during_a_writes_thread_leaves_its_outcome_or_a_doubt_and_it_ran_once(
    tmp_path: Path,
) -> None:
    async with child("interrupted", tmp_path, "thread") as other:
        assert await other.says() == "in"
        other.process.send_signal(signal.SIGINT)
        await other.tell("go on")
        assert await other.process.wait() != 0
    async with open_journal(tmp_path / "runs.db") as journal:
        status = (await journal.view("run")).status
        doubts = [doubt.step for doubt in await journal.doubts()]
        assert (status, doubts) in [("cancelled", []), ("in_doubt", ["tool/1/0/thread"])]
        for step in doubts:
            await journal.resolve("run", step, Applied("wrote"))
        world = World()
        async with journal.claim("run") as run:
            state = await again(world, "thread").run(step_runner=run, accept_changes=True)
    assert tool_texts(state.transcript) == ["wrote"]
    assert world.did == []


async def test_ctrl_c_right_after_a_commit_records_nothing_twice(tmp_path: Path) -> None:
    async with child("interrupted", tmp_path, "commit") as other:
        assert await other.says() == "interrupted"
        assert await other.says() == "ended"
        assert await other.process.wait() == 0
    async with open_journal(tmp_path / "runs.db") as journal:
        view = await journal.view("run")
    assert view.status == "completed"
    assert [(step.name, step.status) for step in view.steps] == [
        ("one", "completed"),
        ("two", "completed"),
        ("three", "completed"),
    ]
