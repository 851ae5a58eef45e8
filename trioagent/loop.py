"""The Trio shell of one run: asks the machine, acts, feeds back.

    machine.next_action() -> step -> runner.run_step() -> recorded bytes -> machine.feed()

It has no policy of its own: what to do is the machine's to say, whether a step runs or is replayed
the runner's.  What it adds is order in time: a turn's recorded calls first, then those that need
no work, then the rest in a nursery under a capacity limiter.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from .errors import EncodingError, FencedError, ProtocolError, StepError, TrioagentError
from .events import (
    Done,
    Event,
    State,
    Suspended,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    ToolFinished,
    UsageReported,
)
from .gate import ALLOW, Allow, CallContext, Deny, judge
from .machine import (
    AskGate,
    AskModel,
    Broke,
    End,
    Expired,
    Finished,
    Judged,
    Machine,
    Planned,
    Replied,
    RunTurn,
)
from .messages import (
    AssistantMessage,
    Message,
    Thinking,
    ToolResult,
    Usage,
    decode_assistant,
    decode_result,
    denied_result,
    encode,
    error_result,
)
from .provider import CallOptions, Request
from .steps import Applied, Failure, Resolution, Start, Step, StepContext, StepRunner
from .tools import ArgumentsError, Tool, render

if TYPE_CHECKING:
    from .agent import Agent

EFFECTS_UNKNOWN = encode(
    error_result(
        "this call was begun and how it ended was never recorded: its effects are unknown. "
        "Check whether it took effect before you repeat it"
    )
)
"""The outcome of a write in doubt under ``on_unknown="tell_model"``."""

_AUTO = "auto"


@dataclass(frozen=True, slots=True)
class _Job:
    """One call of a turn that is not recorded yet, with the work that it takes."""

    planned: Planned
    step: Step
    body: Callable[[StepContext], Awaitable[bytes]]
    instant: bool


class Loop:
    """One run of an agent.

    `transcript` and `usage` hold what there is at any time, also after a failure.
    """

    def __init__(
        self,
        agent: Agent,
        runner: StepRunner,
        emit: Callable[[Event], None] | None,
        deps: Any,
    ) -> None:
        self._agent = agent
        self._runner = runner
        self._emit = emit
        self._deps = deps
        self._machine: Machine | None = None
        self._run_id = ""
        self._earlier = self._began = 0.0
        self._digest = hashlib.sha256()
        self._iterations = self._replayed = 0

    @property
    def transcript(self) -> tuple[Message, ...]:
        """Everything said so far."""
        return self._machine.transcript if self._machine is not None else ()

    @property
    def usage(self) -> Usage:
        """Tokens used since the last user message."""
        return self._machine.usage if self._machine is not None else Usage()

    async def run(self, start: Start) -> State:
        """Go on until the run ends.

        Cancellation: recorded as the run's end, then goes on untouched.  A failure carries the
        transcript and the usage as far as they came.
        """
        agent = self._agent
        await trio.lowlevel.checkpoint()
        with agent.spans.run(agent.name) as span:
            self._began = trio.current_time()
            begun = await self._runner.begin(start)
            self._run_id, self._earlier = begun.run_id, begun.seconds
            self._digest.update(begun.seed)
            try:
                machine = self._machine = Machine(
                    begun.input,
                    system=agent.system,
                    tools=agent.tools,
                    max_iter=agent.max_iter,
                    budget=agent.budget,
                    decisions=begun.decisions,
                )
                state = await self._until_end(machine)
            except BaseException as exc:
                await self._failed(exc)
                raise
            finally:
                span.ended(self._iterations, self._replayed, self.usage)
            try:
                await self._runner.end(state)
            except TrioagentError as exc:
                exc.transcript, exc.usage = self.transcript, self.usage
                raise
            self._show(Done(state))
            return state

    async def _until_end(self, machine: Machine) -> State:
        while True:
            match machine.next_action(self._seconds()):
                case AskModel() as action:
                    await trio.lowlevel.checkpoint()
                    await self._ask_model(machine, action)
                case AskGate() as action:
                    machine.feed(Judged(self._ask_gate(action)))
                case RunTurn() as action:
                    await self._turn(machine, action)
                case End(state):
                    if isinstance(state, Suspended):
                        self._trace_pending(state)
                    return state
                case None:
                    raise AssertionError("a failed run goes nowhere")

    async def _failed(self, exc: BaseException) -> None:
        if self._machine is not None and not self._machine.ended:
            self._machine.feed(Broke())
        if isinstance(exc, TrioagentError):
            exc.transcript, exc.usage = self.transcript, self.usage
        if isinstance(exc, FencedError):
            return
        stopped = isinstance(exc, trio.Cancelled | KeyboardInterrupt | SystemExit)
        failure = Failure(
            "cancelled" if stopped else "failed",
            type(exc).__name__,
            str(exc) if isinstance(exc, Exception) else "",
            exc.step if isinstance(exc, StepError) else "",
        )
        try:
            await self._runner.end(failure)
        except StepError as unrecorded:
            exc.add_note(f"the run's end could not be recorded: {unrecorded}")

    def _seconds(self) -> float:
        """How long processes have held this run."""
        return self._earlier + trio.current_time() - self._began

    def _show(self, event: Event) -> None:
        if self._emit is not None:
            self._emit(event)

    # -- the model --------------------------------------------------------------------------------

    async def _ask_model(self, machine: Machine, action: AskModel) -> None:
        agent, live = self._agent, False
        options = agent.options
        if action.iter > 1 and options.tool_choice not in (_AUTO, "none"):
            options = CallOptions(
                temperature=options.temperature, max_output_tokens=options.max_output_tokens
            )
        request = Request(action.messages, agent.specs, options)

        async def body(context: StepContext) -> bytes:
            nonlocal live
            live = True
            with agent.spans.model_call(agent.provider.model) as span:
                message = machine.adopted(await self._complete(request))
                span.replied(message)
            try:
                return encode(message)
            except EncodingError as exc:
                raise ProtocolError(f"the reply cannot be kept: {exc}") from None

        step = Step(action.step, "llm", "read", self._digest.digest())
        self._iterations += 1
        try:
            data = await self._runner.run_step(step, body)
        except _DeadlineError:
            machine.feed(Expired(self._seconds()))
            return
        reply = decode_assistant(data)
        self._note(data)
        if not live:
            self._replayed += 1
            for part in reply.parts:
                if type(part) is Thinking and part.text:
                    self._show(ThinkingDelta(part.text, replayed=True))
            if reply.text:
                self._show(TextDelta(reply.text, replayed=True))
        self._show(UsageReported(reply.usage, replayed=not live))
        machine.feed(Replied(reply))

    async def _complete(self, request: Request) -> AssistantMessage:
        emit = _ignore if self._emit is None else self._emit
        provider, limit = self._agent.provider, self._agent.budget.max_seconds
        if limit is None:
            return await provider.complete(request, emit)
        with trio.CancelScope(deadline=trio.current_time() + limit - self._seconds()):
            return await provider.complete(request, emit)
        raise _DeadlineError

    def _note(self, data: bytes) -> None:
        """Chain recorded bytes into the digest that later requests are compared by."""
        self._digest.update(len(data).to_bytes(8, "big"))
        self._digest.update(data)

    # -- the gate ---------------------------------------------------------------------------------

    def _ask_gate(self, action: AskGate) -> dict[int, Any]:
        """The verdict on every call of a known tool whose decision is not recorded already."""
        agent = self._agent
        context = CallContext(action.tainted, action.iter, self._run_id)
        return {
            index: judge(agent.gates, call, context)
            if agent.gates
            and call.name in agent.tools
            and not self._runner.recorded(action.steps[index])
            else ALLOW
            for index, call in action.calls.items()
        }

    def _trace_pending(self, state: Suspended) -> None:
        for pending in state.pending:
            with self._agent.spans.tool_call(pending.call) as span:
                span.finished("needs_approval")

    # -- a turn -----------------------------------------------------------------------------------

    async def _turn(self, machine: Machine, action: RunTurn) -> None:
        """Ask the runner for every call first: where it refuses one, nothing of the turn starts."""
        outcomes: dict[int, bytes] = {}
        request = self._digest.digest()
        jobs: list[_Job] = []
        for planned in action.calls:
            step = self._step(planned, request)
            data = await self._runner.replay(step)
            if data is None:
                jobs.append(self._job(planned, step, action.tainted))
            else:
                outcomes[planned.index] = data
        recorded = {index: decode_result(data) for index, data in outcomes.items()}
        for planned in action.calls:
            self._show_called(planned, recorded.get(planned.index))

        def finish(planned: Planned, result: ToolResult, *, replayed: bool) -> None:
            self._show(ToolFinished(result.answering(planned.call), planned.index, replayed))
            machine.feed(Finished(planned.index, result))

        async def work(job: _Job) -> None:
            data = await self._runner.run_step(job.step, job.body)
            outcomes[job.planned.index] = data
            finish(job.planned, decode_result(data), replayed=False)

        for planned in action.calls:
            if planned.index in recorded:
                self._replayed += 1
                finish(planned, recorded[planned.index], replayed=True)
        for job in jobs:
            if job.instant:
                await work(job)
        await self._in_parallel([job for job in jobs if not job.instant], work)
        for index in sorted(outcomes):
            self._note(outcomes[index])

    def _show_called(self, planned: Planned, recorded: ToolResult | None) -> None:
        """The event of a call; a recorded denial is told as the denial that it was."""
        if self._emit is None:
            return
        verdict: Allow | Deny = planned.verdict
        if recorded is not None and recorded.outcome == "denied":
            verdict = Deny(recorded.reason)
        self._emit(ToolCalled(planned.call, verdict, planned.index, recorded is not None))

    async def _in_parallel(self, jobs: list[_Job], work: Callable[[_Job], Awaitable[None]]) -> None:
        """Run `jobs`, so many at once as the agent allows.

        A job whose step could not run stops those that still wait for a slot; those already
        running finish and are recorded, then the first failure in call order is raised, bare.
        """
        if not jobs:
            return
        limiter = trio.CapacityLimiter(self._agent.max_parallel_tools)
        failures: dict[int, BaseException] = {}

        async def attempt(job: _Job) -> None:
            try:
                async with limiter:
                    if not failures:
                        await work(job)
            except Exception as exc:
                failures[job.planned.index] = exc

        try:
            async with trio.open_nursery() as nursery:
                for job in jobs:
                    nursery.start_soon(attempt, job)
        except BaseExceptionGroup as group:
            # What is no Exception: a cancellation, Ctrl-C, SystemExit, a tool's odd BaseException.
            raise _foremost(group) from None
        if failures:
            raise failures[min(failures)]

    def _step(self, planned: Planned, request: bytes) -> Step:
        agent = self._agent
        tool = agent.tools.get(planned.call.name)
        if tool is None:
            return Step(planned.step, "tool", "write", request)
        unknown = EFFECTS_UNKNOWN if agent.on_unknown == "tell_model" else None
        reconcile = None
        if tool.reconcile is not None:
            reconcile = partial(_reconcile, tool, planned.call.arguments)
        return Step(planned.step, "tool", tool.effect, request, reconcile, unknown)

    def _job(self, planned: Planned, step: Step, tainted: bool) -> _Job:
        """The work of a call.  A result that is known without running anything has no effect, so
        its step is a read and takes no slot."""
        agent, call = self._agent, planned.call
        tool = agent.tools.get(call.name)
        arguments: dict[str, Any] = {}
        known: ToolResult | None = None
        if planned.problem:
            known = error_result(planned.problem)
        elif isinstance(planned.verdict, Deny):
            known = denied_result(planned.denied_by, planned.verdict.reason)
        elif tool is None:
            known = error_result(_unknown_tool(call.name, list(agent.tools)))
        else:
            try:
                arguments = tool.parse(call.arguments)
            except ArgumentsError as exc:
                known = error_result(str(exc))

        async def body(context: StepContext) -> bytes:
            with agent.spans.tool_call(call) as span:
                if known is not None:
                    result = known
                else:
                    assert tool is not None
                    result = await tool.run(arguments, context, tainted=tainted, deps=self._deps)
                span.finished(result.outcome)
            return encode(result)

        if known is not None:
            step = msgspec.structs.replace(step, effect="read")
        return _Job(planned, step, body, known is not None)


class _DeadlineError(Exception):
    """The run's deadline ended a model call."""


def _ignore(event: object) -> None:
    """Nobody reads the deltas."""


def _foremost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one exception to raise for a nursery's group: Ctrl-C before all, a cancellation last."""
    leaves: list[BaseException] = []
    for exc in group.exceptions:
        leaves.append(_foremost(exc) if isinstance(exc, BaseExceptionGroup) else exc)
    return min(
        leaves,
        key=lambda exc: (isinstance(exc, trio.Cancelled), not isinstance(exc, KeyboardInterrupt)),
    )


def _unknown_tool(name: str, known: list[str]) -> str:
    shown = name.encode("utf-8", "backslashreplace").decode()[:64]
    near = difflib.get_close_matches(shown, known, n=3, cutoff=0.5)
    hint = f"; near names: {', '.join(near)}" if near else ""
    tools = ", ".join(known) if known else "there are none"
    return f"there is no tool named {shown!r}{hint}; the tools are: {tools}"


async def _reconcile(tool: Tool, arguments: str, key: str) -> Resolution:
    """Ask the tool what became of its write; the result it gives becomes outcome bytes."""
    assert tool.reconcile is not None
    answer = tool.reconcile(tool.parse(arguments), key)
    resolution = await answer if inspect.isawaitable(answer) else answer
    if isinstance(resolution, Applied):
        return Applied(encode(render(resolution.result)))
    return resolution
