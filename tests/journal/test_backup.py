"""A backup is whole, of one moment, and never in the way of what is there."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.scripts import QUESTION
from trioagent import Journal, JournalCorruptError, JournalError, open_journal
from trioagent.journal import verify
from trioagent.messages import encode

from .acts import World, alter, leave_open, names, rows, weather


async def test_a_copy_says_what_the_journal_says_and_goes_on_by_itself(
    journal: Journal, tmp_path: Path
) -> None:
    async with journal.claim("paris") as run:
        await weather(World()).run(QUESTION, step_runner=run)
    await leave_open(journal, "doubtful", "put")
    async with journal.claim("large") as run:
        await run.step("one", lambda: "x" * 100_000)
    report = await journal.backup(tmp_path / "copy.db")
    assert report.ok and report.path == str(tmp_path / "copy.db")
    async with open_journal(tmp_path / "copy.db") as copy:
        for run_id in ("paris", "doubtful", "large"):
            assert encode(await copy.view(run_id)) == encode(await journal.view(run_id))
        async with copy.claim("large") as run:
            assert await run.step("one", lambda: "again") == "x" * 100_000
            await run.step("two", lambda: 2)
    assert len((await journal.view("large")).steps) == 1
    assert (await verify(tmp_path / "copy.db")).ok


async def test_a_journal_in_use_is_copied_as_it_was_at_one_moment(
    journal: Journal, tmp_path: Path
) -> None:
    done = trio.Event()
    async with journal.claim("live") as run:
        await run.step("first", lambda: 1)

        async def record() -> None:
            number = 0
            while not done.is_set():
                number += 1
                await run.step(f"step-{number}", lambda: "y" * 5000)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(record)
            for number in range(5):
                assert (await journal.backup(tmp_path / f"copy-{number}.db")).ok
            done.set()
    seen = []
    for number in range(5):
        async with open_journal(tmp_path / f"copy-{number}.db") as copy:
            seen.append(len((await copy.view("live")).steps))
    assert seen == sorted(seen) and seen[0] >= 1


@pytest.mark.parametrize("ending", ["", ".part", "-wal", "-journal"])
async def test_what_is_there_is_never_overwritten_nor_taken_for_a_part_of_the_copy(
    ending: str, journal: Journal, tmp_path: Path
) -> None:
    there = tmp_path / f"copy.db{ending}"
    there.write_bytes(b"mine")
    files = names(tmp_path)
    with pytest.raises(JournalError, match="is there already"):
        await journal.backup(tmp_path / "copy.db")
    assert there.read_bytes() == b"mine"
    assert names(tmp_path) == files


async def test_a_link_to_nowhere_and_the_journal_itself_are_there_already(
    journal: Journal, tmp_path: Path
) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "nowhere.db")
    for target in (tmp_path / "link.db", journal.path):
        with pytest.raises(JournalError, match="is there already"):
            await journal.backup(target)
    assert not (tmp_path / "nowhere.db").exists()


async def test_a_place_that_cannot_be_written_is_a_clear_error(
    journal: Journal, tmp_path: Path
) -> None:
    with pytest.raises(JournalError, match="No such file"):
        await journal.backup(tmp_path / "nowhere" / "copy.db")


async def test_a_copy_with_a_fault_is_refused_and_removed(journal: Journal, tmp_path: Path) -> None:
    async with journal.claim("run") as run:
        await run.step("one", lambda: 1)
    alter(journal.path, "UPDATE records SET tag = 'x' WHERE seq = 2")
    files = names(tmp_path)
    with pytest.raises(JournalCorruptError, match="record 2 fails its checksum"):
        await journal.backup(tmp_path / "copy.db")
    assert names(tmp_path) == files


async def test_who_may_not_read_the_journal_may_not_read_its_copy(
    journal: Journal, tmp_path: Path
) -> None:
    journal.path.chmod(0o600)
    await journal.backup(tmp_path / "copy.db")
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


async def test_free_pages_are_not_copied(journal: Journal, tmp_path: Path) -> None:
    async with journal.claim("run") as run:
        await run.step("one", lambda: list(range(50_000)))
    await journal.prune(keep=0)
    await journal.backup(tmp_path / "copy.db")
    assert rows(tmp_path / "copy.db", "pragma_freelist_count") == [(0,)]
    assert (tmp_path / "copy.db").stat().st_size < 20_000
