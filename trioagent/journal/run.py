"""A claimed run: the step runner that remembers.

Why a write never runs twice without somebody's word, in short:

1.  The body of a write is entered only after its intent is synced (`_admit`).
2.  While it runs, only its own claim can end the step: a later owner has raised the run's epoch
    before it did anything else, and from then on this claim's records are refused.
3.  Whoever finds an intent without an outcome, and is not running its body, does not run it: the
    table in `steps.py` has no ``again`` for writes.  It asks `reconcile`, or refuses.
4.  Only a record re-opens a step: that it was not started, which is written only where its body
    was never entered, or that somebody found it not applied.
5.  A recorded outcome is final: the fold takes no second one, and a step that has one is replayed.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

import msgspec
import trio

from trioagent.effects import EFFECTS, Effect, Standing, decide
from trioagent.errors import (
    EncodingError,
    JournalCorruptError,
    ReplayMismatchError,
    StepFailedError,
    UnknownOutcomeError,
)
from trioagent.events import State
from trioagent.messages import encode
from trioagent.rendering import describe_exception
from trioagent.steps import (
    Applied,
    Begun,
    Body,
    Failure,
    NotApplied,
    Resolution,
    Start,
    Step,
    StepContext,
    idempotency_key,
)
from trioagent.threads import run_abandoned, run_held

from .beginning import begin_run, end_run
from .claim import Claim, inside, mending
from .fold import StepState
from .records import Failed, Patch, Started, write_data

_T = TypeVar("_T")

ReconcileStep = Callable[[tuple[Any, ...], str], Awaitable[Resolution] | Resolution]
"""Given a step's arguments and its idempotency key, finds out what became of the write."""

_SCOPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RESERVED = ("llm", "tool")


class Run:
    """A run that this process owns; ``async with journal.claim(run_id) as run`` gives it.

    It is a `StepRunner` for an agent, and `step` makes any Trio code a recorded step.
    """

    def __init__(self, claim: Claim, prefix: str = "") -> None:
        self._claim = claim
        self._prefix = prefix

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self._claim.run_id

    def scope(self, name: str) -> Run:
        """The same run with ``name/`` before every step's name, for another agent in it.

        Raises:
            ValueError: a name that is not 1 to 64 letters, digits, ``_ . -``, or is reserved.
        """
        if not _SCOPE.fullmatch(name) or name in _RESERVED:
            raise ValueError(
                f"a scope is 1 to 64 letters, digits or '_ . -', and not llm or tool: {name!r}"
            )
        return Run(self._claim, f"{self._prefix}{name}/")

    # -- any Trio code as a step ------------------------------------------------------------------

    @overload
    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        result_type: type[_T],
        effect: Effect = ...,
        reconcile: ReconcileStep | None = ...,
    ) -> _T: ...

    @overload
    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        effect: Effect = ...,
        reconcile: ReconcileStep | None = ...,
    ) -> Any: ...

    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        result_type: Any = Any,
        effect: Effect = "write",
        reconcile: ReconcileStep | None = None,
    ) -> Any:
        """Run ``function(*args)`` once and record what it returns, or give what was recorded.

        The value is the decoded one both times, read as `result_type`.  A sync function runs in a
        worker thread.  An exception is an outcome too, raised as `StepFailedError` live and on
        every replay.

        Args:
            name: the step's name, its own within the run; ``llm`` and ``tool`` are reserved.
            effect: what running it twice would do; see `Effect`.
            reconcile: asked, with the arguments and the idempotency key, what became of a write
                that was begun and whose outcome was never recorded.

        Raises:
            EncodingError: arguments that JSON has no form for; nothing was recorded.
            StepFailedError: the function raised, now or when it ran.
            ReplayMismatchError: recorded with other arguments; nothing was run.
            UnknownOutcomeError: a write was begun and nobody knows how it ended.
            DuplicateStepError: the name was already asked for.

        Cancellation: before the function is entered, recorded as not started; within it, nothing
        is recorded but that it was begun; a write's thread is waited for.  Always a checkpoint.
        """
        if effect not in EFFECTS:
            raise ValueError(f"effect is read, idempotent or write, not {effect!r}")
        _check_name(name)
        request = encode(args, ordered=True)
        step = Step(
            name,
            "step",
            effect,
            request,
            None if reconcile is None else functools.partial(_ask, reconcile, args),
        )
        call = functools.partial(function, *args)

        async def body(context: StepContext) -> bytes:
            try:
                return encode(await _call(call, effect, context), ordered=True)
            except EncodingError as exc:
                text = f"the step ran, but its result is lost: {exc}; it is not run again"
                raise StepFailedError(context.step, "EncodingError", text) from None
            except Exception as exc:
                kind = type(exc).__qualname__
                text = describe_exception(exc).removeprefix(f"{kind}: ").removeprefix(kind)
                raise StepFailedError(context.step, kind, text) from exc

        await trio.lowlevel.checkpoint()
        data = await self.run_step(step, body)
        try:
            return msgspec.json.decode(data, type=result_type)
        except msgspec.DecodeError as exc:
            raise EncodingError(f"{name}: what was recorded is no {result_type}: {exc}") from None

    # -- code that changes under recorded runs ----------------------------------------------------

    @property
    def app_version(self) -> str:
        """The version under which the run began, ``""`` where none was given; for a new run, this
        claim's."""
        state = self._claim.fold
        return state.app_version if state.nonce else self._claim.app_version

    async def patched(self, name: str) -> bool:
        """Whether code that was changed under `name` may go the new way in this run.

        True where the run has nothing recorded ahead of this point, so that all that follows is
        done for the first time; false where it was recorded by the code as it was before.  The
        answer is recorded under the name, and the same ever after, also in a fork.

            if await run.patched("two-letters"):
                ...  # the new way
            else:
                ...  # the old way, until no run of before the change goes on

        Raises:
            ValueError: a bad name, as for `step`.

        Cancellation: once the answer is made it is recorded.  Always a checkpoint.
        """
        _check_name(name)
        return await self._patched(self._prefix + name)

    async def _patched(self, name: str) -> bool:
        claim = self._claim
        known = claim.fold.patches.get(name)
        if known is None:
            if not claim.fold.nonce:
                self._start_plain()
            known = not claim.ahead
            claim.append("signal", self._prefix, "patched", write_data(Patch(name, known)))
            await claim.record()
        await trio.lowlevel.checkpoint()
        return known

    def _start_plain(self) -> None:
        """The first record of a run that begins with something else than an agent."""
        started = Started(secrets.token_bytes(16), app_version=self._claim.app_version)
        self._claim.append("run.started", self._prefix, "", write_data(started))

    # -- the step runner: how a run begins and ends -----------------------------------------------

    async def begin(self, start: Start) -> Begun:
        """Take the input, the configuration and the decisions; see `begin_run`."""
        return await begin_run(self._claim, self._prefix, start)

    async def end(self, end: State | Failure) -> None:
        """Record how the run ended, unless that is what stands already."""
        await end_run(self._claim, self._prefix, end)

    # -- the step runner: steps -------------------------------------------------------------------

    def recorded(self, name: str) -> bool:
        """Whether the step's intent or outcome is recorded."""
        state = self._claim.fold.steps.get(self._prefix + name)
        return state is not None and state.status != "void"

    async def replay(self, step: Step) -> bytes | None:
        """The step's outcome without running it, or ``None`` if it is to be run."""
        name = self._prefix + step.name
        state = self._claim.fold.steps.get(name)
        data = None if state is None else await self._outcome(name, step, state)
        if data is not None:
            self._claim.use(self._prefix, name, step.kind)
        return data

    async def run_step(self, step: Step, body: Body) -> bytes:
        """The step's outcome, by replaying it or by running `body` once."""
        name, claim = self._prefix + step.name, self._claim
        claim.use(self._prefix, name, step.kind)
        state = claim.fold.steps.get(name)
        data = None if state is None else await self._outcome(name, step, state)
        return await self._execute(name, step, body) if data is None else data

    async def _outcome(self, name: str, step: Step, state: StepState) -> bytes | None:
        """Do what the table says of a step that has records, short of running a body."""
        claim = self._claim
        claim.writer.check(claim.owner)
        # By the effect it was begun with: a write stays one, whatever it is called now.
        match decide(state.effect, _standing(state, step)):
            case "execute" | "again":
                return None
            case "replay":
                if state.status == "failed":
                    raise _failure(name, state)
                return state.data
            case "mismatch":
                raise ReplayMismatchError(
                    f"{self.run_id}: {name} is recorded with another request than this one, so "
                    f"its outcome does not stand for it; nothing was run. {mending(claim)}",
                    step=name,
                )
            case "reconcile":
                return await self._reconcile(name, step)

    async def _reconcile(self, name: str, step: Step) -> bytes | None:
        """Settle a write in doubt, or refuse."""
        claim = self._claim
        resolution: object = None
        failure: Exception | None = None
        if step.reconcile is not None:
            try:
                resolution = await step.reconcile(idempotency_key(claim.fold.nonce, name))
            except Exception as exc:  # whoever cannot say leaves it unknown
                failure = exc
        match resolution:
            case Applied(result=bytes() as data):
                claim.append("step.completed", name, "reconciled", data, sync=True)
                await claim.record()
                return data
            case NotApplied(by=by):
                claim.append("signal", name, "not_applied", encode(by), sync=True)
                await claim.record()
                return None
        if step.unknown is None:
            error = UnknownOutcomeError(self.run_id, name)
            if failure is not None:
                error.add_note(f"reconcile failed: {describe_exception(failure)}")
            raise error from failure
        claim.append("step.completed", name, "told", step.unknown, sync=True)
        await claim.record()
        return step.unknown

    async def _execute(self, name: str, step: Step, body: Body) -> bytes:
        """Intent, body, outcome."""
        claim, writer = self._claim, self._claim.writer
        claim.running.add(name)
        writer.bodies += 1
        try:
            if not claim.fold.nonce:
                self._start_plain()
            if step.effect == "read" and not writer.syncs_all:
                # A read's intent goes with what follows.  Whatever its body may depend on was
                # returned to somebody, and nothing is returned before it is committed.
                claim.append("step.started", name, "read", _digest(step))
            else:
                await self._admit(name, step)
            attempt = claim.fold.steps[name].attempts
            nonce, hold = claim.fold.nonce, claim.holds.hold
            context = StepContext(claim.run_id, name, attempt, nonce, hold, self.patched)
            failed: StepFailedError | None = None
            token = inside.set((*inside.get(), claim))
            try:
                data = await body(context)
            except StepFailedError as exc:
                failed, data = exc, write_data(Failed(exc.error_type, exc.message))
            finally:
                inside.reset(token)
            tag = "" if failed is None else "failed"
            claim.append("step.completed", name, tag, data, sync=step.effect != "read")
            if step.kind != "llm" or writer.bodies > 1:
                await _gather()
            await claim.record()
        finally:
            writer.bodies -= 1
            claim.running.discard(name)
        await trio.lowlevel.checkpoint_if_cancelled()
        if failed is not None:
            raise failed
        return data

    async def _admit(self, name: str, step: Step) -> None:
        """Record an intent so that it survives what it must, before the body may run."""
        claim = self._claim
        claim.append("step.started", name, step.effect, _digest(step), sync=True)
        try:
            await _gather()
            await claim.flush()
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled:
            claim.append("signal", name, "not_started")
            await claim.record()
            raise


async def _gather() -> None:
    """Let siblings append what they have in this tick of the loop: it shares one commit.

    A model call has no sibling in its own run, so it does this only where other runs are at work.
    """
    await trio.lowlevel.cancel_shielded_checkpoint()


def _digest(step: Step) -> bytes:
    """The first 16 bytes of SHA-256 of the request: what requests are compared by."""
    return hashlib.sha256(step.request).digest()[:16]


def _standing(state: StepState, step: Step) -> Standing:
    if state.status == "void":
        return "nothing"
    if state.status == "open":
        return "intent"
    return "outcome" if state.request == _digest(step) else "other_request"


def _failure(name: str, state: StepState) -> StepFailedError:
    try:
        failed = msgspec.json.decode(state.data, type=Failed)
    except msgspec.DecodeError as exc:
        raise JournalCorruptError(f"{name}: its failure cannot be read: {exc}") from None
    return StepFailedError(name, failed.error_type, failed.message)


def _check_name(name: str) -> None:
    segments = name.split("/")
    if not 0 < len(name) <= 200 or not name.isprintable() or "" in segments:
        raise ValueError(
            f"a step's name is 1 to 200 printable characters, with no empty part: {name!r}"
        )
    if any(segment in _RESERVED for segment in segments):
        raise ValueError(f"llm and tool are an agent's own in step names: {name!r}")


async def _call(call: functools.partial[Any], effect: Effect, context: StepContext) -> Any:
    if inspect.iscoroutinefunction(call.func):
        return await call()
    if effect == "read":
        value = await run_abandoned(call)
    else:
        # A thread cannot be cancelled, and a write that goes on unseen could not be recorded.
        with trio.CancelScope(shield=True):
            value = await run_held(call, context.hold)
    # What only made a coroutine (a lambda, an object with an async __call__) has done no work yet.
    return await value if inspect.isawaitable(value) else value


async def _ask(reconcile: ReconcileStep, args: tuple[Any, ...], key: str) -> Resolution:
    answer = reconcile(args, key)
    resolution = await answer if inspect.isawaitable(answer) else answer
    if isinstance(resolution, Applied):
        return Applied(encode(resolution.result, ordered=True))
    return resolution
