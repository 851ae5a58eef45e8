"""Input and output that fails: each call in turn, once or until the journal is closed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import trio

from .power import FILE, Cut, Recording, cuts, put
from .promise import Expected, Finding, check, describe, is_clear
from .scenarios import SCENARIOS, drive
from .vfs import FAULTS, Entry, Fault, Tape, under
from .world import Event, World

_BEHIND = 20
"""Entries behind a failed sync after each of which the power is cut, beside the last one: a run
that was ended by it has closed its journal within them."""

LASTING = ("full", "write", "sync")
"""What may go on failing: a disk that stays full or has died."""


class Tried(msgspec.Struct):
    """What one fault led to.

    `ended` says that the run ended with an error rather than in spite of the fault; `cuts` counts
    the disks looked at that a power cut after a failed sync would have left.
    """

    fired: bool
    ended: bool
    cuts: int
    findings: list[Finding]


def faults(scenario: str, stride: int = 1, first: int = 0) -> Iterator[Fault]:
    """Every fault that a run of the scenario can meet: its calls are counted in a run without."""
    tape = Tape()
    with tempfile.TemporaryDirectory() as directory, under(tape), SCENARIOS[scenario].checkpoints():
        trio.run(drive, Path(directory, FILE), SCENARIOS[scenario], World())
    for kind in FAULTS:
        for nth in range(1, tape.calls[kind] + 1):
            for lasting in (False, True) if kind in LASTING else (False,):
                # By the fault itself, not by a running number: the next run may count other calls.
                if (nth + lasting) % stride == first:
                    yield Fault(kind, nth, lasting)


def try_fault(recording: Recording, fault: Fault) -> Tried:
    """Run the scenario with a call that fails, look at how it ended, and go on without."""
    scenario, expected = recording.scenario, Expected(recording.expected.results)
    tape = Tape(fault)
    world = World(tape=tape)
    tried = Tried(False, False, 0, [])
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, FILE)
        results: dict[str, bytes] = {}
        with under(tape), SCENARIOS[scenario].checkpoints():
            try:
                results = trio.run(drive, path, SCENARIOS[scenario], world)
            except (Exception, BaseExceptionGroup) as exc:
                tried.ended = True
                if not is_clear(exc):
                    tried.findings.append(Finding("wrong", f"it ended with {describe(exc)}"))
        tried.fired = tape.fired
        if not tried.ended and results != expected.results:
            tried.findings.append(Finding("wrong", "it went on, and ended with something else"))
        tried.findings += _look(path, scenario, world.events, expected, power=False)
    for cut in _after(tape.entries):
        tried.cuts += 1
        with tempfile.TemporaryDirectory() as directory:
            path = put(cut, Path(directory))
            found = _look(path, scenario, cut.events, expected, power=True)
        tried.findings += [Finding(f.kind, f"cut {cut.place}, {cut.how}: {f.text}") for f in found]
    tried.findings = [Finding(f.kind, f"{scenario}: {fault}: {f.text}") for f in tried.findings]
    return tried


def _look(
    path: Path, scenario: str, events: list[Event], expected: Expected, *, power: bool
) -> list[Finding]:
    async def look() -> list[Finding]:
        return await check(path, scenario, events, expected, power=power)

    with under(Tape()):
        return trio.run(look)


def _after(entries: list[Entry]) -> list[Cut]:
    """The cuts behind a failed sync: what it was to make durable may be gone or there."""
    failed = [place for place, entry in enumerate(entries, 1) if entry.kind == "failed_sync"]
    if not failed:
        return []
    near = {*range(failed[0], failed[0] + _BEHIND), *failed, len(entries)}
    return [c for c in cuts(entries) if c.place in near and c.how.endswith("arrived")]
