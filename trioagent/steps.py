"""Steps: what is named, recorded and replayed, and the seam through which the loop asks for them.

The loop knows a journal only as a `StepRunner`; `Direct` is the one that remembers nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from .actions import Decisions
from .effects import Effect
from .errors import TranscriptError
from .events import State
from .messages import Message

StepKind: TypeAlias = Literal["llm", "tool", "step"]


# -- what became of a write whose outcome nobody recorded -----------------------------------------


class Applied(msgspec.Struct, frozen=True):
    """The write took effect; `result` stands for what its body would have returned."""

    result: Any = None


class NotApplied(msgspec.Struct, frozen=True):
    """The write did not take effect and may run; `by` says who or what knows that."""

    by: str


class StillUnknown(msgspec.Struct, frozen=True):
    """Nobody knows; the step stays refused."""


Resolution: TypeAlias = Applied | NotApplied | StillUnknown
"""What a `reconcile` function answers."""


# -- a step ---------------------------------------------------------------------------------------


Patched: TypeAlias = Callable[[str], Awaitable[bool]]
"""Whether code that was changed under a name may go the new way in this run; see `Run.patched`."""


async def new_code(name: str) -> bool:
    """The answer of a run without a memory: it is new, so it may.  Not a checkpoint."""
    return True


class StepContext(msgspec.Struct, frozen=True):
    """What a body is told.

    `attempt` counts from 1; `nonce` is the run's.  A body whose work may outlive it (an abandoned
    thread) takes a `hold` and calls what that returns when the work has ended: until then the run
    stays owned.  `patched` is `Run.patched`.
    """

    run_id: str
    step: str
    attempt: int
    nonce: bytes
    hold: Callable[[], Callable[[], None]]
    patched: Patched = new_code

    @property
    def key(self) -> str:
        """The idempotency key, the same in every attempt."""
        return idempotency_key(self.nonce, self.step)


Body: TypeAlias = Callable[[StepContext], Awaitable[bytes]]
Reconcile: TypeAlias = Callable[[str], Awaitable[Resolution]]


class Step(msgspec.Struct, frozen=True):
    """A named piece of work.

    `request` are the bytes that identify what is asked: a recorded outcome under the same name is
    replayed only for the same request.  `reconcile` is given the idempotency key and finds out
    what became of the write (its `Applied.result` are outcome bytes).  `unknown` are outcome
    bytes to record and go on with where the outcome stays unknown; without them that is refused.
    """

    name: str
    kind: StepKind = "step"
    effect: Effect = "write"
    request: bytes = b""
    reconcile: Reconcile | None = None
    unknown: bytes | None = None


def idempotency_key(nonce: bytes, step: str) -> str:
    """32 hex digits that are the same in every attempt of `step` in the run that has `nonce`."""
    return hashlib.sha256(nonce + b"\0" + step.encode()).hexdigest()[:32]


# -- the seam -------------------------------------------------------------------------------------


class Start(msgspec.Struct, frozen=True):
    """How a run begins: its input (``None`` for the recorded one), its configuration as canonical
    JSON, and what people decided about the calls that wait, by marker."""

    input: tuple[Message, ...] | None
    config: bytes
    approvals: Sequence[str] = ()
    denials: Mapping[str, str] = {}
    accept_changes: bool = False


class Begun(msgspec.Struct, frozen=True):
    """What a runner answers to `Start`: the input and the decisions that stand, the seconds that
    processes held the run before, the bytes that the requests' digest starts from, and the last
    iteration whose reply is recorded (0 for none)."""

    input: tuple[Message, ...]
    decisions: Decisions
    run_id: str = ""
    seconds: float = 0.0
    seed: bytes = b""
    replied: int = 0


class Failure(msgspec.Struct, frozen=True):
    """A run that ended without a state: `kind` says how, `error` what, `step` where."""

    kind: Literal["failed", "cancelled"]
    error_type: str
    message: str = ""
    step: str = ""


class StepRunner(Protocol):
    """What the loop needs of a journal."""

    async def begin(self, start: Start) -> Begun:
        """Take the input, the configuration and the decisions; refuse what does not fit."""
        ...

    async def end(self, end: State | Failure) -> None:
        """Take how the run ended."""
        ...

    def recorded(self, name: str) -> bool:
        """Whether the step's intent or outcome is recorded, so that its decision stands."""
        ...

    async def replay(self, step: Step) -> bytes | None:
        """The step's outcome without running it, or ``None`` if it is to be run.

        Raises:
            UnknownOutcomeError: a write was begun and nobody knows how it ended.
            ReplayMismatchError: another request is recorded under the step's name.
        """
        ...

    def run_step(self, step: Step, body: Body) -> Awaitable[bytes]:
        """The step's outcome, by replaying it or by running `body` once."""
        ...


class Direct:
    """The runner without a memory: every step runs."""

    def __init__(self) -> None:
        self._nonce = secrets.token_bytes(16)

    async def begin(self, start: Start) -> Begun:
        """The input as it was given; there is no recorded one to fall back on."""
        if start.input is None:
            raise TranscriptError("there is nothing to answer; give the run an input")
        decisions = Decisions(approved=frozenset(start.approvals), denied=dict(start.denials))
        return Begun(start.input, decisions)

    async def end(self, end: State | Failure) -> None:
        """Nothing is kept."""

    def recorded(self, name: str) -> bool:
        """Nothing is."""
        return False

    async def replay(self, step: Step) -> bytes | None:
        """Nothing is recorded, so every step is to be run."""
        return None

    def run_step(self, step: Step, body: Body) -> Awaitable[bytes]:
        """Run `body`."""
        return body(StepContext("", step.name, 1, self._nonce, _no_hold))


def _no_hold() -> Callable[[], None]:
    return _released


def _released() -> None:
    """A run without an owner has nothing to release."""
