"""An agent: a model, its tools and its limits, ready to run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
import trio

from .budget import UNLIMITED, Budget
from .events import State
from .gate import Gate
from .loop import Loop
from .machine import Machine
from .messages import AssistantMessage, Message, as_messages, encode
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


class Config(msgspec.Struct, frozen=True):
    """What a journal compares between one run and its continuation."""

    system: str
    model: str
    tools: tuple[ToolSpec, ...]
    options: CallOptions


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
        self.budget = budget
        self.cost_of: Callable[[AssistantMessage], float] | None = None
        if budget.max_cost is not None:
            table = kept_prices() if prices is None else prices
            self.cost_of = reply_cost(table, models_of(provider))
        self.gates = _gates(gate)
        self.spans = NoSpans() if tracer is None else Spans(tracer)
        self.options = CallOptions() if options is None else options
        self.on_unknown = on_unknown
        self.specs = tuple([made.spec for made in self.tools.values()])
        config = Config(system, provider.model, self.specs, self.options)
        self._config = encode(config, ordered=True)

    async def run(
        self,
        input: Input | None = None,
        *,
        step_runner: StepRunner | None = None,
        deps: Any = None,
        approvals: Sequence[str] = (),
        denials: Mapping[str, str] | None = None,
        accept_changes: bool = False,
    ) -> State:
        """Run until the model answers, a limit ends the run, or a call needs an approval.

        Args:
            input: a text or messages; ``None`` for the input that `step_runner` recorded.
            step_runner: what remembers the steps, such as a claimed run of a journal.
            deps: the application's own object, for `ToolContext.deps`.
            approvals: markers of waiting calls that may run.
            denials: markers of waiting calls that must not run, each with the reason.
            accept_changes: go on although the configuration or the input is not the recorded one.

        Returns:
            `Answered`, `Halted` or `Suspended`.

        Raises:
            TranscriptError: an input that no model would take; nothing was asked.
            NotPendingError: a marker of nothing that waits; nothing ran.
            ProviderError: a model call failed; running again asks again.
            StepError: a step could not be run or replayed.

        Cancellation: stops what runs; what was recorded stands.  Always a checkpoint.
        """
        loop = Loop(self, Direct() if step_runner is None else step_runner, None, deps)
        return await loop.run(self._start(input, approvals, denials, accept_changes))

    @asynccontextmanager
    async def stream(
        self,
        input: Input | None = None,
        *,
        step_runner: StepRunner | None = None,
        deps: Any = None,
        approvals: Sequence[str] = (),
        denials: Mapping[str, str] | None = None,
        accept_changes: bool = False,
    ) -> AsyncIterator[AgentStream]:
        """Run as `run` does, and watch: ``async with agent.stream(...) as stream``.

        The run never waits for its events to be read.  Leaving the block early cancels the run;
        an exception in the block leaves it bare, not in a group.  A failure that neither the
        events nor `result` told is raised when the block is left.
        """
        start = self._start(input, approvals, denials, accept_changes)
        runner = Direct() if step_runner is None else step_runner
        stream: AgentStream
        loop = Loop(self, runner, lambda event: stream.emit(event), deps)
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
    ) -> Start:
        messages = None if input is None else as_messages(input)
        if messages is not None:
            Machine(messages, system=self.system)  # refuses a bad input before it is recorded
            encode(messages)
        denied = {} if denials is None else dict(denials)
        return Start(messages, self._config, tuple(approvals), denied, accept_changes)


def _gates(gate: Gate | Sequence[Gate] | None) -> tuple[Gate, ...]:
    if gate is None:
        return ()
    return tuple(gate) if isinstance(gate, Sequence) else (gate,)
