"""A run as a page: when its steps ran, what was said, what it used.  (pure)

Each session has a line of its own for each step, and a bar at the time it ran, so that parallel
tools lie side by side.  What a session only replayed took no time and is told above its steps.
"""

from __future__ import annotations

from collections.abc import Iterable

from trioagent.cli.lines import STATUS_STYLES, clock, counted, date_and_time, duration
from trioagent.cli.listing import usage_text
from trioagent.cli.timeline import Attempt, Session, Timeline, outcome_of
from trioagent.journal import View
from trioagent.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Opaque,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
)
from trioagent.page import bar, coloured, document, escaped, facts, legend, row

_STYLES = {"green": "good", "red": "bad", "bold red": "bad", "yellow": "warn"}
"""A terminal's colours as the page's."""

_KEY = (
    ("cool", "model call or read"),
    ("good", "write, done"),
    ("warn", "failed, repeated or settled by somebody"),
    ("bad", "in doubt"),
)


def run_page(view: View, made: Timeline) -> str:
    """The whole page."""
    title = f"run {view.run_id}"
    pieces = [f"<h1>{escaped(title)}</h1>\n", facts(_about(view, made))]
    pieces += ["<h2>Timeline</h2>\n", legend(_KEY)]
    for session in made.sessions:
        pieces += _session(session, made)
    pieces.append("<h2>Transcript</h2>\n")
    pieces += [_message(message) for message in view.transcript]
    return document(title, pieces)


def _about(view: View, made: Timeline) -> Iterable[tuple[str, str]]:
    style = _STYLES.get(STATUS_STYLES.get(view.status, ""), "")
    yield "status", coloured(view.status.replace("_", " "), style)
    if view.stopped is not None and view.stopped.error_type:
        yield "because", escaped(f"{view.stopped.error_type}: {view.stopped.message}")
    for step in view.doubts:
        yield "in doubt", coloured(step, "bad")
    for pending in view.pending:
        call = f"{pending.call.name} {pending.call.arguments} ({pending.reason})"
        yield "waits", f"{coloured(pending.marker, 'warn')} {escaped(call)}"
    if view.forked_from:
        yield "forked from", escaped(f"{view.forked_from} at turn {view.at_turn}")
    if view.follows:
        yield "follows", escaped(view.follows)
    if view.app_version:
        yield "version", escaped(view.app_version)
    yield "usage", escaped(usage_text(view.usage))
    held = duration(round(view.seconds * 1000))
    yield "held", escaped(f"{held} in {counted(view.epoch, 'session')}")
    ran = len(made.attempts)
    replayed = sum(len(attempt.replayed_in) for attempt in made.attempts)
    yield "steps", escaped(f"{counted(ran, 'time', 'times')} run, {replayed} replayed")


# -- the timeline ---------------------------------------------------------------------------------


def _session(session: Session, made: Timeline) -> Iterable[str]:
    of = f" of {session.run}" if session.run else ""
    end = coloured(session.end, _STYLES.get(session.style, ""))
    began = escaped(f"session {session.epoch}{of}, {date_and_time(session.began_at)}: ")
    yield f"<h3>{began}{end}</h3>\n"
    replayed = [a.step for a in made.attempts if session.epoch in a.replayed_in and not session.run]
    if replayed:
        told = f"{counted(len(replayed), 'step')} replayed, not run again: {', '.join(replayed)}"
        yield f"<p>{escaped(told)}</p>\n"
    moments = [a.started_at for a in session.attempts] + [a.ended_at for a in session.attempts]
    first = min([moment for moment in moments if moment], default=0)
    last = max(moments, default=0)
    for attempt in session.attempts:
        yield _attempt(attempt, first, max(last - first, 1))
    for at, note in session.notes:
        yield f"<p>{escaped(f'{clock(at)}  {note}')}</p>\n"


def _attempt(attempt: Attempt, first: int, whole: int) -> str:
    text, style = outcome_of(attempt)
    settled = attempt.ended_in not in (attempt.epoch, 0) or attempt.how == "resolved"
    ended = attempt.started_at if settled else attempt.ended_at
    took = duration(ended - attempt.started_at) if ended and not settled else "-"
    told = [
        escaped(f"{attempt.effect}, attempt {attempt.number}"),
        escaped(took),
        coloured(text, _STYLES.get(style, "")),
    ]
    start = (attempt.started_at - first) / whole
    until = (ended - first) / whole if ended else 1.0
    return row(attempt.step, told, bar(start, until, _fill(attempt)))


def _fill(attempt: Attempt) -> str:
    if attempt.doubtful:
        return "bad"
    if not attempt.ended_at or attempt.how:
        return "warn"
    return "cool" if attempt.effect == "read" else "good"


# -- the transcript -------------------------------------------------------------------------------


def _message(message: Message) -> str:
    who, style = _who(message)
    parts = [message.text] if isinstance(message, SystemMessage) else message.parts
    inner = "".join([f"<pre>{_part(part)}</pre>" for part in parts])
    return f"<article><header>{coloured(who, style)}</header>{inner}</article>\n"


def _who(message: Message) -> tuple[str, str]:
    match message:
        case SystemMessage():
            return "system", ""
        case AssistantMessage(model=model):
            return f"assistant {model}".strip(), ""
        case ToolMessage(name=name, outcome=outcome):
            return f"tool {name}: {outcome}", "good" if outcome == "ok" else "warn"
    return "user", ""


def _part(part: object) -> str:
    match part:
        case str():
            return escaped(part)
        case Text():
            return escaped(part.text)
        case Thinking():
            return f"<em>{escaped(part.text or '(thinking that is not shown)')}</em>"
        case ToolCall():
            return f"calls <b>{escaped(part.name)}</b> {escaped(part.arguments)}"
        case Image() | File():
            return escaped(f"({type(part).__name__.lower()}, {part.media_type})")
        case Opaque():
            return escaped(f"(kept for {part.provider})")
    return escaped(f"({type(part).__name__})")
