"""A run's records as a timeline: sessions, and in each the steps that ran.  (pure)

A session is one claim of the run, by its epoch.  Its steps are attempts: a step that was begun in
one session and run again in a later one stands in both.

That a step was replayed is not recorded, since nothing happened.  It follows from the order of an
agent's run: whoever records anything of a step has come past every step whose outcome was recorded
before, and so was given those outcomes.  For the plain steps of `run.step`, whose order is the
application's, it does not follow, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from trioagent.cli.lines import Line, Span, clock, counted, date_and_time, duration, table
from trioagent.journal import Record, Stopped
from trioagent.journal.records import Branched, Decided, read_data

_HOW_ENDED = {
    "": ("done", "green"),
    "failed": ("failed", "red"),
    "reconciled": ("found applied by reconcile", "yellow"),
    "resolved": ("resolved as applied", "yellow"),
    "told": ("the model was told that it is unknown", "yellow"),
    "not_applied": ("found not applied", "yellow"),
    "not_started": ("not started", "dim"),
}


@dataclass
class Attempt:
    """One try at a step; times are Unix milliseconds, `ended_at` 0 where no end is recorded.

    `how` is the tag of the record that ended it, `ended_in` that record's epoch: 0 for a person's,
    another than the attempt's own where a later session settled it.
    """

    step: str
    effect: str
    number: int
    epoch: int
    started_at: int
    ended_at: int = 0
    how: str = ""
    ended_in: int = 0
    doubtful: bool = False
    repeated: bool = False
    replayed_in: list[int] = field(default_factory=list)


@dataclass
class Session:
    """One claim of the run that recorded something; `end` says how it ended, ``""`` for no end.

    `run` is the one that a fork has the session from, ``""`` for its own.
    """

    epoch: int
    began_at: int
    run: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)
    end: str = ""
    style: str = ""


@dataclass
class Timeline:
    """The sessions of a run in their order."""

    sessions: list[Session] = field(default_factory=list)

    @property
    def attempts(self) -> list[Attempt]:
        """Every attempt of every session."""
        return [attempt for session in self.sessions for attempt in session.attempts]


def timeline(
    records: Iterable[Record], *, doubts: Collection[str] = (), running: bool = False
) -> Timeline:
    """The timeline of a run's records; `doubts` are its steps in doubt, and with `running` its
    last session is still at it."""
    builder = _Builder()
    for record in records:
        builder.take(record)
    made = Timeline(list(builder.sessions.values()))
    for session in made.sessions:
        if not session.end:
            last = session is made.sessions[-1]
            session.end, session.style = (
                ("under way", "cyan")
                if running and last
                else ("ended without a word: its process was killed, or it was taken over", "red")
            )
    for step in doubts:
        if step in builder.latest:
            builder.latest[step].doubtful = True
    return made


class _Builder:
    """Takes records in their order."""

    def __init__(self) -> None:
        self.sessions: dict[tuple[int, int], Session] = {}
        self.latest: dict[str, Attempt] = {}
        self._came_past: set[int] = set()
        self._branch = 0

    def take(self, record: Record) -> None:
        session = self._session(record)
        match record.kind:
            case "step.started":
                self._replays(record)
                self._started(record)
            case "step.completed":
                self._replays(record)
                self._ended(record, record.tag)
            case "signal":
                self._signal(record, session)
            case "run.stopped":
                self._replays(record)
                if session is not None:
                    session.end, session.style = _stop(record)
            case "run.completed":
                self._replays(record)
                if session is not None:
                    session.end = "answered" if record.tag == "answered" else "completed"
                    session.style = "green"

    def _session(self, record: Record) -> Session | None:
        """The session of the record's owner; a person's record goes to the newest, as a note."""
        if record.epoch == 0:
            return next(reversed(self.sessions.values()), None)
        key = (self._branch, record.epoch)
        if key not in self.sessions:
            self.sessions[key] = Session(record.epoch, record.at)
        return self.sessions[key]

    def _replays(self, record: Record) -> None:
        """The first step record of a session says what was replayed in it."""
        if record.epoch == 0 or record.epoch in self._came_past:
            return
        self._came_past.add(record.epoch)
        for attempt in self.latest.values():
            over = attempt.ended_at and attempt.how not in ("not_applied", "not_started")
            if over and attempt.step != record.step and _is_agents(attempt.step):
                attempt.replayed_in.append(record.epoch)

    def _started(self, record: Record) -> None:
        before = self.latest.get(record.step)
        if before is not None:
            before.repeated = True
        number = 1 if before is None else before.number + 1
        attempt = Attempt(record.step, record.tag, number, record.epoch, record.at)
        self.latest[record.step] = attempt
        self.sessions[self._branch, record.epoch].attempts.append(attempt)

    def _ended(self, record: Record, how: str) -> None:
        attempt = self.latest.get(record.step)
        if attempt is not None:
            attempt.ended_at, attempt.how, attempt.ended_in = record.at, how, record.epoch

    def _signal(self, record: Record, session: Session | None) -> None:
        note = ""
        match record.tag:
            case "approved" | "denied":
                decided = read_data(record, Decided)
                reason = f": {decided.reason}" if decided.reason else ""
                note = f"{record.step} was {record.tag} ({decided.marker}){reason}"
            case "changed":
                note = "a changed configuration or input was accepted"
            case "not_applied":
                self._ended(record, record.tag)
                by = msgspec.json.decode(record.data, type=str)
                note = f"{record.step} was found not applied, says {by}"
            case "not_started":
                self._ended(record, record.tag)
            case "forked" | "followed":
                self._branches(record)
        if note and session is not None:
            session.notes.append((record.at, note))

    def _branches(self, record: Record) -> None:
        """What was before is another run's: a fork begins with it, a follow-up does not show it."""
        branched = read_data(record, Branched)
        self._branch += 1
        self._came_past.clear()
        if record.tag == "followed":
            self.sessions.clear()
            self.latest.clear()
        for session in self.sessions.values():
            if not session.run:
                session.run = branched.run
                session.end = session.end or f"forked at turn {branched.turn}"


def _is_agents(step: str) -> bool:
    return any(segment in ("llm", "tool") for segment in step.split("/"))


def _stop(record: Record) -> tuple[str, str]:
    stopped = read_data(record, Stopped)
    match record.tag:
        case "suspended":
            return f"suspended: {counted(len(stopped.pending), 'call')} to approve", "yellow"
        case "halted":
            return f"halted: {stopped.reason} {stopped.used:g} of {stopped.limit:g}", "yellow"
        case "cancelled":
            return "interrupted", "red"
    if stopped.error_type == "UnknownOutcomeError":
        return f"refused: {stopped.step} is in doubt", "bold red"
    return f"failed: {stopped.error_type}: {stopped.message}", "red"


# -- as text --------------------------------------------------------------------------------------


def timeline_lines(made: Timeline) -> list[Line]:
    """The timeline as lines, a heading for each session and below it its steps."""
    rows: list[list[Span]] = []
    places: list[tuple[Session, int]] = []
    for session in made.sessions:
        places.append((session, len(session.attempts)))
        rows.extend(_row(attempt) for attempt in session.attempts)
    steps = iter(table(rows, indent="  "))
    lines: list[Line] = []
    for session, count in places:
        lines.append(
            [
                (f"session {session.epoch}", "bold"),
                (f" of {session.run}" if session.run else "", ""),
                (f"  {date_and_time(session.began_at)}  ", "dim"),
                (session.end, session.style),
            ]
        )
        lines.extend(next(steps) for _ in range(count))
        lines.extend([(f"  {clock(at)}  {note}", "")] for at, note in session.notes)
    return lines


def _row(attempt: Attempt) -> list[Span]:
    outcome, style = outcome_of(attempt)
    settled = attempt.ended_in not in (attempt.epoch, 0) or attempt.how == "resolved"
    took = duration(attempt.ended_at - attempt.started_at) if attempt.ended_at else "-"
    return [
        (clock(attempt.started_at), "dim"),
        ("-" if settled else took, ""),
        (attempt.step, "bold"),
        (attempt.effect, ""),
        (f"attempt {attempt.number}", "" if attempt.number > 1 else "dim"),
        (outcome, style),
        (_replayed(attempt.replayed_in), "dim"),
    ]


def outcome_of(attempt: Attempt) -> tuple[str, str]:
    """How an attempt ended, in words, and their style."""
    if not attempt.ended_at:
        if attempt.doubtful:
            return "IN DOUBT", "bold red"
        if attempt.repeated:
            return "not recorded, so it ran again", "yellow"
        return "no outcome recorded", "yellow"
    text, style = _HOW_ENDED.get(attempt.how, (attempt.how, ""))
    if attempt.ended_in == 0:
        return f"was in doubt; {text} by a person", style
    if attempt.ended_in != attempt.epoch:
        return f"was in doubt; {text} in session {attempt.ended_in}", style
    return text, style


def _replayed(sessions: Sequence[int]) -> str:
    if not sessions:
        return ""
    noun = "session" if len(sessions) == 1 else "sessions"
    return f"replayed in {noun} {', '.join(map(str, sessions))}"
