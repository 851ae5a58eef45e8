"""The records of a run, what they add up to, and what happens when one of them is not intact."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.scripts import ASK, QUESTION, ByName, call, calling, saying, tool_texts
from trioagent import Agent, Answered, Journal, JournalCorruptError, StepError, open_journal
from trioagent.journal import Record
from trioagent.journal.fold import fold
from trioagent.messages import check_transcript, encode

from .acts import World, alter, by_turn, kinds, rows, weather

LARGE = "x" * 100_000


async def test_two_model_calls_and_one_tool_call_are_8_records(journal: Journal) -> None:
    async with journal.claim("paris") as run:
        state = await weather(World()).run(QUESTION, step_runner=run)
    assert isinstance(state, Answered)
    assert await kinds(journal, "paris") == [
        "run.started",
        *["step.started", "step.completed"] * 3,
        "run.completed answered",
    ]


async def test_the_same_records_give_the_same_view_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with open_journal(path) as journal:
        async with journal.claim("paris") as run:
            state = await weather(World(), system="Be brief.").run(QUESTION, step_runner=run)
        first = encode(await journal.view("paris"))
        assert encode(await journal.view("paris")) == first
    async with open_journal(path) as journal:
        view = await journal.view("paris")
    assert encode(view) == first
    assert view.transcript == state.transcript
    assert view.usage == state.usage
    assert view.status == "answered"


# -- any prefix -----------------------------------------------------------------------------------

TURNS = st.lists(
    st.lists(st.sampled_from(["look", "put", "append", "fail", "ask", "nobody"]), max_size=3),
    max_size=4,
)


async def recorded(path: Path, turns: list[list[str]]) -> list[Record]:
    """What a run with these turns leaves; who asks is approved."""
    world = World()
    tools = [
        world.doing("look", "read"),
        world.doing("put", "idempotent"),
        world.doing("append", "write"),
        world.doing("fail", "write", ValueError("no")),
        world.doing("ask", "write"),
    ]
    replies = [
        calling(*[call(name, {"what": f"{t}"}, id=f"{t}-{i}") for i, name in enumerate(turn)])
        for t, turn in enumerate(turns)
    ]
    agent = Agent(
        by_turn(*replies, saying("done")), tools=tools, gate=ByName(ask=ASK), system="Be brief."
    )
    async with open_journal(path) as journal:
        async with journal.claim("run") as run:
            state = await agent.run(QUESTION, step_runner=run)
            while not isinstance(state, Answered):
                markers = [pending.pending.marker for pending in await journal.pending("run")]
                state = await agent.run(step_runner=run, approvals=markers)
        return await journal.records("run")


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(turns=TURNS)
def test_any_prefix_of_a_runs_records_folds_to_a_transcript_that_a_model_would_take(
    turns: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    records = trio.run(recorded, tmp_path_factory.mktemp("prefix") / "runs.db", turns)
    last = 0
    for count in range(len(records) + 1):
        view = fold(records[:count]).view("run", "Be brief.")
        check_transcript(view.transcript)
        assert len(view.transcript) >= last
        last = len(view.transcript)
    assert view.status == "answered"


# -- what is not intact ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with the worked example, a large payload and a second run."""
    path = tmp_path_factory.mktemp("kept") / "runs.db"

    async def make() -> None:
        async with open_journal(path) as journal:
            async with journal.claim("paris") as run:
                await weather(World()).run(QUESTION, step_runner=run)
            async with journal.claim("other") as run:
                await run.step("large", lambda: LARGE)

    trio.run(make)
    return path


COLUMNS = {
    "seq": "seq + 1000",
    "prev": "prev + 1",
    "run": "3 - run",
    "epoch": "epoch + 1",
    "kind": "kind % 6 + 1",
    "at": "at + 1",
    "step": "step || 'x'",
    "tag": "tag || 'x'",
    "data": "CASE WHEN data IS NULL THEN x'00' ELSE CAST(data || x'00' AS BLOB) END",
    "blob": "CASE WHEN blob IS NULL THEN x'00' ELSE CAST(blob || x'00' AS BLOB) END",
    "sum": "sum + 1",
}
BROKEN = {
    **{f"{column} differs": (column, change) for column, change in COLUMNS.items()},
    "step is no text": ("step", "CAST(x'ff' AS TEXT)"),
    "data is gone": ("data", "CASE WHEN data IS NULL THEN x'' END"),
    "data is at once in the row and outside": ("blob", "zeroblob(32)"),
}


@pytest.mark.parametrize("change", BROKEN)
async def test_one_altered_column_of_any_record_is_seen_and_changes_nothing(
    change: str, kept: Path, tmp_path: Path
) -> None:
    column, value = BROKEN[change]
    records = rows(kept, "(SELECT seq, run FROM records)")
    assert len(records) == 8 + 4
    for seq, number in records:
        path = tmp_path / f"{seq}.db"
        shutil.copy(kept, path)
        alter(path, f"UPDATE records SET {column} = {value} WHERE seq = ?", seq)
        broken = held(path)
        run_id = "paris" if number == 1 else "other"
        async with open_journal(path) as journal:
            for look in (partial(journal.view, run_id), journal.runs, journal.doubts):
                with pytest.raises(JournalCorruptError):
                    await look()
            with pytest.raises(JournalCorruptError):
                async with journal.claim(run_id):
                    raise AssertionError("claimed")
        assert held(path) == broken


async def test_a_record_that_is_missing_is_seen_and_its_step_not_run_again(
    kept: Path, tmp_path: Path
) -> None:
    for seq, number in rows(kept, "(SELECT seq, run FROM records)"):
        path = tmp_path / f"{seq}.db"
        shutil.copy(kept, path)
        alter(path, "DELETE FROM records WHERE seq = ?", seq)
        world = World()
        async with open_journal(path) as journal:
            with pytest.raises(JournalCorruptError):
                async with journal.claim("paris" if number == 1 else "other") as run:
                    await weather(world).run(step_runner=run)
        assert world.did == []


def held(path: Path) -> object:
    """The records, in a form in which also text that is none can be compared."""
    names = ", ".join([*COLUMNS, "hex(step)"]).replace(" step,", "")
    return rows(path, f"(SELECT {names} FROM records)")


@pytest.mark.parametrize(
    "damage",
    ["DELETE FROM blobs", "UPDATE blobs SET data = CAST(data || x'00' AS BLOB)"],
)
async def test_a_payload_that_is_missing_or_altered_is_corrupt_and_never_run_again(
    damage: str, kept: Path, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    shutil.copy(kept, path)
    alter(path, f"{damage} WHERE size = ?", len(LARGE) + 2)
    before = rows(path), rows(path, "runs"), rows(path, "blobs")
    ran: list[str] = []
    async with open_journal(path) as journal:
        with pytest.raises(JournalCorruptError, match="payload"):
            async with journal.claim("other") as run:
                await run.step("large", lambda: ran.append("again"))
        with pytest.raises(JournalCorruptError, match="payload"):
            await journal.view("other")
    assert ran == []
    assert (rows(path), rows(path, "runs"), rows(path, "blobs")) == before


async def test_a_configuration_that_is_missing_is_corrupt_and_no_view_is_made_up(
    kept: Path, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    shutil.copy(kept, path)
    alter(path, "DELETE FROM blobs WHERE size < 10000")
    async with open_journal(path) as journal:
        with pytest.raises(JournalCorruptError, match="configuration"):
            await journal.view("paris")


async def test_a_large_payload_is_stored_once_however_often_it_is_recorded(
    journal: Journal,
) -> None:
    agent = Agent(
        by_turn(calling(call("big", id="a"), call("big", id="b")), saying("ok")),
        tools=[World().doing("big", "read", LARGE)],
    )
    for run_id in ("one", "two"):
        async with journal.claim(run_id) as run:
            state = await agent.run(QUESTION, step_runner=run)
        assert tool_texts(state.transcript) == [LARGE, LARGE]
        assert (await journal.view(run_id)).transcript == state.transcript
    large = [row for row in rows(journal.path, "(SELECT size FROM blobs)") if row[0] > len(LARGE)]
    assert len(large) == 1


async def test_a_run_whose_claim_has_ended_records_nothing_more(journal: Journal) -> None:
    async with journal.claim("paris") as run:
        await run.step("one", lambda: 1)
    before = rows(journal.path)
    with pytest.raises(StepError, match="claim the run again"):
        await run.step("two", lambda: 2)
    assert rows(journal.path) == before
