"""The view of a run: a pure fold of its records.  (pure)

The same records give the same view, byte for byte.  Who owns the run is not in the records; the
journal lays it over the view.

    running --step records--> running      run.stopped --> suspended | halted | failed | cancelled
    any stop --step record--> running      run.completed --> answered (an agent) | completed

A run that was branched from another begins with that one's records: a fork keeps the turns that it
was made after, a follow-up only what was said.

An intent (`step.started`) is open until a `step.completed`, or a signal that the step was not
started or did not apply.  An open intent of a write is what a doubt is made of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from trioagent.actions import (
    AskGate,
    AskModel,
    Decisions,
    Finished,
    Judged,
    Replied,
    RunTurn,
)
from trioagent.effects import EFFECTS, Effect
from trioagent.errors import JournalCorruptError
from trioagent.events import Pending
from trioagent.gate import ALLOW
from trioagent.machine import Machine
from trioagent.messages import (
    Message,
    Usage,
    decode_assistant,
    decode_messages,
    decode_result,
)

from .records import Branched, Changed, Decided, Kind, Patch, Record, Started, Stopped, read_data

Status: TypeAlias = Literal[
    "running",
    "suspended",
    "halted",
    "failed",
    "cancelled",
    "answered",
    "completed",
    "interrupted",
    "in_doubt",
]
"""How a run stands.  ``interrupted``: it was running and nobody owns it; ``in_doubt``: a write of
it was begun, nobody recorded how it ended, and nobody owns the run."""


class StepView(msgspec.Struct, frozen=True):
    """A step as recorded.

    `status`: ``open`` is begun and not ended, ``void`` was not started or did not apply.
    `attempts` counts from 1; `epoch` is that of its last record's owner; times are Unix
    milliseconds, `ended_at` 0 while open; `by` says whose outcome it is where not its body's:
    reconciled, resolved or told.
    """

    name: str
    effect: Effect
    status: Literal["open", "void", "completed", "failed"]
    attempts: int
    epoch: int
    started_at: int
    ended_at: int
    by: str = ""


class View(msgspec.Struct, frozen=True):
    """A run: what was said, what it used, how it stands.

    `forked_from` is the run whose first `at_turn` turns it began with, `follows` the run whose
    conversation it goes on with; "" for none.  `imported` is a run that came from a file and that
    nobody has claimed since.  `app_version` is the application's own name for itself when it began.
    """

    run_id: str
    status: Status
    transcript: tuple[Message, ...]
    usage: Usage
    steps: tuple[StepView, ...]
    doubts: tuple[str, ...]
    pending: tuple[Pending, ...]
    stopped: Stopped | None = None
    seconds: float = 0.0
    epoch: int = 0
    forked_from: str = ""
    at_turn: int = 0
    follows: str = ""
    imported: bool = False
    app_version: str = ""


class StepState:
    """A step while its records are folded."""

    __slots__ = (
        "attempts",
        "data",
        "effect",
        "ended_at",
        "epoch",
        "name",
        "request",
        "started_at",
        "status",
        "tag",
    )

    def __init__(self, name: str, record: Record) -> None:
        self.name = name
        self.effect: Effect = "write"
        self.attempts = 0
        self.request = b""
        self.started_at = record.at
        self.ended_at = 0
        self.epoch = record.epoch
        self.status: Literal["open", "void", "completed", "failed"] = "open"
        self.tag = ""
        self.data = b""

    @property
    def open_write(self) -> bool:
        """Whether this may have taken effect without anybody knowing."""
        return self.status == "open" and self.effect == "write"


class Scope:
    """The run of an agent under one prefix, while its records are folded."""

    __slots__ = ("config", "decided", "earlier", "input", "pending", "seed", "status", "stopped")

    def __init__(self) -> None:
        self.input = b""
        self.earlier: tuple[Message, ...] = ()
        self.config = b""
        self.seed = b""
        self.status: Status = "running"
        self.stopped: Record | None = None
        self.pending: tuple[Pending, ...] = ()
        self.decided: dict[str, tuple[bool, Decided]] = {}

    def decisions(self) -> Decisions:
        """What people decided about calls that have not started, for the machine."""
        if not self.decided:
            return Decisions()
        names = [split_step(step)[1] for step in self.decided]
        turns = [int(name.split("/")[1]) for name in names]
        decided = zip(names, turns, self.decided.values(), strict=True)
        # A decision that came too late for its turn is none about an equal call of a later one.
        last = [(name, yes, d) for name, turn, (yes, d) in decided if turn == turns[-1]]
        return Decisions(
            iter=turns[-1],
            approved=frozenset([d.marker for _, yes, d in last if yes]),
            denied_steps={name: d.reason for name, yes, d in last if not yes},
        )

    def undecided(self) -> tuple[Pending, ...]:
        """The calls that still wait for a decision."""
        return tuple([p for p in self.pending if p.step not in self.decided])


class Fold:
    """The state that a run's records add up to; `apply` takes them in their order."""

    def __init__(self) -> None:
        self.nonce = b""
        self.steps: dict[str, StepState] = {}
        self.scopes: dict[str, Scope] = {}
        self.seconds = 0.0
        self.epoch = 0
        self.forked: Branched | None = None
        self.follows = ""
        self.app_version = ""
        self.patches: dict[str, bool] = {}
        self._last: Record | None = None

    def apply(self, record: Record) -> None:
        """Take in the next record.

        Raises:
            JournalCorruptError: the record cannot follow those before it.
        """
        self.epoch = max(self.epoch, record.epoch)
        _APPLY[record.kind](self, record)
        self._count_seconds(record)

    def scope(self, prefix: str) -> Scope:
        """The scope of `prefix`, made where there is none."""
        scope = self.scopes.get(prefix)
        if scope is None:
            scope = self.scopes[prefix] = Scope()
        return scope

    def open_writes(self) -> list[StepState]:
        """Every write that was begun and whose outcome is not recorded."""
        return [step for step in self.steps.values() if step.open_write]

    def replied(self, prefix: str) -> int:
        """The last iteration under `prefix` whose reply is recorded, 0 for none."""
        iteration = 0
        for name, step in self.steps.items():
            number = name.removeprefix(f"{prefix}llm/")
            if number.isdecimal() and step.status == "completed":
                iteration = max(iteration, int(number))
        return iteration

    @property
    def status(self) -> Status:
        """How the whole run stands: as its own scope does, or the first of its others."""
        if "" in self.scopes:
            return self.scopes[""].status
        return next((scope.status for scope in self.scopes.values()), "running")

    def _count_seconds(self, record: Record) -> None:
        """Time passes between an owner's records, but not after it has stopped; what others say
        (epoch 0) may come at any time."""
        if not record.epoch:
            return
        last, self._last = self._last, record
        if last is None or last.epoch != record.epoch:
            return
        if last.kind != "run.stopped" and last.kind != "run.completed" and record.at > last.at:
            self.seconds += (record.at - last.at) / 1000

    def _run_started(self, record: Record) -> None:
        started = read_data(record, Started)
        scope = self.scope(record.step)
        if scope.input:
            raise JournalCorruptError("a run that started twice")
        self.nonce = self.nonce or started.nonce
        self.app_version = self.app_version or started.app_version
        scope.status = "running"
        scope.input = bytes(started.input)
        scope.config = started.config
        scope.seed += started.config + scope.input

    def _step_started(self, record: Record) -> None:
        step = self.steps.get(record.step)
        if step is None:
            step = self.steps[record.step] = StepState(record.step, record)
        elif step.status in ("completed", "failed"):
            raise JournalCorruptError(f"the step {record.step} was begun after its outcome")
        if record.tag not in EFFECTS:
            raise JournalCorruptError(f"the step {record.step} has the effect {record.tag!r}")
        step.effect = record.tag
        step.request = record.data
        step.attempts += 1
        step.status = "open"
        step.epoch = record.epoch
        step.started_at = record.at
        self._goes_on(record.step)

    def _step_completed(self, record: Record) -> None:
        step = self.steps.get(record.step)
        if step is None or step.status in ("completed", "failed"):
            raise JournalCorruptError(f"an outcome of {record.step}, which was not under way")
        step.status = "failed" if record.tag == "failed" else "completed"
        step.tag = record.tag
        step.data = record.data
        step.ended_at = record.at
        step.epoch = record.epoch
        self._goes_on(record.step)

    def _goes_on(self, step: str) -> None:
        """A step's record: its run is under way, and nothing waits that could be decided now.

        A plain step beside an agent's run says nothing of that one: what is suspended still waits
        and what is answered stays so.
        """
        prefix, name = split_step(step)
        scope = self.scope(prefix)
        if scope.input and not name.startswith(("llm/", "tool/")):
            return
        scope.status = "running"
        scope.stopped = None
        if scope.pending:
            scope.pending = ()
        if scope.decided:
            scope.decided.pop(step, None)

    def _signal(self, record: Record) -> None:
        match record.tag:
            case "approved" | "denied":
                scope = self.scope(split_step(record.step)[0])
                scope.decided[record.step] = (
                    record.tag == "approved",
                    read_data(record, Decided),
                )
            case "not_applied" | "not_started":
                step = self.steps.get(record.step)
                if step is None or step.status != "open":
                    raise JournalCorruptError(f"{record.tag} of {record.step}, which is not open")
                step.status = "void"
                step.ended_at = record.at
            case "changed":
                changed = read_data(record, Changed)
                scope = self.scope(record.step)
                scope.config = changed.config or scope.config
                scope.input = bytes(changed.input) or scope.input
            case "forked":
                self._fork(read_data(record, Branched))
            case "followed":
                self._follow(read_data(record, Branched))
            case "patched":
                patch = read_data(record, Patch)
                self.patches[patch.name] = patch.new
            case _:
                raise JournalCorruptError(f"an unknown signal, {record.tag!r}")

    def _fork(self, branched: Branched) -> None:
        """From here on this is another run: what was recorded stands, what was decided does not."""
        self.forked, self.nonce = branched, branched.nonce
        self.seconds, self.epoch, self._last = 0.0, 0, None
        for step in self.steps.values():
            step.epoch = 0
            if step.status == "open":
                step.status = "void"
        for scope in self.scopes.values():
            scope.status = "running"
            scope.stopped = None
            scope.pending = ()
            scope.decided.clear()

    def _follow(self, branched: Branched) -> None:
        """From here on this is another run, which knows what was said before it and no more."""
        before = self.scopes.get("") or Scope()
        outcomes = hashlib.sha256(before.seed)
        for name, step in self.steps.items():
            if name.startswith(("llm/", "tool/")):
                outcomes.update(b"%d:%b" % (len(step.data), step.data))
        said = self.view("").transcript
        self.steps, self.scopes = {}, {}
        self.seconds, self.epoch, self._last = 0.0, 0, None
        self.forked, self.follows, self.nonce = None, branched.run, branched.nonce
        self.app_version, self.patches = "", {}
        scope = self.scope("")
        scope.earlier, scope.seed = said, outcomes.digest()

    def _run_completed(self, record: Record) -> None:
        self.scope(record.step).status = "answered" if record.tag == "answered" else "completed"

    def _run_stopped(self, record: Record) -> None:
        if record.tag not in ("suspended", "halted", "failed", "cancelled"):
            raise JournalCorruptError(f"a run stopped as {record.tag!r}")
        scope = self.scope(record.step)
        scope.status = record.tag  # type: ignore[assignment]
        scope.stopped = record
        scope.pending = read_data(record, Stopped).pending

    def view(self, run_id: str, system: str = "") -> View:
        """The view of the run's own scope, `system` being its recorded system prompt."""
        scope = self.scopes.get("") or Scope()
        transcript: tuple[Message, ...] = ()
        usage = Usage()
        if scope.input:
            given = (*scope.earlier, *decode_messages(scope.input))
            transcript, usage = _said(given, system, self.steps)
        elif scope.earlier:
            transcript = scope.earlier
        return View(
            run_id=run_id,
            status=self.status,
            transcript=transcript,
            usage=usage,
            steps=tuple([_step_view(step) for step in self.steps.values()]),
            doubts=tuple([step.name for step in self.open_writes()]),
            pending=scope.undecided(),
            stopped=None if scope.stopped is None else read_data(scope.stopped, Stopped),
            seconds=self.seconds,
            epoch=self.epoch,
            forked_from="" if self.forked is None else self.forked.run,
            at_turn=0 if self.forked is None else self.forked.turn,
            follows=self.follows,
            app_version=self.app_version,
        )


_APPLY: Mapping[Kind, Callable[[Fold, Record], None]] = {
    "run.started": Fold._run_started,
    "step.started": Fold._step_started,
    "step.completed": Fold._step_completed,
    "signal": Fold._signal,
    "run.stopped": Fold._run_stopped,
    "run.completed": Fold._run_completed,
}


def fold(records: Iterable[Record]) -> Fold:
    """What `records` add up to."""
    state = Fold()
    for record in records:
        state.apply(record)
    return state


def split_step(name: str) -> tuple[str, str]:
    """The scope's prefix and the rest of a step's name.

    The segments ``llm`` and ``tool`` are reserved, so the first of them is where the rest begins;
    a step of anything else than an agent belongs to the run as a whole.
    """
    if name.startswith(("llm/", "tool/")):
        return "", name
    segments = name.split("/")
    for place, segment in enumerate(segments):
        if segment in ("llm", "tool"):
            return "".join([f"{s}/" for s in segments[:place]]), "/".join(segments[place:])
    return "", name


def _step_view(step: StepState) -> StepView:
    return StepView(
        step.name,
        step.effect,
        step.status,
        step.attempts,
        step.epoch,
        step.started_at,
        step.ended_at,
        "" if step.tag == "failed" else step.tag,
    )


_NO_LIMIT = 2**62


def _said(
    given: tuple[Message, ...], system: str, steps: Mapping[str, StepState]
) -> tuple[tuple[Message, ...], Usage]:
    """Transcript and usage: the machine's own, fed with what is recorded until something is not."""
    machine = Machine(given, system=system, max_iter=_NO_LIMIT)
    while True:
        match machine.next_action():
            case AskModel(step=name):
                step = steps.get(name)
                if step is None or step.status != "completed":
                    break
                machine.feed(Replied(decode_assistant(step.data)))
            case AskGate(calls=calls):
                machine.feed(Judged(dict.fromkeys(calls, ALLOW)))
            case RunTurn(calls=planned):
                found = [(p.index, steps.get(p.step)) for p in planned]
                if any(step is None or step.status != "completed" for _, step in found):
                    break
                for index, step in found:
                    assert step is not None
                    machine.feed(Finished(index, decode_result(step.data)))
            case _:
                break
    return machine.transcript, machine.usage
