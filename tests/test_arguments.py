"""Arguments: what a model wrote twice over, and what it is told of what does not fit."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioagent import tool
from trioagent.arguments import ArgumentsError, undoubled


class Place(msgspec.Struct):
    name: str
    tags: list[str] = []


@tool
def visit(
    place: Place,
    also: list[Place] | None = None,
    note: str = "",
    either: str | list[int] = "",
    kind: Literal["walk", "ride"] = "walk",
    extra: dict[str, list[int]] = {},  # noqa: B006
) -> None: ...


PARIS = '{"name": "Paris"}'


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (f'{{"place": {PARIS!r}}}'.replace("'", '"').replace('"{"', '"{\\"').replace(
            'name": "Paris"}"', 'name\\": \\"Paris\\"}"'), "place", Place("Paris")),
        ('{"place": {"name": "P", "tags": "[\\"a\\"]"}}', "place", Place("P", ["a"])),
        ('{"place": {"name": "P"}, "also": "[{\\"name\\": \\"Q\\"}]"}', "also", [Place("Q")]),
        ('{"place": {"name": "P"}, "extra": {"k": "[1]"}}', "extra", {"k": [1]}),
        ('{"place": {"name": "[1]"}, "note": "{}"}', "note", "{}"),
        ('{"place": {"name": "[1]"}, "either": "[1]"}', "either", "[1]"),
        ('"{\\"place\\": {\\"name\\": \\"P\\"}}"', "place", Place("P")),
    ],
    ids=["object", "in a struct", "optional list", "in a dict", "text", "text or list", "whole"],
)  # fmt: skip
def test_a_text_is_decoded_once_where_the_schema_wants_an_object_or_a_list(
    arguments: str, name: str, value: Any
) -> None:
    assert visit.parse(arguments)[name] == value


@pytest.mark.parametrize(
    "arguments",
    [
        '{"place": "\\"{}\\""}',  # three times over
        '"\\"{}\\""',
        '{"place": "[1]"}',  # the wrong kind of container
        '{"place": "{broken"}',
        '{"place": {"name": "P"}, "also": "[\\"[]\\"]"}',
    ],
)
def test_what_is_still_wrong_when_decoded_is_refused(arguments: str) -> None:
    with pytest.raises(ArgumentsError, match="visit"):
        visit.parse(arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ('{"place": {"name": 7}}', "Expected `str`, got `int` - at `$.place.name`, which is 7; "),
        (
            '{"place": {"name": "P", "tags": ["a", null]}}',
            "Expected `str`, got `null` - at `$.place.tags[1]`, which is null; ",
        ),
        ('{"place": {"name": "P"}, "kind": "fly"}', "Invalid enum value 'fly' - at `$.kind`"),
        ('{"place": {}}', "Object missing required field `name` - at `$.place`; "),
        ('{"place": {"name": "P"}, "extra": {"k": [true]}}', "Expected `int`, got `bool`"),
        ('{"place": "[1]"}', 'which is "[1]"'),
        (
            '{"place": {"name": "P"}, "also": "' + "y" * 200 + '"}',
            'which is "' + "y" * 59 + "...; ",
        ),
    ],
)
def test_an_error_names_the_field_what_was_found_and_what_is_wanted(
    arguments: str, says: str
) -> None:
    with pytest.raises(ArgumentsError) as caught:
        visit.parse(arguments)
    assert says in str(caught.value)
    assert '"kind":{"enum":["ride","walk"]' in str(caught.value)


def test_of_many_parameters_only_the_one_at_fault_is_shown() -> None:
    fields = {f"p{n}": "x" * 40 for n in range(100)}

    def wide(**kwargs: Any) -> None: ...

    names = ", ".join(f"{name}: int = 0" for name in fields)
    space: dict[str, Any] = {}
    exec(f"def wide({names}) -> None: ...", space)
    made = tool(space["wide"])
    with pytest.raises(ArgumentsError) as caught:
        made.parse('{"p7": "x"}')
    assert str(caught.value).endswith('its parameters are {"p7":{"type":"integer","default":0}}')
    with pytest.raises(ArgumentsError, match='"p0","p1"'):
        made.parse('{"q": 1}')


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
schemas = st.recursive(
    st.sampled_from([{}, True, None, {"type": "object"}, {"type": ["array", "null"]}, 7, []]),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "$ref": st.sampled_from(["#", "#/$defs/a", "http://x/y", "#/x~1y", 7]),
            "$defs": st.dictionaries(st.just("a"), inner),
            "properties": st.dictionaries(st.text(max_size=2), inner) | st.just(7),
            "items": inner,
            "prefixItems": st.lists(inner) | st.none(),
            "anyOf": st.lists(inner),
            "additionalProperties": inner,
        },
    ),
    max_leaves=8,
)


@given(json_values, schemas)
def test_no_schema_of_a_stranger_makes_reading_fail(value: Any, schema: Any) -> None:
    undoubled(value, schema if isinstance(schema, dict) else {})


def test_a_schema_that_only_refers_to_itself_ends() -> None:
    schema = {"$ref": "#"}
    assert undoubled("[1]", schema) == "[1]"
    wide = {"anyOf": [{"$ref": "#"}] * 2}
    assert undoubled({"a": "[1]"}, wide) == {"a": "[1]"}
