"""What spans a run makes: their names and attributes.

``agent.run`` holds one ``agent.llm_call`` a model call and one ``agent.tool <name>`` a tool call.
No attribute carries a prompt, a result or a credential.  Replayed steps make no spans;
``agent.run`` carries their count.  With ``gen_ai_latest_experimental`` among the values of
``OTEL_SEMCONV_STABILITY_OPT_IN``, names and attributes are those of OpenTelemetry's current
conventions for generative AI (``invoke_agent``, ``chat``, ``execute_tool``).

OpenTelemetry is imported only when a tracer is given; without one nothing is paid.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import trio

from .messages import AssistantMessage, ToolCall, Usage, decode_assistant, decode_result
from .steps import Body, StepContext

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer


class RunSpan(Protocol):
    """The span of a run under way."""

    def ended(self, iterations: int, replayed: int, usage: Usage) -> None:
        """Tell how many model calls the run had, and how many steps were replayed."""
        ...


class _NoSpan:
    """What there is without a tracer."""

    def ended(self, iterations: int, replayed: int, usage: Usage) -> None: ...


_NO_SPAN = nullcontext(_NoSpan())


class NoSpans:
    """The tracing of an agent without a tracer."""

    def run(self, name: str) -> AbstractContextManager[RunSpan]:
        """No span."""
        return _NO_SPAN

    def model_call(self, model: str, body: Body) -> Body:
        """`body` as it is."""
        return body

    def tool_call(self, call: ToolCall, body: Body) -> Body:
        """`body` as it is."""
        return body

    def waits(self, call: ToolCall) -> None:
        """Nothing."""


class Spans:
    """The tracing of an agent that was given a tracer."""

    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry import trace

        self._tracer = tracer
        self._trace = trace
        opted = os.environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")
        self._latest = "gen_ai_latest_experimental" in [value.strip() for value in opted]

    @contextmanager
    def run(self, name: str) -> Iterator[RunSpan]:
        """``agent.run``, the parent of all the others."""
        title = f"invoke_agent {name}" if self._latest else "agent.run"
        attributes: dict[str, Any] = {"gen_ai.agent.name": name}
        if self._latest:
            attributes["gen_ai.operation.name"] = "invoke_agent"
        with self._span(title, self._trace.SpanKind.INTERNAL, attributes) as span:
            yield _RunSpan(span)

    def model_call(self, model: str, body: Body) -> Body:
        """`body`, which makes a reply, in ``agent.llm_call``."""
        title = f"chat {model}" if self._latest else "agent.llm_call"
        attributes: dict[str, Any] = {"gen_ai.request.model": model}
        if self._latest:
            attributes["gen_ai.operation.name"] = "chat"

        async def traced(context: StepContext) -> bytes:
            with self._span(title, self._trace.SpanKind.CLIENT, attributes) as span:
                data = await body(context)
                self._replied(span, decode_assistant(data))
            return data

        return traced

    def tool_call(self, call: ToolCall, body: Body) -> Body:
        """`body`, which makes the call's result, in ``agent.tool <name>``."""

        async def traced(context: StepContext) -> bytes:
            with self._tool_span(call) as span:
                data = await body(context)
                self._finished(span, decode_result(data).outcome)
            return data

        return traced

    def waits(self, call: ToolCall) -> None:
        """``agent.tool <name>`` of a call that a person is to approve."""
        with self._tool_span(call) as span:
            self._finished(span, "needs_approval")

    def _tool_span(self, call: ToolCall) -> AbstractContextManager[Span]:
        title = f"execute_tool {call.name}" if self._latest else f"agent.tool {call.name}"
        attributes: dict[str, Any] = {"gen_ai.tool.name": call.name}
        if self._latest:
            attributes["gen_ai.operation.name"] = "execute_tool"
            attributes["gen_ai.tool.call.id"] = call.id
        return self._span(title, self._trace.SpanKind.INTERNAL, attributes)

    def _replied(self, span: Span, message: AssistantMessage) -> None:
        _set_usage(span, message.usage)
        if self._latest:
            span.set_attribute("gen_ai.response.finish_reasons", (message.stop_reason,))
            if message.model:
                span.set_attribute("gen_ai.response.model", message.model)

    def _finished(self, span: Span, outcome: str) -> None:
        span.set_attribute("tl.tool.outcome", outcome)
        if outcome == "error":
            span.set_attribute("error.type", "tool_error")
            span.set_status(self._trace.StatusCode.ERROR)

    @contextmanager
    def _span(self, title: str, kind: Any, attributes: dict[str, Any]) -> Iterator[Span]:
        # The exception's text may hold a prompt or a result, so only its type is recorded.
        with self._tracer.start_as_current_span(
            title,
            kind=kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as exc:
                cancelled = isinstance(exc, trio.Cancelled)
                if cancelled and "gen_ai.tool.name" in attributes:
                    span.set_attribute("tl.tool.outcome", "cancelled")
                span.set_attribute("error.type", "cancelled" if cancelled else _type_name(exc))
                span.set_status(self._trace.StatusCode.ERROR)
                raise


class _RunSpan:
    def __init__(self, span: Span) -> None:
        self._span = span

    def ended(self, iterations: int, replayed: int, usage: Usage) -> None:
        self._span.set_attribute("tl.agent.iterations", iterations)
        self._span.set_attribute("tl.agent.replayed_steps", replayed)
        _set_usage(self._span, usage)


def _set_usage(span: Span, usage: Usage) -> None:
    span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
    span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
    # Both are parts of the input tokens, told only where a vendor has a cache.
    if usage.cache_read_tokens:
        span.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cache_read_tokens)
    if usage.cache_write_tokens:
        span.set_attribute("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens)


def _type_name(exc: BaseException) -> str:
    module = type(exc).__module__
    name = type(exc).__qualname__
    return name if module == "builtins" else f"{module}.{name}"
