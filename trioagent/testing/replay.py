"""A step runner that gives what is recorded: a run as a regression test of the agent.

No model is called and no tool runs.  A recording may hold several attempts at a run, each ended by
a record of its own (suspended, halted, at last answered); each `Agent.run` replays the next one,
with the decisions that people took before it.  Attempts that failed or were cancelled say nothing
of the agent, so they are one with the attempt after them.

    attempt 1            attempt 2
    llm/1 -> suspended   approved, tool/1/0/pay, llm/2 -> answered

What happens otherwise than recorded ends the run with a `DivergedError`: another input or
configuration, a step that is not recorded, another request, a recorded step that is not reached,
another end.
"""

from __future__ import annotations

import hashlib
from typing import Literal, TypeAlias

import msgspec

from trioagent.errors import ProviderError, StepError, TranscriptError
from trioagent.events import Answered, Halted, State, Suspended
from trioagent.journal import Recording
from trioagent.journal.difference import first_difference
from trioagent.journal.divergence import (
    Divergence,
    Item,
    config_item,
    differ,
    input_item,
    items,
    shown_before,
    step_item,
)
from trioagent.journal.fold import Fold, StepState, fold
from trioagent.journal.payloads import blob_hash
from trioagent.journal.records import Record, Stopped, read_data
from trioagent.messages import decode_messages, encode
from trioagent.steps import Begun, Body, Direct, Failure, Start, Step

Requests: TypeAlias = Literal["strict", "ignore"]
"""Whether a changed configuration ends a replay, or is looked past as long as only reads follow."""


class DivergedError(StepError):
    """An agent did something else than was recorded; `divergence` says what."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(str(divergence))
        self.divergence = divergence
        self.step = divergence.name


class ReplayRunner:
    """A `StepRunner` over a recording; it serves one run after another of the same agent.

    Args:
        recording: the run, as `Journal.recording` or `read_recordings` give it.
        requests: with ``"ignore"`` another configuration is no difference, and a step's outcome
            stands by its name alone; a write's still stands for its own request only.
        live_from: the name of a step, such as ``llm/3``, from which on every step is run; what then
            differs first is `difference`.
        scripted: the agent's model is a script, which is asked and compared: a test's own model
            that changed is a change too.

    Raises:
        ValueError: `live_from` names no recorded step.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        requests: Requests = "strict",
        live_from: str | None = None,
        scripted: bool = False,
    ) -> None:
        self.difference: Divergence | None = None
        self._recording = recording
        self._items = items(recording)
        self._places = {item.name: place for place, item in enumerate(self._items)}
        if live_from is not None and live_from not in fold(recording.records).steps:
            raise ValueError(f"{live_from} is no recorded step; there are: {self._steps()}")
        self._requests = requests
        self._live_from = live_from
        self._live: Direct | None = None
        self._scripted = scripted
        self._attempts = _attempts(recording.records)
        self._attempt = 0
        self._state = Fold()
        self._reached: set[str] = set()

    def _steps(self) -> str:
        return ", ".join(fold(self._recording.records).steps) or "none"

    # -- the step runner --------------------------------------------------------------------------

    async def begin(self, start: Start) -> Begun:
        """Take the recorded input and the recorded decisions, and compare what is given.

        Raises:
            DivergedError: another input, configuration or decision than was recorded.
            TranscriptError: nothing is recorded that could be gone on with.
        """
        if self._attempt >= len(self._attempts):
            raise TranscriptError(
                f"the recording of {self._recording.run_id} ends before this run begins"
            )
        self._live = None
        attempt = self._attempts[self._attempt]
        before = fold(self._recording.records[: attempt.first_step])
        self._state = fold(self._recording.records[: attempt.end])
        scope = before.scopes.get("")
        if scope is None or not scope.input:
            raise TranscriptError(f"{self._recording.run_id} is no recorded run of an agent")
        if start.input is not None:
            given = encode(start.input)
            self._found("run input", input_item(scope.input), input_item(given))
        seed = scope.seed
        if blob_hash(start.config) != scope.config:
            recorded = self._recording.configs.get(scope.config, b"null")
            if first_difference(recorded, start.config) is not None:
                if self._requests == "strict":
                    item = config_item(recorded)
                    self._found(item.name, item, config_item(start.config))
                seed += blob_hash(start.config)
        decisions = before.scopes[""].decisions()
        if start.approvals and set(start.approvals) != decisions.approved:
            self._compare(
                "run approvals", encode(sorted(decisions.approved)), encode(sorted(start.approvals))
            )
        return Begun(
            (*scope.earlier, *decode_messages(scope.input)),
            decisions,
            self._recording.run_id,
            self._state.seconds,
            hashlib.sha256(seed).digest(),
            self._state.replied(""),
        )

    async def end(self, end: State | Failure) -> None:
        """Compare how the run ended, and whether it came past all that was recorded.

        Raises:
            DivergedError: it ended in another way, or earlier.
        """
        if isinstance(end, Failure):
            return
        attempt = self._attempts[self._attempt]
        self._attempt += 1
        for name, step in self._state.steps.items():
            if _is_agents(name) and step.status == "completed" and name not in self._reached:
                self._found(name, self._item(name), None)
                break
        ended = attempt.ended
        was = _told(ended.tag, read_data(ended, Stopped) if ended.data else Stopped())
        self._compare("run ends", was, _told(*_stopped(end)))

    def recorded(self, name: str) -> bool:
        """Whether the step is recorded in this attempt or before it."""
        return self._known(name) is not None

    async def replay(self, step: Step) -> bytes | None:
        """The step's recorded outcome; ``None`` once the run is live."""
        if self._is_live(step):
            return None
        return self._outcome(step)

    async def run_step(self, step: Step, body: Body) -> bytes:
        """The step's recorded outcome; `body` is run once the run is live, or by a script.

        Raises:
            DivergedError: it is not recorded, or with another request or another reply.
        """
        if self._is_live(step):
            assert self._live is not None
            data = await self._live.run_step(step, body)
            self._reached.add(step.name)
            self._found(step.name, self._item(step.name), _item_of(step.name, data))
            return data
        recorded = self._outcome(step)
        if self._scripted and step.kind == "llm":
            try:
                data = await Direct().run_step(step, body)
            except ProviderError as exc:
                raise self._diverged(step.name, self._item(step.name), None, str(exc)) from exc
            self._found(step.name, self._item(step.name), _item_of(step.name, data))
        return recorded

    def check_finished(self) -> None:
        """Refuse a recording that goes on behind what was replayed.

        Raises:
            DivergedError: naming the first thing that did not happen.
        """
        if self._live is None and self._attempt < len(self._attempts):
            first = self._attempts[self._attempt].first_step
            after = self._recording.records[first]
            item = self._item(after.step) or Item("run ends", b"null", f"run  {after.tag}")
            raise self._diverged(item.name, item, None, "it was recorded and does not happen")

    # -- comparing --------------------------------------------------------------------------------

    def _known(self, name: str) -> StepState | None:
        state = self._state.steps.get(name)
        return state if state is not None and state.status == "completed" else None

    def _is_live(self, step: Step) -> bool:
        if self._live is None and step.name == self._live_from:
            self._live = Direct()
        return self._live is not None

    def _outcome(self, step: Step) -> bytes:
        state = self._known(step.name)
        if state is None:
            now = Item(step.name, b"null", f"{step.name}  ({step.effect}, not run)")
            raise self._diverged(step.name, None, now, "it was not recorded")
        others = state.request != hashlib.sha256(step.request).digest()[:16]
        if others and (self._requests == "strict" or "read" not in (state.effect, step.effect)):
            told = (
                "its request is another"
                if self._requests == "strict"
                else (
                    "its request is another, and a write's outcome stands for its own request only"
                )
            )
            raise self._diverged(step.name, self._item(step.name), None, told)
        self._reached.add(step.name)
        return state.data

    def _item(self, name: str) -> Item | None:
        place = self._places.get(name)
        return None if place is None else self._items[place]

    def _compare(self, name: str, recorded: bytes, found: bytes) -> None:
        self._found(name, _shown(name, recorded), _shown(name, found))

    def _found(self, name: str, recorded: Item | None, found: Item | None) -> None:
        """Keep the first difference of a live run; refuse any other."""
        difference = differ(recorded, found)
        if difference is None:
            return
        error = self._diverged(name, recorded, found, difference)
        if self._live is None:
            raise error
        self.difference = self.difference or error.divergence

    def _diverged(
        self, name: str, recorded: Item | None, found: Item | None, difference: str
    ) -> DivergedError:
        place = self._places.get(name)
        if place is None:  # shown where the run stands
            reached = [self._places[step] for step in self._reached if step in self._places]
            place = max(reached, default=-1) + 1
        return DivergedError(
            Divergence(
                name,
                "" if recorded is None else recorded.shown,
                "" if found is None else found.shown,
                difference,
                shown_before(self._items, place),
            )
        )


# -- attempts -------------------------------------------------------------------------------------


class _Attempt(msgspec.Struct, frozen=True):
    """Records by their place: up to `first_step` is what was there when the attempt began, `end` is
    the place behind its last record, `ended` that record."""

    first_step: int
    end: int
    ended: Record


def _attempts(records: tuple[Record, ...]) -> list[_Attempt]:
    found: list[_Attempt] = []
    first: int | None = None
    for place, record in enumerate(records):
        if record.kind in ("step.started", "step.completed"):
            first = place if first is None else first
        elif record.kind == "signal" and record.tag == "forked":
            # What is kept of the other run is the beginning of this one's first attempt.
            first = found[0].first_step if found else first
            found.clear()
        elif record.kind == "signal" and record.tag == "followed":
            first = None
            found.clear()
        elif _ends(record):
            found.append(_Attempt(place if first is None else first, place + 1, record))
            first = None
    return found


def _ends(record: Record) -> bool:
    """Whether a record ends an attempt in a way that says something of the agent."""
    stopped = record.kind == "run.stopped" and record.tag in ("suspended", "halted")
    return not record.step and (stopped or record.kind == "run.completed")


def _is_agents(name: str) -> bool:
    return name.startswith(("llm/", "tool/"))


def _item_of(name: str, data: bytes) -> Item:
    return step_item(name, Record("step.completed", 0, 0, name, "", data))


def _shown(name: str, data: bytes) -> Item:
    item = _item_of(name, data)
    return Item(name, data, item.shown)


def _stopped(end: State) -> tuple[str, Stopped]:
    match end:
        case Answered():
            return "answered", Stopped()
        case Halted(reason=reason):
            return "halted", Stopped(reason=reason)
        case Suspended(pending=pending):
            return "suspended", Stopped(pending=pending)


def _told(tag: str, stopped: Stopped) -> bytes:
    markers = [pending.marker for pending in stopped.pending]
    return encode({"end": tag, "reason": stopped.reason, "waiting": markers})
