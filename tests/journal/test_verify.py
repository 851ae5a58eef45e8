"""``verify`` finds every way in which a file is not a journal in order, and changes nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
import trio

from tests.scripts import QUESTION
from trioagent import FencedError, Journal, JournalError, open_journal
from trioagent.journal import verify
from trioagent.journal.payloads import blob_hash

from .acts import World, alter, leave_open, names, rows, weather

CHECKS = [
    "header and version",
    "SQLite's integrity check",
    "schema",
    "payloads by their hash",
    "records by their checksum",
    "chains of records",
    "owners of records",
    "runs and their views",
    "payloads by who refers to them",
]


async def fill(journal: Journal) -> None:
    """Two runs, one of an agent, one with a large payload; and one in doubt."""
    async with journal.claim("paris") as run:
        await weather(World(), system="Be brief.").run(QUESTION, step_runner=run)
    async with journal.claim("other") as run:
        await run.step("large", lambda: "x" * 100_000)
    await leave_open(journal, "doubtful", "put")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal at rest."""
    path = tmp_path_factory.mktemp("kept") / "runs.db"

    async def make() -> None:
        async with open_journal(path) as journal:
            await fill(journal)

    trio.run(make)
    return path


@pytest.fixture
def path(kept: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    shutil.copy(kept, tmp_path / "runs.db")
    return tmp_path / "runs.db"


def held(path: Path) -> dict[str, bytes]:
    """What the journal's folder holds, byte for byte, but for SQLite's shared memory.

    Only while nothing is open: closing a file would drop the locks that this process has on it.
    """
    files = [file for file in path.parent.iterdir() if not file.name.endswith("-shm")]
    return {file.name: file.read_bytes() for file in files}


def write(path: Path, data: bytes) -> None:
    """Overwrite a file that nobody has open."""
    path.write_bytes(data)


async def test_a_journal_in_order_has_no_fault_and_the_report_says_what_was_checked(
    path: Path,
) -> None:
    report = await verify(path)
    assert report.ok and report.faults == ()
    assert [check.what for check in report.checks] == CHECKS
    assert [check.count for check in report.checks] == [1, 1, 3, 2, 8 + 4 + 3, 3, 3, 3, 2]
    assert report.path == str(path)


DAMAGE = {
    "UPDATE records SET tag = 'x' WHERE seq = 3": "record 3 fails its checksum",
    "UPDATE records SET step = CAST(x'ff' AS TEXT) WHERE seq = 3": "record 3 holds no text",
    "DELETE FROM records WHERE seq = 3": "paris: record 3 is missing",
    "UPDATE runs SET last = 9 WHERE id = 'paris'": "paris: record 9 is of run number 2",
    "UPDATE runs SET last = 7 WHERE id = 'paris'": "record 8 is in the chain of no run",
    "UPDATE runs SET last = 800 WHERE id = 'paris'": "paris: record 800 is missing",
    "DELETE FROM runs WHERE id = 'paris'": "record 1 is in the chain of no run",
    "UPDATE records SET prev = 5 WHERE seq = 3": "paris: record 3 follows record 5",
    "UPDATE runs SET epoch = 0 WHERE id = 'paris'": "paris: its owner is number 0",
    "UPDATE runs SET id = '../a' WHERE id = 'paris'": "a run id is 1 to 128",
    "DELETE FROM blobs WHERE size > 50000": "the payload of record 11 (large) is missing",
    "DELETE FROM blobs WHERE size < 50000": "paris: a configuration is missing",
    "UPDATE blobs SET data = zeroblob(length(data))": "is altered",
    "UPDATE blobs SET size = size + 1": "is altered",
    "INSERT INTO blobs VALUES (zeroblob(32), 0, x'')": "is altered",
    "INSERT INTO blobs VALUES (x'ff', 1, x'00')": "the payload ff is altered",
    "DROP TABLE blobs": "the table blobs is missing",
    "ALTER TABLE runs ADD COLUMN mine TEXT": "the table runs is another one",
    "PRAGMA user_version = 0": "the journal is of version 0",
    "PRAGMA user_version = 99": "the journal is of version 99",
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_fault_is_found_and_told_and_nothing_is_changed(damage: str, path: Path) -> None:
    alter(path, damage)
    before = held(path)
    report = await verify(path)
    assert not report.ok
    assert DAMAGE[damage] in "\n".join(report.faults)
    assert held(path) == before


async def test_a_payload_that_nobody_refers_to_is_found(path: Path) -> None:
    alter(path, "INSERT INTO blobs VALUES (?, 4, ?)", blob_hash(b"mine"), b"mine")
    (fault,) = (await verify(path)).faults
    assert fault == f"the payload {blob_hash(b'mine').hex()[:16]} is referred to by no record"


async def test_every_fault_is_listed_not_only_the_first(path: Path) -> None:
    for statement in (
        "UPDATE records SET tag = 'x' WHERE seq IN (2, 4, 10)",
        "DELETE FROM records WHERE seq = 14",
        "UPDATE blobs SET size = 1",
    ):
        alter(path, statement)
    told = "\n".join((await verify(path)).faults)
    for seq in (2, 4, 10):
        assert f"record {seq} fails its checksum" in told
    assert "doubtful: record 14 is missing" in told
    assert told.count("is altered") == 2


async def test_bytes_that_were_overwritten_are_found_or_say_nothing(path: Path) -> None:
    whole = held(path)["runs.db"]
    tables = ("runs", "records", "blobs")
    before = [rows(path, table) for table in tables]
    found = 0
    for place in range(100, len(whole) - 8, 100):
        flipped = bytearray(whole)
        flipped[place : place + 8] = bytes(byte ^ 0x5A for byte in whole[place : place + 8])
        write(path, flipped)
        if (await verify(path)).ok:
            assert [rows(path, table) for table in tables] == before, place
        else:
            found += 1
    assert found > 20


async def test_a_record_of_a_later_owner_than_its_run_has_is_found(path: Path) -> None:
    async with open_journal(path) as journal, journal.claim("other") as run:
        await run.step("again", lambda: 1)
    assert (await verify(path)).ok
    alter(path, "UPDATE runs SET epoch = 1 WHERE id = 'other'")
    assert "is of owner 2, after it 1" in "\n".join((await verify(path)).faults)


async def test_an_owner_that_was_fenced_leaves_no_payload_that_nobody_refers_to(
    journal: Journal,
) -> None:
    hung_agent = weather(World(), system="Of the owner that hung. " * 1000)
    async with open_journal(journal.path) as other:
        with pytest.raises(FencedError):
            async with other.claim("run") as hung, journal.claim("run", take_over=True):
                await hung_agent.run(QUESTION, step_runner=hung)
    assert rows(journal.path, "blobs") == []
    assert (await verify(journal.path)).ok


async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="is not there"):
        await verify(tmp_path / "runs.db")
    with pytest.raises(JournalError):
        await verify(tmp_path)
    assert names(tmp_path) == []


async def test_what_is_no_journal_has_one_fault_and_is_left_alone(tmp_path: Path) -> None:
    text, other, empty = (tmp_path / name for name in ("text", "other.db", "empty"))
    text.write_text("no database, but long enough to be looked at " * 5)
    empty.touch()
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    for path, told in ((text, "no SQLite file"), (other, "no journal"), (empty, "version 0")):
        before = held(path)
        report = await verify(path)
        assert told in report.faults[0]
        assert [check.what for check in report.checks] == CHECKS[:1]
        assert held(path) == before
    assert names(tmp_path) == ["empty", "other.db", "text"]


async def test_a_journal_in_use_is_checked_as_it_is_at_one_moment(journal: Journal) -> None:
    await fill(journal)
    async with journal.claim("live") as run:
        await run.step("one", lambda: 1)

        async def record() -> None:
            for number in range(50):
                await run.step(f"step-{number}", lambda: "y" * 5000)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(record)
            for _ in range(5):
                assert (await verify(journal.path)).ok
    assert (await verify(journal.path)).ok
    assert len((await journal.view("live")).steps) == 51


async def test_what_a_dead_process_left_is_checked_and_its_log_stays_where_it_is(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    script = (
        "import os, sys, trio, trioagent\n"
        "async def main():\n"
        "    async with trioagent.open_journal(sys.argv[1]) as journal:\n"
        "        async with journal.claim('run') as run:\n"
        "            await run.step('one', lambda: 1)\n"
        "            os._exit(0)\n"
        "trio.run(main)\n"
    )
    await trio.run_process([sys.executable, "-c", script, str(path)], stderr=subprocess.STDOUT)
    left = held(path)
    assert left["runs.db-wal"]
    report = await verify(path)
    assert report.ok and report.checks[4].count == 3
    assert held(path) == left
    assert rows(path, "(SELECT count(*) FROM records)") == [(3,)]
