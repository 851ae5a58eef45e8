"""Code that changes under recorded runs: old runs stay on the old way, new ones take the new."""

from __future__ import annotations

import pytest
import trio

from tests.scripts import QUESTION, call, calling, saying, tool_texts
from trioagent import Agent, Journal, ReplayMismatchError, ToolContext, tool
from trioagent.journal import Record
from trioagent.providers import Scripted

from .acts import by_turn, refused, rows


async def interrupted(journal: Journal, steps: int, *, patched: bool = False) -> None:
    """A run of the code as it was (or, `patched`, as it is), stopped after so many steps."""
    async with journal.claim("run", app_version="1") as run:
        for number in range(steps):
            if number == 1 and patched:
                assert await run.patched("change")
            await run.step(f"step-{number}", lambda: "old")


async def new_code(journal: Journal) -> list[object]:
    """Three steps, of which the second was changed."""
    async with journal.claim("run", app_version="2") as run:
        found: list[object] = [await run.step("step-0", lambda: "new")]
        new = await run.patched("change")
        assert await run.patched("change") is new
        args = ("more",) if new else ()
        found.append(await run.step("step-1", lambda *_: f"new {len(args)}", *args))
        found.append(await run.step("step-2", lambda: "new"))
        assert await run.patched("change") is new
    return found


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        (0, ["new", "new 1", "new"]),
        (1, ["old", "new 1", "new"]),
        (2, ["old", "old", "new"]),
        (3, ["old", "old", "old"]),
    ],
)
async def test_the_new_way_is_taken_where_nothing_is_recorded_ahead(
    steps: int, found: list[object], journal: Journal
) -> None:
    await interrupted(journal, steps)
    assert await new_code(journal) == found
    assert await new_code(journal) == found  # and the answer is the same ever after


async def test_an_answer_is_recorded_once_by_name_and_holds_in_a_fork(journal: Journal) -> None:
    model = by_turn(calling(call("t")), saying("Done."))
    said: list[bool] = []

    @tool(effect="read")
    async def t(context: ToolContext) -> str:
        """Say which way is taken."""
        said.append(await context.patched("change"))
        return str(said[-1])

    agent = Agent(model, tools=[t])
    async with journal.claim("run") as run:
        assert await run.patched("change")
        await agent.run(QUESTION, step_runner=run)
    records = await journal.records("run")
    assert [r.tag for r in records if r.kind == "signal"] == ["patched"]
    await journal.fork("run", "fork", at_turn=0)
    async with journal.claim("fork") as run:
        await agent.run(step_runner=run)
        assert await run.patched("change")
        assert await run.patched("another")
    assert said == [True, True]


async def test_an_agents_old_run_keeps_its_old_prompt(journal: Journal) -> None:
    with trio.CancelScope() as scope:
        async with journal.claim("run") as run:

            def old(messages: object) -> object:
                scope.cancel()
                return calling(call("t"))

            await Agent(Scripted(old), system="Old.").run(QUESTION, step_runner=run)  # type: ignore[arg-type]
    for expected in ("Old.", "Old."):
        async with journal.claim("run") as run:
            system = "New." if await run.patched("prompt") else "Old."
            assert system == expected
            model = by_turn(calling(call("t")), saying("Done."))
            state = await Agent(model, system=system).run(step_runner=run)
            assert state.unwrap().text == "Done."
    async with journal.claim("new") as run:
        assert await run.patched("prompt")


async def test_a_tool_without_a_journal_takes_the_new_way() -> None:
    @tool
    async def t(context: ToolContext) -> str:
        """Say which way is taken."""
        return str(await context.patched("change"))

    model = by_turn(calling(call("t")), saying("Done."))
    state = await Agent(model, tools=[t]).run(QUESTION)
    assert tool_texts(state.transcript) == ["True"]


async def test_a_run_keeps_the_version_under_which_it_began(journal: Journal) -> None:
    await interrupted(journal, 1)
    async with journal.claim("run", app_version="2") as run:
        assert run.app_version == "1"
    async with journal.claim("new", app_version="2") as run:
        assert run.app_version == "2"
        await run.step("one", lambda: 1)
    assert [(await journal.view(r)).app_version for r in ("run", "new")] == ["1", "2"]


async def test_a_mismatch_says_which_version_began_the_run_and_what_mends_it(
    journal: Journal,
) -> None:
    model = by_turn(saying("Hello."))
    async with journal.claim("run", app_version="1") as run:
        await Agent(model, system="Old.").run(QUESTION, step_runner=run)
    async with journal.claim("run", app_version="2") as run:
        changed = Agent(model, system="New.").run(step_runner=run)
        error = await refused(changed, ReplayMismatchError, journal.path)
    for text in (
        'system was "Old." and is "New."',
        "It began under version 1, this is 2",
        "run.app_version",
        "await run.patched(name)",
        "accept_changes=True",
    ):
        assert text in str(error)
    async with journal.claim("plain") as run:
        await run.step("one", max, 1, 2)
    async with journal.claim("plain") as run:
        error = await refused(run.step("one", max, 1, 3), ReplayMismatchError, journal.path)
    assert "It began under" not in str(error)
    assert "await run.patched(name)" in str(error)


async def test_a_name_that_no_step_could_have_is_refused(journal: Journal) -> None:
    async with journal.claim("run") as run:
        for name in ("", "a//b", "llm/1", "x" * 201):
            with pytest.raises(ValueError, match="name"):
                await run.patched(name)
    assert rows(journal.path) == []


async def test_scopes_have_changes_of_their_own(journal: Journal) -> None:
    async with journal.claim("run") as run:
        assert await run.scope("a").patched("change")
        await run.step("a-step", lambda: 1)
    async with journal.claim("run") as run:
        assert await run.scope("a").patched("change")
        assert not await run.scope("b").patched("change")
    records: list[Record] = await journal.records("run")
    assert [r.step for r in records if r.tag == "patched"] == ["a/", "b/"]
