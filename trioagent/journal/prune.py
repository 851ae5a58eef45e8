"""Removing runs that are over.

Over is what no run can go on from: ``answered`` and ``completed``.  A ``failed``, ``cancelled`` or
``halted`` run goes on from what it has when it is run again, so those go only where they are asked
for.  What is suspended, in doubt, interrupted, running or owned is never removed, in none of its
scopes: a person or a process still has something to say about it.

    look at every run -> choose -> remove, some thousand records at a time, looking again

Each portion is a transaction of its own, so that those who record beside it wait only for a
portion; a run that moved since it was looked at, or that somebody owns by then, stays.

A tombstone remains: the run's row with its number and epoch and the time.  So an old owner that
hangs stays fenced, and a new one gets an epoch of its own; it starts from nothing, with a new nonce
and so with new idempotency keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from math import inf
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, cast, get_args

import apsw
import msgspec

from . import sqlite
from .fold import Fold, fold
from .records import KINDS, Row, config_of
from .sqlite import RunRow

Over: TypeAlias = Literal["answered", "completed", "failed", "cancelled", "halted"]
"""How a run stands that may be removed."""

OVER: tuple[Over, ...] = ("answered", "completed")
"""What is removed where nothing else is asked for."""

_PORTION = 5_000
"""Records that are removed in one transaction, or one run's if that has more."""

_NAMING = (KINDS.index("run.started") + 1, KINDS.index("signal") + 1)
"""The kinds whose data may name a configuration."""


class Pruned(msgspec.Struct, frozen=True):
    """What was removed, or would be.

    `runs` are ids, the run that ended first coming first; `freed_bytes` are those of the file's
    pages that were in use and are free; `used_bytes` are those of the pages still in use.
    """

    runs: tuple[str, ...] = ()
    records: int = 0
    payloads: int = 0
    freed_bytes: int = 0
    used_bytes: int = 0


class Rules(NamedTuple):
    """Which runs may go: only those that every rule given lets go.

    `older_than` is seconds since the run's last record; `keep` is how many of those that ended
    last stay; `max_bytes` is what the file may use: above it, those that ended first go.
    """

    older_than: float | None
    keep: int | None
    max_bytes: int | None
    statuses: Collection[Over]

    def check(self) -> None:
        """Refuse with a `ValueError` what is no rule."""
        given = {"older_than": self.older_than, "keep": self.keep, "max_bytes": self.max_bytes}
        if all(value is None for value in given.values()):
            raise ValueError(f"give at least one of {', '.join(given)}: pruning needs a rule")
        for name, value in given.items():
            if value is not None and not value >= 0:
                raise ValueError(f"{name} is 0 or more, not {value!r}")
        others = [status for status in self.statuses if status not in get_args(Over)]
        if others:
            raise ValueError(
                f"only runs that are {', '.join(get_args(Over))} can be pruned, not {others[0]!r}"
            )


class Ended(NamedTuple):
    """A run that is over, and the Unix milliseconds of its last record."""

    row: RunRow
    at: int


def ended_runs(connection: apsw.Connection, statuses: Collection[Over]) -> list[Ended]:
    """The runs that stand so, the one that ended first coming first.

    Raises:
        JournalCorruptError: a run that cannot be read.
    """
    found = []
    for row in sqlite.all_runs(connection):
        records = sqlite.load(connection, row)
        if records and _is_over(fold(records), statuses):
            found.append(Ended(row, max(record.at for record in records)))
    return sorted(found, key=lambda ended: (ended.at, ended.row.number))


def _is_over(state: Fold, statuses: Collection[Over]) -> bool:
    stands = {scope.status for scope in state.scopes.values()}
    return not state.open_writes() and stands <= set(statuses)


def choose(ended: Sequence[Ended], rules: Rules, at: int) -> list[RunRow]:
    """What age and number let go of, at `at` Unix milliseconds; of the size only `remove` knows."""
    if rules.keep is not None:
        ended = ended[: max(0, len(ended) - rules.keep)]
    if rules.older_than is not None:
        ended = [run for run in ended if run.at <= at - rules.older_than * 1000]
    return [run.row for run in ended]


def remove(
    connection: apsw.Connection,
    chosen: list[RunRow],
    rules: Rules,
    at: int,
    is_owned: Callable[[RunRow], bool],
    portion: float = _PORTION,
) -> Pruned:
    """Take runs off the front of `chosen` and remove them, until `portion` records are gone.

    In a transaction of the caller's.  `chosen` is empty once there is nothing more to do.
    """
    before = _used(connection)
    runs: list[str] = []
    records = 0
    references: Counter[bytes] | None = None
    gone: Counter[bytes] = Counter()
    payloads = 0
    while chosen and records < portion:
        if rules.max_bytes is not None and _used(connection) <= rules.max_bytes:
            chosen.clear()
            break
        row = chosen.pop(0)
        if sqlite.find_run(connection, row.run_id) != row or is_owned(row):
            continue
        if sqlite.has_branches(connection, row):
            continue  # what was branched from it has its records too
        if references is None:
            references = _references(connection)
        rows = [stored for stored in sqlite.chain(connection, row) if stored[2] == row.number]
        for stored in rows:
            gone.update(_named_by(connection, stored))
        unused = [key for key in gone if gone[key] == references[key]]
        _erase(connection, row, rows, unused, at)
        for key in unused:
            del gone[key]
        runs.append(row.run_id)
        records += len(rows)
        payloads += len(unused)
    used = _used(connection)
    return Pruned(tuple(runs), records, payloads, before - used, used)


def _erase(
    connection: apsw.Connection, run: RunRow, rows: Sequence[Row], unused: list[bytes], at: int
) -> None:
    connection.executemany("DELETE FROM records WHERE seq = ?", [(row[0],) for row in rows])
    connection.executemany("DELETE FROM blobs WHERE hash = ?", [(key,) for key in unused])
    connection.execute(
        "UPDATE runs SET last = 0, parent = 0, pruned = ? WHERE run = ?", (at, run.number)
    )


def _references(connection: apsw.Connection) -> Counter[bytes]:
    """How many times each payload is referred to, by every run."""
    found: Counter[bytes] = Counter()
    naming = "SELECT * FROM records WHERE blob IS NOT NULL OR kind IN (?, ?)"
    for row in connection.execute(naming, _NAMING):
        found.update(_named_by(connection, cast("Row", row)))
    return found


def _named_by(connection: apsw.Connection, row: Row) -> list[bytes]:
    """The payloads that a record refers to: by its column, and as its configuration."""
    named = [row[9]] if row[9] else []
    if row[4] in _NAMING and (config := config_of(sqlite.read(connection, [row])[0])):
        named.append(config)
    return named


def _used(connection: apsw.Connection) -> int:
    """Bytes of the file's pages that hold something."""
    pages = connection.pragma("page_count") - connection.pragma("freelist_count")
    return int(pages * connection.pragma("page_size"))


def rehearse(
    connection: apsw.Connection,
    chosen: list[RunRow],
    rules: Rules,
    at: int,
    is_owned: Callable[[RunRow], bool],
) -> Pruned:
    """What `remove` would come to for all of `chosen`: it is done and taken back."""
    connection.execute("SAVEPOINT rehearsal")
    try:
        return remove(connection, chosen, rules, at, is_owned, inf)
    finally:
        connection.execute("ROLLBACK TO rehearsal; RELEASE rehearsal")


def added(one: Pruned, other: Pruned) -> Pruned:
    """Two portions as one, `other` being the later."""
    return Pruned(
        one.runs + other.runs,
        one.records + other.records,
        one.payloads + other.payloads,
        one.freed_bytes + other.freed_bytes,
        other.used_bytes,
    )


def vacuum(path: Path) -> None:
    """Write the file anew without its free pages, and cut its log."""
    connection = sqlite.connect(path)
    try:
        connection.execute("VACUUM")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close()
