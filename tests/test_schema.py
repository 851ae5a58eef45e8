"""The schema of a tool: what a signature and a docstring say, as a model reads it."""

from __future__ import annotations

import datetime
import enum
import subprocess
import sys
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from trioagent import ToolContext, ToolSignatureError, tool
from trioagent.arguments import ArgumentsError

from .runners import context


class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


class Node(msgspec.Struct):
    """A node of a tree."""

    name: str
    kids: list[Node] = []


class Circle(msgspec.Struct, tag="circle"):
    radius: float


class Square(msgspec.Struct, tag="square"):
    side: float


@dataclass
class Point:
    x: int
    y: int = 0


class Pair(NamedTuple):
    first: str
    second: int


class Options(TypedDict, total=False):
    fast: bool


def schema_of(hint: Any, **definitions: Any) -> Any:
    """The schema of one parameter."""

    def t(p: Any) -> None: ...

    t.__annotations__ = {"p": hint, "return": None}
    parameters = tool(t).spec.parameters
    assert set(parameters.get("$defs", {})) == set(definitions.get("defs", ()))
    return parameters["properties"]["p"]


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["a", 1], {"enum": [1, "a"]}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (datetime.time, {"type": "string", "format": "time"}),
        (
            Annotated[datetime.datetime, msgspec.Meta(tz=True)],
            {"type": "string", "format": "date-time"},
        ),
        (
            list[datetime.datetime | None],
            {
                "type": "array",
                "items": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
            },
        ),
        (datetime.date, {"type": "string", "format": "date"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (Decimal, {"type": "string", "format": "decimal"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (
            Annotated[int, msgspec.Meta(ge=1, description="how many")],
            {"type": "integer", "minimum": 1, "description": "how many"},
        ),
        (Any, {}),
    ],
)
def test_a_type_is_the_json_schema_that_msgspec_checks(hint: Any, schema: Any) -> None:
    assert schema_of(hint) == schema


def test_enums_structs_dataclasses_and_named_tuples_are_defs() -> None:
    assert schema_of(Unit, defs={"Unit"}) == {"$ref": "#/$defs/Unit"}
    assert schema_of(Point, defs={"Point"}) == {"$ref": "#/$defs/Point"}
    assert schema_of(Pair, defs={"Pair"}) == {"$ref": "#/$defs/Pair"}
    assert schema_of(Options, defs={"Options"}) == {"$ref": "#/$defs/Options"}


def test_a_union_that_json_can_tell_apart_is_told_by_its_tag() -> None:
    schema = schema_of(Circle | Square, defs={"Circle", "Square"})
    assert schema["discriminator"]["propertyName"] == "type"
    assert len(schema["anyOf"]) == 2


@pytest.mark.parametrize("hint", [Point | Node, list[int] | set[int], complex, ToolContext | int])
def test_a_union_that_json_cannot_tell_apart_is_refused(hint: Any) -> None:
    with pytest.raises(ToolSignatureError, match="t: "):
        schema_of(hint)


async def test_a_context_that_may_be_none_is_given_and_is_no_argument() -> None:
    seen = []

    @tool
    async def t(context: ToolContext | None = None) -> None:
        seen.append(context)

    assert t.spec.parameters["properties"] == {}
    await t.run({}, context("tool/1/0/t"), tainted=False, deps=7)
    assert isinstance(seen[0], ToolContext)
    assert seen[0].deps == 7


@tool
def tree(root: Node, other: Node | None = None) -> str:
    return root.kids[0].kids[0].name


def test_a_type_that_refers_to_itself_is_told_once_and_read_to_any_depth() -> None:
    parameters = tree.spec.parameters
    assert parameters["properties"]["root"] == {"$ref": "#/$defs/Node"}
    assert parameters["$defs"]["Node"]["properties"]["kids"]["items"] == {"$ref": "#/$defs/Node"}
    assert parameters["$defs"]["Node"]["description"] == "A node of a tree."
    text = '{"name": "leaf"}'
    for _ in range(50):
        text = f'{{"name": "n", "kids": [{text}]}}'
    value = tree.parse(f'{{"root": {text}}}')["root"]
    for _ in range(50):
        (value,) = value.kids
    assert value == Node("leaf")
    with pytest.raises(ArgumentsError, match=r"Expected `str`, got `int` - at `\$\.root\.kids\["):
        tree.parse('{"root": {"name": "a", "kids": [{"name": 1}]}}')


# -- docstrings -----------------------------------------------------------------------------------

GOOGLE = """Find flights.

Prices are in euros.

Args:
    start (str): where from,
        as an airport's code
    end: where to
    nobody: is not there

Returns:
    The flights, cheapest first.

Raises:
    ValueError: no such airport.
"""
NUMPY = """Find flights.

Prices are in euros.

Parameters
----------
start : str
    where from,
    as an airport's code
end : str
    where to

Returns
-------
list
    The flights, cheapest first.
"""
SPHINX = """Find flights.

Prices are in euros.

:param start: where from,
    as an airport's code
:param end: where to
:returns: The flights, cheapest first.
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_the_parameter_section_goes_to_the_parameters_and_the_rest_describes(text: str) -> None:
    def flights(start: str, end: Annotated[str, msgspec.Meta(description="mine")]) -> None: ...

    flights.__doc__ = text
    spec = tool(flights).spec
    assert spec.description == (
        "Find flights.\n\nPrices are in euros.\n\nReturns: The flights, cheapest first."
    )
    properties = spec.parameters["properties"]
    assert properties["start"]["description"] == "where from,\nas an airport's code"
    assert properties["end"]["description"] == "mine"
    assert set(properties) == {"start", "end"}


@pytest.mark.parametrize("text", [None, "", "Args are welcome.", "One.\n\nArgs:", "Args:\nx y z"])
def test_a_docstring_without_parameters_is_the_description_as_it_stands(text: str | None) -> None:
    def t(n: int) -> None: ...

    t.__doc__ = text
    assert tool(t).spec.description == (text or "")


def test_a_parameter_that_refers_to_a_type_is_described_beside_the_reference() -> None:
    @tool
    def t(unit: Unit) -> None:
        """Tell.

        Args:
            unit: in which unit
        """

    assert t.spec.parameters["properties"]["unit"] == {
        "$ref": "#/$defs/Unit",
        "description": "in which unit",
    }


def test_a_docstring_library_is_imported_only_where_a_docstring_needs_it() -> None:
    code = (
        "import sys; from trioagent import tool\n"
        "def a(n: int) -> None: 'Plain.'\n"
        "def b(n: int) -> None: 'Not plain.\\n\\nArgs:\\n  n: a number'\n"
        "tool(a); print('docstring_parser' in sys.modules)\n"
        "tool(b); print('docstring_parser' in sys.modules)\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert shown.stdout.split() == ["False", "True"]
