"""A short sweep over every kind of fault, and proof that the sweep can fail.

Each planted fault is one that a journal could have: the sweep must find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import apsw
import pytest

from trioagent import JournalError, open_journal

from .io_faults import try_fault
from .parts import Part, Result, run_part, try_io
from .planted import PLANTED, plant
from .power import Cut, Recording, distinct, record, save, try_cut
from .promise import Finding
from .scenarios import SCENARIOS
from .vfs import Fault, Tape, under

STRIDE = 150
"""Of the cuts that are no sync points every so-manieth one is tried; the full sweep, ``python -m
tests.faults``, tries all."""

FAULT_STRIDE = 45
"""As `STRIDE`, of the I/O faults and the kills."""


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    """A recording of every scenario."""
    return {scenario: record(scenario) for scenario in SCENARIOS}


# -- the short sweep ------------------------------------------------------------------------------


def at_syncs(recording: Recording) -> Iterator[Cut]:
    """One cut before each sync, where the most is on its way, its variants in turn; and of all
    others every `STRIDE`-th."""
    syncs = {place for place, entry in enumerate(recording.entries) if entry.kind == "sync"}
    by_place: dict[int, list[Cut]] = {}
    for number, cut in enumerate(distinct(recording)):
        if cut.place in syncs:
            by_place.setdefault(cut.place, []).append(cut)
        elif number % STRIDE == 0:
            yield cut
    for number, variants in enumerate(by_place.values()):
        yield variants[number % len(variants)]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_after_a_power_cut_nothing_is_lost_and_nothing_runs_twice(
    scenario: str, recordings: dict[str, Recording]
) -> None:
    recording = recordings[scenario]
    assert [f for cut in at_syncs(recording) for f in try_cut(recording, cut)] == []


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_disk_that_fails_ends_the_run_clearly_and_loses_nothing(
    scenario: str, recordings: dict[str, Recording]
) -> None:
    result = try_io(recordings[scenario], FAULT_STRIDE, 1)
    assert result.findings == []
    assert result.counts["ended"] > 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_process_killed_anywhere_loses_nothing_and_nothing_runs_twice(
    scenario: str, recordings: dict[str, Recording], tmp_path: Path
) -> None:
    result = killed(recordings[scenario], tmp_path)
    assert result.findings == []
    assert result.counts["kill"] > 1


def killed(recording: Recording, directory: Path, planted: str = "") -> Result:
    """Some kills, more where a fault is to be found, in a process of their own: one with threads
    should not fork."""
    save(recording, directory / "tape")
    stride = 5 if planted else FAULT_STRIDE
    return run_part(Part("kill", str(directory / "tape"), stride, 0, planted))


# -- what a disk may do while a journal is opened -------------------------------------------------


async def test_a_file_whose_turn_to_a_write_ahead_log_failed_is_not_used_without_one(
    tmp_path: Path,
) -> None:
    refused = 0
    for nth in range(1, 7):
        with under(Tape(Fault("sync", nth))) as tape, pytest.raises(JournalError):
            async with open_journal(tmp_path / f"{nth}.db"):
                raise AssertionError("opened")
        refused += tape.fired
        async with open_journal(tmp_path / f"{nth}.db") as journal:
            assert await journal.runs() == []
        with_log = apsw.Connection(str(tmp_path / f"{nth}.db"))
        assert with_log.pragma("journal_mode") == "wal"
        with_log.close()
    assert refused == 6


def test_a_journal_that_was_cut_off_while_it_was_made_is_made_anew(
    recordings: dict[str, Recording],
) -> None:
    recording = recordings["turns"]
    made = next(p for p, e in enumerate(recording.entries) if e.name.endswith("-wal"))
    cuts = [c for c in distinct(recording) if c.place <= made and "write 0" in c.how]
    assert any(not any(cut.image.get("runs.db", b"")[:100]) for cut in cuts)
    assert [f for cut in cuts for f in try_cut(recording, cut)] == []


@pytest.mark.parametrize("scenario, nth", [("leaving", range(8, 13)), ("checkpoints", (28, 36))])
def test_what_a_failed_sync_left_is_not_built_upon(
    scenario: str, nth: Iterable[int], recordings: dict[str, Recording]
) -> None:
    # Neither by a decision that the same open journal takes, nor by the checkpoint at its end.
    tried = [try_fault(recordings[scenario], Fault("sync", number)) for number in nth]
    assert [finding for one in tried for finding in one.findings] == []
    assert all(one.cuts for one in tried)


# -- planted faults -------------------------------------------------------------------------------


def first(findings: Iterable[Finding]) -> list[Finding]:
    """A sweep that has found something has done its work."""
    return [finding for _, finding in zip(range(1), findings, strict=False)]


def by_power(recording: Recording) -> Iterator[Finding]:
    """What the power cuts find that all of what is unsynced outlives, or nothing of it."""
    plain = (cut for cut in distinct(recording) if cut.how.endswith("arrived"))
    return (finding for cut in plain for finding in try_cut(recording, cut))


def by_faults(recording: Recording) -> Iterator[Finding]:
    """What failed writes find, from about where the first run is under way."""
    faults = (Fault("write", nth) for nth in range(20, 120))
    return (finding for fault in faults for finding in try_fault(recording, fault).findings)


CARELESS = {
    "NoSyncBeforeTheBody": "turns",
    "NoSyncOfOutcomes": "turns",
    "NoSyncOfEnds": "people",
    "NoSyncOfDecisions": "people",
    "ReportsBeforeTheCommit": "turns",
    "RunsBeforeTheIntent": "turns",
    "Unsynced": "turns",
    "RunsAWriteAgain": "turns",
}


@pytest.mark.parametrize("planted", CARELESS)
def test_the_power_cuts_find_a_journal_that_is_careless(planted: str) -> None:
    with plant(planted):
        assert first(by_power(record(CARELESS[planted])))


@pytest.mark.parametrize("planted", ["ReportsBeforeTheCommit", "RunsBeforeTheIntent"])
def test_the_kills_find_a_journal_that_is_careless(
    planted: str, recordings: dict[str, Recording], tmp_path: Path
) -> None:
    assert first(killed(recordings["turns"], tmp_path, planted).findings)


def test_every_sweep_finds_a_write_that_is_run_again(
    recordings: dict[str, Recording], tmp_path: Path
) -> None:
    recording = recordings["turns"]
    again = "RunsAWriteAgain"
    with plant(again):
        for findings in (by_power(recording), by_faults(recording)):
            assert first(finding for finding in findings if finding.kind == "twice")
    assert "twice" in {f.kind for f in killed(recording, tmp_path, again).findings}


def test_the_io_faults_find_a_journal_that_goes_on_after_a_failed_commit(
    recordings: dict[str, Recording],
) -> None:
    with plant("GoesOnAfterAFailedCommit"):
        assert first(by_faults(recordings["turns"]))


def test_every_planted_fault_is_looked_for() -> None:
    assert set(PLANTED) == {*CARELESS, "GoesOnAfterAFailedCommit"}
