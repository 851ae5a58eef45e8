"""Tools: the schema from a signature, arguments from the model, and what becomes of a result."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest
import trio
import trio.testing

from trioagent import File, Image, Text, Tool, ToolContext, ToolResult, ToolSignatureError, tool
from trioagent.arguments import ArgumentsError

from .runners import context


async def run(made: Tool, **arguments: Any) -> ToolResult:
    return await made.run(arguments, context(), tainted=False, deps=None)


# -- from a signature to a schema -----------------------------------------------------------------


def test_a_schema_is_the_signature_and_the_description_the_docstring() -> None:
    @tool
    async def search(
        q: Annotated[str, msgspec.Meta(description="what to look for")],
        limit: int = 5,
        *,
        kind: Literal["web", "news"] = "web",
    ) -> str:
        """Search the web.

        At most `limit` hits.
        """
        return q

    assert search.spec.name == "search"
    assert search.spec.description == "Search the web.\n\nAt most `limit` hits."
    assert search.spec.parameters == {
        "type": "object",
        "properties": {
            "q": {"type": "string", "description": "what to look for"},
            "limit": {"type": "integer", "default": 5},
            "kind": {"enum": ["news", "web"], "default": "web"},
        },
        "required": ["q"],
        "additionalProperties": False,
    }


def test_types_that_parameters_share_are_defs_of_the_schema() -> None:
    class Point(msgspec.Struct):
        x: int
        y: int

    async def line(start: Point, end: Point) -> None: ...

    line.__annotations__ = {"start": Point, "end": Point}
    parameters = tool(line).spec.parameters
    assert parameters["properties"]["start"] == {"$ref": "#/$defs/Point"}
    assert set(parameters["$defs"]) == {"Point"}


def test_a_tool_that_declares_nothing_is_a_write() -> None:
    @tool
    async def t() -> None: ...

    assert t.effect == "write"


async def test_a_tool_stays_a_function_to_call() -> None:
    @tool
    async def double(x: int) -> int:
        return 2 * x

    assert await double(4) == 8


def starred(*args: int) -> None: ...
def schema_073(q: str, **kw: Any) -> None: ...
def schema_074(*, opt: int = 1, **kw: Any) -> None: ...
def positional(x: int, /) -> None: ...
def bare(x) -> None: ...  # type: ignore[no-untyped-def]
def unknown(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def no_schema(x: Callable[[], None]) -> None: ...


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (starred, "args"),
        (schema_073, "kw"),  # schema-073
        (schema_074, "kw"),  # schema-074
        (positional, "positional only"),
        (bare, "no annotation"),
        (unknown, "Missing"),
        (no_schema, "no JSON schema|Callable"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_signature_without_a_schema_is_refused_where_the_tool_is_made(
    function: Callable[..., None], names: str
) -> None:
    with pytest.raises(ToolSignatureError, match=names) as caught:
        tool(function)
    assert function.__name__ in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"name": "two words"},
        {"name": ""},
        {"effect": "maybe"},
        {"timeout": 0},
        {"timeout": -1},
        {"max_result_chars": 10},
        {"max_abandoned": 0},
    ],
)
def test_a_tool_option_out_of_its_range_is_refused(options: dict[str, Any]) -> None:
    async def t() -> None: ...

    with pytest.raises(ToolSignatureError):
        tool(**options)(t)


# -- arguments ------------------------------------------------------------------------------------


class Colour(enum.Enum):
    X = "X"


@tool
async def typed(
    when: datetime, tags: set[str], p: tuple[int, int], k: Literal["a", "b"], e: Colour
) -> None: ...


def test_schema_072_a_tool_gets_real_python_values_and_they_are_checked_once() -> None:
    arguments = '{"when":"2026-01-02T03:04:05","tags":["a"],"p":[1,2],"k":"a","e":"X"}'
    assert typed.parse(arguments) == {
        "when": datetime(2026, 1, 2, 3, 4, 5),
        "tags": {"a"},
        "p": (1, 2),
        "k": "a",
        "e": Colour.X,
    }


@pytest.mark.parametrize(
    ("arguments", "text"), [('{"text": null}', None), ("{}", None), ('{"text": "x"}', "x")]
)
def test_schema_071_an_optional_parameter_takes_null_and_absence_alike(
    arguments: str, text: str | None
) -> None:
    @tool
    def t(text: str | None = None) -> None: ...

    assert t.parse(arguments) == {"text": text}
    assert t.spec.parameters["properties"]["text"]["anyOf"] == [
        {"type": "string"},
        {"type": "null"},
    ]


@tool
async def counts(n: int, word: str = "w") -> None: ...


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("[1]", r"must be a JSON object, not \[1\]"),
        ('"n"', "must be a JSON object"),
        ("null", "must be a JSON object, not null"),
        ("{}", "missing required field `n`"),
        ('{"n": "1"}', r"Expected `int`, got `str` - at `\$.n`"),
        ('{"n": 1, "m": 2}', "unknown field `m`"),
        ('{"n": 1,,}', r"no JSON .*\(byte 8\)"),
        ('{"n": 1', "incomplete JSON"),
        ('{"n": NaN}', "no JSON"),
        ('{"n": 1} and', "no JSON"),
        ('{"word": "\\ud800 ", "n": 1}', "no JSON"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_what_is_wrong(
    arguments: str, says: str
) -> None:
    with pytest.raises(ArgumentsError, match=says):
        counts.parse(arguments)


def test_arguments_that_do_not_fit_are_told_what_would_be_right() -> None:
    with pytest.raises(ArgumentsError) as caught:
        counts.parse('{"n": "1"}')
    assert '"n":{"type":"integer"}' in str(caught.value)


@pytest.mark.parametrize("arguments", ["", "  ", "{}"])
def test_empty_arguments_stand_for_none(arguments: str) -> None:
    @tool
    async def t(n: int = 3) -> None: ...

    assert t.parse(arguments) == {"n": 3}


def test_a_mutable_default_is_fresh_for_each_call() -> None:
    @tool
    def t(names: list[str] = []) -> None: ...  # noqa: B006

    t.parse("{}")["names"].append("kept")
    assert t.parse("{}") == {"names": []}


async def test_the_context_is_given_to_the_parameter_that_asks_and_is_no_part_of_the_schema() -> (
    None
):
    seen = []

    @tool
    async def t(n: int, about: ToolContext) -> None:
        seen.append(about)

    assert list(t.spec.parameters["properties"]) == ["n"]
    step = context("tool/1/0/t")
    await t.run({"n": 1}, step, tainted=True, deps="mine")
    assert seen == [ToolContext("run", "tool/1/0/t", 1, step.key, True, "mine")]


# -- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", ""),
        (0, "0"),
        (False, "false"),
        ([], "[]"),
        (None, "null"),
        ({}, "{}"),
        ("null", "null"),
        ({"a": (1, None)}, '{"a":[1,null]}'),
    ],
)
async def test_tools_110_a_falsy_result_is_a_result_like_any_other(value: Any, text: str) -> None:
    @tool
    async def t() -> Any:
        return value

    assert await run(t) == ToolResult((Text(text),))


PICTURE = Image("image/png", b"\x89")


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (PICTURE, (PICTURE,)),
        ([Text("see"), PICTURE], (Text("see"), PICTURE)),
        ((File("text/plain", b"x"),), (File("text/plain", b"x"),)),
        (ToolResult((Text("as it is"),), "error"), (Text("as it is"),)),
    ],
)
async def test_parts_and_results_stand_as_they_were_returned(value: Any, parts: Any) -> None:
    @tool
    async def t() -> Any:
        return value

    assert (await run(t)).parts == parts


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], "\ud800", object(), {(1, 2): 3}])
async def test_a_result_that_json_cannot_hold_is_told_as_done_with_its_value_lost(
    value: Any,
) -> None:
    @tool
    async def t() -> Any:
        return value

    result = await run(t)
    assert result.outcome == "error"
    assert "t ran, but its result is lost" in result.parts[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("too big"), "error: ValueError: too big"),
        (KeyError(), "error: KeyError"),
        (UnicodeError("\ud800"), "error: UnicodeError: \\ud800"),
        (trio.TooSlowError(), "error: TooSlowError"),
        (
            ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [TypeError("b")])]),
            "error: ValueError: a; TypeError: b",
        ),
    ],
)
@pytest.mark.parametrize("threaded", [True, False])
async def test_a_tool_that_raises_gives_an_error_result_with_type_and_message(
    error: Exception, text: str, threaded: bool
) -> None:
    def fails() -> None:
        raise error

    async def fails_too() -> None:
        raise error

    assert await run(tool(fails if threaded else fails_too)) == ToolResult((Text(text),), "error")


# -- threads, timeouts and cancellation -----------------------------------------------------------


async def test_a_sync_tool_runs_in_a_thread_of_its_own() -> None:
    @tool(effect="read")
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert (await run(where)).parts == (Text("false"),)


@pytest.mark.parametrize("effect", ["read", "write"])
async def test_an_async_tool_past_its_timeout_is_cancelled_and_a_write_warns(
    autojump_clock: trio.testing.MockClock, effect: Literal["read", "write"]
) -> None:
    @tool(effect=effect, timeout=1.5)
    async def slow() -> None:
        await trio.sleep(60)

    result = await run(slow)
    assert trio.current_time() == pytest.approx(1.5)
    assert result.outcome == "error"
    (part,) = result.parts
    assert isinstance(part, Text)
    assert part.text.startswith("error: slow timed out after 1.5 s")
    assert ("may have taken effect" in part.text) == (effect == "write")


@pytest.mark.parametrize("effect", ["read", "write"])
async def test_tools_062_timed_out_threads_give_results_at_once_and_are_counted_and_capped(
    autojump_clock: trio.testing.MockClock, effect: Literal["read", "write"]
) -> None:
    release, held = threading.Event(), Counting()

    @tool(effect=effect, timeout=0.1, max_abandoned=10)
    def hangs() -> None:
        release.wait()

    @tool(effect="read")
    def works() -> str:
        return "worked"

    async def call() -> str:
        result = await hangs.run({}, context(hold=held), tainted=False, deps=None)
        assert result.outcome == "error"
        (part,) = result.parts
        assert isinstance(part, Text)
        return part.text

    try:
        for _ in range(10):
            assert (await call()).startswith("error: hangs timed out after 0.1 s")
        assert trio.current_time() == pytest.approx(1)
        assert hangs.abandoned.count == 10
        for _ in range(40):
            assert await call() == (
                "error: hangs was not started: 10 earlier calls of it never ended"
            )
        assert trio.current_time() == pytest.approx(1)
        assert hangs.abandoned.count == 10
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        assert (await run(works)).parts == (Text("worked"),)
    finally:
        release.set()
    while hangs.abandoned.count:
        await trio.to_thread.run_sync(list)
    assert held.open == 0


async def test_a_thread_that_ends_in_time_is_not_counted() -> None:
    @tool(effect="read", timeout=60, max_abandoned=1)
    def quick() -> str:
        return "quick"

    for _ in range(3):
        assert (await run(quick)).parts == (Text("quick"),)
    assert quick.abandoned.count == 0


async def test_a_call_cancelled_before_its_thread_started_is_not_counted() -> None:
    @tool(effect="read")
    def never() -> None: ...

    with trio.CancelScope() as scope:
        scope.cancel()
        await run(never)
    assert scope.cancelled_caught
    assert never.abandoned.count == 0


class Counting:
    """A hold that says how many of it are not released."""

    def __init__(self) -> None:
        self.open = 0

    def __call__(self) -> Callable[[], None]:
        self.open += 1
        return self.release

    def release(self) -> None:
        self.open -= 1


class Held:
    """A hold that says when it is taken and released."""

    def __init__(self) -> None:
        self.taken = 0
        self.released = threading.Event()

    def __call__(self) -> Callable[[], None]:
        self.taken += 1
        return self.released.set


async def test_a_cancelled_sync_read_is_abandoned_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    release = threading.Event()

    @tool(effect="read")
    def hangs() -> None:
        release.wait()

    try:
        with trio.move_on_after(1) as scope:
            await run(hangs)
        assert scope.cancelled_caught
        assert trio.current_time() == pytest.approx(1)
    finally:
        release.set()


async def test_a_cancelled_sync_write_is_waited_for_up_to_its_timeout_and_holds_the_run_until_it_ends(  # noqa: E501
    autojump_clock: trio.testing.MockClock,
) -> None:
    release, held = threading.Event(), Held()

    @tool(timeout=5)
    def hangs() -> None:
        release.wait()

    try:
        with trio.move_on_after(1):
            result = await hangs.run({}, context(hold=held), tainted=False, deps=None)
        assert trio.current_time() == pytest.approx(5)
        assert result.outcome == "error"
        assert "may have taken effect" in result.parts[0].text  # type: ignore[union-attr]
        assert held.taken == 1
        assert not held.released.is_set()
    finally:
        release.set()
    await trio.to_thread.run_sync(held.released.wait)


async def test_a_sync_write_that_is_cancelled_before_it_starts_does_not_start() -> None:
    held, runs = Held(), []

    @tool
    def writes() -> None:
        runs.append(1)

    with trio.CancelScope() as scope:
        scope.cancel()
        await writes.run({}, context(hold=held), tainted=False, deps=None)
    assert scope.cancelled_caught
    assert runs == []
    assert held.taken == 0


async def test_a_sync_write_that_ends_gives_its_hold_back() -> None:
    held = Held()

    @tool
    def writes() -> str:
        return "written"

    result = await writes.run({}, context(hold=held), tainted=False, deps=None)
    assert result.parts == (Text("written"),)
    assert held.released.is_set()
