"""What the demo claims, checked against what really ran.  (pure)

The journal says what it recorded; the ledger, which the tools and the model write themselves, says
what ran.  A fact compares the two.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trioagent.cli.demo_agent import Entry
from trioagent.cli.ending import IN_DOUBT
from trioagent.cli.lines import Line, counted
from trioagent.cli.timeline import Attempt
from trioagent.journal import View
from trioagent.messages import AssistantMessage


@dataclass(frozen=True)
class Evidence:
    """What is there after the demo.

    `exits` are the processes' return codes, a signal's number negative; `entries_in_report` says
    how often the report has each write's entry, by step.
    """

    exits: Sequence[int]
    view: View
    attempts: Sequence[Attempt]
    ledger: Sequence[Entry]
    entries_in_report: Mapping[str, int]


@dataclass(frozen=True)
class Fact:
    """A claim, and whether it is true."""

    text: str
    true: bool


def facts(evidence: Evidence) -> list[Fact]:
    """Every claim of the demo."""
    return [
        _killed(evidence),
        _model_calls(evidence),
        _reads(evidence),
        _lost_reads(evidence),
        _refused(evidence),
        _writes(evidence),
        Fact(f"the run is {evidence.view.status}", evidence.view.status == "answered"),
    ]


def fact_lines(found: Sequence[Fact]) -> list[Line]:
    """The facts as lines."""
    return [
        [
            ("  true   " if fact.true else "  FALSE  ", "green" if fact.true else "bold red"),
            (fact.text, ""),
        ]
        for fact in found
    ]


def _killed(evidence: Evidence) -> Fact:
    killed = [code for code in evidence.exits if code == -signal.SIGKILL]
    return Fact(f"{counted(len(killed), 'process', 'processes')} died of SIGKILL", len(killed) == 2)


def _model_calls(evidence: Evidence) -> Fact:
    made = _ran(evidence, "model")
    needed = [m for m in evidence.view.transcript if isinstance(m, AssistantMessage)]
    text = f"{counted(len(made), 'model call')} made, {len(needed)} needed"
    return Fact(text, len(made) == len(needed) > 0)


def _reads(evidence: Evidence) -> Fact:
    """The last time a read ran is the time that was recorded."""
    recorded = {a.step: a.epoch for a in evidence.attempts if _is_read(a) and a.ended_at}
    true = [
        step
        for step, epoch in recorded.items()
        if (acts := _acts(evidence, step)).count(epoch) == 1 and max(acts) == epoch
    ]
    text = f"{counted(len(recorded), 'read')} recorded, {len(true)} never run again after that"
    return Fact(text, len(true) == len(recorded) > 0)


def _lost_reads(evidence: Evidence) -> Fact:
    """Only the read that the kill took with it ran twice."""
    steps = {attempt.step for attempt in evidence.attempts if _is_read(attempt)}
    lost = [step for step in steps if len(_acts(evidence, step)) > 1]
    text = f"{counted(len(lost), 'read was', 'reads were')} lost with a process and ran again"
    return Fact(text, len(lost) == 1)


def _refused(evidence: Evidence) -> Fact:
    refused = [code for code in evidence.exits if code == IN_DOUBT]
    text = f"without reconcile the run was refused {_times(len(refused))}, and nothing was written"
    wrote = [entry.act for entry in evidence.ledger if entry.what == "append_report"]
    refused_acts = [act for act, code in enumerate(evidence.exits, 1) if code == IN_DOUBT]
    return Fact(text, len(refused) == 1 and not set(wrote) & set(refused_acts))


def _writes(evidence: Evidence) -> Fact:
    counts = evidence.entries_in_report
    ran = len(_ran(evidence, "append_report"))
    entries = sum(counts.values())
    text = (
        f"the write ran {_times(ran)}; the report has {counted(entries, 'entry', 'entries')} of it"
    )
    return Fact(text, ran == len(counts) > 0 and all(n == 1 for n in counts.values()))


def _ran(evidence: Evidence, what: str) -> list[Entry]:
    return [entry for entry in evidence.ledger if entry.what == what]


def _acts(evidence: Evidence, step: str) -> list[int]:
    """The acts in which the step's body began, once for each time."""
    return [entry.act for entry in evidence.ledger if entry.step == step]


def _is_read(attempt: Attempt) -> bool:
    return attempt.effect == "read" and "tool" in attempt.step.split("/")


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
