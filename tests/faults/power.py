"""Power cuts: every state that a disk may be in after each entry of a run's tape."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import trio

from trioagent import open_journal
from trioagent.journal import Record

from .disk import Disk, Image
from .promise import Expected, Finding, as_events, check
from .scenarios import SCENARIOS, drive
from .vfs import Entry, Tape, under
from .world import Event, World

FILE = "runs.db"


class Recording(msgspec.Struct, frozen=True):
    """A run without a fault: its tape, and what it left."""

    scenario: str
    entries: list[Entry]
    expected: Expected


class Cut(msgspec.Struct, frozen=True):
    """The power goes after `place` entries, and the disk is left as `image` says."""

    place: int
    how: str
    image: Image
    events: list[Event]


def record(scenario: str) -> Recording:
    """Run a scenario under a tape."""
    tape = Tape()
    world = World(tape=tape)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, FILE)
        with SCENARIOS[scenario].checkpoints():
            with under(tape):
                results = trio.run(drive, path, SCENARIOS[scenario], world)
            records = trio.run(_records, path, scenario)
    return Recording(scenario, tape.entries, Expected(results, records))


def save(recording: Recording, path: Path) -> None:
    """Write a recording where another process can `load` it."""
    path.write_bytes(msgspec.msgpack.encode(recording))


def load(path: Path) -> Recording:
    """What `save` wrote."""
    return msgspec.msgpack.decode(path.read_bytes(), type=Recording)


async def _records(path: Path, scenario: str) -> dict[str, list[Record]]:
    async with open_journal(path) as journal:
        return {run_id: await journal.records(run_id) for run_id in SCENARIOS[scenario].runs}


def cuts(entries: list[Entry]) -> Iterator[Cut]:
    """Every cut of a tape."""
    disk = Disk()
    events: list[Event] = []
    yield Cut(0, "all arrived", {}, [])
    for place, entry in enumerate(entries, 1):
        if entry.kind == "world":
            events.extend(as_events([entry.event]))
        else:
            disk.take(entry)
        for how, image in disk.images():
            yield Cut(place, how, image, list(events))


def fingerprint(cut: Cut) -> bytes:
    """What two cuts have in common that are one case: the same files in the same world."""
    digest = hashlib.blake2b(msgspec.msgpack.encode(cut.events), digest_size=16)
    for name, content in sorted(cut.image.items()):
        digest.update(b"%b\0%d\0" % (name.encode(), len(content)))
        digest.update(content)
    return digest.digest()


def distinct(recording: Recording) -> Iterator[Cut]:
    """The cuts without those that are one case with an earlier one."""
    seen: set[bytes] = set()
    for cut in cuts(recording.entries):
        key = fingerprint(cut)
        if key not in seen:
            seen.add(key)
            yield cut


def put(cut: Cut, directory: Path) -> Path:
    """Put the files there; the path of the journal."""
    for name, content in cut.image.items():
        (directory / name).write_bytes(content)
    return directory / FILE


def try_cut(recording: Recording, cut: Cut) -> list[Finding]:
    """Open what the cut left and see whether the promise was kept."""
    with tempfile.TemporaryDirectory() as directory:
        path = put(cut, Path(directory))
        # Under a tape of its own: this sweep is about the first cut, so nothing waits for a disk.
        with under(Tape()):
            found = trio.run(_check, path, recording, cut.events)
    return [
        Finding(f.kind, f"{recording.scenario}: power cut after {cut.place}, {cut.how}: {f.text}")
        for f in found
    ]


async def _check(path: Path, recording: Recording, events: list[Event]) -> list[Finding]:
    return await check(path, recording.scenario, events, recording.expected, power=True)
