"""Calls of an MCP server's tools, and what becomes of the answers, over both transports."""

from __future__ import annotations

import base64
import json

import mcp_types as types
import pytest
import trio

from tests.scripts import call, calling, saying, tool_messages
from trioagent import Agent, Image, Text, ToolResult
from trioagent.arguments import ArgumentsError
from trioagent.mcp import McpLimits
from trioagent.mcp.content import as_result
from trioagent.providers import Scripted

from .server import ORDER, PIXEL, answer
from .serving import ask, serving, text

both = pytest.mark.parametrize("how", ["stdio", "http"])


@both
async def test_an_agent_calls_the_tools_of_a_server_like_its_own(how: str) -> None:
    async with serving(how) as tools:
        provider = Scripted([calling(call("echo", {"o": {"id": 1}})), saying("done")])
        state = await Agent(provider, tools=[*tools]).run("go")
        (message,) = tool_messages(state.transcript)
    assert (message.text, message.outcome) == ('{"o": {"id": 1}}', "ok")


@both
async def test_mcp_098_twenty_calls_at_once_are_each_answered_by_id(how: str) -> None:
    results: dict[int, ToolResult] = {}
    async with serving(how) as tools:

        async def one(n: int) -> None:
            # The server answers none before all twenty are there.
            results[n] = await ask(tools, "meet", n=n, of=20)

        async with trio.open_nursery() as nursery:
            for n in range(20):
                nursery.start_soon(one, n)
    assert {n: text(result) for n, result in results.items()} == {n: str(n) for n in range(20)}


@both
async def test_a_cancelled_call_leaves_the_session_usable(how: str) -> None:
    async with serving(how) as tools:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, tools, "wait")
            await tools.wait_changed()  # the call is under way
            nursery.cancel_scope.cancel()
        assert text(await ask(tools, "echo", n=1)) == '{"n": 1}'


async def test_a_call_past_its_timeout_is_an_error_that_warns_of_its_effect() -> None:
    async with serving("stdio", timeout=0.05) as tools:
        result = await ask(tools, "wait")
        assert result.outcome == "error"
        assert text(result).startswith("error: wait timed out after 0.05 s; it may have taken")
        tools[0].timeout = None
        assert text(await ask(tools, "echo")) == "{}"


async def test_null_reaches_the_server_as_null() -> None:
    async with serving("stdio") as tools:
        assert text(await ask(tools, "echo", a=None, b=[None])) == '{"a": null, "b": [null]}'


# -- what the server answers ----------------------------------------------------------------------


@both
async def test_mcp_066_an_image_is_an_image_part_and_never_base64_as_text(how: str) -> None:
    async with serving(how) as tools:
        result = await ask(tools, "picture")
    assert result.parts == (Text("shot"), Image("image/png", base64.b64decode(PIXEL)))


def test_what_is_no_text_is_named_with_type_and_size() -> None:
    expected = {
        "sound": (
            "[audio: audio/wav, 5 bytes, not shown]",
            "[image: image/svg+xml, 6 bytes, not shown]",
        ),
        "resource": (
            "a resource's text",
            "[resource: application/pdf, 5 bytes, not shown]",
            "[link to test://l: a/b, 7 bytes]",
        ),
    }
    for name, texts in expected.items():
        assert as_result(answer(name, {})) == ToolResult(tuple([Text(said) for said in texts]))


def test_a_structured_result_is_shown_as_json_unless_its_text_says_the_same() -> None:
    structured, wrapped = as_result(answer("structured", {})), as_result(answer("wrapped", {}))
    assert structured.parts == (Text("in short"), Text('{"n":1,"deep":[{"x":null}]}'))
    assert wrapped.parts == (Text("1"), Text("2"))
    alone = types.CallToolResult(content=[], structured_content=[])
    assert as_result(alone).parts == (Text("[]"),)
    same = types.CallToolResult(
        content=[types.TextContent(text='{"a": 1}')], structured_content={"a": 1}
    )
    assert as_result(same).parts == (Text('{"a": 1}'),)


def test_base64_that_is_none_is_named_and_not_shown() -> None:
    broken = types.ImageContent(data="no base64!", mime_type="image/png\n")
    result = as_result(types.CallToolResult(content=[broken]))
    assert result.parts == (Text("[image: image/png , 10 characters that are no base64]"),)


@both
async def test_what_the_server_calls_an_error_is_an_error_result(how: str) -> None:
    expected = {
        "fail": "error: no such thing",
        "fail.silently": "error: the server says that the call failed, and not why",
        "refuse": "error: the MCP server ",
    }
    async with serving(how) as tools:
        for name, says in expected.items():
            result = await ask(tools, name)
            assert result.outcome == "error"
            assert text(result).startswith(says)
            assert len(text(result)) < 1200


async def test_a_long_json_list_in_a_text_is_shortened_and_stays_json() -> None:
    async with serving("stdio", limits=McpLimits(max_result_chars=1000)) as tools:
        shown = text(await ask(tools, "long"))
    assert len(shown) <= 1000
    value = json.loads(shown)
    assert value["items"][0] == {"n": 0, "text": "x" * 50}
    assert value["truncated"]["shown"] == len(value["items"])
    assert value["truncated"]["total"] == 1000


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
async def test_mcp_069_a_number_that_is_not_finite_is_an_error_and_never_null(number: str) -> None:
    result = '{"content":[],"structuredContent":{"v":NUMBER}}'.replace("NUMBER", number)
    line = f'{{"jsonrpc":"2.0","id":@ID,"result":{result}}}'
    async with serving("raw") as tools:
        shown = await ask(tools, "say", lines=[line])
    assert shown.outcome == "error"
    assert "NaN or infinity, which JSON cannot" in text(shown)


# -- arguments ------------------------------------------------------------------------------------


async def test_mcp_077_the_schema_is_passed_through_whole_and_decides_what_is_decoded() -> None:
    async with serving("stdio") as tools:
        assert tools[0].spec.parameters == ORDER
        for arguments, value in [
            ("", {}),
            ('{"o": {"id": 1}}', {"o": {"id": 1}}),
            ('{"o": "{\\"id\\": 1}"}', {"o": {"id": 1}}),
            ('"{\\"o\\": {}}"', {"o": {}}),
            ('{"o": {"id": "no integer"}}', {"o": {"id": "no integer"}}),
            ('{"other": "{}"}', {"other": "{}"}),
        ]:
            assert tools[0].parse(arguments) == value
        # What is no object never reaches the server.
        for arguments in ["[1]", '"text"', "null", '{"a": 1,,}', '{"a": NaN}']:
            with pytest.raises(ArgumentsError, match="echo"):
                tools[0].parse(arguments)
