"""A run that is begun again with another input or configuration."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scripts import QUESTION, call, calling, saying, user
from trioagent import (
    Agent,
    Answered,
    CallOptions,
    InputMismatchError,
    Journal,
    ReplayMismatchError,
    SystemMessage,
    tool,
)
from trioagent.providers import Scripted

from .acts import World, by_turn, kinds, refused, rows

REPLIES = calling(call("lookup", {"what": "Paris"})), saying("It is sunny.")


def agent(world: World, *, description: str = "Looks.", model: str = "m", **options: Any) -> Agent:
    """An agent of which one thing at a time can be another."""

    @tool(effect="read", description=description)
    async def lookup(what: str) -> str:
        world.did.append("lookup")
        return f"sunny in {what}"

    scripted = Scripted(by_turn(*REPLIES)._script, model=model)
    return Agent(scripted, tools=[lookup, *options.pop("more", ())], **options)


async def begun(journal: Journal, world: World) -> None:
    """A run with one turn of two."""
    async with journal.claim("run") as run:
        await agent(world, max_iter=1).run(QUESTION, step_runner=run)
    assert world.did == ["lookup"]


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"system": "Be brief."}, ['system was ""', "Be brief."]),
        ({"model": "n"}, ['model was "m" and is "n"']),
        ({"description": "Sees."}, ["tools[0].description", "Looks.", "Sees."]),
        ({"options": CallOptions(temperature=1)}, ["options.temperature is new: 1"]),
        ({"more": [World().doing("other", "read")]}, ["tools had 1 items and has 2"]),
    ],
)
async def test_a_changed_configuration_is_refused_with_its_first_difference_until_accepted(
    change: dict[str, Any], shown: list[str], journal: Journal
) -> None:
    world = World()
    await begun(journal, world)
    async with journal.claim("run") as run:
        exc = await refused(
            agent(world, **change).run(step_runner=run), ReplayMismatchError, journal.path
        )
        assert not isinstance(exc, InputMismatchError)
        for text in shown:
            assert text in str(exc)
        state = await agent(world, **change).run(step_runner=run, accept_changes=True)
    assert isinstance(state, Answered)
    assert world.did == ["lookup"]
    assert "signal changed" in await kinds(journal, "run")
    # From now on the accepted one is what a run is compared with.
    before = rows(journal.path)
    async with journal.claim("run") as run:
        assert await agent(world, **change).run(step_runner=run) == state
        await refused(agent(world).run(step_runner=run), ReplayMismatchError, journal.path)
    assert rows(journal.path) == before


async def test_equal_values_in_another_object_are_no_change(journal: Journal) -> None:
    """pydantic-ai#6907, sdk-python#1109"""
    world = World()
    await begun(journal, world)
    first = await journal.view("run")
    async with journal.claim("run") as run:
        state = await agent(world, options=CallOptions()).run([user(QUESTION)], step_runner=run)
    assert isinstance(state, Answered)
    assert "signal changed" not in await kinds(journal, "run")
    view = await journal.view("run")
    assert view.steps[:2] == first.steps
    assert world.did == ["lookup"]


async def test_another_input_is_refused_and_not_recorded(journal: Journal) -> None:
    world = World()
    await begun(journal, world)
    async with journal.claim("run") as run:
        exc = await refused(
            agent(world).run("And in Rome?", step_runner=run), InputMismatchError, journal.path
        )
        assert QUESTION in str(exc)
        assert "And in Rome?" in str(exc)
        await refused(
            agent(world).run([SystemMessage("x"), user(QUESTION)], step_runner=run),
            InputMismatchError,
            journal.path,
        )
        state = await agent(world).run(step_runner=run)
    assert isinstance(state, Answered)
    assert world.did == ["lookup"]


async def test_a_changed_input_that_is_accepted_stands_from_then_on(journal: Journal) -> None:
    world = World()
    await begun(journal, world)
    async with journal.claim("run") as run:
        state = await agent(world).run("And in Rome?", step_runner=run, accept_changes=True)
    assert state.transcript[0] == user("And in Rome?")
    assert world.did == ["lookup"]
    async with journal.claim("run") as run:
        assert await agent(world).run("And in Rome?", step_runner=run) == state
        await refused(agent(world).run(QUESTION, step_runner=run), InputMismatchError, journal.path)
    assert (await journal.view("run")).transcript == state.transcript


async def test_a_changed_function_effect_or_limit_is_no_change_of_the_configuration(
    journal: Journal,
) -> None:
    world = World()
    await begun(journal, world)
    async with journal.claim("run") as run:
        state = await agent(world, max_iter=5, max_parallel_tools=1).run(step_runner=run)
    assert isinstance(state, Answered)
    assert "signal changed" not in await kinds(journal, "run")
