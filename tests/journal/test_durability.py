"""What each durability syncs, and what it keeps at a kill and at a power cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from tests.faults.disk import Disk
from tests.faults.vfs import Tape, under
from tests.scripts import QUESTION
from trioagent import Answered, Journal, NotApplied, open_journal
from trioagent.journal import Durability, sqlite, verify

from .acts import World, leave_open, names, weather

DURABILITIES: list[Durability] = ["effect", "power", "process"]


def log_syncs(tape: Tape) -> int:
    """How many times the log was synced."""
    return sum(entry.kind == "sync" and entry.name.endswith("-wal") for entry in tape.entries)


def unsynced(tape: Tape) -> int:
    """How many writes to the log came after its last sync."""
    count = 0
    for entry in tape.entries:
        if entry.name.endswith("-wal"):
            count = 0 if entry.kind == "sync" else count + 1
    return count


def after(what: str, tape: Tape, folder: Path) -> Path:
    """The journal as it is after a kill ("all arrived") or a power cut ("none arrived")."""
    disk = Disk()
    for entry in tape.entries:
        disk.take(entry)
    images = dict(disk.images())
    folder.mkdir()
    for name, data in images.get(what, images["all arrived"]).items():  # where all is synced
        (folder / name).write_bytes(data)
    return folder / "runs.db"


async def kept(path: Path) -> list[str]:
    """The steps whose outcome is recorded, in a file that has no fault."""
    report = await verify(path)
    assert report.faults == ()
    async with open_journal(path) as journal:
        try:
            view = await journal.view("run")
        except LookupError:
            return []
    return [step.name for step in view.steps if step.status == "completed"]


@pytest.mark.parametrize("value", ["full", "", None, "EFFECT"])
async def test_another_durability_is_refused_with_the_three_and_no_file_is_made(
    value: Any, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="effect, power or process"):
        async with open_journal(tmp_path / "runs.db", durability=value):
            raise AssertionError("opened")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("durability", "read", "write"), [("effect", 0, 2), ("power", 2, 2), ("process", 0, 0)]
)
async def test_a_read_and_a_write_cost_so_many_syncs(
    durability: Durability, read: int, write: int, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    with under(Tape()) as tape:
        async with (
            open_journal(path, durability=durability) as journal,
            journal.claim("run") as run,
        ):
            await run.step("first", lambda: 0)
            before = log_syncs(tape)
            await run.step("look", lambda: 1, effect="read")
            assert log_syncs(tape) - before == read
            await run.step("put", lambda: 2)
            assert log_syncs(tape) - before == read + write


async def test_with_power_nothing_is_unsynced_when_a_body_starts_or_a_step_returns(
    tmp_path: Path,
) -> None:
    seen: list[int] = []
    with under(Tape()) as tape:
        async with open_journal(tmp_path / "runs.db", durability="power") as journal:
            async with journal.claim("run") as run:
                for effect in ("read", "idempotent", "write"):
                    await run.step(effect, lambda: seen.append(unsynced(tape)), effect=effect)
                    seen.append(unsynced(tape))
            async with journal.claim("paris") as run:
                agent = weather(World())
                async with agent.stream(QUESTION, step_runner=run) as stream:
                    async for _ in stream:
                        seen.append(unsynced(tape))
                    assert isinstance(await stream.result(), Answered)
                seen.append(unsynced(tape))
    assert len(seen) > 8
    assert set(seen) == {0}


async def test_with_process_no_commit_syncs_the_log_but_closing_brings_it_home_synced(
    tmp_path: Path,
) -> None:
    with under(Tape()) as tape:
        async with open_journal(tmp_path / "runs.db", durability="process") as journal:
            async with journal.claim("run") as run:
                await run.step("first", lambda: 0)
            before = log_syncs(tape)
            await leave_open(journal, "doubt", "put")
            await journal.resolve("doubt", "put", NotApplied("me"))
            async with journal.claim("paris") as run:
                await weather(World()).run(QUESTION, step_runner=run)
            assert log_syncs(tape) == before
            first = len(tape.entries)
    home = [entry for entry in tape.entries[first:] if entry.name == "runs.db"]
    assert [entry.kind for entry in home][-1] == "sync"
    assert log_syncs(tape) > before


SURVIVES = {
    "effect": {"a read": (True, False), "a write": (True, True)},
    "power": {"a read": (True, True), "a write": (True, True)},
    "process": {"a read": (True, False), "a write": (True, False)},
}
"""Whether what was recorded last is kept at a kill, and at a power cut: the documented table."""


@pytest.mark.parametrize("step", ["a read", "a write"])
@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_kill_and_a_power_cut_take_what_the_table_says(
    durability: Durability, step: str, tmp_path: Path
) -> None:
    (tmp_path / "live").mkdir()
    effect: Any = step.removeprefix("a ")
    with under(Tape()) as tape:
        path = tmp_path / "live" / "runs.db"
        async with (
            open_journal(path, durability=durability) as journal,
            journal.claim("run") as run,
        ):
            await run.step(step, lambda: 1, effect=effect)
            killed = after("all arrived", tape, tmp_path / "killed")
            cut = after("none arrived", tape, tmp_path / "cut")
    at_a_kill, at_a_cut = SURVIVES[durability][step]
    assert (step in await kept(killed)) == at_a_kill
    assert (step in await kept(cut)) == at_a_cut


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_cancelled_read_is_not_in_the_way_of_the_next_attempt(
    durability: Durability, tmp_path: Path
) -> None:
    async with open_journal(tmp_path / "runs.db", durability=durability) as journal:
        await leave_open(journal, "run", "look", effect="read")
        with trio.CancelScope() as scope:
            async with journal.claim("run") as run:
                scope.cancel()
                await run.step("look", lambda: 1, effect="read")
        async with journal.claim("run") as run:
            assert await run.step("look", lambda: 2, effect="read") == 2


def test_full_syncs_are_asked_for_where_a_plain_one_may_not_reach_the_disk(tmp_path: Path) -> None:
    connection = sqlite.connect(tmp_path / "runs.db")
    asked = [connection.pragma(name) for name in ("fullfsync", "checkpoint_fullfsync")]
    connection.close()
    assert asked == [1, 1]


async def test_an_opening_of_its_own_durability_reads_what_another_recorded(
    journal: Journal,
) -> None:
    async with journal.claim("run") as run:
        await run.step("one", lambda: 1)
    for durability in DURABILITIES:
        opening = open_journal(journal.path, durability=durability)
        async with opening as other, other.claim("run") as run:
            assert await run.step("one", lambda: 2) == 1
