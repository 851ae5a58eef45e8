"""What the machine is fed, what it says to do, and what people decided.  (pure)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from .events import State
from .gate import ALLOW, Allow, Deny, Verdict
from .messages import AssistantMessage, Message, ToolCall, ToolResult

# -- what is fed back -----------------------------------------------------------------------------


class Replied(msgspec.Struct, frozen=True):
    """The model's reply, its ids already unique (`Machine.adopted`)."""

    message: AssistantMessage


class Expired(msgspec.Struct, frozen=True):
    """The deadline ended the model call; `seconds` is what the run has used."""

    seconds: float


class Judged(msgspec.Struct, frozen=True):
    """The gate's verdicts by index in the turn."""

    verdicts: Mapping[int, Verdict]


class Finished(msgspec.Struct, frozen=True):
    """The call at `index` ended with `result`."""

    index: int
    result: ToolResult


class Broke(msgspec.Struct, frozen=True):
    """A step could not run, or the model call failed."""


Fed: TypeAlias = Replied | Expired | Judged | Finished | Broke

# -- what to do -----------------------------------------------------------------------------------


class AskModel(msgspec.Struct, frozen=True):
    """Call the model with `messages`, as step `step`; `iter` counts from 1."""

    iter: int
    step: str
    messages: tuple[Message, ...]


class AskGate(msgspec.Struct, frozen=True):
    """Put these calls, by index, to the gate; `steps` are their names."""

    iter: int
    calls: Mapping[int, ToolCall]
    steps: Mapping[int, str]
    tainted: bool


class Planned(msgspec.Struct, frozen=True):
    """One call of a turn.

    `verdict` is `Allow` or `Deny`; `denied_by` says whose denial it is; with a `problem` the call
    is not run and the problem is its error result.  An `answer` is not run either: it is the run's
    answer, and its result says only that it was taken.
    """

    index: int
    step: str
    call: ToolCall
    verdict: Allow | Deny = ALLOW
    denied_by: str = "policy"
    problem: str = ""
    answer: bool = False


class RunTurn(msgspec.Struct, frozen=True):
    """Run these calls, at most so many at once as the shell allows."""

    iter: int
    calls: tuple[Planned, ...]
    tainted: bool


class End(msgspec.Struct, frozen=True):
    """The run ended as expected."""

    state: State


Action: TypeAlias = AskModel | AskGate | RunTurn | End

# -- what people decided ---------------------------------------------------------------------------


class Decisions(msgspec.Struct, frozen=True):
    """What people decided about the calls that wait in iteration `iter`, by marker.

    With `iter` 0 they are about the unanswered calls at the transcript's end, and a marker that
    none of those has is an error.  A journal also knows the step of each denied call: its denial
    holds even where today's gate would ask under another marker, or not ask.
    """

    iter: int = 0
    approved: frozenset[str] = frozenset()
    denied: Mapping[str, str] = {}
    denied_steps: Mapping[str, str] = {}

    @property
    def markers(self) -> frozenset[str]:
        """Every marker that was decided."""
        return self.approved | self.denied.keys()


NO_DECISIONS = Decisions()
