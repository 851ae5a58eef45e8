"""What a crash experiment is about: an agent, a question, and a world to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from trioagent.agent import Agent
from trioagent.journal import Doubt, Run
from trioagent.steps import Applied, NotApplied, StepRunner

Settle: TypeAlias = Callable[[Path, Doubt], Applied | NotApplied]
"""Looks at the world and says what became of a write in doubt."""


def _as_it_is(run: Run) -> StepRunner:
    return run


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A run that is tried under crashes, each time in a new folder that is its whole world.

    Attributes:
        build: makes the agent whose tools act in the folder.  Called once for each process that
            the run has, so its model must go on from any transcript: a script that is a function of
            the messages, not a list.
        input: the question.
        observe: the effects that the folder shows, one item each time that one happened, such as
            the lines that were written.
        settle: looks at the folder and says what became of a write in doubt; without it a run in
            doubt ends there.
        runner: puts another step runner around the run, one that is to be tried.
        name: what the report is called.
    """

    build: Callable[[Path], Agent]
    input: str
    observe: Callable[[Path], Sequence[str]]
    settle: Settle | None = None
    runner: Callable[[Run], StepRunner] = _as_it_is
    name: str = "crashes"
