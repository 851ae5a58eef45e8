"""Files that are no journal, ids that are none, calls that no tool can take: refused, unchanged."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tests.scripts import QUESTION, call, calling, saying, tool_texts
from trioagent import (
    Agent,
    Answered,
    Applied,
    Journal,
    JournalCorruptError,
    JournalError,
    JournalFormatError,
    NotPendingError,
    ToolSignatureError,
    TranscriptError,
    open_journal,
    tool,
)

from .acts import World, by_turn, kinds, refused, rows


def text(path: Path) -> None:
    path.write_text("Dear diary,\n" * 100)


def short_text(path: Path) -> None:
    path.write_text("Dear diary")


def other_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE runs (id TEXT)")
    connection.commit()
    connection.close()


def other_database_in_wal_mode(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE runs (id TEXT)")
    connection.commit()
    connection.close()


def held(path: Path) -> bytes:
    """The file's bytes; only of a journal that is closed."""
    return path.read_bytes()


def overwrite(path: Path, data: bytes) -> None:
    """Make these the file's bytes."""
    path.write_bytes(data)


def beside(directory: Path) -> list[Path]:
    """What is in the directory."""
    return sorted(directory.iterdir())


@pytest.mark.parametrize("make", [text, short_text, other_database, other_database_in_wal_mode])
async def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    make(path)
    before = held(path)
    with pytest.raises(JournalFormatError, match=r"runs\.db"):
        async with open_journal(path):
            raise AssertionError("opened")
    assert held(path) == before
    assert beside(tmp_path) == [path]


@pytest.fixture
async def closed(tmp_path: Path) -> Path:
    """A journal with a run in it, closed."""
    path = tmp_path / "runs.db"
    async with open_journal(path) as journal, journal.claim("run") as run:
        await run.step("one", lambda: 1)
    return path


async def test_a_journal_of_a_newer_version_is_refused_and_left_as_it_is(closed: Path) -> None:
    connection = apsw.Connection(str(closed))
    version = int(connection.pragma("user_version"))
    connection.execute(f"PRAGMA user_version = {version + 1}")
    connection.close()
    before = held(closed)
    with pytest.raises(JournalFormatError, match=f"version {version + 1}"):
        async with open_journal(closed):
            raise AssertionError("opened")
    assert held(closed) == before


@pytest.mark.parametrize("left", [99, 100, 4096, -1])
async def test_a_truncated_journal_is_refused_and_left_as_it_is(left: int, closed: Path) -> None:
    before = held(closed)[:left]
    overwrite(closed, before)
    with pytest.raises((JournalCorruptError, JournalFormatError)):
        async with open_journal(closed):
            raise AssertionError("opened")
    assert held(closed) == before


async def test_an_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    overwrite(path, b"")
    async with open_journal(path) as journal:
        assert await journal.runs() == []


async def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="directory"):
        async with open_journal(tmp_path):
            raise AssertionError("opened")
    assert beside(tmp_path) == []


async def test_a_path_in_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="runs"):
        async with open_journal(tmp_path / "nowhere" / "runs.db"):
            raise AssertionError("opened")
    assert beside(tmp_path) == []


async def test_a_journal_whose_pages_are_overwritten_is_corrupt(closed: Path) -> None:
    data = bytearray(held(closed))
    data[1024:] = b"\xff" * (len(data) - 1024)
    overwrite(closed, data)
    with pytest.raises(JournalCorruptError):
        async with open_journal(closed) as journal:
            await journal.runs()
    assert held(closed) == bytes(data)


@pytest.mark.parametrize(
    "run_id", ["", ".hidden", "-x", "_x", "a/b", "../a", "a b", "é", "a\n", "a" * 129, None, 7]
)
async def test_a_bad_run_id_is_refused_everywhere_and_nothing_is_made(
    run_id: str, journal: Journal
) -> None:
    async def claim() -> None:
        async with journal.claim(run_id):
            raise AssertionError("claimed")

    for attempt in (
        claim(),
        journal.view(run_id),
        journal.approve(run_id, "m"),
        journal.deny(run_id, "m", "no"),
        journal.resolve(run_id, "step", Applied()),
        journal.records(run_id),
        *([] if run_id is None else [journal.doubts(run_id), journal.pending(run_id)]),
    ):
        exc = await refused(attempt, ValueError, journal.path)
        assert "run id" in str(exc)
    assert rows(journal.path, "runs") == []


async def test_the_longest_run_id_is_taken(journal: Journal) -> None:
    async with journal.claim("a" * 128) as run:
        assert run.run_id == "a" * 128


async def test_a_run_that_is_not_there_is_named_and_not_made(journal: Journal) -> None:
    for attempt in (
        journal.view("nobody"),
        journal.approve("nobody", "m"),
        journal.resolve("nobody", "step", Applied()),
        journal.doubts("nobody"),
        journal.pending("nobody"),
    ):
        assert "nobody" in str(await refused(attempt, LookupError, journal.path))
    assert rows(journal.path, "runs") == []


async def test_what_is_not_in_doubt_or_no_resolution_is_not_resolved(journal: Journal) -> None:
    async with journal.claim("run") as run:
        await run.step("one", lambda: 1)
    for step in ("one", "two"):
        await refused(journal.resolve("run", step, Applied()), LookupError, journal.path)
    wrong: object = "applied"
    await refused(journal.resolve("run", "one", wrong), TypeError, journal.path)  # type: ignore[arg-type]
    exc = await refused(journal.approve("run", "m"), NotPendingError, journal.path)
    assert "nothing" in str(exc)


@pytest.mark.parametrize(
    ("bad", "reads"),
    [
        (call("lokup"), "no tool named 'lokup'"),
        (call("lookup", "[1]"), "must be a JSON object"),
        (call("lookup", "{"), "incomplete JSON"),
        (call("lookup", {"where": 1}), "do not fit"),
    ],
)
async def test_a_call_that_no_tool_can_take_is_a_recorded_error_and_the_run_goes_on(
    bad: object, reads: str, journal: Journal
) -> None:
    world = World()
    agent = Agent(by_turn(calling(bad), saying("ok")), tools=[world.doing("lookup", "write")])  # type: ignore[arg-type]
    for _ in range(2):
        async with journal.claim("run") as run:
            state = await agent.run(QUESTION, step_runner=run)
        assert isinstance(state, Answered)
        (shown,) = tool_texts(state.transcript)
        assert shown.startswith("error: ")
        assert reads in shown
    assert world.did == []
    assert len(await kinds(journal, "run")) == 8
    assert await journal.doubts() == []


async def test_a_tool_without_a_schema_is_refused_where_it_is_made(journal: Journal) -> None:
    def odd(what):  # type: ignore[no-untyped-def]
        return what

    before = rows(journal.path)
    with pytest.raises(ToolSignatureError, match="what"):
        tool(odd)
    with pytest.raises(ToolSignatureError, match="what"):
        Agent(by_turn(), tools=[odd])
    assert rows(journal.path) == before


async def test_a_run_without_an_input_is_refused_and_not_recorded(journal: Journal) -> None:
    async with journal.claim("run") as run:
        exc = await refused(Agent(by_turn()).run(step_runner=run), TranscriptError, journal.path)
    assert "first input" in str(exc)
    assert await journal.runs() == []


async def test_a_closed_journal_says_so(closed: Path) -> None:
    async with open_journal(closed) as journal:
        pass
    with pytest.raises(JournalError, match="closed"):
        await journal.view("run")
    with pytest.raises(JournalError, match="closed"):
        async with journal.claim("run"):
            raise AssertionError("claimed")


async def test_a_journal_and_its_log_can_be_copied_and_opened_elsewhere(
    closed: Path, tmp_path: Path
) -> None:
    shutil.copy(closed, tmp_path / "copy.db")
    async with open_journal(tmp_path / "copy.db") as journal:
        assert (await journal.view("run")).status == "completed"
