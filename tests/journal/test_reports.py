"""Behaviours learnt from other projects' public reports, each named by its report.

Those that another test of this package is about are named in that test's docstring: langgraph#8039,
#8136, #5672, #1878; dbos-transact-py#371, #730, #742; dbos-transact-java#491; sdk-python#620,
#1109; pydantic-ai#6907, #8166; pydantic-ai-harness#531; azure durable-extension#3049;
vercel-py#132; durable-js#122; mastra#17319; inngest-js#1019; openai-agents#3852; crush#2622;
copilot-cli#3183; tensorzero/durable#68; pikku#1544; claude-agent-sdk-python#454; msgspec#826.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import apsw
import pytest
import trio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.scripts import ASK, QUESTION, ByName, call, calling, saying, tokens, tool_texts
from trioagent import (
    Agent,
    Answered,
    AssistantMessage,
    Journal,
    JournalCorruptError,
    JournalError,
    Message,
    ProviderError,
    Step,
    StepContext,
    StepRunner,
    Suspended,
    ToolContext,
    UnknownOutcomeError,
    open_journal,
    tool,
)
from trioagent.messages import decode_assistant, decode_result, encode
from trioagent.providers import Scripted
from trioagent.steps import Body

from .acts import World, by_turn, cancelled_in, rows, weather


async def test_langgraph_7780_with_three_approvals_the_write_before_them_ran_once(
    journal: Journal,
) -> None:
    world = World()
    pays = [calling(call("pay", {"what": f"{n}"}, id=f"{n}")) for n in range(3)]
    agent = Agent(
        by_turn(calling(call("write")), *pays, saying("ok")),
        tools=[world.doing("write", "write"), world.doing("pay", "write")],
        gate=ByName(pay=ASK),
    )
    async with journal.claim("run") as run:
        state = await agent.run(QUESTION, step_runner=run)
    for _ in range(3):
        assert isinstance(state, Suspended)
        (waiting,) = state.pending
        await journal.approve("run", waiting.marker)
        async with journal.claim("run") as run:
            state = await agent.run(step_runner=run)
    assert isinstance(state, Answered)
    assert world.did == ["write", "pay 0", "pay 1", "pay 2"]


async def test_langgraph_6208_with_one_of_two_markers_nothing_runs(journal: Journal) -> None:
    world = World()
    both = call("pay", {"what": "a"}, id="1"), call("pay", {"what": "b"}, id="2")
    agent = Agent(
        by_turn(calling(*both), saying("ok")),
        tools=[world.doing("pay", "write")],
        gate=ByName(pay=ASK),
    )
    async with journal.claim("run") as run:
        state = await agent.run(QUESTION, step_runner=run)
        assert isinstance(state, Suspended)
        first, second = state.pending
        state = await agent.run(step_runner=run, approvals=[first.marker])
        assert isinstance(state, Suspended)
        assert world.did == []
    assert [p.pending.marker for p in await journal.pending("run")] == [second.marker]
    async with journal.claim("run") as run:
        state = await agent.run(step_runner=run, denials={second.marker: "no"})
    assert tool_texts(state.transcript) == ["did pay a", "error: denied by a person: no"]
    assert world.did == ["pay a"]


async def test_langgraph_9002_a_recorded_error_result_is_replayed_and_the_tool_not_called_again(
    journal: Journal,
) -> None:
    world = World()
    work = world.doing("work", "write", ValueError("no such file"))
    down = Agent(by_turn(calling(call("work")), ProviderError("down")), tools=[work])
    with pytest.raises(ProviderError):
        async with journal.claim("run") as run:
            await down.run(QUESTION, step_runner=run)
    async with journal.claim("run") as run:
        state = await Agent(by_turn(calling(call("work")), saying("ok")), tools=[work]).run(
            step_runner=run
        )
    assert tool_texts(state.transcript) == ["error: ValueError: no such file"]
    assert world.did == ["work"]


async def test_openai_agents_4244_an_approved_call_runs_when_resumed_with_new_objects(
    journal: Journal,
) -> None:
    seen: list[Any] = []

    def agent() -> Agent:
        @tool
        async def pay(context: ToolContext) -> str:
            seen.append(context.deps)
            return "paid"

        return Agent(by_turn(calling(call("pay")), saying("ok")), tools=[pay], gate=ByName(pay=ASK))

    async with journal.claim("run") as run:
        state = await agent().run(QUESTION, step_runner=run, deps="old")
    assert isinstance(state, Suspended)
    await journal.approve("run", state.pending[0].marker)
    async with journal.claim("run") as run:
        state = await agent().run(step_runner=run, deps="new")
    assert isinstance(state, Answered)
    assert seen == ["new"]


async def test_openai_agents_4615_an_outcome_that_cannot_be_committed_is_a_doubt_and_no_model_call(
    journal: Journal,
) -> None:
    world = World()
    model = by_turn(calling(call("work")), saying("ok"))
    other = apsw.Connection(str(journal.path))

    @tool
    async def work() -> str:
        world.did.append("work")
        # From here on the file takes no more records: a failed commit without a full disk.
        other.execute(
            "CREATE TRIGGER full BEFORE INSERT ON records"
            " BEGIN SELECT raise(FAIL, 'disk full'); END"
        )
        return "worked"

    agent = Agent(model, tools=[work])
    with pytest.raises(JournalError, match="disk full"):
        async with journal.claim("run") as run:
            await agent.run(QUESTION, step_runner=run)
    other.execute("DROP TRIGGER full")
    other.close()
    assert len(model.requests) == 1
    async with open_journal(journal.path) as again:
        assert [doubt.step for doubt in await again.doubts()] == ["tool/1/0/work"]
        with pytest.raises(UnknownOutcomeError):
            async with again.claim("run") as run:
                await agent.run(step_runner=run)
    assert len(model.requests) == 1
    assert world.did == ["work"]


async def test_agent_kit_290_keys_are_the_same_across_two_resumes(journal: Journal) -> None:
    keys: list[str] = []

    def agent(inside: Any) -> Agent:
        @tool(effect="idempotent")
        async def put(context: ToolContext) -> str:
            keys.append(context.idempotency_key)
            if inside is not None:
                inside()
                await trio.sleep_forever()
            return "put"

        return Agent(by_turn(calling(call("put")), saying("ok")), tools=[put])

    await cancelled_in(journal, "run", agent)
    await cancelled_in(journal, "run", agent)
    async with journal.claim("run") as run:
        await agent(None).run(step_runner=run)
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_hermes_agent_84697_the_journals_bytes_are_what_the_model_saw(
    journal: Journal,
) -> None:
    model = by_turn(calling(call("lookup", {"what": "é\u2028\x00"})), saying("ok"))
    async with journal.claim("run") as run:
        await weather(World(), model).run(QUESTION, step_runner=run)
    sent: list[Message] = list(model.requests[1].messages)
    outcomes = [r for r in await journal.records("run") if r.kind == "step.completed"]
    assert decode_assistant(outcomes[0].data) == sent[1]
    shown = decode_result(outcomes[1].data)
    assert encode(shown.parts) == encode(sent[2].parts)  # type: ignore[union-attr]
    assert list((await journal.view("run")).transcript[:3]) == sent


async def test_openai_agents_2501_and_5123_two_runs_with_the_same_call_id_are_apart(
    journal: Journal,
) -> None:
    worlds = World(), World()
    for number, world in enumerate(worlds):
        model = by_turn(calling(call("lookup", {"what": f"{number}"}, id="call_1")), saying("ok"))
        async with journal.claim(f"run-{number}") as run:
            await weather(world, model).run(QUESTION, step_runner=run)
    assert [world.did for world in worlds] == [["lookup 0"], ["lookup 1"]]


async def test_llama_agents_390_the_span_of_a_cancelled_tool_says_so(journal: Journal) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def agent(inside: Any) -> Agent:
        @tool
        async def work() -> None:
            inside()
            await trio.sleep_forever()

        tracer = provider.get_tracer("test")
        return Agent(by_turn(calling(call("work"))), tools=[work], tracer=tracer)

    await cancelled_in(journal, "run", agent)
    (span,) = [s for s in exporter.get_finished_spans() if s.name == "agent.tool work"]
    assert span.attributes is not None
    assert span.attributes["tl.tool.outcome"] == "cancelled"


async def test_dbos_transact_java_483_the_file_says_what_its_payloads_are_and_of_which_version(
    journal: Journal,
) -> None:
    connection = apsw.Connection(str(journal.path))
    assert connection.pragma("application_id") == int.from_bytes(b"tria", "big")
    assert connection.pragma("user_version") >= 1
    connection.close()


class Crafting:
    """A step runner that records a payload of its own as whatever a step came to."""

    def __init__(self, inner: StepRunner, payload: bytes) -> None:
        self.inner = inner
        self.payload = payload
        self.begin = inner.begin
        self.end = inner.end
        self.recorded = inner.recorded
        self.replay = inner.replay

    async def run_step(self, step: Step, body: Body) -> bytes:
        async def crafted(context: StepContext) -> bytes:
            return self.payload

        return await self.inner.run_step(step, crafted)


CRAFTED = [
    b'["constructor", "os", "system"]',
    b'{"role": "constructor", "id": ["os", "system"], "kwargs": {"command": "true"}}',
    b"cos\nsystem\n(S'true'\ntR.",
    b'{"role": "assistant", "parts": [{"type": "exec", "code": "1"}]}',
    b"\xff\xfe",
    b"[" * 100_000,
]


@pytest.mark.parametrize("payload", CRAFTED, ids=range(len(CRAFTED)))
async def test_langgraph_cve_2025_64439_a_crafted_payload_is_an_error_and_nothing_is_imported(
    payload: bytes, journal: Journal
) -> None:
    with pytest.raises(ValueError, match="assistant message"):
        async with journal.claim("run") as run:
            await weather(World()).run(QUESTION, step_runner=Crafting(run, payload))
    loaded = set(sys.modules)
    before = rows(journal.path)
    with pytest.raises((JournalCorruptError, ValueError)):
        await journal.view("run")
    world = World()
    with pytest.raises((JournalCorruptError, ValueError)):
        async with journal.claim("run") as run:
            await weather(world).run(step_runner=run)
    assert set(sys.modules) == loaded
    assert rows(journal.path) == before
    assert world.did == []


def turns(count: int) -> Iterator[AssistantMessage]:
    """`count` turns of one call each, every one with 200 bytes of its own, then an answer."""
    for number in range(count):
        yield calling(call("lookup", {"what": f"{number:0200}"}, id=f"c{number}"), usage=tokens(2))
    yield saying("ok")


async def test_langgraph_pr7547_bytes_are_linear_in_new_data_over_200_turns(
    journal: Journal,
) -> None:
    sizes: list[int] = []
    for run_id, count in (("half", 100), ("whole", 200)):
        model = Scripted(list(turns(count)))
        async with journal.claim(run_id) as run:
            await weather(World(), model, max_iter=1000).run(QUESTION, step_runner=run)
        records = await journal.records(run_id)
        sizes.append(sum(len(record.data) + len(record.step) for record in records))
    assert sizes[1] < 2.02 * sizes[0]


async def test_pydantic_ai_7157_and_mastra_19217_50_mb_are_kept_once_and_given_back(
    journal: Journal,
) -> None:
    large = "0123456789" * 5_000_000
    async with journal.claim("run") as run:
        assert await run.step("large", lambda: large) == large
    async with open_journal(journal.path) as other, other.claim("run") as run:
        assert await run.step("large", lambda: "again") == large
    ((stored,),) = rows(journal.path, "(SELECT sum(length(data)) FROM blobs)")
    assert stored <= 1.2 * len(large)


def test_claude_agent_sdk_python_990_the_library_imports_no_asyncio() -> None:
    script = (
        "import sys, trio; before = 'asyncio' in sys.modules; import trioagent;"
        "print(before or 'asyncio' not in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


async def test_dbos_transact_py_688_tools_that_finish_in_reverse_have_the_same_keys_on_resume(
    journal: Journal,
) -> None:
    keys: dict[str, set[str]] = {}
    order: list[str] = []

    def agent(stop: Any) -> Agent:
        order.clear()
        done = {name: trio.Event() for name in "abc"}

        def made(name: str, after: str | None) -> Any:
            @tool(name=name, effect="idempotent")
            async def work(context: ToolContext) -> str:
                keys.setdefault(context.step, set()).add(context.idempotency_key)
                if stop is not None and after is None:
                    stop()
                    await trio.sleep_forever()
                if after is not None:
                    await done[after].wait()
                order.append(name)
                done[name].set()
                return name

            return work

        model = by_turn(calling(call("a"), call("b"), call("c")), saying("ok"))
        return Agent(model, tools=[made("a", "b"), made("b", "c"), made("c", None)])

    await cancelled_in(journal, "run", agent)
    async with journal.claim("run") as run:
        state = await agent(None).run(step_runner=run)
    assert order == ["c", "b", "a"]
    assert tool_texts(state.transcript) == ["a", "b", "c"]
    assert [len(found) for found in keys.values()] == [1, 1, 1]
    assert len(set.union(*keys.values())) == 3


async def test_a_reads_thread_that_was_abandoned_records_nothing_later(journal: Journal) -> None:
    go, ended = threading.Event(), threading.Event()

    def agent(inside: Any) -> Agent:
        token = trio.lowlevel.current_trio_token()

        @tool(effect="read")
        def look() -> str:
            token.run_sync_soon(inside)
            go.wait(60)
            ended.set()
            return "late"

        return Agent(by_turn(calling(call("look"))), tools=[look])

    await cancelled_in(journal, "run", agent)
    before = rows(journal.path)
    go.set()
    assert await trio.to_thread.run_sync(ended.wait, 60)
    assert rows(journal.path) == before
