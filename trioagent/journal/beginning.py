"""How an agent's run begins and ends in a journal: its input, its configuration, its decisions."""

from __future__ import annotations

import hashlib
import secrets

import msgspec

from trioagent.errors import (
    InputMismatchError,
    JournalCorruptError,
    NotPendingError,
    ReplayMismatchError,
    TranscriptError,
)
from trioagent.events import Answered, Halted, State, Suspended
from trioagent.messages import decode_messages, encode
from trioagent.steps import Begun, Failure, Start

from . import sqlite
from .claim import Claim, mending
from .difference import first_difference
from .fold import Scope
from .payloads import blob_hash
from .records import (
    Changed,
    Decided,
    Record,
    Started,
    Stopped,
    read_data,
    write_data,
)


async def begin_run(claim: Claim, prefix: str, start: Start) -> Begun:
    """Take the input, the configuration and the decisions.

    Raises:
        TranscriptError: no input, neither given nor recorded.
        InputMismatchError: another input is recorded.
        ReplayMismatchError: another configuration is recorded; the text shows the difference.
        NotPendingError: a decision about nothing that waits.
    """
    claim.check_outside("an agent's run")
    await claim.refresh()
    claim.asked.pop(prefix, None)
    known = claim.fold.scopes.get(prefix)
    given = b"" if start.input is None else encode(start.input)
    if known is None or not known.input:
        if not given:
            raise TranscriptError(
                f"{claim.run_id} has no recorded input yet; give the run its first input"
            )
        if start.approvals or start.denials:
            raise NotPendingError([*start.approvals, *start.denials][0], ())
        nonce = claim.fold.nonce or secrets.token_bytes(16)
        started = Started(nonce, msgspec.Raw(given), blob_hash(start.config), claim.app_version)
        claim.append("run.started", prefix, "", write_data(started), blob=start.config)
    else:
        _check_waiting(known, start)
        await _check_unchanged(claim, prefix, known, given, start)
    scope = claim.fold.scope(prefix)
    _decide(claim, scope, start)
    await claim.record()
    return Begun(
        (*scope.earlier, *decode_messages(scope.input)),
        scope.decisions(),
        claim.run_id,
        claim.fold.seconds,
        hashlib.sha256(scope.seed).digest(),
        claim.fold.replied(prefix),
    )


async def _check_unchanged(
    claim: Claim, prefix: str, known: Scope, given: bytes, start: Start
) -> None:
    changed_input = b""
    if given and given != known.input:
        difference = first_difference(known.input, given)
        if difference is not None and not start.accept_changes:
            raise InputMismatchError(
                f"{claim.run_id} was begun with another input: {difference}; "
                "give it none to go on, or use another run id"
            )
        changed_input = given if difference is not None else b""
    config = blob_hash(start.config)
    changed_config = b""
    if config != known.config:
        key = known.config
        recorded = await claim.writer.transact(lambda c: sqlite.load_blob(c, key), sync=False)
        if recorded is None:
            raise JournalCorruptError(f"{claim.run_id}: its configuration is missing or altered")
        difference = first_difference(recorded, start.config)
        if difference is not None and not start.accept_changes:
            raise ReplayMismatchError(
                f"{claim.run_id} was begun with another configuration: {difference}. "
                f"{mending(claim)}; accept_changes=True records the change and goes on"
            )
        changed_config = config if difference is not None else b""
    if changed_input or changed_config:
        changed = Changed(changed_config)
        if changed_input:  # an empty Raw would be written as nothing at all, which is no JSON
            changed = Changed(changed_config, msgspec.Raw(changed_input))
        blob = start.config if changed_config else None
        claim.append("signal", prefix, "changed", write_data(changed), sync=True, blob=blob)


def _check_waiting(scope: Scope, start: Start) -> None:
    """Every decision is about a call that waits, and there is one about each."""
    waiting = [pending.marker for pending in scope.undecided()]
    for marker in [*start.approvals, *start.denials]:
        if marker not in waiting or (marker in start.approvals and marker in start.denials):
            raise NotPendingError(marker, waiting)


def _decide(claim: Claim, scope: Scope, start: Start) -> None:
    """Record the decisions that were given with the run."""
    step_of = {pending.marker: pending.step for pending in scope.undecided()}
    for marker in dict.fromkeys(start.approvals):
        claim.append("signal", step_of[marker], "approved", write_data(Decided(marker)), sync=True)
    for marker, reason in start.denials.items():
        decided = write_data(Decided(marker, reason))
        claim.append("signal", step_of[marker], "denied", decided, sync=True)


async def end_run(claim: Claim, prefix: str, end: State | Failure) -> None:
    """Record how the run ended, unless that is what stands already; an answer is final."""
    scope = claim.fold.scope(prefix)
    if scope.status == "answered":
        pass  # whatever happened since, nothing of it was a step
    elif isinstance(end, Answered):
        claim.append("run.completed", prefix, "answered", sync=True)
    else:
        tag, stopped = _stopped(end, prefix)
        # Run again without a change it ends the same way, and the journal does not grow.
        if scope.stopped is None or not _same_end(scope.stopped, tag, stopped):
            claim.append("run.stopped", prefix, tag, write_data(stopped), sync=True)
    await claim.record()


def _stopped(end: Halted | Suspended | Failure, prefix: str) -> tuple[str, Stopped]:
    match end:
        case Suspended(pending=pending):
            full = tuple([msgspec.structs.replace(p, step=prefix + p.step) for p in pending])
            return "suspended", Stopped(pending=full)
        case Halted(reason=reason, used=used, limit=limit):
            return "halted", Stopped(reason=reason, used=used, limit=limit)
        case Failure():
            return end.kind, Stopped(error_type=end.error_type, message=end.message, step=end.step)


def _same_end(last: Record, tag: str, stopped: Stopped) -> bool:
    """Whether a run stopped as it did before, however many seconds it had used."""
    before = read_data(last, Stopped)
    return last.tag == tag and msgspec.structs.replace(before, used=stopped.used) == stopped
