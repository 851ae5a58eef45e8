"""What spans a run makes, with the real OpenTelemetry SDK."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from trioagent import Agent, AssistantMessage, ProviderError, Usage, tool
from trioagent.providers import Scripted

from .runners import Refusing, Remembering
from .scripts import ASK, DENY, ByName, call, calling, saying


class Traced:
    """A tracer, and the spans that were made with it."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("test")

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def tree(self) -> list[tuple[str, str]]:
        """Each span's name with its parent's, sorted."""
        names = {span.context.span_id: span.name for span in self.spans}
        return sorted(
            (span.name, names[span.parent.span_id] if span.parent else "") for span in self.spans
        )


@pytest.fixture
def traced() -> Traced:
    return Traced()


@tool
async def good() -> str:
    return "a secret result"


@tool
async def bad() -> None:
    raise ValueError("a secret failure")


@tool
async def risky() -> None: ...


def outcome(span: ReadableSpan) -> Any:
    return dict(span.attributes or {})["tl.tool.outcome"]


async def test_a_run_has_a_span_for_itself_each_model_call_and_each_tool(traced: Traced) -> None:
    script = [calling(call("good"), usage=Usage(10, 4)), saying("done", usage=Usage(20, 5))]
    agent = Agent(Scripted(script, model="m1"), tools=[good], name="clerk", tracer=traced.tracer)
    await agent.run("go")
    assert traced.tree() == [
        ("agent.llm_call", "agent.run"),
        ("agent.llm_call", "agent.run"),
        ("agent.run", ""),
        ("agent.tool good", "agent.run"),
    ]
    run = traced.named("agent.run")
    assert run.kind is SpanKind.INTERNAL
    assert dict(run.attributes or {}) == {
        "gen_ai.agent.name": "clerk",
        "tl.agent.iterations": 2,
        "tl.agent.replayed_steps": 0,
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 9,
    }
    first, second = [span for span in traced.spans if span.name == "agent.llm_call"]
    assert first.kind is second.kind is SpanKind.CLIENT
    assert dict(first.attributes or {}) == {
        "gen_ai.request.model": "m1",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 4,
    }
    made = traced.named("agent.tool good")
    assert made.kind is SpanKind.INTERNAL
    assert dict(made.attributes or {}) == {"gen_ai.tool.name": "good", "tl.tool.outcome": "ok"}
    assert {span.status.status_code for span in traced.spans} == {StatusCode.UNSET}


async def test_tool_spans_tell_ok_error_and_denied_apart(traced: Traced) -> None:
    reply = calling(call("good"), call("bad"), call("risky"), call("made_up"))
    agent = Agent(
        Scripted([reply, "done"]),
        tools=[good, bad, risky],
        gate=ByName(risky=DENY),
        tracer=traced.tracer,
    )
    await agent.run("go")
    outcomes = {s.name: outcome(s) for s in traced.spans if s.name.startswith("agent.tool")}
    assert outcomes == {
        "agent.tool good": "ok",
        "agent.tool bad": "error",
        "agent.tool risky": "denied",
        "agent.tool made_up": "error",
    }
    failed = traced.named("agent.tool bad")
    assert failed.status.status_code is StatusCode.ERROR
    assert dict(failed.attributes or {})["error.type"] == "tool_error"


async def test_a_call_that_waits_has_a_span_that_says_so(traced: Traced) -> None:
    agent = Agent(
        Scripted([calling(call("good"), call("risky"))]),
        tools=[good, risky],
        gate=ByName(risky=ASK),
        tracer=traced.tracer,
    )
    await agent.run("go")
    assert outcome(traced.named("agent.tool risky")) == "needs_approval"
    assert ("agent.tool good", "agent.run") not in traced.tree()


async def test_a_cancelled_call_has_a_span_that_says_so(traced: Traced) -> None:
    with trio.CancelScope() as scope:

        @tool
        async def cancels() -> None:
            scope.cancel()
            await trio.sleep_forever()

        agent = Agent(Scripted([calling(call("cancels"))]), tools=[cancels], tracer=traced.tracer)
        await agent.run("go")
    span = traced.named("agent.tool cancels")
    assert outcome(span) == "cancelled"
    for failed in (span, traced.named("agent.run")):
        assert failed.status.status_code is StatusCode.ERROR
        assert dict(failed.attributes or {})["error.type"] == "cancelled"


async def test_a_failed_model_call_fails_its_span_and_the_runs(traced: Traced) -> None:
    agent = Agent(Scripted([ProviderError("a secret prompt")]), tracer=traced.tracer)
    with pytest.raises(ProviderError):
        await agent.run("go")
    for name in ("agent.llm_call", "agent.run"):
        span = traced.named(name)
        assert span.status.status_code is StatusCode.ERROR
        assert dict(span.attributes or {})["error.type"] == "trioagent.errors.ProviderError"


async def test_a_step_that_never_ran_has_no_span(traced: Traced) -> None:
    agent = Agent(Scripted([calling(call("good"))]), tools=[good], tracer=traced.tracer)
    with pytest.raises(Exception, match="may not run"):
        await agent.run("go", step_runner=Refusing("tool/1/0/good"))
    assert [span.name for span in traced.spans] == ["agent.llm_call", "agent.run"]


async def test_no_attribute_event_or_status_carries_a_prompt_a_result_or_an_error_text(
    traced: Traced,
) -> None:
    reply = calling(call("good", id="1"), call("bad", id="2"))
    script = [reply, ProviderError("a secret reply")]
    agent = Agent(
        Scripted(script), tools=[good, bad], system="a secret system", tracer=traced.tracer
    )
    with pytest.raises(ProviderError):
        await agent.run("a secret prompt")
    assert len(traced.spans) == 5
    for span in traced.spans:
        assert "secret" not in span.to_json()


async def test_replayed_steps_make_no_spans_and_the_run_counts_them(traced: Traced) -> None:
    first = Remembering()
    script = [calling(call("good")), saying("done")]
    await Agent(Scripted(script), tools=[good]).run("go", step_runner=first)
    agent = Agent(Scripted([]), tools=[good], tracer=traced.tracer)
    await agent.run(step_runner=Remembering(first))
    (run,) = traced.spans
    assert dict(run.attributes or {})["tl.agent.replayed_steps"] == 3


async def test_otel_033_cached_tokens_are_told_as_parts_of_the_input_tokens(
    traced: Traced,
) -> None:
    usage = Usage(123, 7, cache_read_tokens=100, cache_write_tokens=20)
    await Agent(Scripted([saying("hi", usage=usage)]), tracer=traced.tracer).run("go")
    attributes = dict(traced.named("agent.llm_call").attributes or {})
    assert attributes["gen_ai.usage.input_tokens"] == 123
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 100
    assert attributes["gen_ai.usage.cache_creation.input_tokens"] == 20


async def test_otel_064_parallel_tools_in_threads_are_children_of_the_run_and_see_its_context(
    traced: Traced,
) -> None:
    variable = contextvars.ContextVar("variable", default="not seen")
    parents = []

    @tool(effect="read")
    def threaded() -> str:
        with traced.tracer.start_as_current_span("inside"):
            parents.append(variable.get())
        return variable.get()

    variable.set("seen")
    reply = calling(call("threaded", id="1"), call("threaded", id="2"))
    agent = Agent(Scripted([reply, "done"]), tools=[threaded], tracer=traced.tracer)
    await agent.run("go")
    assert parents == ["seen", "seen"]
    assert traced.tree().count(("agent.tool threaded", "agent.run")) == 2
    assert traced.tree().count(("inside", "agent.tool threaded")) == 2


@pytest.mark.parametrize("reads", [True, False])
async def test_otel_065_a_stream_makes_the_same_tree_with_and_without_a_reader(
    traced: Traced, reads: bool
) -> None:
    agent = Agent(
        Scripted([calling(call("good")), saying("done")]), tools=[good], tracer=traced.tracer
    )
    with traced.tracer.start_as_current_span("caller"):
        async with agent.stream("go") as stream:
            if reads:
                async for _ in stream:
                    with traced.tracer.start_as_current_span("reader"):
                        await trio.lowlevel.checkpoint()
            await stream.result()
    tree = [pair for pair in traced.tree() if pair[0] != "reader"]
    assert tree == [
        ("agent.llm_call", "agent.run"),
        ("agent.llm_call", "agent.run"),
        ("agent.run", "caller"),
        ("agent.tool good", "agent.run"),
        ("caller", ""),
    ]
    assert {p for name, p in traced.tree() if name == "reader"} == ({"caller"} if reads else set())


async def test_the_current_conventions_names_are_used_where_they_are_opted_into(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http, gen_ai_latest_experimental")
    script: list[AssistantMessage] = [calling(call("good", id="c1")), saying("done")]
    agent = Agent(Scripted(script, model="m1"), tools=[good], name="clerk", tracer=traced.tracer)
    await agent.run("go")
    assert traced.tree() == [
        ("chat m1", "invoke_agent clerk"),
        ("chat m1", "invoke_agent clerk"),
        ("execute_tool good", "invoke_agent clerk"),
        ("invoke_agent clerk", ""),
    ]
    attributes = dict(traced.named("execute_tool good").attributes or {})
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert attributes["gen_ai.tool.call.id"] == "c1"
