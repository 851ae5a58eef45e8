"""The loop, without a journal: what a run does, in which order, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from trioagent import (
    Agent,
    Allow,
    Answered,
    Applied,
    ApprovalError,
    AssistantMessage,
    Begun,
    Budget,
    BudgetError,
    CallOptions,
    Direct,
    Done,
    Event,
    Failure,
    FencedError,
    Halted,
    JournalError,
    MaxIterationsError,
    ModelReset,
    NotPendingError,
    ProviderError,
    RateLimitError,
    Request,
    Start,
    State,
    Step,
    StepError,
    Suspended,
    SystemMessage,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    Tool,
    ToolCall,
    ToolCalled,
    ToolContext,
    ToolFinished,
    ToolMessage,
    ToolResult,
    TranscriptError,
    Usage,
    UsageReported,
    tool,
)
from trioagent.actions import Decisions
from trioagent.errors import EncodingError, ProtocolError
from trioagent.messages import decode_result, encode
from trioagent.provider import Emit
from trioagent.providers import Scripted
from trioagent.steps import Body

from .runners import Refusing, Remembering
from .scripts import (
    ASK,
    DENY,
    MAIL,
    MAIL_MARKER,
    QUESTION,
    Always,
    ByName,
    call,
    calling,
    roles,
    saying,
    tokens,
    tool_messages,
    tool_texts,
    user,
)


@tool(effect="read")
async def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


PARIS = call("get_weather", {"city": "Paris"}, id="c1")
ASKS = calling(PARIS, usage=Usage(10, 4))
SUNNY = saying("It is sunny.", usage=Usage(20, 5))


def ran_tool(name: str = "t", ran: list[Any] | None = None) -> tuple[Tool, list[Any]]:
    """A tool that remembers the arguments that it ran with."""
    runs: list[Any] = [] if ran is None else ran

    @tool(name=name)
    async def remembers(x: Any = None) -> str:
        runs.append(x)
        return f"{name} ran"

    return remembers, runs


def send_email(sent: list[tuple[str, str]]) -> Tool:
    """A tool that keeps what it was to send."""

    @tool(name="send_email")
    async def send(to: str, body: str) -> str:
        sent.append((to, body))
        return "sent"

    return send


async def events_of(agent: Agent, *args: Any, **kwargs: Any) -> list[Event]:
    async with agent.stream(*args, **kwargs) as stream:
        return [event async for event in stream]


# -- the worked example ---------------------------------------------------------------------------


async def test_the_worked_example_answers_with_two_model_calls_and_one_tool_run() -> None:
    model = Scripted([ASKS, SUNNY])
    runs: list[str] = []

    @tool(name="get_weather", effect="read")
    async def weather(city: str) -> str:
        runs.append(city)
        return "sunny"

    events = await events_of(Agent(model, tools=[weather]), QUESTION)

    result = ToolMessage("c1", "get_weather", (Text("sunny"),))
    transcript = (user(QUESTION), ASKS, result, SUNNY)
    state = Answered(message=SUNNY, transcript=transcript, usage=Usage(30, 9))
    assert events == [
        UsageReported(Usage(10, 4)),
        ToolCalled(PARIS, Allow(), 0),
        ToolFinished(result, 0),
        TextDelta("It "),
        TextDelta("is "),
        TextDelta("sunny."),
        UsageReported(Usage(20, 5)),
        Done(state),
    ]
    assert runs == ["Paris"]
    assert [request.messages for request in model.requests] == [transcript[:1], transcript[:3]]
    assert state.unwrap().text == "It is sunny."


async def test_a_run_returns_the_state_that_its_stream_tells() -> None:
    def agent() -> Agent:
        return Agent(Scripted([ASKS, SUNNY]), tools=[get_weather])

    events = await events_of(agent(), QUESTION)
    assert events[-1] == Done(await agent().run(QUESTION))


async def test_the_system_prompt_is_first_and_once_also_on_a_resumed_transcript() -> None:
    model = Scripted([saying("one"), saying("two")])
    agent = Agent(model, system="Be brief.")
    first = await agent.run("hello")
    await agent.run([*first.transcript, user("and then?")])
    for request in model.requests:
        systems = [m for m in request.messages if isinstance(m, SystemMessage)]
        assert systems == [SystemMessage("Be brief.")]
        assert request.messages[0] == systems[0]
    assert roles(model.requests[1].messages) == ["system", "user", "assistant", "user"]


async def test_a_run_is_a_checkpoint_even_where_nothing_is_left_to_do() -> None:
    model = Scripted([])
    answered = [user("hello"), saying("hi")]
    waiting = [user("go"), calling(call("t"))]
    for transcript in (answered, waiting):
        agent = Agent(model, tools=[ran_tool()[0]], gate=Always(ASK))
        with trio.testing.assert_checkpoints():
            await agent.run(transcript)
    assert model.requests == []


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_loop_045_a_model_that_always_calls_is_asked_max_iter_times_exactly(
    limit: int,
) -> None:
    model = Scripted(lambda messages: calling(call("t", id=f"c{len(messages)}")))
    made, runs = ran_tool()
    state = await Agent(model, tools=[made], max_iter=limit).run("go")
    assert len(model.requests) == limit
    assert isinstance(state, Halted)
    assert (state.reason, state.used, state.limit) == ("max_iter", limit, limit)
    with pytest.raises(MaxIterationsError) as caught:
        state.unwrap()
    assert caught.value.transcript == state.transcript
    assert len(runs) == limit


async def test_three_model_calls_under_max_iter_three_keep_the_last_message() -> None:
    last = calling(call("t", id="c3"), usage=tokens(3))
    script = [calling(call("t", id="c1")), calling(call("t", id="c2")), last, saying("never")]
    model = Scripted(script)
    state = await Agent(model, tools=[ran_tool()[0]], max_iter=3).run("go")
    assert len(model.requests) == 3
    assert isinstance(state, Halted)
    assert [m for m in state.transcript if isinstance(m, AssistantMessage)][-1] == last
    assert roles(state.transcript) == ["user", *["assistant", "tool"] * 3]


async def test_a_halted_run_goes_on_under_a_higher_limit_and_else_ends_the_same_way() -> None:
    model = Scripted([ASKS, SUNNY])
    halted = await Agent(model, tools=[get_weather], max_iter=1).run(QUESTION)
    again = await Agent(model, tools=[get_weather], max_iter=1).run(halted.transcript)
    assert again == halted
    assert len(model.requests) == 1
    state = await Agent(model, tools=[get_weather], max_iter=2).run(halted.transcript)
    assert state.unwrap() == SUNNY


async def test_three_calls_against_a_budget_of_two_run_none_of_them() -> None:
    made, runs = ran_tool()
    gate = ByName()
    reply = calling(*[call("t", id=str(i)) for i in range(3)])
    agent = Agent(Scripted([reply]), tools=[made], gate=gate, budget=Budget(max_tool_calls=2))
    state = await agent.run("go")
    assert isinstance(state, Halted)
    assert (state.reason, state.used, state.limit) == ("tool_calls", 3, 2)
    assert runs == [] == gate.asked
    assert state.transcript == (user("go"), reply)
    with pytest.raises(BudgetError, match="tool_calls budget: 3 of 2"):
        state.unwrap()


async def test_denied_calls_count_against_the_tool_budget() -> None:
    script = [calling(call("t", id="1")), calling(call("t", id="2"))]
    agent = Agent(
        Scripted(script),
        tools=[ran_tool()[0]],
        gate=Always(DENY),
        budget=Budget(max_tool_calls=1),
    )
    state = await agent.run("go")
    assert isinstance(state, Halted)
    assert state.used == 2


async def test_110_tokens_against_100_dispatch_nothing() -> None:
    made, runs = ran_tool()
    reply = calling(call("t"), usage=tokens(110))
    model = Scripted([reply])
    state = await Agent(model, tools=[made], budget=Budget(max_tokens=100)).run("go")
    assert isinstance(state, Halted)
    assert (state.reason, state.used, state.limit) == ("tokens", 110, 100)
    assert runs == []
    assert state.transcript == (user("go"), reply)
    assert state.usage == tokens(110)


async def test_an_answer_that_goes_past_the_token_budget_is_still_the_answer() -> None:
    reply = saying("long", usage=tokens(110))
    state = await Agent(Scripted([reply]), budget=Budget(max_tokens=100)).run("go")
    assert state.unwrap() == reply


class Slow:
    """A model that never answers."""

    model = "slow"

    def __init__(self) -> None:
        self.cancelled = False

    async def complete(self, request: Request, emit: Emit) -> AssistantMessage:
        emit(TextDelta("half a "))
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled = True


async def test_the_deadline_ends_a_model_call(autojump_clock: trio.testing.MockClock) -> None:
    model = Slow()
    state = await Agent(model, budget=Budget(max_seconds=30)).run("go")
    assert isinstance(state, Halted)
    assert (state.reason, state.limit) == ("deadline", 30)
    assert state.used == pytest.approx(30)
    assert trio.current_time() == pytest.approx(30)
    assert model.cancelled
    assert state.transcript == (user("go"),)


async def test_the_deadline_never_ends_a_write(autojump_clock: trio.testing.MockClock) -> None:
    @tool
    async def slow_write() -> str:
        await trio.sleep(100)
        return "written"

    model = Scripted([calling(call("slow_write")), saying("never asked")])
    agent = Agent(model, tools=[slow_write], budget=Budget(max_seconds=30))
    state = await agent.run("go")
    assert isinstance(state, Halted)
    assert (state.reason, state.used) == ("deadline", pytest.approx(100))
    assert tool_texts(state.transcript) == ["written"]
    assert len(model.requests) == 1


async def test_the_seconds_of_earlier_processes_count_against_the_deadline(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Resumed(Direct):
        async def begin(self, start: Start) -> Begun:
            assert start.input is not None
            return Begun(start.input, Decisions(), seconds=29.0)

    agent = Agent(Slow(), budget=Budget(max_seconds=30))
    state = await agent.run("go", step_runner=Resumed())
    assert isinstance(state, Halted)
    assert trio.current_time() == pytest.approx(1)


async def test_a_deadline_that_is_over_makes_no_call() -> None:
    class Late(Direct):
        async def begin(self, start: Start) -> Begun:
            assert start.input is not None
            return Begun(start.input, Decisions(), seconds=30.0)

    model = Scripted([])
    state = await Agent(model, budget=Budget(max_seconds=30)).run("go", step_runner=Late())
    assert isinstance(state, Halted)
    assert (state.reason, state.used) == ("deadline", pytest.approx(30))
    assert model.requests == []


async def test_a_forced_tool_choice_holds_for_the_first_model_call_only() -> None:
    model = Scripted([ASKS, SUNNY])
    options = CallOptions(temperature=0, max_output_tokens=50, tool_choice="get_weather")
    await Agent(model, tools=[get_weather], options=options).run(QUESTION)
    first, second = [request.options for request in model.requests]
    assert first == options
    assert second == CallOptions(temperature=0, max_output_tokens=50, tool_choice="auto")


# -- many calls of one turn -----------------------------------------------------------------------


def test_options_that_are_equal_are_the_same_bytes_however_they_were_spelled() -> None:
    spelled = CallOptions(tool_choice="".join(["au", "to"]), stop=())
    for options in (spelled, msgspec.json.decode(b'{"tool_choice":"auto"}', type=CallOptions)):
        assert encode(options) == encode(CallOptions()) == b"{}"


async def test_six_calls_under_a_bound_of_two_run_by_two_and_return_in_call_order(
    autojump_clock: trio.testing.MockClock,
) -> None:
    started: list[int] = []
    finished: list[int] = []
    full = [trio.Event() for _ in range(3)]
    ended = [trio.Event() for _ in range(6)]
    most = 0

    @tool(effect="read")
    async def work(number: int) -> int:
        nonlocal most
        started.append(number)
        most = max(most, len(started) - len(finished))
        pair = (len(started) - 1) // 2
        if len(started) % 2 == 0:
            full[pair].set()
        await full[pair].wait()
        first, second = sorted(started[2 * pair : 2 * pair + 2])
        if number == first:  # the later call of a pair ends first
            await ended[second].wait()
        finished.append(number)
        ended[number].set()
        return number

    calls = [call("work", {"number": i}, id=f"c{i}") for i in range(6)]
    agent = Agent(Scripted([calling(*calls), saying("done")]), tools=[work], max_parallel_tools=2)
    with trio.fail_after(60):
        events = await events_of(agent, "go")

    assert most == 2
    pairs = [finished[i : i + 2] for i in (0, 2, 4)]
    assert [sorted(pair, reverse=True) for pair in pairs] == pairs
    assert [e.index for e in events if isinstance(e, ToolCalled)] == list(range(6))
    assert [e.index for e in events if isinstance(e, ToolFinished)] == finished
    done = events[-1]
    assert isinstance(done, Done)
    assert tool_texts(done.state.transcript) == ["0", "1", "2", "3", "4", "5"]
    assert [m.call_id for m in tool_messages(done.state.transcript)] == [c.id for c in calls]


async def test_loop_014_two_calls_of_one_tool_in_a_turn_are_two_runs_in_call_order() -> None:
    @tool(effect="read")
    async def search(q: str) -> str:
        return f"found {q}"

    reply = calling(call("search", {"q": "X"}, id="1"), call("search", {"q": "Y"}, id="2"))
    state = await Agent(Scripted([reply, saying("done")]), tools=[search]).run("go")
    assert tool_texts(state.transcript) == ["found X", "found Y"]


async def test_calls_without_an_id_or_with_a_repeated_one_are_each_answered() -> None:
    @tool
    async def t(x: int) -> str:
        return f"t{x}"

    nameless = [AssistantMessage((call("t", {"x": i}),)) for i in range(2)]
    pair = AssistantMessage((call("t", {"x": 2}), call("t", {"x": 3})))
    model = Scripted([*nameless, pair, saying("done")])
    state = await Agent(model, tools=[t]).run("go")
    answers = tool_messages(state.transcript)
    assert [m.text for m in answers] == ["t0", "t1", "t2", "t3"]
    assert [m.call_id for m in answers] == ["t", "call_2_0", "call_3_0", "call_3_1"]


# -- what the model gets wrong --------------------------------------------------------------------


async def one_call(made: ToolCall, *tools: Tool, gate: Any = None) -> tuple[ToolMessage, Scripted]:
    """The answer to one call, after which the run went on."""
    model = Scripted([calling(made), "went on"])
    state = await Agent(model, tools=tools, gate=gate).run("go")
    assert state.unwrap().text == "went on"
    (message,) = tool_messages(state.transcript)
    return message, model


async def test_tools_017_malformed_arguments_are_told_with_the_place_of_the_fault() -> None:
    @tool
    async def t(a: int) -> None: ...

    message, _ = await one_call(call("t", '{"a": 1,,}'), t)
    assert message.outcome == "error"
    assert message.text.startswith("error: ")
    assert "(byte 8)" in message.text


async def test_loop_021_arguments_cut_short_are_called_incomplete_and_not_run() -> None:
    runs = []

    @tool
    async def w(text: str) -> None:
        runs.append(text)

    message, _ = await one_call(call("w", '{"text":"abc'), w)
    assert message.outcome == "error"
    assert "incomplete" in message.text
    assert runs == []


async def test_a_reply_cut_by_the_output_limit_runs_none_of_its_calls_and_answers_each() -> None:
    made, runs = ran_tool()
    gate = ByName()
    cut = calling(call("t", id="1"), call("t", id="2"), stop="length")
    agent = Agent(Scripted([cut, saying("shorter")]), tools=[made], gate=gate)
    state = await agent.run("go")
    assert [m.outcome for m in tool_messages(state.transcript)] == ["error", "error"]
    assert all("output limit" in text for text in tool_texts(state.transcript))
    assert runs == [] == gate.asked
    assert state.unwrap().text == "shorter"


async def test_loop_024_a_reply_cut_without_calls_ends_the_run_with_its_stop_reason() -> None:
    model = Scripted([saying("half of", stop="length")] * 20)
    state = await Agent(model).run("go")
    assert len(model.requests) == 1
    assert state.unwrap().stop_reason == "length"
    assert state.unwrap().text == "half of"


async def test_loop_047_an_empty_reply_is_an_empty_answer_that_a_follow_up_can_build_on() -> None:
    model = Scripted([AssistantMessage(), saying("now")])
    agent = Agent(model)
    first = await agent.run("go")
    assert first.unwrap().text == ""
    assert first.unwrap().stop_reason == "stop"
    second = await agent.run([*first.transcript, user("again")])
    assert second.unwrap().text == "now"


@pytest.mark.parametrize(
    ("transcript", "orphan"),
    [
        ([ToolMessage("a", "t"), user("go")], "a"),
        ([user("go"), calling(call("t", id="b")), user("well?")], "b"),
        ([calling(call("t", id="c")), ToolMessage("c", "t"), ToolMessage("c", "t")], "c"),
        ([calling(call("t", id="d")), ToolMessage("d", "t"), calling(call("t", id="d"))], "d"),
    ],
)
async def test_loop_049_a_broken_transcript_is_refused_by_name_before_any_request(
    transcript: list[Any], orphan: str
) -> None:
    model, runner = Scripted([]), Remembering()
    with pytest.raises(TranscriptError, match=f"'{orphan}'"):
        await Agent(model).run(transcript, step_runner=runner)
    assert model.requests == []
    assert runner.input is None


async def test_tools_051_a_name_no_tool_can_have_is_answered_with_an_error() -> None:
    message, model = await one_call(call("invalid tool"), get_weather)
    assert message.outcome == "error"
    assert message.name == "invalid tool"
    assert "there is no tool named 'invalid tool'" in message.text
    assert roles(model.requests[1].messages) == ["user", "assistant", "tool"]


async def test_tools_054_an_unknown_tool_is_answered_with_the_known_names() -> None:
    @tool
    async def get_time() -> None: ...

    gate = ByName()
    message, _ = await one_call(call("get_date"), get_time, gate=gate)
    assert message.outcome == "error"
    assert "the tools are: get_time" in message.text
    assert gate.asked == []


async def test_approval_055_an_unknown_tool_is_told_as_unknown_not_as_denied() -> None:
    message, _ = await one_call(call("add", {"a": 1}), get_weather, gate=Always(DENY))
    assert message.outcome == "error"
    assert "no tool named 'add'" in message.text
    assert "denied" not in message.text


async def test_tools_056_an_unknown_tool_is_answered_with_near_names() -> None:
    @tool
    async def central_get_sites() -> None: ...

    message, _ = await one_call(call("central_list_sites"), central_get_sites)
    assert "near names: central_get_sites" in message.text


async def test_a_tool_that_raises_is_told_to_the_model_and_the_run_goes_on() -> None:
    @tool
    async def t() -> None:
        raise ExceptionGroup("both", [ValueError("one"), KeyError("two")])

    message, _ = await one_call(call("t"), t)
    assert (message.outcome, message.text) == ("error", "error: ValueError: one; KeyError: 'two'")


# -- the gate -------------------------------------------------------------------------------------


async def test_a_denied_call_never_runs_and_the_model_reads_why() -> None:
    made, runs = ran_tool()
    other, others = ran_tool("other")
    reply = calling(call("t"), call("other"))
    agent = Agent(Scripted([reply, saying("ok")]), tools=[made, other], gate=ByName(t=DENY))
    events = await events_of(agent, "go")
    assert runs == []
    assert others == [None]
    called = [event.verdict for event in events if isinstance(event, ToolCalled)]
    assert called == [DENY, Allow()]
    done = events[-1]
    assert isinstance(done, Done)
    denied, ran = tool_messages(done.state.transcript)
    assert (denied.outcome, denied.text) == ("denied", "error: denied by policy: not today")
    assert (ran.outcome, ran.text) == ("ok", "other ran")


async def test_a_gate_that_raises_denies() -> None:
    made, runs = ran_tool()
    message, _ = await one_call(call("t"), made, gate=Always(RuntimeError("no policy file")))
    assert runs == []
    assert message.outcome == "denied"
    assert "gate error: RuntimeError: no policy file" in message.text


async def test_of_several_gates_the_most_restrictive_verdict_wins() -> None:
    made, runs = ran_tool()
    message, _ = await one_call(call("t"), made, gate=[ByName(), Always(ASK), Always(DENY)])
    assert message.outcome == "denied"
    assert runs == []


async def test_the_gate_is_asked_once_about_each_call_in_call_order() -> None:
    a, _ = ran_tool("a")
    b, _ = ran_tool("b")
    gate = ByName()
    reply = calling(call("b"), call("made_up"), call("a"), call("b", id="b2"))
    await Agent(Scripted([reply, saying("ok")]), tools=[a, b], gate=gate).run("go")
    assert [name for name, _ in gate.asked] == ["b", "a", "b"]


async def test_the_context_is_tainted_only_after_tool_output_and_on_a_resumed_transcript() -> None:
    made, _ = ran_tool()
    gate = ByName()
    script = [calling(call("t", id="1")), calling(call("t", id="2")), saying("ok")]
    first = await Agent(Scripted(script), tools=[made], gate=gate).run("go")
    assert [context.tainted for _, context in gate.asked] == [False, True]
    assert [context.iter for _, context in gate.asked] == [1, 2]

    later = ByName()
    script = [calling(call("t", id="3")), saying("ok")]
    agent = Agent(Scripted(script), tools=[made], gate=later)
    await agent.run([*first.transcript, user("more")])
    assert [context.tainted for _, context in later.asked] == [True]


async def test_a_tool_is_told_whether_its_call_was_tainted() -> None:
    seen = []

    @tool
    async def t(context: ToolContext) -> None:
        seen.append((context.tainted, context.deps))

    script = [calling(call("t", id="1")), calling(call("t", id="2")), saying("ok")]
    await Agent(Scripted(script), tools=[t]).run("go", deps="mine")
    assert seen == [(False, "mine"), (True, "mine")]


# -- approvals ------------------------------------------------------------------------------------


async def test_a_call_that_needs_approval_suspends_the_run_and_runs_nothing_of_its_turn() -> None:
    made, runs = ran_tool()
    sent: list[tuple[str, str]] = []
    reply = calling(call("t"), call("send_email", MAIL))
    agent = Agent(Scripted([reply]), tools=[made, send_email(sent)], gate=ByName(send_email=ASK))
    state = await agent.run("go")
    assert isinstance(state, Suspended)
    (pending,) = state.pending
    assert pending.marker == MAIL_MARKER
    assert pending.call == reply.tool_calls[1]
    assert pending.step == "tool/1/1/send_email"
    assert runs == [] == sent
    assert state.transcript == (user("go"), reply)
    with pytest.raises(ApprovalError) as caught:
        state.unwrap()
    assert caught.value.pending == state.pending


async def test_an_approved_run_goes_on_without_a_model_call_before_the_approved_tool() -> None:
    sent: list[tuple[str, str]] = []
    seen_before: list[int] = []
    model = Scripted([calling(call("send_email", MAIL)), saying("sent it")])

    class Watching(ByName):
        def check(self, call: Any, context: Any) -> Any:
            seen_before.append(len(model.requests))
            return super().check(call, context)

    agent = Agent(model, tools=[send_email(sent)], gate=Watching(send_email=ASK))
    suspended = await agent.run("go")
    assert await agent.run(suspended.transcript) == suspended
    assert len(model.requests) == 1
    state = await agent.run(suspended.transcript, approvals=[MAIL_MARKER])
    assert sent == [("bob@corp.example", "hi")]
    assert seen_before == [1, 1, 1]
    assert len(model.requests) == 2
    assert state.unwrap().text == "sent it"


async def test_a_persons_denial_reaches_the_model_with_its_reason() -> None:
    sent: list[tuple[str, str]] = []
    model = Scripted([calling(call("send_email", MAIL)), saying("I did not")])
    agent = Agent(model, tools=[send_email(sent)], gate=Always(ASK))
    suspended = await agent.run("go")
    state = await agent.run(suspended.transcript, denials={MAIL_MARKER: "wrong Bob"})
    (message,) = tool_messages(state.transcript)
    assert message.outcome == "denied"
    assert message.text == "error: denied by a person: wrong Bob"
    assert sent == []


async def test_approval_084_an_approval_is_bound_to_the_very_arguments_that_were_reviewed() -> None:
    made, runs = ran_tool()
    script = [calling(call("t", {"x": "reviewed"})), calling(call("t", {"x": "changed"}, id="2"))]
    model = Scripted(script)
    agent = Agent(model, tools=[made], gate=Always(ASK))
    suspended = await agent.run("go")
    assert isinstance(suspended, Suspended)
    marker = suspended.pending[0].marker

    changed = [user("go"), calling(call("t", {"x": "changed"}))]
    with pytest.raises(NotPendingError):
        await agent.run(changed, approvals=[marker])
    assert runs == []

    state = await agent.run(suspended.transcript, approvals=[marker])
    assert runs == ["reviewed"]
    assert isinstance(state, Suspended)
    assert state.pending[0].call.arguments == '{"x": "changed"}'


async def test_approval_087_answers_go_to_their_calls_by_marker_not_by_position() -> None:
    runs: list[Any] = []
    a, _ = ran_tool("a", runs)
    b, b_runs = ran_tool("b")
    agent = Agent(
        Scripted([calling(call("a"), call("b")), saying("ok")]), tools=[a, b], gate=Always(ASK)
    )
    suspended = await agent.run("go")
    assert isinstance(suspended, Suspended)
    markers = {pending.call.name: pending.marker for pending in suspended.pending}
    state = await agent.run(
        suspended.transcript, approvals=[markers["b"]], denials={markers["a"]: "not a"}
    )
    assert [m.outcome for m in tool_messages(state.transcript)] == ["denied", "ok"]
    assert runs == []
    assert b_runs == [None]


async def test_approval_088_equal_calls_of_one_turn_have_a_marker_each() -> None:
    sent: list[tuple[str, str]] = []
    reply = calling(call("send_email", MAIL, id="1"), call("send_email", MAIL, id="2"))
    agent = Agent(Scripted([reply, saying("ok")]), tools=[send_email(sent)], gate=Always(ASK))
    suspended = await agent.run("go")
    assert isinstance(suspended, Suspended)
    markers = [pending.marker for pending in suspended.pending]
    assert markers == [MAIL_MARKER, f"{MAIL_MARKER}-2"]

    half = await agent.run(suspended.transcript, approvals=markers[1:])
    assert isinstance(half, Suspended)
    assert [pending.call.id for pending in half.pending] == ["1"]
    assert sent == []

    state = await agent.run(
        suspended.transcript, approvals=markers[:1], denials={markers[1]: "once is enough"}
    )
    assert [m.outcome for m in tool_messages(state.transcript)] == ["ok", "denied"]
    assert len(sent) == 1


async def test_approving_what_does_not_wait_is_an_error_and_runs_nothing() -> None:
    made, runs = ran_tool()
    model = Scripted([])
    agent = Agent(model, tools=[made], gate=Always(ASK))
    for transcript in ([user("go")], [user("go"), calling(call("t"))]):
        with pytest.raises(NotPendingError) as caught:
            await agent.run(transcript, approvals=["feedfeedfeedfeed"])
        assert caught.value.transcript == tuple(transcript)
    assert runs == []
    assert model.requests == []


# -- resumed transcripts --------------------------------------------------------------------------


async def test_journal_090_a_turn_answered_in_part_runs_only_the_rest_and_keeps_call_order() -> (
    None
):
    runs: list[str] = []
    tools = [ran_tool(name, runs)[0] for name in "abc"]
    turn = calling(*[call(name, {"x": name}) for name in "abc"])
    before = ToolMessage("b", "b", (Text("b ran before"),))
    model = Scripted([saying("ok")])
    state = await Agent(model, tools=tools).run([user("go"), turn, before])
    assert sorted(runs) == ["a", "c"]
    assert tool_texts(state.transcript) == ["a ran", "b ran before", "c ran"]
    assert len(model.requests) == 1


async def test_unanswered_calls_run_without_asking_the_model_first() -> None:
    model = Scripted([SUNNY])
    state = await Agent(model, tools=[get_weather]).run([user(QUESTION), ASKS])
    assert state.unwrap() == SUNNY
    assert roles(model.requests[0].messages) == ["user", "assistant", "tool"]
    assert state.usage == Usage(30, 9)


async def test_an_answered_transcript_is_returned_without_a_call() -> None:
    model = Scripted([])
    transcript = (user(QUESTION), ASKS, ToolMessage("c1", "get_weather"), SUNNY)
    state = await Agent(model).run(transcript)
    assert state == Answered(message=SUNNY, transcript=transcript, usage=Usage(30, 9))


# -- steps ----------------------------------------------------------------------------------------


async def test_steps_have_the_names_kinds_and_effects_of_the_contract() -> None:
    writes, _ = ran_tool("writes")
    runner = Remembering()
    reply = calling(PARIS, call("writes"), call("writes", id="w2"), call("nothing"))
    agent = Agent(Scripted([reply, SUNNY]), tools=[get_weather, writes], max_parallel_tools=1)
    await agent.run(QUESTION, step_runner=runner)
    first, *turn, last = [(step.name, step.kind, step.effect) for step in runner.ran]
    assert first == ("llm/1", "llm", "read")
    assert sorted(turn) == [
        ("tool/1/0/get_weather", "tool", "read"),
        ("tool/1/1/writes", "tool", "write"),
        ("tool/1/2/writes", "tool", "write"),
        ("tool/1/3/nothing", "tool", "read"),
    ]
    assert last == ("llm/2", "llm", "read")


async def test_a_replaying_runner_reproduces_the_run_without_a_call() -> None:
    runs: list[str] = []

    @tool(name="get_weather")
    async def weather(city: str) -> str:
        runs.append(city)
        return "sunny"

    thinking = AssistantMessage((Thinking("hm"), *ASKS.parts), usage=ASKS.usage)
    denied = call("send_email", MAIL)
    script = [AssistantMessage((*thinking.parts, denied), usage=ASKS.usage), SUNNY]
    tools = [weather, send_email([])]
    first = Remembering()
    agent = Agent(Scripted(script), tools=tools, gate=ByName(send_email=DENY))
    live = await events_of(agent, QUESTION, step_runner=first)

    model, gate = Scripted([]), ByName(send_email=ASK, get_weather=ASK)
    second = Remembering(first)
    replayed = await events_of(Agent(model, tools=tools, gate=gate), step_runner=second)

    assert model.requests == [] == gate.asked == second.ran
    assert runs == ["Paris"]
    assert replayed[-1] == live[-1]
    assert second.outcomes == first.outcomes
    assert ThinkingDelta("hm") in live
    result = ToolMessage("c1", "get_weather", (Text("sunny"),))
    no = ToolMessage("send_email", "send_email", (Text("error: denied by policy: not today"),))
    no = ToolMessage(no.call_id, no.name, no.parts, "denied")
    assert replayed[:-1] == [
        ThinkingDelta("hm", replayed=True),
        UsageReported(ASKS.usage, replayed=True),
        ToolCalled(PARIS, Allow(), 0, replayed=True),
        ToolCalled(denied, DENY, 1, replayed=True),
        ToolFinished(result, 0, replayed=True),
        ToolFinished(no, 1, replayed=True),
        TextDelta("It is sunny.", replayed=True),
        UsageReported(SUNNY.usage, replayed=True),
    ]


async def test_a_run_cut_anywhere_goes_on_from_its_outcomes_to_the_same_end() -> None:
    script = {1: calling(call("a"), call("b")), 3: calling(call("a", id="a2"))}
    whole = Remembering()

    def agent(runs: list[str]) -> Agent:
        def reply(messages: Any) -> AssistantMessage:
            runs.append("llm")
            answered = len(tool_messages(messages))
            return script.get(answered + 1, saying("done"))

        return Agent(Scripted(reply), tools=[ran_tool(name, runs)[0] for name in "ab"])

    end = await agent([]).run("go", step_runner=whole)
    assert len(whole.outcomes) == 6
    for kept in range(len(whole.outcomes)):
        cut = Remembering(whole)
        for name in list(cut.outcomes)[kept:]:
            del cut.outcomes[name]
        runs: list[str] = []
        assert await agent(runs).run(step_runner=cut) == end
        assert cut.outcomes == whole.outcomes
        assert len(runs) == len(whole.outcomes) - kept


async def test_a_write_carries_how_to_find_out_what_became_of_it() -> None:
    asked = []

    def look(arguments: dict[str, Any], key: str) -> Applied:
        asked.append((arguments, key))
        return Applied("it was sent")

    @tool(reconcile=look)
    async def send(to: str) -> None: ...

    runner = Remembering()
    agent = Agent(
        Scripted([calling(call("send", {"to": "bob"})), SUNNY]),
        tools=[send],
        on_unknown="tell_model",
    )
    await agent.run("go", step_runner=runner)
    step = runner.ran[1]
    assert step.reconcile is not None and step.unknown is not None
    resolution = await step.reconcile("key")
    assert isinstance(resolution, Applied)
    assert decode_result(resolution.result) == ToolResult((Text("it was sent"),))
    assert asked == [({"to": "bob"}, "key")]
    assert decode_result(step.unknown).outcome == "error"
    assert "its effects are unknown" in step.unknown.decode()


async def test_a_retried_model_call_tells_readers_to_drop_the_partial_text() -> None:
    class Retries:
        model = "retries"

        async def complete(self, request: Request, emit: Emit) -> AssistantMessage:
            await trio.lowlevel.checkpoint()
            for delta in (TextDelta("It r"), ModelReset(), TextDelta("It is sunny.")):
                emit(delta)
            return SUNNY

    events = await events_of(Agent(Retries()), QUESTION)
    assert events[:3] == [TextDelta("It r"), ModelReset(), TextDelta("It is sunny.")]


async def test_a_request_follows_from_all_that_was_recorded_before_it_and_from_nothing_else() -> (
    None
):
    async def requests(first: AssistantMessage, result: str, seed: bytes = b"") -> list[bytes]:
        class Seeded(Remembering):
            async def begin(self, start: Start) -> Begun:
                assert start.input is not None
                return Begun(start.input, Decisions(), seed=seed)

        @tool
        async def t() -> str:
            return result

        runner = Seeded()
        await Agent(Scripted([first, SUNNY]), tools=[t]).run("go", step_runner=runner)
        assert [step.name for step in runner.ran] == ["llm/1", "tool/1/0/t", "llm/2"]
        return [step.request for step in runner.ran]

    def differ(one: list[bytes], other: list[bytes]) -> list[bool]:
        return [a != b for a, b in zip(one, other, strict=True)]

    usual = await requests(calling(call("t")), "a")
    assert len(set(usual)) == 3
    assert await requests(calling(call("t")), "a") == usual
    assert differ(usual, await requests(calling(call("t")), "b")) == [False, False, True]
    another = calling(call("t", id="another"))
    assert differ(usual, await requests(another, "a")) == [False, True, True]
    seeded = await requests(calling(call("t")), "a", b"another input")
    assert differ(usual, seeded) == [True, True, True]


async def test_the_loop_decodes_what_the_runner_gave_back_not_what_the_body_returned() -> None:
    class Other(Remembering):
        async def run_step(self, step: Step, body: Body) -> bytes:
            data = await super().run_step(step, body)
            return data.replace(b"sunny", b"rainy")

    model = Scripted([ASKS, SUNNY])
    state = await Agent(model, tools=[get_weather]).run(QUESTION, step_runner=Other())
    assert tool_texts(model.requests[1].messages) == ["rainy in Paris"]
    assert state.unwrap().text == "It is rainy."


# -- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [True, False], ids=["on lookup", "on running"])
async def test_a_runner_that_refuses_a_call_ends_the_run_with_nothing_appended(
    early: bool,
) -> None:
    made, runs = ran_tool()
    reply = calling(call("t", id="1"), call("t", id="2"), usage=tokens(9))
    model = Scripted([reply, saying("never")])
    runner = Refusing("tool/1/1/t", early=early)
    agent = Agent(model, tools=[made], max_parallel_tools=1)
    with pytest.raises(StepError, match="may not run") as caught:
        await agent.run("go", step_runner=runner)
    assert caught.value.transcript == (user("go"), reply)
    assert caught.value.usage == tokens(9)
    assert len(model.requests) == 1
    assert runner.ends == [Failure("failed", "StepError", "tool/1/1/t may not run", "tool/1/1/t")]
    if early:
        assert runs == []


async def test_a_runner_that_refuses_the_model_call_ends_the_run_before_it() -> None:
    model = Scripted([])
    with pytest.raises(StepError, match="llm/1") as caught:
        await Agent(model).run("go", step_runner=Refusing("llm/1"))
    assert model.requests == []
    assert caught.value.transcript == (user("go"),)


async def test_a_refusal_is_told_by_no_event_of_its_turn_where_nothing_started() -> None:
    agent = Agent(Scripted([calling(call("t"), call("t", id="2"))]), tools=[ran_tool()[0]])
    seen = []
    async with agent.stream("go", step_runner=Refusing("tool/1/1/t", early=True)) as stream:
        with pytest.raises(StepError):
            async for event in stream:
                seen.append(event)
        assert roles(stream.transcript) == ["user", "assistant"]
    assert [type(event) for event in seen] == [UsageReported]


class RefusesOneOfTwo(Remembering):
    """Waits until two calls of the turn hold a slot, then refuses the first in call order."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.refused = trio.Event()
        self.error = StepError("refused")

    async def run_step(self, step: Step, body: Body) -> bytes:
        if step.kind == "tool":
            self.asked.append(step.name)
            await trio.testing.wait_all_tasks_blocked()
            if step.name == min(self.asked):
                self.refused.set()
                raise self.error
        return await super().run_step(step, body)


async def test_tools_057_after_a_refusal_running_siblings_finish_and_queued_ones_never_start() -> (
    None
):
    runner = RefusesOneOfTwo()
    ended = []

    @tool
    async def t() -> str:
        await runner.refused.wait()
        await trio.testing.wait_all_tasks_blocked()
        ended.append("t")
        return "finished"

    reply = calling(*[call("t", id=str(i)) for i in range(4)])
    agent = Agent(Scripted([reply]), tools=[t], max_parallel_tools=2)
    with pytest.raises(StepError) as caught:
        await agent.run("go", step_runner=runner)
    assert caught.value is runner.error
    assert len(runner.asked) == 2
    assert ended == ["t"]
    assert set(runner.outcomes) == {"llm/1", max(runner.asked)}
    assert caught.value.transcript == (user("go"), reply)


async def test_of_several_refusals_the_first_in_call_order_is_raised_bare() -> None:
    class RefusesAll(Remembering):
        def __init__(self) -> None:
            super().__init__()
            self.gone = [trio.Event() for _ in range(4)]
            self.gone[3].set()

        async def run_step(self, step: Step, body: Body) -> bytes:
            if step.kind == "llm":
                return await super().run_step(step, body)
            number = int(step.name.split("/")[2])
            await self.gone[number + 1].wait()
            self.gone[number].set()
            raise StepError(f"refused {number}")

    agent = Agent(
        Scripted([calling(*[call("t", id=str(i)) for i in range(3)])]), tools=[ran_tool()[0]]
    )
    with pytest.raises(StepError, match="refused 0"):
        await agent.run("go", step_runner=RefusesAll())


async def test_a_provider_error_ends_the_run_and_runs_no_tool() -> None:
    made, runs = ran_tool()
    error = RateLimitError("too many requests", status=429, retry_after=3)
    model = Scripted([ASKS, error, saying("again")])
    runner = Remembering()
    agent = Agent(model, tools=[get_weather, made])
    with pytest.raises(RateLimitError) as caught:
        await agent.run(QUESTION, step_runner=runner)
    assert caught.value is error
    assert roles(error.transcript) == ["user", "assistant", "tool"]
    assert error.usage == ASKS.usage
    assert runs == []
    assert "llm/2" not in runner.outcomes
    assert runner.ends == [Failure("failed", "RateLimitError", "too many requests")]

    state = await agent.run(step_runner=Remembering(runner))
    assert state.unwrap().text == "again"
    assert len(model.requests) == 3


async def test_a_reply_that_cannot_be_kept_is_a_provider_error() -> None:
    with pytest.raises(ProtocolError, match="cannot be kept"):
        await Agent(Scripted([saying("\ud800")])).run("go")


async def test_an_input_that_cannot_be_kept_is_refused_before_any_request() -> None:
    model = Scripted([])
    with pytest.raises(EncodingError):
        await Agent(model).run("\ud800")
    assert model.requests == []


async def test_a_script_that_has_no_reply_left_is_a_provider_error() -> None:
    with pytest.raises(ProviderError, match="the script has 0 replies"):
        await Agent(Scripted([])).run("go")


class Odd(BaseException):
    """Neither an Exception nor a cancellation."""


@pytest.mark.parametrize("kind", [Odd, KeyboardInterrupt, SystemExit])
async def test_tools_059_an_exception_that_is_no_exception_ends_the_run_bare(
    kind: Callable[[], BaseException],
) -> None:
    @tool(effect="read")
    async def odd() -> None:
        raise kind()

    @tool(effect="read")
    async def slow() -> None:
        await trio.sleep_forever()

    runner = Remembering()
    model = Scripted([calling(call("odd"), call("slow"))])
    with pytest.raises(kind):  # type: ignore[call-overload]
        await Agent(model, tools=[odd, slow]).run("go", step_runner=runner)
    assert set(runner.outcomes) == {"llm/1"}
    (end,) = runner.ends
    assert isinstance(end, Failure)
    assert (end.kind, end.error_type) == (
        "failed" if kind is Odd else "cancelled",
        kind.__name__,  # type: ignore[attr-defined]
    )


async def test_a_cancelled_run_goes_out_untouched_and_tells_the_runner() -> None:
    runner = Remembering()
    made, runs = ran_tool()
    with trio.CancelScope() as scope:

        @tool(effect="read")
        async def cancels() -> None:
            scope.cancel()
            await trio.sleep_forever()

        model = Scripted([calling(call("cancels"))])
        await Agent(model, tools=[cancels, made]).run("go", step_runner=runner)
    assert scope.cancelled_caught
    assert set(runner.outcomes) == {"llm/1"}
    assert runner.ends == [Failure("cancelled", "Cancelled", runner_message(runner))]
    assert runs == []


def runner_message(runner: Remembering) -> str:
    (end,) = runner.ends
    assert isinstance(end, Failure)
    return end.message


async def test_an_end_is_recorded_before_it_is_told() -> None:
    order = []

    class SlowToEnd(Remembering):
        async def end(self, end: State | Failure) -> None:
            await trio.testing.wait_all_tasks_blocked()
            await super().end(end)
            order.append("recorded")

    runner = SlowToEnd()
    async with Agent(Scripted([SUNNY])).stream("go", step_runner=runner) as stream:
        async for event in stream:
            if isinstance(event, Done):
                order.append("told")
        assert runner.ends == [await stream.result()]
    assert order == ["recorded", "told"]


class CannotEnd(Remembering):
    """Cannot record how a run ended."""

    def __init__(self, error: StepError) -> None:
        super().__init__()
        self.error = error

    async def end(self, end: State | Failure) -> None:
        await super().end(end)
        raise self.error


async def test_an_end_that_cannot_be_recorded_is_a_failure_with_all_that_was_said() -> None:
    runner = CannotEnd(JournalError("disk full"))
    events = []
    async with Agent(Scripted([SUNNY])).stream("go", step_runner=runner) as stream:
        with pytest.raises(JournalError) as caught:
            async for event in stream:
                events.append(event)
    assert caught.value is runner.error
    assert caught.value.transcript == (user("go"), SUNNY)
    assert caught.value.usage == SUNNY.usage
    assert not [event for event in events if isinstance(event, Done)]


async def test_a_failure_that_cannot_be_recorded_either_is_raised_with_a_note_of_it() -> None:
    error = ProviderError("down")
    with pytest.raises(ProviderError) as caught:
        await Agent(Scripted([error])).run("go", step_runner=CannotEnd(JournalError("disk full")))
    assert caught.value is error
    assert caught.value.__notes__ == ["the run's end could not be recorded: disk full"]


async def test_a_fenced_owner_records_no_end() -> None:
    class Fenced(Remembering):
        async def run_step(self, step: Step, body: Body) -> bytes:
            raise FencedError("run")

    runner = Fenced()
    with pytest.raises(FencedError):
        await Agent(Scripted([])).run("go", step_runner=runner)
    assert runner.ends == []


# -- making an agent ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"max_iter": 0},
        {"max_parallel_tools": 0},
        {"on_unknown": "guess"},
        {"tools": [get_weather, get_weather]},
    ],
)
def test_an_option_out_of_its_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"count from 1|refuse or tell_model|named get_weather"):
        Agent(Scripted([]), **options)


@pytest.mark.parametrize("limits", [{"max_tokens": -1}, {"max_tool_calls": -1}, {"max_seconds": 0}])
def test_a_budget_below_its_range_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        Budget(**limits)


async def test_one_agent_may_have_many_runs_at_once() -> None:
    def reply(messages: Any) -> AssistantMessage:
        return saying(f"you said {messages[-1].text}")

    agent = Agent(Scripted(reply))
    answers = {}

    async def ask(word: str) -> None:
        answers[word] = (await agent.run(word)).unwrap().text

    async with trio.open_nursery() as nursery:
        for word in ("one", "two", "three"):
            nursery.start_soon(ask, word)
    assert answers == {word: f"you said {word}" for word in ("one", "two", "three")}
