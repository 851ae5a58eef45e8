"""What must hold of a journal after any fault, and the one check of it.

1.  It opens, its pages are intact, and every run's records fold.
2.  What was promised is there: the intent of a write before its body, with all that came before
    it; the outcome of a write before anybody was told; decisions, suspensions and ends.  After a
    power cut the records are moreover the first so many of those that the run would have left.
3.  A write that took effect is recorded as done, or is a doubt.
4.  Driven on, every run ends as it would have ended without the fault, where a doubt is settled by
    a look at the world.
5.  In the end every write took effect once, and everything idempotent under one key.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw
import msgspec

from trioagent import Journal, JournalError
from trioagent.journal import Record

from .scenarios import SCENARIOS, StuckError, drive
from .world import Event, World


class Finding(msgspec.Struct, frozen=True):
    """A promise that was not kept: `kind` is lost, twice or wrong."""

    kind: str
    text: str


class Expected(msgspec.Struct, frozen=True):
    """What a run without a fault left: what each run ended with and, where the records of the run
    under fire are a part of them, its records."""

    results: dict[str, bytes]
    records: dict[str, list[Record]] = {}


async def check(
    path: Path, scenario: str, events: Iterable[Event], expected: Expected, *, power: bool
) -> list[Finding]:
    """Check the journal at `path`, the world being what `events` made of it.

    With `power` only what must survive a power cut is held to have been promised.
    """
    world = World(events)
    found: list[Finding] = []

    async def inspect(journal: Journal) -> None:
        for run_id in SCENARIOS[scenario].runs:
            records = await _records(journal, run_id)
            found.extend(_missing(world, run_id, records, power=power))
            before = expected.records.get(run_id)
            if before is not None and records != before[: len(records)]:
                found.append(Finding("lost", f"{run_id}: not the first records of the run"))
            doubts = [d.step for d in await journal.doubts(run_id)] if records else []
            found.extend(_silent(world, run_id, records, doubts))

    try:
        results = await drive(path, SCENARIOS[scenario], world, inspect)
    except (Exception, BaseExceptionGroup) as exc:
        kind = "wrong" if isinstance(exc, StuckError) else "lost"
        return [*found, Finding(kind, f"going on: {describe(exc)}")]
    for run_id, result in expected.results.items():
        if results.get(run_id) != result:
            found.append(Finding("wrong", f"{run_id} ended with something else"))
    found.extend(twice(world.events))
    found.extend(_damage(path))
    return found


async def _records(journal: Journal, run_id: str) -> list[Record]:
    """The run's records, which must fold; none where its very claim is gone."""
    try:
        records = await journal.records(run_id)
    except LookupError:
        return []
    await journal.view(run_id)
    return records


def _missing(world: World, run_id: str, records: list[Record], *, power: bool) -> Iterable[Finding]:
    """Promised records that are not there."""
    there: Counter[tuple[str, str]] = Counter((record.kind, record.step) for record in records)
    for event in world.events:
        if event[0] != "promised" or event[1] != run_id or (power and not event[5]):
            continue
        _, _, kind, step, nth, _ = event
        if there[kind, step] < nth:
            yield Finding("lost", f"{run_id}: promised {kind} {step} number {nth} is not there")


def _silent(
    world: World, run_id: str, records: list[Record], doubts: list[str]
) -> Iterable[Finding]:
    """Writes that took effect and that the journal would run again."""
    done = {record.step for record in records if record.kind == "step.completed"}
    for step in {e[2] for e in world.events if e[:2] == ("ran", run_id) and e[3] == "write"}:
        if step not in done and step not in doubts:
            yield Finding("lost", f"{run_id}: {step} took effect, but is no doubt")


def twice(events: Iterable[Event]) -> Iterable[Finding]:
    """Writes that took effect more than once, and what is idempotent under two keys."""
    keys: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for event in events:
        if event[0] == "ran":
            keys[event[1], event[2], event[3]].append(event[4])
    for (run_id, step, effect), used in keys.items():
        times = len(used) if effect == "write" else len(set(used)) if effect != "read" else 1
        if times != 1:
            yield Finding("twice", f"{run_id}: {step} ({effect}) took effect {times} times")


def _damage(path: Path) -> Iterable[Finding]:
    connection = apsw.Connection(str(path))
    try:
        answer = connection.pragma("integrity_check")
        if answer != "ok":
            yield Finding("lost", f"the file is damaged: {answer}")
    finally:
        connection.close()


def describe(exc: BaseException) -> str:
    """An exception and those inside it."""
    if isinstance(exc, BaseExceptionGroup):
        return "; ".join(describe(inner) for inner in exc.exceptions)
    return f"{type(exc).__name__}: {exc}"


def leaves(exc: BaseException) -> list[BaseException]:
    """The exceptions that a nursery's group holds."""
    if not isinstance(exc, BaseExceptionGroup):
        return [exc]
    return [leaf for inner in exc.exceptions for leaf in leaves(inner)]


def is_clear(exc: BaseException) -> bool:
    """Whether a run ended with the journal's own error and nothing else."""
    return all(isinstance(leaf, JournalError) for leaf in leaves(exc))


def as_events(items: Iterable[Iterable[Any]]) -> list[Event]:
    """Events as they come out of a file, as tuples again."""
    return [tuple(item) for item in items]
