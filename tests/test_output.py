"""Structured output: an answer is a value of the type that was asked for, or it is told why not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from trioagent import (
    Agent,
    Answered,
    ApprovalError,
    AssistantMessage,
    Budget,
    CallOptions,
    ContentFilterError,
    Done,
    Halted,
    InvalidRequestError,
    MaxIterationsError,
    ReplayMismatchError,
    Request,
    Text,
    TextDelta,
    ToolCalled,
    ToolFinished,
    TranscriptError,
    Usage,
    UserMessage,
    open_journal,
    tool,
)
from trioagent.closed_schema import closed
from trioagent.errors import EncodingError
from trioagent.messages import check_transcript
from trioagent.output import ANSWER_TOOL, Output
from trioagent.provider import Structured
from trioagent.providers import Anthropic, FallbackProvider, OpenAIChat, OpenAIResponses, Scripted
from trioagent.providers.anthropic_encoder import AnthropicEncoder
from trioagent.providers.chat_encoder import ChatEncoder
from trioagent.providers.responses_encoder import ResponsesEncoder

from .chat_server import calls, chat_server, in_turn, says
from .runners import Remembering
from .scripts import (
    ASK,
    DENY,
    Always,
    ByName,
    call,
    calling,
    roles,
    saying,
    tokens,
    tool_texts,
    user,
)


class Weather(msgspec.Struct):
    """How it is outside."""

    city: str
    celsius: int


@dataclass
class Point:
    x: int
    y: int = 0


class Circle(msgspec.Struct, tag=True):
    radius: int


class Square(msgspec.Struct, tag=True):
    side: int


class Node(msgspec.Struct):
    name: str
    inner: list[Node] = []


PARIS = {"city": "Paris", "celsius": 20}
WARM = {"city": "Paris", "celsius": "warm"}
MODES: tuple[Structured, ...] = ("schema", "tool")
each_mode = pytest.mark.parametrize("mode", MODES)


def giving(mode: Structured, value: Any, *, id: str = "a", **fields: Any) -> AssistantMessage:
    """A reply whose answer is `value`, as a model of this kind gives it."""
    if mode == "schema":
        return saying(json.dumps(value), **fields)
    return calling(call(ANSWER_TOOL, value, id=id), **fields)


def scripted(mode: Structured, *values: Any) -> Scripted:
    """A model that gives these answers one after another."""
    script = [giving(mode, value, id=f"a{i}") for i, value in enumerate(values)]
    return Scripted(script, structured=mode)


@tool(effect="read")
async def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


# -- an answer ------------------------------------------------------------------------------------


@each_mode
async def test_an_answer_is_a_value_of_the_type_that_was_asked_for(mode: Structured) -> None:
    model = scripted(mode, PARIS)
    state = await Agent(model).run("go", output=Weather)
    assert isinstance(state, Answered)
    assert state.output == Weather("Paris", 20)
    assert len(model.requests) == 1
    check_transcript(state.transcript)


async def test_without_an_output_nothing_is_asked_of_the_answer() -> None:
    model = Scripted(["anything"], structured="schema")
    state = await Agent(model, tools=[get_weather]).run("go")
    assert isinstance(state, Answered)
    assert state.output is None
    (request,) = model.requests
    assert (request.output, request.tools) == (None, (get_weather.spec,))


async def test_a_model_with_a_schema_mode_is_given_the_schema_and_no_tool() -> None:
    model = scripted("schema", PARIS)
    await Agent(model, tools=[get_weather]).run("go", output=Weather)
    (request,) = model.requests
    assert request.tools == (get_weather.spec,)
    assert request.output == {
        "description": "How it is outside.",
        "type": "object",
        "properties": {"city": {"type": "string"}, "celsius": {"type": "integer"}},
        "required": ["city", "celsius"],
        "additionalProperties": False,
    }


async def test_a_model_without_one_is_given_a_tool_whose_parameters_are_the_schema() -> None:
    model = scripted("tool", PARIS)
    await Agent(model, tools=[get_weather]).run("go", output=Weather)
    (request,) = model.requests
    assert request.output is None
    first, last = request.tools
    assert (first, last.name) == (get_weather.spec, ANSWER_TOOL)
    assert last.parameters["required"] == ["city", "celsius"]


async def test_a_provider_that_does_not_say_is_given_the_tool() -> None:
    class Silent:
        model = "silent"

        async def complete(self, request: Request, emit: Any) -> AssistantMessage:
            assert [spec.name for spec in request.tools] == [ANSWER_TOOL]
            return giving("tool", PARIS)

    state = await Agent(Silent()).run("go", output=Weather)
    assert state.output == Weather("Paris", 20)


async def test_several_providers_have_a_schema_mode_where_all_of_them_do() -> None:
    schema, plain = scripted("schema", PARIS), scripted("tool", PARIS)
    assert FallbackProvider([schema, schema]).structured == "schema"
    assert FallbackProvider([schema, plain]).structured == "tool"
    state = await Agent(FallbackProvider([schema])).run("go", output=Weather)
    assert state.output == Weather("Paris", 20)


CIRCLE = {"type": "Circle", "radius": 2}
TREE = {"name": "a", "inner": [{"name": "b"}]}


@each_mode
@pytest.mark.parametrize(
    ("asked", "given", "value"),
    [
        (Point, {"x": 1}, Point(1)),
        (list[int], {"value": [1, 2]}, [1, 2]),
        (Literal["yes", "no"], {"value": "no"}, "no"),
        (int, {"value": 7}, 7),
        (dict[str, int], {"value": {"a": 1}}, {"a": 1}),
        (tuple[int, str], {"value": [1, "a"]}, (1, "a")),
        (Circle | Square, {"value": CIRCLE}, Circle(2)),
        (Node, TREE, Node("a", [Node("b")])),
    ],
    ids=str,
)
async def test_any_type_that_msgspec_reads_may_be_asked_for(
    mode: Structured, asked: Any, given: Any, value: Any
) -> None:
    has_no_closed_form = asked in (Node, dict[str, int], tuple[int, str])
    model = scripted("tool" if has_no_closed_form else mode, given)
    model.structured = mode
    state = await Agent(model).run("go", output=asked)
    assert state.output == value
    (request,) = model.requests
    assert (request.output is None) == (mode == "tool" or has_no_closed_form)


@pytest.mark.parametrize("asked", [complex, object(), list[complex], "Weather"])
async def test_what_has_no_schema_is_refused_before_anything_is_asked(asked: Any) -> None:
    model = scripted("tool", PARIS)
    with pytest.raises(TypeError, match="no type with a JSON schema"):
        await Agent(model).run("go", output=asked)
    with pytest.raises(TypeError, match="no type with a JSON schema"):
        async with Agent(model).stream("go", output=asked):
            pass
    assert model.requests == []


async def test_a_tool_of_the_agent_with_the_answers_name_is_refused() -> None:
    own = tool(name=ANSWER_TOOL)(lambda: None)
    agent = Agent(Scripted(["hello"]), tools=[own])
    with pytest.raises(ValueError, match="a tool is named final_answer"):
        await agent.run("go", output=Weather)
    assert (await agent.run("go")).unwrap().text == "hello"


@each_mode
async def test_an_answer_after_tools_ends_the_run(mode: Structured) -> None:
    asks = calling(call("get_weather", {"city": "Paris"}))
    model = Scripted([asks, giving(mode, PARIS)], structured=mode)
    state = await Agent(model, tools=[get_weather]).run("go", output=Weather)
    assert state.output == Weather("Paris", 20)
    assert len(model.requests) == 2


@each_mode
@pytest.mark.parametrize(
    "text", ['```json\n{"city": "Paris", "celsius": 20}\n```', '  {"city":"Paris","celsius":20}\n']
)
async def test_a_text_that_fits_is_an_answer_of_either_kind_of_model(
    mode: Structured, text: str
) -> None:
    state = await Agent(Scripted([text], structured=mode)).run("go", output=Weather)
    assert state.output == Weather("Paris", 20)


@each_mode
async def test_what_was_written_twice_over_is_read(mode: Structured) -> None:
    model = scripted(mode, {"value": "[1, 2]"})
    state = await Agent(model).run("go", output=list[int])
    assert state.output == [1, 2]


@each_mode
async def test_a_follow_up_question_goes_on_from_an_answer(mode: Structured) -> None:
    model = scripted(mode, PARIS, {"city": "Rome", "celsius": 30}, {"value": [1]})
    agent = Agent(model)
    first = await agent.run("Paris?", output=Weather)
    second = await agent.run([*first.transcript, user("And Rome?")], output=Weather)
    third = await agent.run([*second.transcript, user("In numbers?")], output=list[int])
    assert (second.output, third.output) == (Weather("Rome", 30), [1])
    check_transcript(third.transcript)
    assert roles(first.transcript) == ["user", "assistant", *(["tool"] if mode == "tool" else [])]


@each_mode
async def test_an_answered_transcript_is_answered_without_a_call(mode: Structured) -> None:
    model = scripted(mode, PARIS)
    agent = Agent(model)
    state = await agent.run("go", output=Weather)
    assert await agent.run(state.transcript, output=Weather) == state
    assert len(model.requests) == 1


@each_mode
async def test_an_answer_of_another_form_is_none(mode: Structured) -> None:
    model = scripted(mode, PARIS, {"value": [1]})
    agent = Agent(model)
    state = await agent.run("go", output=Weather)
    again = await agent.run(state.transcript, output=list[int])
    assert again.output == [1]
    assert len(model.requests) == 2


async def test_a_stream_tells_the_calls_of_an_answer_as_any_other() -> None:
    model = scripted("tool", PARIS)
    async with Agent(model).stream("go", output=Weather) as stream:
        events = [event async for event in stream]
        state = await stream.result()
    assert state.output == Weather("Paris", 20)
    assert [type(event) for event in events if not isinstance(event, TextDelta)][1:] == [
        ToolCalled,
        ToolFinished,
        Done,
    ]
    assert events[-1] == Done(state)
    assert tool_texts(state.transcript) == ["the answer was taken"]


# -- a wrong answer -------------------------------------------------------------------------------


def told(transcript: Sequence[Any], mode: Structured) -> list[str]:
    """What the model read of its wrong answers."""
    if mode == "tool":
        return [text for text in tool_texts(transcript) if text.startswith("error")]
    return [message.text for message in transcript[1:] if isinstance(message, UserMessage)]


@each_mode
async def test_a_wrong_answer_goes_back_with_the_field_what_was_found_and_what_is_wanted(
    mode: Structured,
) -> None:
    model = scripted(mode, WARM, PARIS)
    state = await Agent(model).run("go", output=Weather)
    assert state.output == Weather("Paris", 20)
    assert len(model.requests) == 2
    check_transcript(state.transcript)
    (text,) = told(state.transcript, mode)
    assert "Expected `int`, got `str`" in text
    assert "$.celsius" in text
    assert 'which is "warm"' in text
    assert '"celsius":{"type":"integer"}' in text
    assert model.requests[1].messages == state.transcript[: len(model.requests[1].messages)]


@each_mode
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("It is warm.", "the answer is no JSON"),
        ("", "the answer is no JSON"),
        ("[1]", "it is [1], an object is wanted"),
        ('{"city": "Paris"}', "missing required field `celsius`"),
        ('{"city": "Paris", "celsius": 1e', "the answer is no JSON"),
    ],
)
async def test_a_text_that_does_not_fit_goes_back_too(
    mode: Structured, text: str, said: str
) -> None:
    model = Scripted([text, giving(mode, PARIS)], structured=mode)
    state = await Agent(model).run("go", output=Weather)
    assert state.output == Weather("Paris", 20)
    assert roles(state.transcript)[:4] == ["user", "assistant", "user", "assistant"]
    correction = state.transcript[2]
    assert isinstance(correction, UserMessage)
    assert said in correction.text
    assert (ANSWER_TOOL in correction.text) == (mode == "tool")


@each_mode
async def test_a_rule_of_the_type_itself_is_told(mode: Structured) -> None:
    class Positive(msgspec.Struct):
        number: int

        def __post_init__(self) -> None:
            if self.number <= 0:
                raise ValueError("number must be above zero")

    model = scripted(mode, {"number": 0}, {"number": 1})
    state = await Agent(model).run("go", output=Positive)
    assert state.output == Positive(1)
    assert "number must be above zero" in told(state.transcript, mode)[0]


@each_mode
@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_wrong_answers_are_returned_within_the_iteration_cap_only(
    mode: Structured, limit: int
) -> None:
    model = scripted(mode, WARM, WARM, WARM, PARIS)
    state = await Agent(model, max_iter=limit).run("go", output=Weather)
    assert len(model.requests) == limit
    assert isinstance(state, Halted)
    assert (state.reason, state.used, state.limit) == ("max_iter", limit, limit)
    assert len(told(state.transcript, mode)) == limit
    with pytest.raises(MaxIterationsError):
        _ = state.output


@each_mode
async def test_a_run_that_was_halted_by_wrong_answers_goes_on_under_a_higher_limit(
    mode: Structured,
) -> None:
    model = scripted(mode, WARM, WARM, PARIS)
    halted = await Agent(model, max_iter=2).run("go", output=Weather)
    assert await Agent(model, max_iter=2).run(halted.transcript, output=Weather) == halted
    state = await Agent(model, max_iter=3).run(halted.transcript, output=Weather)
    assert state.output == Weather("Paris", 20)
    assert len(model.requests) == 3


@each_mode
async def test_the_tokens_of_wrong_answers_count(mode: Structured) -> None:
    script = [giving(mode, WARM, id=str(i), usage=tokens(60)) for i in range(3)]
    model = Scripted(script, structured=mode)
    state = await Agent(model, budget=Budget(max_tokens=130)).run("go", output=Weather)
    assert isinstance(state, Halted)
    assert (state.reason, state.used) == ("tokens", 180)
    assert state.usage == Usage(90, 90)


@each_mode
async def test_a_question_after_a_wrong_answer_counts_anew(mode: Structured) -> None:
    model = scripted(mode, WARM, PARIS)
    halted = await Agent(model, max_iter=1).run("go", output=Weather)
    transcript = [*halted.transcript, user("Try again.")]
    state = await Agent(model, max_iter=1).run(transcript, output=Weather)
    assert state.output == Weather("Paris", 20)


@each_mode
async def test_an_answer_that_the_output_limit_cut_is_none(mode: Structured) -> None:
    half = '{"city": "Paris", "cels'
    cut = saying(half, stop="length")
    if mode == "tool":
        cut = calling(call(ANSWER_TOOL, half, id="cut"), stop="length")
    model = Scripted([cut, giving(mode, PARIS)], structured=mode)
    state = await Agent(model).run("go", output=Weather)
    assert state.output == Weather("Paris", 20)
    assert "the output limit cut" in told(state.transcript, mode)[0]


@each_mode
async def test_a_refusal_is_an_error_and_is_not_argued_with(mode: Structured) -> None:
    model = Scripted([saying("I will not.", stop="refusal"), "never"], structured=mode)
    runner = Remembering()
    with pytest.raises(ContentFilterError, match=r"refused to answer: I will not\."):
        await Agent(model).run("go", output=Weather, step_runner=runner)
    assert len(model.requests) == 1
    assert runner.outcomes == {}


# -- the tool that nobody runs --------------------------------------------------------------------


async def test_an_answer_is_put_to_no_gate_and_counts_against_no_tool_budget() -> None:
    gate = ByName(**{ANSWER_TOOL: DENY})
    model = scripted("tool", WARM, PARIS)
    agent = Agent(model, gate=gate, budget=Budget(max_tool_calls=0))
    state = await agent.run("go", output=Weather)
    assert state.output == Weather("Paris", 20)
    assert gate.asked == []


async def test_an_answer_past_the_token_budget_is_still_the_answer() -> None:
    model = Scripted([giving("tool", PARIS, usage=tokens(110))])
    state = await Agent(model, budget=Budget(max_tokens=100)).run("go", output=Weather)
    assert state.output == Weather("Paris", 20)


async def test_an_answer_beside_other_calls_goes_back_and_those_run() -> None:
    both = calling(
        call("get_weather", {"city": "Paris"}, id="w"), call(ANSWER_TOOL, PARIS, id="early")
    )
    model = Scripted([both, giving("tool", PARIS)])
    state = await Agent(model, tools=[get_weather]).run("go", output=Weather)
    assert state.output == Weather("Paris", 20)
    weather, early, taken = tool_texts(state.transcript)
    assert weather == "sunny in Paris"
    assert early.startswith("error: the answer was given beside other calls")
    assert taken == "the answer was taken"


async def test_an_answer_beside_a_call_that_waits_is_not_the_end() -> None:
    both = calling(call(ANSWER_TOOL, PARIS, id="early"), call("get_weather", {"city": "Paris"}))
    agent = Agent(Scripted([both]), tools=[get_weather], gate=Always(ASK))
    state = await agent.run("go", output=Weather)
    with pytest.raises(ApprovalError) as caught:
        _ = state.output
    assert [pending.call.name for pending in caught.value.pending] == ["get_weather"]


async def test_the_answer_tool_is_among_the_near_names_of_an_unknown_one() -> None:
    model = Scripted([calling(call("final_anser", PARIS)), giving("tool", PARIS)])
    state = await Agent(model).run("go", output=Weather)
    assert ANSWER_TOOL in tool_texts(state.transcript)[0]


async def test_a_call_of_it_without_an_output_is_a_call_of_an_unknown_tool() -> None:
    state = await Agent(Scripted([giving("tool", PARIS), "so"])).run("go")
    assert "there is no tool named 'final_answer'" in tool_texts(state.transcript)[0]


@each_mode
async def test_steps_keep_their_names(mode: Structured) -> None:
    runner = Remembering()
    await Agent(scripted(mode, WARM, PARIS)).run("go", output=Weather, step_runner=runner)
    names = ["llm/1", "llm/2"]
    if mode == "tool":
        names = ["llm/1", "tool/1/0/final_answer", "llm/2", "tool/2/0/final_answer"]
    assert [step.name for step in runner.ran] == names
    assert {step.effect for step in runner.ran} == {"read"}


# -- with a record --------------------------------------------------------------------------------


@each_mode
async def test_a_journal_gives_the_same_answer_without_a_call(
    mode: Structured, tmp_path: Path
) -> None:
    async with open_journal(tmp_path / "runs.db") as journal:
        async with journal.claim("w") as run:
            agent = Agent(scripted(mode, WARM, PARIS))
            first = await agent.run("go", output=Weather, step_runner=run)
        silent = Agent(Scripted([], structured=mode))
        async with journal.claim("w") as run:
            again = await silent.run("go", output=Weather, step_runner=run)
        view = await journal.view("w")
    assert again == first
    assert again.output == Weather("Paris", 20)
    assert view.transcript == first.transcript
    assert view.status == "answered"


@each_mode
async def test_a_run_cut_after_any_step_goes_on_to_the_same_answer(mode: Structured) -> None:
    whole = Remembering()
    model = scripted(mode, WARM, PARIS)
    expected = await Agent(model).run("go", output=Weather, step_runner=whole)
    for kept in range(len(whole.outcomes)):
        names = list(whole.outcomes)[:kept]
        resumed = Remembering(whole)
        resumed.outcomes = {name: whole.outcomes[name] for name in names}
        left = [WARM, PARIS][sum(name.startswith("llm/") for name in names) :]
        script = [giving(mode, value, id=f"a{2 - len(left) + i}") for i, value in enumerate(left)]
        model = Scripted(script, structured=mode)
        state = await Agent(model).run(output=Weather, step_runner=resumed)
        assert state == expected
        assert len(model.requests) == len(left)


class Hotter(msgspec.Struct):
    """How it is outside."""

    city: str
    celsius: int
    fahrenheit: int = 0


@each_mode
async def test_another_schema_is_another_configuration(mode: Structured, tmp_path: Path) -> None:
    model = scripted(mode, PARIS)
    async with open_journal(tmp_path / "runs.db") as journal:
        async with journal.claim("w") as run:
            await Agent(model).run("go", output=Weather, step_runner=run)
        for other in (Hotter, None):
            async with journal.claim("w") as run:
                with pytest.raises(ReplayMismatchError, match="output"):
                    await Agent(model).run("go", output=other, step_runner=run)
        async with journal.claim("w") as run:
            state = await Agent(model).run(
                "go", output=Hotter, step_runner=run, accept_changes=True
            )
            assert state.output == Hotter("Paris", 20)
        async with journal.claim("w") as run:
            with pytest.raises(EncodingError, match="the recorded answer is none any more"):
                await Agent(model).run("go", output=list[int], step_runner=run, accept_changes=True)
        assert (await journal.view("w")).status == "answered"
    assert len(model.requests) == 1


async def test_a_configuration_without_an_output_is_the_one_that_it_was() -> None:
    class Noting(Remembering):
        async def begin(self, start: Any) -> Any:
            self.config = json.loads(start.config)
            return await super().begin(start)

    runner = Noting()
    await Agent(Scripted(["hello"])).run("go", step_runner=runner)
    assert list(runner.config) == ["model", "options", "system", "tools"]
    runner = Noting()
    await Agent(scripted("tool", PARIS)).run("go", output=Weather, step_runner=runner)
    assert runner.config["output"]["structured"] == "tool"
    assert runner.config["output"]["schema"]["required"] == ["city", "celsius"]


# -- the schema of a schema mode ------------------------------------------------------------------


class Everything(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=0, description="how many")]
    kind: Literal["a", "b"] = "a"
    shape: Circle | Square | None = None
    names: list[str] = []


def test_a_closed_schema_requires_every_field_and_takes_no_other() -> None:
    schema = Output(Everything, "schema").schema
    assert schema is not None
    assert schema["required"] == ["count", "kind", "shape", "names"]
    assert schema["properties"]["count"] == {
        "type": "integer",
        "description": 'how many {"minimum":0}',
    }
    shapes = [{"$ref": "#/$defs/Circle"}, {"$ref": "#/$defs/Square"}]
    assert schema["properties"]["shape"] == {"anyOf": [{"anyOf": shapes}, {"type": "null"}]}
    for inner in (schema, *schema["$defs"].values()):
        assert inner["additionalProperties"] is False
        assert inner["required"] == list(inner["properties"])
    assert not {"default", "title", "discriminator"} & set(json.dumps(schema).split('"'))


@pytest.mark.parametrize(
    "asked", [Node, dict[str, int], tuple[int, str], Any, list[Any], list[Node], msgspec.Raw]
)
def test_what_a_schema_mode_cannot_say_is_asked_for_by_the_tool(asked: Any) -> None:
    output = Output(asked, "schema")
    assert output.schema is None
    assert output.tool is not None
    assert output.config.structured == "tool"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"not": {}}}},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"type": "object"},
    ],
)
def test_a_schema_with_what_is_not_known_has_no_closed_form(schema: Any) -> None:
    assert closed(schema) is None


ASKED = Request((user("go"),), output={"type": "object"})


def test_each_vendor_is_asked_for_the_schema_by_its_own_field() -> None:
    form = {"name": "answer", "schema": {"type": "object"}, "strict": True}
    chat = json.loads(ChatEncoder("m").encode(ASKED))
    assert chat["response_format"] == {"type": "json_schema", "json_schema": form}
    responses = json.loads(ResponsesEncoder("m").encode(ASKED))
    assert responses["text"] == {"format": {"type": "json_schema", **form}}
    effort = msgspec.structs.replace(ASKED, options=CallOptions(reasoning_effort="low"))
    anthropic = json.loads(AnthropicEncoder("m").encode(effort))
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    assert anthropic["output_config"] == {"effort": "low", "format": schema}


@pytest.mark.parametrize("provider", [OpenAIChat, OpenAIResponses, Anthropic])
def test_the_vendors_providers_have_a_schema_mode_unless_told_otherwise(provider: Any) -> None:
    assert provider("m").structured == "schema"
    assert provider("m", structured="tool").structured == "tool"


def test_an_extra_body_cannot_replace_the_form_of_the_answer() -> None:
    options = CallOptions(extra_body={"response_format": {"type": "text"}})
    request = msgspec.structs.replace(ASKED, options=options)
    with pytest.raises(InvalidRequestError, match="response_format"):
        ChatEncoder("m").encode(request)


# -- over a real server ---------------------------------------------------------------------------


async def test_a_server_is_asked_for_the_form_and_told_of_a_wrong_answer() -> None:
    replies = in_turn([says(json.dumps(WARM)), says('{"city": "Pa', 'ris", "celsius": 20}')])
    async with chat_server(replies) as server:
        model = OpenAIChat("served", base_url=server.base_url)
        state = await Agent(model).run("How is Paris?", output=Weather)
    assert state.output == Weather("Paris", 20)
    first, second = [request.body for request in server.requests]
    for body in (first, second):
        form = body["response_format"]["json_schema"]
        assert form["schema"]["required"] == ["city", "celsius"]
        assert "tools" not in body
    said = [(message["role"], message["content"]) for message in second["messages"]]
    assert said[:2] == [("user", "How is Paris?"), ("assistant", json.dumps(WARM))]
    assert said[2][0] == "user"
    assert "$.celsius" in said[2][1]


async def test_a_server_without_a_schema_mode_is_given_the_tool() -> None:
    def reply(body: Any) -> Any:
        assert "response_format" not in body
        assert [one["function"]["name"] for one in body["tools"]] == [ANSWER_TOOL]
        return calls(("c1", ANSWER_TOOL, PARIS)) if len(body["messages"]) == 1 else says("Yes.")

    async with chat_server(reply) as server:
        model = OpenAIChat("served", base_url=server.base_url, structured="tool")
        state = await Agent(model).run("How is Paris?", output=Weather)
    assert state.output == Weather("Paris", 20)


def test_a_reply_that_lost_its_result_is_refused_as_ever() -> None:
    with pytest.raises(TranscriptError):
        check_transcript([user("go"), giving("tool", PARIS), user("and then?")])


def test_an_answer_is_not_changed_by_being_judged() -> None:
    output = Output(Weather, "schema")
    right = AssistantMessage((Text(json.dumps(PARIS)),))
    assert output.judged(right) is right
    wrong = output.judged(AssistantMessage((Text("{}"),)))
    assert wrong.problem
    assert output.judged(wrong) is wrong
    assert output.judged(msgspec.structs.replace(right, problem="old")) == right
