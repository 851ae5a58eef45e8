"""Large data: kept once, smaller where that pays, and never taken for others."""

from __future__ import annotations

import random
import threading
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.vfs import Tape, under
from trioagent import Journal, JournalCorruptError, open_journal
from trioagent.journal.payloads import PAYS_BELOW, blob_hash, is_intact, pack, unpack
from trioagent.journal.writer import HERE_BYTES

from .acts import alter, rows

TEXT = "The same words again. " * 5_000
NOISE = random.Random(3).randbytes(100_000)


@given(
    data=st.binary(max_size=200) | st.builds(bytes.__mul__, st.binary(max_size=9), st.just(9_999))
)
def test_what_is_kept_gives_back_the_data_and_never_takes_more_room(data: bytes) -> None:
    kept = pack(data)
    assert len(kept) <= len(data)
    assert unpack(blob_hash(data), len(data), kept) == data


def test_data_are_compressed_only_where_they_become_clearly_smaller() -> None:
    text = TEXT.encode()
    assert len(pack(text)) < PAYS_BELOW * len(text)
    assert pack(NOISE) is NOISE
    # What cannot be known from its beginning is found out, and taken back.
    mixed = bytes(40_000) + random.Random(4).randbytes(1_000_000)
    assert pack(mixed) is mixed


DAMAGE = {
    "cut off": lambda kept: kept[:-1],
    "nothing left": lambda kept: b"",
    "something behind it": lambda kept: kept + b"x",
    "much behind it": lambda kept: kept + bytes(200_000),
    "twice": lambda kept: kept + kept,
    "a bit flipped": lambda kept: kept[:9] + bytes([kept[9] ^ 1]) + kept[10:],
    "other data": lambda kept: zlib.compress(b"y" * len(TEXT)),
    "not compressed at all": lambda kept: NOISE,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_altered_data_are_no_data(damage: str) -> None:
    text = TEXT.encode()
    altered = DAMAGE[damage](pack(text))
    assert unpack(blob_hash(text), len(text), altered) is None
    assert not is_intact(blob_hash(text), len(text), altered)


@pytest.mark.parametrize("size", [0, 1, len(TEXT) - 1, len(TEXT) + 1, 2**62, -1])
def test_a_wrong_size_makes_them_no_data(size: int) -> None:
    assert unpack(blob_hash(TEXT.encode()), size, pack(TEXT.encode())) is None


@pytest.mark.parametrize("size", [100_000, 100_000_000])
def test_a_bomb_is_given_up_without_ever_being_in_memory(size: int) -> None:
    bomb = zlib.compress(bytes(100_000_000), 9)
    tracemalloc.start()
    try:
        assert unpack(blob_hash(b"something else"), size, bomb) is None
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


async def test_a_large_payload_is_kept_once_and_smaller_and_given_back_whole(
    journal: Journal,
) -> None:
    for run_id in ("one", "two"):
        async with journal.claim(run_id) as run:
            for step in ("a", "b"):
                assert await run.step(step, lambda: TEXT) == TEXT
    ((size, kept),) = rows(journal.path, "(SELECT size, length(data) FROM blobs)")
    assert size == len(TEXT) + 2
    assert kept < size // 10
    async with open_journal(journal.path) as other, other.claim("one") as run:
        assert await run.step("a", lambda: "again") == TEXT


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM blobs",
        "UPDATE blobs SET size = size + 1",
        "UPDATE blobs SET size = 0",
        "UPDATE blobs SET data = zeroblob(length(data))",
        "UPDATE blobs SET data = zeroblob(size)",
        "UPDATE blobs SET hash = zeroblob(32)",
    ],
)
async def test_a_payload_that_is_missing_or_altered_is_corrupt_and_its_step_never_run_again(
    damage: str, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    async with open_journal(path) as journal, journal.claim("run") as run:
        await run.step("large", lambda: TEXT)
    alter(path, damage)
    before = rows(path), rows(path, "runs"), rows(path, "blobs")
    ran: list[int] = []
    async with open_journal(path) as journal:
        with pytest.raises(JournalCorruptError, match="payload"):
            async with journal.claim("run") as run:
                await run.step("large", lambda: ran.append(1), effect="read")
    assert ran == []
    assert (rows(path), rows(path, "runs"), rows(path, "blobs")) == before


@pytest.mark.parametrize(("size", "here"), [(100, True), (HERE_BYTES * 2, False)])
async def test_what_would_hold_up_the_loop_is_committed_in_a_thread(
    size: int, here: bool, tmp_path: Path
) -> None:
    threads: set[int] = set()
    with under(Tape(before=lambda _: threads.add(threading.get_ident()))):
        async with open_journal(tmp_path / "runs.db") as journal, journal.claim("run") as run:
            for name in ("first", "large", "small"):
                threads.clear()
                length = size if name == "large" else 100
                await run.step(name, lambda n=length: "x" * n, effect="read")
                assert (threads == {threading.get_ident()}) == (here or name != "large")
