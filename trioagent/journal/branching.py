"""Runs that begin where another one stands: forks and follow-ups.

Nothing is copied.  A run's records are a chain, and a branch is a chain that leads into another
run's: its own first record follows, in the file, the last one that both have.  Records are never
changed, so what a branch stands on stays as it was when it was made, whatever its parent does.

    parent   started - llm/1 - tool/1/0 - llm/2 - tool/2/0 - ...
                                  |
    fork                          forked - llm/2 - ...

Idempotency keys come from the branch's own nonce, so a write that both runs do is two writes.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import apsw
import msgspec

from trioagent.errors import JournalError, UnknownOutcomeError
from trioagent.messages import unanswered

from . import sqlite
from .fold import Fold, StepView, fold
from .records import Branched, Record, write_data
from .sqlite import RunRow


class Forked(msgspec.Struct, frozen=True):
    """A new run made of the first turns of another.

    `later_writes` are the other run's writes behind the cut: they have happened, or may have, and
    the new run knows nothing of them.
    """

    run_id: str
    of: str
    at_turn: int
    later_writes: tuple[StepView, ...]


def fork(connection: apsw.Connection, parent: RunRow, run_id: str, turn: int, at: int) -> Forked:
    """Make the run `run_id` of the first `turn` turns of `parent`, in a caller's transaction.

    Raises:
        JournalError: the id is taken, or that turn is not there or not complete.
        UnknownOutcomeError: a write before the cut is in doubt.
    """
    _check_free(connection, run_id)
    rows = sqlite.chain(connection, parent)
    records = sqlite.read(connection, rows)
    end = _cut(records, turn)
    kept, whole = fold(records[:end]), fold(records)
    for step in kept.open_writes():
        raise UnknownOutcomeError(parent.run_id, step.name)
    own = kept.scopes.get("")
    if own is None or not own.input:
        raise JournalError(f"{parent.run_id} is no agent's run, so it has no turns to fork at")
    if (kept.replied("") if turn else 0) != turn or unanswered(kept.view("").transcript):
        last = whole.replied("")
        raise JournalError(
            f"{parent.run_id}: turn {turn} is not there or not complete; it has {last} replies"
        )
    data = write_data(Branched(parent.run_id, secrets.token_bytes(16), turn))
    record = Record("signal", at, 0, "", "forked", data)
    sqlite.begin_branch(connection, run_id, rows[end - 1], record)
    return Forked(run_id, parent.run_id, turn, _writes_behind(kept, whole))


def follow(connection: apsw.Connection, parent: RunRow, run_id: str, at: int) -> RunRow:
    """Make the run `run_id` for the question after the one that `parent` answered, in a caller's
    transaction.

    Raises:
        JournalError: the run before has no answer yet.
    """
    rows = sqlite.chain(connection, parent)
    state = fold(sqlite.read(connection, rows))
    own = state.scopes.get("")
    if own is None or own.status != "answered":
        stands = "has begun nothing" if own is None else f"is {own.status}"
        raise JournalError(
            f"{parent.run_id} {stands}; only a run that is answered has a question after it"
        )
    data = write_data(Branched(parent.run_id, secrets.token_bytes(16)))
    record = Record("signal", at, 0, "", "followed", data)
    return sqlite.begin_branch(connection, run_id, rows[-1], record)


def _check_free(connection: apsw.Connection, run_id: str) -> None:
    known = sqlite.find_run(connection, run_id)
    if known is not None and (known.last or not known.pruned):
        raise JournalError(f"there is a run {run_id!r} already; give the new one another id")


def _cut(records: Sequence[Record], turn: int) -> int:
    """How many records come before the model was asked for the turn after `turn`."""
    begun = max([i for i, record in enumerate(records) if record.tag == "followed"], default=0)
    name = f"llm/{turn + 1}"
    for index in range(begun, len(records)):
        if records[index].kind == "step.started" and records[index].step == name:
            return index
    return len(records)


def _writes_behind(kept: Fold, whole: Fold) -> tuple[StepView, ...]:
    before = {step.name for step in kept.steps.values() if step.status != "void"}
    return tuple(
        [
            step
            for step in whole.view("").steps
            if step.effect != "read" and step.status != "void" and step.name not in before
        ]
    )
