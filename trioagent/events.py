"""What a run reports while it goes on, and the values that it ends with.  (pure)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeAlias

import msgspec

from .errors import ApprovalError, BudgetError, MaxIterationsError, RunError
from .gate import Verdict
from .messages import AssistantMessage, Message, ToolCall, ToolMessage, Usage

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    ValueT = TypeVar("ValueT", default=Any)
else:
    from typing import TypeVar

    ValueT = TypeVar("ValueT")

HaltReason: TypeAlias = Literal["max_iter", "tokens", "tool_calls", "cost", "deadline"]


class _Event(msgspec.Struct, frozen=True, tag_field="event", omit_defaults=True):
    """What all events share: the field that holds their tag."""


class TextDelta(_Event, frozen=True, tag="text"):
    """More text of the reply under way."""

    text: str
    replayed: bool = False


class ThinkingDelta(_Event, frozen=True, tag="thinking"):
    """More of the reply's reasoning."""

    text: str
    replayed: bool = False


class UsageReported(_Event, frozen=True, tag="usage"):
    """A model call ended and used this; the usages of a run add."""

    usage: Usage
    replayed: bool = False


class ToolCalled(_Event, frozen=True, tag="tool_called"):
    """A call of the turn, in call order; `index` counts from 0 within the turn.

    `verdict` is what stands for it: `Allow` (approved calls too) or `Deny`.
    """

    call: ToolCall
    verdict: Verdict
    index: int
    replayed: bool = False


class ToolFinished(_Event, frozen=True, tag="tool_finished"):
    """A call ended; shown when it ends, so `index` may come in any order."""

    message: ToolMessage
    index: int
    replayed: bool = False


class ModelReset(_Event, frozen=True, tag="model_reset"):
    """Drop the partial text: the model call is tried again."""


class Pending(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that waits for a person; `marker` is what `approve` and `deny` take."""

    marker: str
    call: ToolCall
    reason: str
    step: str


class _State(msgspec.Struct, frozen=True, tag_field="state", kw_only=True):
    """What all ends share."""

    transcript: tuple[Message, ...]
    usage: Usage

    def _raise(self, error: RunError) -> NoReturn:
        error.transcript = self.transcript
        error.usage = self.usage
        raise error


class Answered(_State, Generic[ValueT], frozen=True, tag="answered", kw_only=True):
    """The model answered without asking for a tool.

    `output` is the answer as the type that the run's ``output`` asked for, else ``None``.
    """

    message: AssistantMessage
    output: ValueT = None  # type: ignore[assignment]

    def unwrap(self) -> AssistantMessage:
        """The answer."""
        return self.message


class Halted(_State, frozen=True, tag="halted", kw_only=True):
    """A limit ended the run; it goes on when it is run again under a higher one."""

    reason: HaltReason
    used: float
    limit: float

    @property
    def output(self) -> NoReturn:
        """There is none: raise as `unwrap` does."""
        self.unwrap()

    def unwrap(self) -> NoReturn:
        """Raise `MaxIterationsError` or `BudgetError`."""
        if self.reason == "max_iter":
            self._raise(MaxIterationsError(int(self.limit)))
        self._raise(BudgetError(self.reason, self.used, self.limit))


class Suspended(_State, frozen=True, tag="suspended", kw_only=True):
    """Calls wait for approval; none of their turn ran."""

    pending: tuple[Pending, ...]

    @property
    def output(self) -> NoReturn:
        """There is none: raise as `unwrap` does."""
        self.unwrap()

    def unwrap(self) -> NoReturn:
        """Raise `ApprovalError`."""
        self._raise(ApprovalError(self.pending))


StateOf: TypeAlias = Answered[ValueT] | Halted | Suspended
"""How a run ends that was asked for an output: ``StateOf[Weather]``."""

State: TypeAlias = StateOf[Any]


class Done(_Event, frozen=True, tag="done"):
    """The last event of a run that ended as expected."""

    state: State


Event: TypeAlias = (
    TextDelta | ThinkingDelta | UsageReported | ToolCalled | ToolFinished | ModelReset | Done
)
