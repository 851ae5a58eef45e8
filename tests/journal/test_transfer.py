"""Runs out of one journal and into another: whole, over no other run, and read-only at first."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.scripts import ASK, QUESTION, ByName, call, calling, saying
from trioagent import Agent, Answered, Journal, NotApplied, open_journal
from trioagent.errors import (
    JournalCorruptError,
    JournalError,
    JournalFormatError,
    UnknownOutcomeError,
)
from trioagent.journal import Recording, read_recordings, verify, write_recordings

from .acts import World, by_turn, leave_open, names, refused, rows, weather

LARGE = "x" * 100_000


async def answered(journal: Journal, run_id: str, result: str = "sunny") -> Agent:
    world = World()
    model = by_turn(calling(call("lookup", {"what": "Paris"})), saying("It is sunny."))
    agent = Agent(model, tools=[world.doing("lookup", "read", result)], system="Be brief.")
    async with journal.claim(run_id) as run:
        assert isinstance(await agent.run(QUESTION, step_runner=run), Answered)
    return agent


async def test_an_imported_run_is_the_run_that_was_exported(
    journal: Journal, tmp_path: Path
) -> None:
    agent = await answered(journal, "a", LARGE)
    await answered(journal, "b")
    file = tmp_path / "runs.jsonl"
    assert await journal.export(file) == ("a", "b")
    async with open_journal(tmp_path / "other.db") as other:
        assert await other.import_file(file) == ("a", "b")
        for run_id in ("a", "b"):
            assert await other.records(run_id) == await journal.records(run_id)
            view = await other.view(run_id)
            assert view.imported
            assert msgspec.structs.replace(view, imported=False) == await journal.view(run_id)
        assert (await verify(other.path)).faults == ()
        # The same file comes out of it again, and the answer out of the run.
        await other.export(tmp_path / "again.jsonl", ["a", "b"])
        assert (tmp_path / "again.jsonl").read_bytes() == file.read_bytes()
        async with other.claim("a") as run:
            state = await agent.run(step_runner=run)
        assert state.unwrap().text == "It is sunny."
        assert not (await other.view("a")).imported


async def test_an_import_overwrites_nothing_and_names_every_id_that_is_taken(
    journal: Journal, tmp_path: Path
) -> None:
    for run_id in ("a", "b", "c"):
        await answered(journal, run_id)
    file = tmp_path / "runs.jsonl"
    await journal.export(file)
    async with open_journal(tmp_path / "other.db") as other:
        await answered(other, "c")
        await answered(other, "a")
        error = await refused(other.import_file(file), JournalError, other.path)
        assert "a, c already" in str(error)
        assert [run.run_id for run in await other.runs()] == ["c", "a"]


async def test_an_export_overwrites_no_file_and_leaves_none_where_it_fails(
    journal: Journal, tmp_path: Path
) -> None:
    await answered(journal, "a")
    (tmp_path / "kept.jsonl").write_text("mine")
    before = names(tmp_path)
    with pytest.raises(JournalError, match="there already"):
        await journal.export(tmp_path / "kept.jsonl")
    with pytest.raises(LookupError):
        await journal.export(tmp_path / "new.jsonl", ["a", "nobody"])
    assert (tmp_path / "kept.jsonl").read_text() == "mine"
    assert names(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda lines: lines[:-1], JournalCorruptError),
        (lambda lines: [*lines[:3], *lines[4:]], JournalCorruptError),
        (lambda lines: [lines[0], lines[-1]], JournalCorruptError),
        (lambda lines: [b"no journal\n"], JournalFormatError),
        (lambda lines: [lines[0].replace(b":1}", b":9}"), *lines[1:]], JournalFormatError),
        (lambda lines: [], JournalCorruptError),
    ],
)
async def test_a_file_that_is_cut_off_edited_or_something_else_changes_nothing(
    change: object, kind: type[Exception], journal: Journal, tmp_path: Path
) -> None:
    await answered(journal, "a")
    file = tmp_path / "runs.jsonl"
    await journal.export(file)
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))  # type: ignore[operator]
    async with open_journal(tmp_path / "other.db") as other:
        await refused(other.import_file(file), kind, other.path)


async def test_records_that_make_no_run_are_refused_although_their_hash_is_right(
    journal: Journal, tmp_path: Path
) -> None:
    await answered(journal, "a")
    whole = await journal.recording("a")
    async with open_journal(tmp_path / "other.db") as other:
        for records in (whole.records[::-1], (*whole.records, whole.records[2]), ()):
            file = tmp_path / "bad.jsonl"
            bad = Recording("good-name", tuple(records), whole.configs)
            write_recordings(file, [bad], replace=True)
            await refused(other.import_file(file), JournalCorruptError, other.path)


async def test_an_imported_run_is_read_only_until_it_is_claimed(
    journal: Journal, tmp_path: Path
) -> None:
    world = World()
    model = by_turn(calling(call("pay")), saying("Paid."))
    agent = Agent(model, tools=[world.doing("pay", "write")], gate=ByName(pay=ASK))
    async with journal.claim("waits") as run:
        state = await agent.run(QUESTION, step_runner=run)
    marker = state.pending[0].marker  # type: ignore[union-attr]
    await leave_open(journal, "doubtful", "one")
    file = tmp_path / "runs.jsonl"
    await journal.export(file)
    async with open_journal(tmp_path / "other.db") as other:
        await other.import_file(file)
        for attempt in (
            other.approve("waits", marker),
            other.deny("waits", marker, "no"),
            other.resolve("doubtful", "one", NotApplied(by="me")),
        ):
            error = await refused(attempt, JournalError, other.path)
            assert "read-only until it is claimed" in str(error)
        # Claimed, it is a run as any other: what waits waits, what is in doubt is in doubt.
        async with other.claim("waits") as run:
            assert await agent.run(step_runner=run) == state
        await other.approve("waits", marker)
        async with other.claim("waits") as run:
            assert isinstance(await agent.run(step_runner=run), Answered)
        async with other.claim("doubtful") as run:
            with pytest.raises(UnknownOutcomeError):
                await run.step("one", world.did.append, effect="write")
        await other.resolve("doubtful", "one", NotApplied(by="me"))
    assert world.did == ["pay"]


async def test_a_branch_is_exported_with_what_it_shares_and_needs_no_other_run(
    journal: Journal, tmp_path: Path
) -> None:
    agent = await answered(journal, "a")
    await journal.fork("a", "fork", at_turn=1)
    async with journal.claim("fork") as run:
        assert isinstance(await agent.run(step_runner=run), Answered)
    asked = Agent(by_turn(*[saying("?")] * 2, saying("Rainy.")), tools=[], system="Be brief.")
    async with journal.claim("next", after="a") as run:
        assert (await asked.run("And tomorrow?", step_runner=run)).unwrap().text == "Rainy."
    file = tmp_path / "runs.jsonl"
    await journal.export(file, ["fork", "next"])
    async with open_journal(tmp_path / "other.db") as other:
        await other.import_file(file)
        for run_id in ("fork", "next"):
            there, here = await other.view(run_id), await journal.view(run_id)
            assert there.transcript == here.transcript
            assert (there.forked_from, there.follows) == (here.forked_from, here.follows)
        assert (await verify(other.path)).faults == ()
        await other.prune(keep=0)
        assert rows(other.path) == []


async def test_a_weather_run_is_read_from_its_file_without_a_journal(
    journal: Journal, tmp_path: Path
) -> None:
    async with journal.claim("a") as run:
        await weather(World()).run(QUESTION, step_runner=run)
    await journal.export(tmp_path / "runs.jsonl")
    (read,) = read_recordings(tmp_path / "runs.jsonl")
    assert read == await journal.recording("a")
    with pytest.raises(JournalError, match="no file of runs"):
        list(read_recordings(tmp_path))
