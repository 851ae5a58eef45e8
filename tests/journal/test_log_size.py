"""The write-ahead log: how long it may become, and what a reader that stays does to it."""

from __future__ import annotations

import base64
import random
from pathlib import Path

import apsw
import pytest

from trioagent import Journal, Run
from trioagent.journal.writer import CHECKPOINT_FRAMES

LIMIT = CHECKPOINT_FRAMES * 4096
"""Bytes of log above which it is brought home."""

STEP = 100_000
"""Bytes that one step of these tests adds to the file."""


def log_size(journal: Journal) -> int:
    """Bytes of the write-ahead log."""
    return journal.path.with_name(journal.path.name + "-wal").stat().st_size


def much(number: int) -> str:
    """A text that takes about `STEP` bytes when it is compressed, another one for each number."""
    return base64.b64encode(random.Random(number).randbytes(STEP)).decode()


async def grow(run: Run, first: int, size: int) -> int:
    """Record about so many bytes, each step's result another one; the number of the next step."""
    last = first + size // STEP
    for number in range(first, last):
        await run.step(f"step-{number}", lambda n=number: much(n), effect="read")
    return last


async def test_a_log_stays_near_its_limit_however_much_is_recorded(journal: Journal) -> None:
    async with journal.claim("long") as run:
        await grow(run, 0, 4 * LIMIT)
        assert log_size(journal) < 1.2 * LIMIT


@pytest.fixture
def pinning(journal: Journal) -> apsw.Connection:
    """Another program that reads, and stays in its transaction."""
    return apsw.Connection(str(Path(journal.path)), flags=apsw.SQLITE_OPEN_READWRITE)


async def test_a_log_that_a_long_reader_pinned_is_cut_back_once_the_reader_is_gone(
    journal: Journal, pinning: apsw.Connection
) -> None:
    async with journal.claim("long") as run:
        last = await grow(run, 0, LIMIT // 2)
        pinning.execute("BEGIN")
        assert pinning.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
        last = await grow(run, last, 2 * LIMIT)
        pinned = log_size(journal)
        assert pinned > 2 * LIMIT
        pinning.close()
        last = await grow(run, last, 4 * LIMIT)
        assert log_size(journal) < 1.2 * LIMIT < pinned
    assert len((await journal.view("long")).steps) == last
