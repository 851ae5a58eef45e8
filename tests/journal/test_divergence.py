"""Where two runs part: the first step that differs, whatever else is only a matter of time."""

from __future__ import annotations

import pytest

from tests.scripts import ASK, QUESTION, ByName, call, calling, saying
from trioagent import Agent, AssistantMessage, Journal, Suspended
from trioagent.journal import Recording
from trioagent.journal.divergence import diverge

from .acts import World, by_turn, leave_open

PARIS, ROME = call("look", {"what": "Paris"}, id="1"), call("look", {"what": "Rome"}, id="2")
TURNS = (calling(PARIS, ROME), calling(call("note", {"what": "it"}, id="3")), saying("Done."))


async def recorded(
    journal: Journal, *turns: AssistantMessage, system: str = "", asked: str = QUESTION
) -> Recording:
    world = World()
    tools = [world.doing("look", "read"), world.doing("note", "write")]
    run_id = f"run-{len(await journal.runs())}"
    async with journal.claim(run_id) as run:
        await Agent(by_turn(*turns), tools=tools, system=system).run(asked, step_runner=run)
    return await journal.recording(run_id)


async def test_a_run_done_again_does_not_differ(journal: Journal) -> None:
    first = await recorded(journal, *TURNS)
    assert diverge(first, first) is None
    assert diverge(first, await recorded(journal, *TURNS)) is None


async def test_the_order_in_which_parallel_tools_begin_and_end_is_no_difference(
    journal: Journal,
) -> None:
    first = await recorded(journal, *TURNS)
    tools = [r for r in first.records if r.step.startswith("tool/1/")]
    began = [r for r in tools if r.kind == "step.started"]
    ended = [r for r in tools if r.kind == "step.completed"]
    assert (len(began), len(ended)) == (2, 2)
    for order in ([*began, *ended], [*began[::-1], *ended], [*began, *ended[::-1]]):
        replaced = iter(order)
        records = [next(replaced) if r in tools else r for r in first.records]
        assert diverge(first, Recording("other", tuple(records), first.configs)) is None


@pytest.mark.parametrize(
    ("turns", "options", "name", "difference"),
    [
        (TURNS, {"system": "Be rude."}, "run configuration", 'system was "" and is "Be rude."'),
        (TURNS, {"asked": "What?"}, "run input", "[0].parts[0].text was"),
        ((*TURNS[:2], saying("Gone.")), {}, "llm/3", 'parts[0].text was "Done." and is "Gone."'),
        ((calling(ROME, PARIS), *TURNS[1:]), {}, "llm/1", 'parts[0].id was "1" and is "2"'),
        ((calling(PARIS), *TURNS[1:]), {}, "llm/1", "parts had 2 items and has 1"),
        ((TURNS[0], saying("Done.")), {}, "llm/2", 'parts[0].type was "tool_call" and is "text"'),
    ],
)
async def test_the_first_step_that_differs_is_named_with_what_differs_in_it(
    turns: tuple[AssistantMessage, ...],
    options: dict[str, str],
    name: str,
    difference: str,
    journal: Journal,
) -> None:
    found = diverge(await recorded(journal, *TURNS), await recorded(journal, *turns, **options))
    assert found is not None
    assert found.name == name
    assert difference in found.difference


async def test_a_divergence_shows_both_sides_and_what_came_before(journal: Journal) -> None:
    found = diverge(
        await recorded(journal, *TURNS), await recorded(journal, *TURNS[:2], saying("Gone."))
    )
    assert str(found).splitlines() == [
        'llm/3: parts[0].text was "Done." and is "Gone."',
        "    tool/1/1/look  did look Rome",
        '    llm/2  calls note {"what": "it"}',
        "    tool/2/0/note  did note it",
        "  - llm/3  Done.",
        "  + llm/3  Gone.",
    ]


async def test_a_run_that_goes_on_where_the_other_ended_parts_there(journal: Journal) -> None:
    whole = await recorded(journal, *TURNS)
    cut = Recording("cut", whole.records[:-1], whole.configs)
    found = diverge(cut, whole)
    assert found is not None
    assert (found.name, found.difference) == ("run ends", "it was not recorded")
    found = diverge(whole, cut)
    assert found is not None
    assert (found.recorded, found.found) == ("run  answered", "")


async def test_what_people_decided_is_part_of_a_run(journal: Journal) -> None:
    found = []
    for decision in ("approve", "deny"):
        world = World()
        model = by_turn(calling(call("pay")), saying("Done."))
        agent = Agent(model, tools=[world.doing("pay", "write")], gate=ByName(pay=ASK))
        async with journal.claim(decision) as run:
            state = await agent.run(QUESTION, step_runner=run)
            assert isinstance(state, Suspended)
        if decision == "approve":
            await journal.approve(decision, state.pending[0].marker)
        else:
            await journal.deny(decision, state.pending[0].marker, "no")
        async with journal.claim(decision) as run:
            await agent.run(step_runner=run)
        found.append(await journal.recording(decision))
    parted = diverge(*found)
    assert parted is not None
    assert parted.name == "tool/1/0/pay decided"
    assert parted.difference == 'decision was "approved" and is "denied"'


async def test_a_step_without_an_outcome_differs_from_one_with(journal: Journal) -> None:
    await leave_open(journal, "open", "one")
    async with journal.claim("done") as run:
        await run.step("one", lambda: 1)
    parted = diverge(await journal.recording("open"), await journal.recording("done"))
    assert parted is not None
    assert (parted.name, parted.recorded) == ("one", "one  (no outcome)")
