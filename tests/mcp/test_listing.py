"""Which tools a server has: pages, names, effects, bounds, and a list that changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trioagent.mcp import McpLimits
from trioagent.mcp.connection import Connection
from trioagent.mcp.endpoint import Endpoint
from trioagent.mcp.tools import Policy, legal_name, listed
from trioagent.tools import TOOL_NAME

from .server import tool
from .serving import ask, serving, text


@pytest.mark.parametrize(
    ("options", "names", "cursors"),
    [
        (("pages=/a,x/b,y/c",), "a b c", [None, "x", "y"]),
        (("pages=/a,/b",), "a b", [None, ""]),
    ],
    ids=["cursors", "mcp_102"],
)
async def test_mcp_102_a_cursor_is_opaque_and_the_empty_one_goes_on(
    options: tuple[str, ...], names: str, cursors: list[str | None]
) -> None:
    async with serving("stdio", *options) as tools:
        assert [made.name for made in tools] == names.split()
        # The server says, through the first of them, which cursors it was asked for.
        assert json.loads(text(await ask(tools, "a"))) == cursors


async def test_mcp_103_a_cursor_that_repeats_ends_the_list() -> None:
    async with serving("stdio", "pages=/a,/a", "repeat") as tools:
        assert [made.name for made in tools] == ["a"]


async def test_a_server_without_tools_has_none() -> None:
    async with serving("raw", "toolless") as tools:
        assert list(tools) == []
        assert tools.instructions == "Be careful."


@pytest.mark.parametrize(
    ("trusted", "effects"),
    [(False, ["write", "write", "write"]), (True, ["read", "idempotent", "write"])],
)
def test_every_tool_is_a_write_unless_the_servers_hints_are_trusted(
    trusted: bool, effects: list[str]
) -> None:
    policy = Policy("", trusted, None, McpLimits())
    nobody = Connection(Endpoint("http://nobody", headers={}, auth=None, max_message_bytes=1), "x")
    tools, left_out = listed(nobody, [tool(name) for name in ("echo", "picture", "die")], policy)
    assert [made.effect for made in tools] == effects
    assert left_out == {}


async def test_names_are_made_legal_and_calls_go_to_the_original() -> None:
    async with serving("stdio", prefix="t_") as tools:
        (made,) = [made for made in tools if made.original_name == "fail.silently"]
        assert made.name == "t_fail_silently"
        assert "not why" in text(await ask(tools, "fail.silently"))


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 65, "taken", "a/b.c", "\ud800"])
def test_a_legal_name_is_legal_free_and_always_the_same(name: str) -> None:
    legal = legal_name(name, ["taken"])
    assert TOOL_NAME.fullmatch(legal)
    assert legal != "taken"
    assert legal == legal_name(name, ["taken"])


def as_json(*tools: dict[str, Any]) -> str:
    return json.dumps([{"inputSchema": {"type": "object"}, **tool} for tool in tools])


async def test_what_does_not_fit_is_left_out_and_said() -> None:
    huge = {"type": "object", "description": "x" * 1000}
    tools_json = as_json(
        {"name": "fits", "description": "d" * 500},
        {"name": "fits", "description": "again"},
        {"name": "huge", "inputSchema": huge},
        {"name": "b"},
        {"name": "c"},
        {"name": "d"},
    )
    limits = McpLimits(max_tools=3, max_schema_bytes=500, max_description_chars=100)
    async with serving("raw", tools_json, limits=limits) as tools:
        assert [made.name for made in tools] == ["fits", "b", "c"]
        assert len(tools[0].spec.description) <= 100
        assert tools.left_out == {
            "huge": "a schema of 1034 bytes, more than 500",
            "...": "more than 3 tools",
        }


async def test_schema_076_a_recursive_schema_is_sent_as_it_is_and_read_to_any_depth() -> None:
    node = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
    }
    schema = {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/n"}},
        "$defs": {"n": node, "self": {"$ref": "#/$defs/self"}},
    }
    async with serving("raw", as_json({"name": "t", "inputSchema": schema})) as tools:
        assert tools[0].spec.parameters == schema
        arguments = '{"root": {"kids": [{"kids": "[{}]"}]}}'
        assert tools[0].parse(arguments) == {"root": {"kids": [{"kids": [{}]}]}}


@pytest.mark.parametrize("how", ["stdio", "http"])
async def test_a_changed_list_is_said_and_read_anew_only_when_asked(how: str) -> None:
    async with serving(how) as tools:
        assert not tools.changed
        before = [made.name for made in tools]
        await ask(tools, "change", name="added")
        await tools.wait_changed()
        assert tools.changed
        assert [made.name for made in tools] == before
        await tools.refresh()
        assert not tools.changed
        assert [made.name for made in tools] == [*before, "added"]
