"""An agent: a model, its tools and its limits, ready to run."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

import msgspec
import trio

from .budget import UNLIMITED, Budget
from .events import State, StateOf
from .gate import Gate
from .loop import Loop
from .machine import Machine
from .messages import AssistantMessage, Message, as_messages, encode
from .output import ANSWER_TOOL, Output, OutputConfig
from .prices import Prices, kept_prices, models_of, reply_cost
from .provider import CallOptions, Provider, ToolSpec
from .steps import Direct, Start, StepRunner
from .stream import AgentStream
from .tools import Tool, tool
from .tracing import NoSpans, Spans

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

Input: TypeAlias = str | Message | Sequence[Message]
"""What a run is given: a text, which is one user message, or messages."""

_T = TypeVar("_T")


class Config(msgspec.Struct, frozen=True):
    """What a journal compares between one run and its continuation."""

    system: str
    model: str
    tools: tuple[ToolSpec, ...]
    options: CallOptions
    output: OutputConfig | msgspec.UnsetType = msgspec.UNSET


class Agent:
    """A model that may call tools until it answers.  One agent may have many runs at once.

    Args:
        provider: the model.
        tools: made by `tool`; a plain function is taken as a tool that declares nothing.
        system: the system prompt, first in every transcript.
        name: what spans call the agent.
        max_iter: model calls allowed since the last user message, from 1.
        max_parallel_tools: tools of one turn that run at once, from 1.
        budget: the other limits of a run.
        prices: what models cost, for the budget's `max_cost`: a table of `Price` by model, or a
            function; by default the list of the installed ``genai-prices``.
        gate: who may call what; of several, the most restrictive verdict wins.
        tracer: an OpenTelemetry tracer; without one nothing is traced.
        options: how the model is to answer.
        on_unknown: what happens where a write's outcome is unknown and no `reconcile` finds out:
            ``refuse`` raises `UnknownOutcomeError`; ``tell_model`` lets the model read that it
            must check before it repeats the call.

    Raises:
        ValueError: a limit out of its range, or two tools of one name.
        ToolSignatureError: a function that has no schema.
        PriceError: a model without a price, where the budget has a `max_cost`.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        system: str = "",
        name: str = "agent",
        max_iter: int = 8,
        max_parallel_tools: int = 4,
        budget: Budget = UNLIMITED,
        prices: Prices | None = None,
        gate: Gate | Sequence[Gate] | None = None,
        tracer: Tracer | None = None,
        options: CallOptions | None = None,
        on_unknown: Literal["refuse", "tell_model"] = "refuse",
    ) -> None:
        if max_iter < 1 or max_parallel_tools < 1:
            raise ValueError("max_iter and max_parallel_tools count from 1")
        if on_unknown not in ("refuse", "tell_model"):
            raise ValueError(f"on_unknown is refuse or tell_model, not {on_unknown!r}")
        self.provider = provider
        self.tools: dict[str, Tool] = {}
        for item in tools:
            made = item if isinstance(item, Tool) else tool(item)
            if made.name in self.tools:
                raise ValueError(f"two tools are named {made.name}; give one another name")
            self.tools[made.name] = made
        self.system = system
        self.name = name
        self.max_iter = max_iter
        self.max_parallel_tools = max_parallel_tools
        self.prices = prices
        self._limit(budget)
        self.gates = _gates(gate)
        self.spans = NoSpans() if tracer is None else Spans(tracer)
        self.options = CallOptions() if options is None else options
        self.on_unknown = on_unknown
        self.specs = tuple([made.spec for made in self.tools.values()])
        self._config = self._config_for(None)

    def _limit(self, budget: Budget) -> None:
        self.budget = budget
        self.cost_of: Callable[[AssistantMessage], float] | None = None
        if budget.max_cost is not None:
            table = kept_prices() if self.prices is None else self.prices
            self.cost_of = reply_cost(table, models_of(self.provider))

    def limited(self, *, max_iter: int | None = None, budget: Budget | None = None) -> Agent:
        """This agent under other limits, in every other way the same; itself it stays as it is.

        Raises:
            PriceError: a model without a price, where the budget has a `max_cost`.
        """
        if max_iter is not None and max_iter < 1:
            raise ValueError("max_iter counts from 1")
        other = copy.copy(self)
        other.max_iter = self.max_iter if max_iter is None else max_iter
        other._limit(self.budget if budget is None else budget)
        return other

    @overload
    async def run(
        self,
        input: Input | None = None,
        *,
        output: None = None,
        step_runner: StepRunner | None = None,
        deps: Any = None,
        approvals: Sequence[str] = (),
        denials: Mapping[str, str] | None = None,
        accept_changes: bool = False,
    ) -> StateOf[None]: ...

    @overload
    async def run(
        self,
        input: Input | None = None,
        *,
        output: type[_T],
        step_runner: StepRunner | None = None,
        deps: Any = None,
        approvals: Sequence[str] = (),
        denials: Mapping[str, str] | None = None,
        accept_changes: bool = False,
    ) -> StateOf[_T]: ...

    @overload
    async def run(
        self,
        input: Input | None = None,
        *,
        output: Any,
        step_runner: StepRunner | None = None,
        deps: Any = None,
        approvals: Sequence[str] = (),
        denials: Mapping[str, str] | None = None,
        accept_changes: bool = False,
    ) -> State: ...

    async def run(
        self,
        input: Input | None = None,
        *,
        output: Any = None,
        step_runner: StepRunner | None = None,
        deps: Any = None,
        approvals: Sequence[str] = (),
        denials: Mapping[str, str] | None = None,
        accept_changes: bool = False,
    ) -> State:
        """Run until the model answers, a limit ends the run, or a call needs an approval.

        Args:
            input: a text or messages; ``None`` for the input that `step_runner` recorded.
            output: the type of the answer, any that msgspec reads from JSON and has a schema for.
                The answer as a value of it is `Answered.output`.  A wrong one is returned to the
                model with what is wrong, which takes a model call of `max_iter`.  A model that
                has no schema mode answers by calling the tool ``final_answer``, which is put to
                no gate and counts against no tool budget.
            step_runner: what remembers the steps, such as a claimed run of a journal.
            deps: the application's own object, for `ToolContext.deps`.
            approvals: markers of waiting calls that may run.
            denials: markers of waiting calls that must not run, each with the reason.
            accept_changes: go on although the configuration or the input is not the recorded one.

        Returns:
            `Answered`, `Halted` or `Suspended`.

        Raises:
            TypeError: an `output` without a schema; nothing was asked.
            ValueError: an `output` where a tool of the agent is named ``final_answer``.
            TranscriptError: an input that no model would take; nothing was asked.
            NotPendingError: a marker of nothing that waits; nothing ran.
            ProviderError: a model call failed; running again asks again.
            StepError: a step could not be run or replayed.

        Cancellation: stops what runs; what was recorded stands.  Always a checkpoint.
        """
        asked = None if output is None else self._output(output)
        loop = Loop(self, Direct() if step_runner is None else step_runner, None, deps, asked)
        return await loop.run(self._start(input, approvals, denials, accept_changes, asked))

    @overload
    def stream(
        self,
        input: Input | None = None,
        *,
        output: None = None,
        step_runner: StepRunner | None = None,
        deps: Any = None,
        approvals: Sequence[str] = (),
        denials: Mapping[str, str] | None = None,
        accept_changes: bool = False,
    ) -> AbstractAsyncContextManager[AgentStream[None]]: ...

    @overload
    def stream(
        self,
        input: Input | None = None,
        *,
        output: type[_T],
        step_runner: StepRunner | None = None,
        deps: Any = None,
        approvals: Sequence[str] = (),
        denials: Mapping[str, str] | None = None,
        accept_changes: bool = False,
    ) -> AbstractAsyncContextManager[AgentStream[_T]]: ...

    @overload
    def stream(
        self,
        input: Input | None = None,
        *,
        output: Any,
        step_runner: StepRunner | None = None,
        deps: Any = None,
        approvals: Sequence[str] = (),
        denials: Mapping[str, str] | None = None,
        accept_changes: bool = False,
    ) -> AbstractAsyncContextManager[AgentStream]: ...

    @asynccontextmanager
    async def stream(
        self,
        input: Input | None = None,
        *,
        output: Any = None,
        step_runner: StepRunner | None = None,
        deps: Any = None,
        approvals: Sequence[str] = (),
        denials: Mapping[str, str] | None = None,
        accept_changes: bool = False,
    ) -> AsyncIterator[AgentStream]:
        """Run as `run` does, and watch: ``async with agent.stream(...) as stream``.

        The run never waits for its events to be read.  Leaving the block early cancels the run;
        an exception in the block leaves it bare, not in a group.  A failure that neither the
        events nor `result` told is raised when the block is left.  The text of an answer is shown
        as it comes, so before it is judged by `output`.
        """
        asked = None if output is None else self._output(output)
        start = self._start(input, approvals, denials, accept_changes, asked)
        runner = Direct() if step_runner is None else step_runner
        stream: AgentStream
        loop = Loop(self, runner, lambda event: stream.emit(event), deps, asked)
        stream = AgentStream(loop)
        raised: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.drive, start)
                try:
                    yield stream
                except BaseException as exc:
                    raised = exc
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup:
            # Only cancellations can be in it: `drive` keeps all else, and the block's own is ours.
            if raised is None:
                await trio.lowlevel.checkpoint_if_cancelled()
                raise
        raised = raised or stream.untold_failure()
        if raised is not None:
            raise raised

    def _start(
        self,
        input: Input | None,
        approvals: Sequence[str],
        denials: Mapping[str, str] | None,
        accept_changes: bool,
        output: Output | None,
    ) -> Start:
        messages = None if input is None else as_messages(input)
        config = self._config if output is None else self._config_for(output.config)
        if messages is not None:
            if output is not None:
                messages = output.rejudged(messages)
            Machine(messages, system=self.system)  # refuses a bad input before it is recorded
            encode(messages)
        denied = {} if denials is None else dict(denials)
        return Start(messages, config, tuple(approvals), denied, accept_changes)

    def _output(self, asked: Any) -> Output:
        if ANSWER_TOOL in self.tools:
            raise ValueError(f"a tool is named {ANSWER_TOOL}, which an output has its own use for")
        return Output(asked, getattr(self.provider, "structured", "tool"))

    def _config_for(self, output: OutputConfig | None) -> bytes:
        asked = msgspec.UNSET if output is None else output
        config = Config(self.system, self.provider.model, self.specs, self.options, asked)
        return encode(config, ordered=True)


def _gates(gate: Gate | Sequence[Gate] | None) -> tuple[Gate, ...]:
    if gate is None:
        return ()
    return tuple(gate) if isinstance(gate, Sequence) else (gate,)
