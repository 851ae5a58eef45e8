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
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from .actions import (
    AskGate,
    AskModel,
    Broke,
    End,
    Expired,
    Finished,
    Judged,
    Planned,
    Replied,
    RunTurn,
)
from .arguments import ArgumentsError
from .errors import EncodingError, FencedError, ProtocolError, StepError, TrioagentError
from .events import (
    Answered,
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
from .machine import Machine
from .messages import (
    AssistantMessage,
    Message,
    Text,
    Thinking,
    ToolResult,
    Usage,
    decode_assistant,
    decode_result,
    denied_result,
    encode,
    error_result,
)
from .output import Output
from .provider import AUTO, Request
from .rendering import render
from .steps import Applied, Failure, Resolution, Start, Step, StepContext, StepRunner
from .tools import Tool

if TYPE_CHECKING:
    from .agent import Agent

EFFECTS_UNKNOWN = encode(
    error_result(
        "this call was begun and how it ended was never recorded: its effects are unknown. "
        "Check whether it took effect before you repeat it"
    )
)
"""The outcome of a write in doubt under ``on_unknown="tell_model"``."""

ANSWER_TAKEN = ToolResult((Text("the answer was taken"),))
"""The outcome of the call that was the run's answer."""

REST_EVERY = 16
"""Turns without a wait after which a run lets others run: some milliseconds of replaying."""


class _Job:
    """One call of a turn that is not recorded yet: its step, and the body that makes its outcome.

    What is `known` without running anything takes no slot, and its step has no effect.
    """

    __slots__ = ("arguments", "known", "loop", "planned", "step", "tainted", "tool")

    def __init__(self, loop: Loop, planned: Planned, step: Step, tainted: bool) -> None:
        self.loop = loop
        self.planned = planned
        self.step = step
        self.tainted = tainted
        self.tool = loop.agent.tools.get(planned.call.name)
        self.arguments: dict[str, Any] = {}
        self.known = self._known()
        if self.known is not None:
            self.step = msgspec.structs.replace(step, effect="read")

    def _known(self) -> ToolResult | None:
        planned, tool = self.planned, self.tool
        if planned.problem:
            return error_result(planned.problem)
        if planned.verdict is not ALLOW and isinstance(planned.verdict, Deny):
            return denied_result(planned.denied_by, planned.verdict.reason)
        if planned.answer:
            return ANSWER_TAKEN
        if tool is None:
            names = [spec.name for spec in self.loop.specs]
            return error_result(_unknown_tool(planned.call.name, names))
        try:
            self.arguments = tool.parse(planned.call.arguments)
        except ArgumentsError as exc:
            return error_result(str(exc))
        return None

    async def body(self, context: StepContext) -> bytes:
        """Run the tool, unless its result is known."""
        result = self.known
        if result is None:
            assert self.tool is not None
            result = await self.tool.run(
                self.arguments, context, tainted=self.tainted, deps=self.loop.deps
            )
        return encode(result)


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
        output: Output | None = None,
    ) -> None:
        self.agent = agent
        self.deps = deps
        self.specs = agent.specs
        self._output = output
        if output is not None and output.tool is not None:
            self.specs = (*agent.specs, output.tool)
        self._runner = runner
        self._emit = emit
        self._machine: Machine | None = None
        self._limiter = trio.CapacityLimiter(agent.max_parallel_tools)
        self._run_id = ""
        self._earlier = self._began = 0.0
        self._digest = hashlib.sha256()
        self._iterations = self._replayed = self._unrested = 0

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
        agent = self.agent
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
                    replied=begun.replied,
                    answer_tool=None if self._output is None else self._output.tool_name,
                    cost_of=agent.cost_of,
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
        timed = self.agent.budget.max_seconds is not None
        while True:
            action = machine.next_action(self._seconds() if timed else 0.0)
            if type(action) is AskModel:
                await self._ask_model(machine, action)
            elif type(action) is AskGate:
                machine.feed(Judged(self._ask_gate(action)))
            elif type(action) is RunTurn:
                await self._turn(machine, action)
            else:
                assert isinstance(action, End)  # a failure is raised and asks for no more
                state, output = action.state, self._output
                if isinstance(state, Suspended):
                    self._trace_pending(state)
                elif isinstance(state, Answered) and output is not None:
                    state = msgspec.structs.replace(state, output=output.value(state.message))
                return state

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
        agent, live = self.agent, False
        options = agent.options
        if action.iter > 1 and options.tool_choice not in (AUTO, "none"):
            options = msgspec.structs.replace(options, tool_choice=AUTO)
        output = self._output
        schema = None if output is None else output.schema
        request = Request(action.messages, self.specs, options, schema)

        async def body(context: StepContext) -> bytes:
            nonlocal live
            live = True
            message = machine.adopted(await self._complete(request))
            if output is not None:
                message = output.taken(message)
            try:
                return encode(message)
            except EncodingError as exc:
                raise ProtocolError(f"the reply cannot be kept: {exc}") from None

        step = Step(action.step, "llm", "read", self._digest.digest())
        self._iterations += 1
        try:
            traced = agent.spans.model_call(agent.provider.model, body)
            data = await self._runner.run_step(step, traced)
        except DeadlineError:
            machine.feed(Expired(self._seconds()))
            return
        reply = decode_assistant(data)
        self._note([data])
        if not live:
            self._replayed += 1
            for part in reply.parts:
                if type(part) is Thinking and part.text:
                    self._show(ThinkingDelta(part.text, replayed=True))
            if reply.text:
                self._show(TextDelta(reply.text, replayed=True))
        if self._emit is not None:
            self._emit(UsageReported(reply.usage, replayed=not live))
        machine.feed(Replied(reply))

    async def _complete(self, request: Request) -> AssistantMessage:
        emit = _ignore if self._emit is None else self._emit
        provider, limit = self.agent.provider, self.agent.budget.max_seconds
        if limit is None:
            return await provider.complete(request, emit)
        with trio.CancelScope(deadline=trio.current_time() + limit - self._seconds()):
            return await provider.complete(request, emit)
        raise DeadlineError

    def _note(self, outcomes: list[bytes]) -> None:
        """Chain recorded bytes into the digest that later requests are compared by."""
        self._digest.update(b"".join([b"%d:%b" % (len(data), data) for data in outcomes]))

    # -- the gate ---------------------------------------------------------------------------------

    def _ask_gate(self, action: AskGate) -> dict[int, Any]:
        """The verdict on every call of a known tool whose decision is not recorded already; what
        is left out is allowed."""
        agent = self.agent
        if not agent.gates:
            return {}
        context = CallContext(action.tainted, action.iter, self._run_id)
        return {
            index: judge(agent.gates, call, context)
            for index, call in action.calls.items()
            if call.name in agent.tools and not self._runner.recorded(action.steps[index])
        }

    def _trace_pending(self, state: Suspended) -> None:
        for pending in state.pending:
            self.agent.spans.waits(pending.call)

    # -- a turn -----------------------------------------------------------------------------------

    async def _turn(self, machine: Machine, action: RunTurn) -> None:
        """Ask the runner for every call first: where it refuses one, nothing of the turn starts."""
        runner, request = self._runner, self._digest.digest()
        outcomes: dict[int, bytes] = {}
        jobs: list[_Job] = []
        for planned in action.calls:
            step = self._step(planned, request)
            data = await runner.replay(step)
            if data is None:
                jobs.append(_Job(self, planned, step, action.tainted))
            else:
                outcomes[planned.index] = data
        if self._emit is not None:
            for planned in action.calls:
                self._show_called(planned, outcomes.get(planned.index))

        def finish(planned: Planned, data: bytes, replayed: bool) -> None:
            index, result = planned.index, decode_result(data)
            outcomes[index] = data
            if self._emit is not None:
                self._emit(ToolFinished(result.answering(planned.call), index, replayed))
            machine.feed(Finished(index, result))

        if outcomes:
            self._replayed += len(outcomes)
            for planned in action.calls:
                if planned.index in outcomes:
                    finish(planned, outcomes[planned.index], True)
        waiting = []
        for job in jobs:
            if job.known is None:
                waiting.append(job)
            else:
                finish(job.planned, await self._run(job), False)
        if waiting:
            await self._in_parallel(waiting, finish)
        else:
            await self._rest()
        self._note([outcomes[index] for index in sorted(outcomes)])

    def _run(self, job: _Job) -> Awaitable[bytes]:
        body = self.agent.spans.tool_call(job.planned.call, job.body)
        return self._runner.run_step(job.step, body)

    async def _rest(self) -> None:
        """Let others run now and then, where the steps of this run do not wait for anything."""
        self._unrested += 1
        if self._unrested == REST_EVERY:
            self._unrested = 0
            await trio.lowlevel.checkpoint()

    def _show_called(self, planned: Planned, recorded: bytes | None) -> None:
        """The event of a call; a recorded denial is told as the denial that it was."""
        verdict: Allow | Deny = planned.verdict
        if recorded is not None:
            result = decode_result(recorded)
            verdict = Deny(result.reason) if result.outcome == "denied" else verdict
        self._show(ToolCalled(planned.call, verdict, planned.index, recorded is not None))

    async def _in_parallel(
        self, jobs: list[_Job], finish: Callable[[Planned, bytes, bool], None]
    ) -> None:
        """Run `jobs`, so many at once as the agent allows, each begun in call order.

        A job whose step could not run stops those that still wait for a slot; those already
        running finish and are recorded, then the first failure in call order is raised, bare.
        """
        limiter, crowded = self._limiter, len(jobs) > self.agent.max_parallel_tools
        failures: dict[int, BaseException] = {}

        async def attempt(job: _Job) -> None:
            try:
                finish(job.planned, await self._run(job), False)
            except Exception as exc:
                failures[job.planned.index] = exc
            finally:
                if crowded:
                    limiter.release_on_behalf_of(job)

        try:
            async with trio.open_nursery() as nursery:
                for job in jobs:
                    if crowded:
                        # The slot is taken here and not in the task, since Trio starts tasks in
                        # any order: a write's intent is recorded only once it has a slot.
                        if limiter.available_tokens:
                            limiter.acquire_on_behalf_of_nowait(job)
                        else:
                            await limiter.acquire_on_behalf_of(job)
                        if failures:
                            limiter.release_on_behalf_of(job)
                            break
                    nursery.start_soon(attempt, job, name=job.step.name)
        except BaseExceptionGroup as group:
            # What is no Exception: a cancellation, Ctrl-C, SystemExit, a tool's odd BaseException.
            raise _foremost(group) from None
        if failures:
            raise failures[min(failures)]

    def _step(self, planned: Planned, request: bytes) -> Step:
        agent = self.agent
        tool = agent.tools.get(planned.call.name)
        if tool is None:
            return Step(planned.step, "tool", "write", request)
        unknown = EFFECTS_UNKNOWN if agent.on_unknown == "tell_model" else None
        reconcile = None
        if tool.reconcile is not None:
            reconcile = partial(_reconcile, tool, planned.call.arguments)
        return Step(planned.step, "tool", tool.effect, request, reconcile, unknown)


class DeadlineError(Exception):
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
        return Applied(encode(render(resolution.result, tool.max_result_chars)))
    return resolution
