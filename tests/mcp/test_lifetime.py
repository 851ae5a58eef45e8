"""A server's life: how it starts, how it may end, and what its callers are told."""

from __future__ import annotations

import os
import signal
import sys

import pytest
import trio

from trioagent import ToolResult
from trioagent.mcp import McpError, McpLimits, McpTools, open_mcp

from .serving import ROOT, ask, over_http, serving, text


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# -- the start ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"command": "no-such-program --really"}, "no-such-program cannot be started"),
        (
            {"command": [sys.executable, "-c", "import sys; sys.exit('\x1b[1mno\x07 luck')"]},
            "did not start: exit code 1; the end of its standard error: no luck",
        ),
        ({"command": [sys.executable, "-m", "tests.mcp.raw", "refusing"]}, "not today"),
        ({"url": "http://127.0.0.1:1/mcp?key=secret"}, "http://127.0.0.1:1/mcp did not start"),
        (
            {
                "command": [sys.executable, "-c", "import time; time.sleep(3600)"],
                "limits": McpLimits(start_timeout=0.05, stop_timeout=0.05),
            },
            "did not start within 0.05 s",
        ),
    ],
    ids=["no program", "exits", "refuses", "no address", "silent"],
)
async def test_a_server_that_does_not_start_is_one_clear_error(
    options: dict[str, object], says: str
) -> None:
    with pytest.raises(McpError) as caught:
        async with open_mcp(cwd=ROOT, **options):  # type: ignore[arg-type]
            pytest.fail("it started")
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"command": "a", "url": "http://a"},
        {"command": ""},
        {"url": "ftp://a/b"},
        {"url": "no address"},
    ],
)
async def test_options_that_make_no_server_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        async with open_mcp(**options):  # type: ignore[arg-type]
            pytest.fail("it started")


async def test_a_server_gets_only_the_environment_that_it_is_given() -> None:
    code = "import os, sys; sys.exit(' '.join(sorted(os.environ)))"
    with pytest.raises(McpError) as caught:
        async with open_mcp(command=[sys.executable, "-c", code], env={"MINE": "1"}):
            pytest.fail("it started")
    names = set(str(caught.value).rpartition(": ")[2].split())
    assert {"MINE", "PATH"} <= names
    assert not {name for name in names if name.startswith("PYTEST")}


async def test_a_server_that_knows_no_handshake_is_spoken_to_without() -> None:
    async with serving("raw", "modern") as tools:
        assert int(text(await ask(tools, "pid")))


# -- the end --------------------------------------------------------------------------------------


async def test_leaving_the_block_ends_the_process() -> None:
    async with serving("raw") as tools:
        pid = int(text(await ask(tools, "pid")))
        assert is_running(pid)
    assert not is_running(pid)


async def test_a_process_that_ignores_every_request_to_end_is_killed() -> None:
    async with serving("raw", limits=McpLimits(stop_timeout=0.05)) as tools:
        pid = int(text(await ask(tools, "stubborn")))
    assert not is_running(pid)


async def test_a_cancelled_block_ends_the_process_and_only_the_cancellation_leaves() -> None:
    with trio.CancelScope() as scope:
        async with serving("raw") as tools:
            pid = int(text(await ask(tools, "pid")))
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert not is_running(pid)


@pytest.mark.parametrize("how", ["raw", "http"])
async def test_an_exception_leaves_the_block_bare(how: str) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with serving(how):
            raise KeyError("mine")


@pytest.mark.parametrize("how", ["stdio", "http"])
async def test_mcp_097_another_task_may_ask_for_the_end_and_waiting_calls_are_answered(
    how: str,
) -> None:
    results: list[ToolResult] = []
    async with serving(how) as tools:

        async def wait() -> None:
            results.append(await ask(tools, "wait"))

        async def close() -> None:
            await tools.wait_changed()  # the call is under way
            await tools.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(close)
        results.append(await ask(tools, "echo"))
        await tools.aclose()
        with pytest.raises(McpError, match="is closed"):
            await tools.refresh()
    assert [result.outcome for result in results] == ["error", "error"]
    assert "may have taken effect" in text(results[0])
    assert "is closed" in text(results[1])


# -- a server that dies ---------------------------------------------------------------------------


async def two_waiting(tools: McpTools, then: str) -> list[ToolResult]:
    """Two calls that hang, ended by a third."""
    results: list[ToolResult] = []

    async def wait() -> None:
        results.append(await ask(tools, "wait"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await tools.wait_changed()
        results.append(await ask(tools, then))
    return results


async def test_a_server_that_dies_ends_its_waiting_calls_with_the_end_of_its_stderr() -> None:
    async with serving("stdio") as tools:
        results = await two_waiting(tools, "die")
        assert len(results) == 3
        for result in results:
            assert result.outcome == "error"
            assert "has ended (exit code 7; the end of its standard error:" in text(result)
            assert "fatal: out of luck); the call may have taken effect" in text(result)
            assert "\x1b" not in text(result) and "\x07" not in text(result)
        later = await ask(tools, "echo")
        assert "exit code 7" in text(later)
        assert text(later).endswith("the call was not made")
        with pytest.raises(McpError, match="exit code 7"):
            await tools.refresh()


async def test_a_server_that_is_killed_in_mid_call_is_named_with_its_signal() -> None:
    async with serving("raw") as tools:
        pid = int(text(await ask(tools, "pid")))
        results: list[ToolResult] = []

        async def hang() -> None:
            results.append(await ask(tools, "hang"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hang)
            await tools.wait_changed()  # the call is under way
            os.kill(pid, signal.SIGKILL)
    assert "has ended (killed by SIGKILL); the call may have taken effect" in text(results[0])


async def test_a_server_over_http_that_dies_ends_its_waiting_calls() -> None:
    async with over_http() as url, open_mcp(url=url) as tools:
        for result in await two_waiting(tools, "die"):
            assert result.outcome == "error"
            assert "may have taken effect" in text(result)
        assert (await ask(tools, "echo")).outcome == "error"


async def test_a_server_that_closes_its_output_has_ended() -> None:
    async with serving("raw") as tools:
        assert "has ended" in text(await ask(tools, "mute"))


async def test_a_server_that_closes_its_input_can_be_asked_no_more() -> None:
    async with serving("raw", limits=McpLimits(stop_timeout=0.05)) as tools:
        assert text(await ask(tools, "deaf")) == "deaf"
        assert "has ended" in text(await ask(tools, "pid"))


async def test_a_child_of_a_dead_server_that_holds_its_pipes_keeps_nobody_waiting() -> None:
    async with serving("raw") as tools:
        assert "exit code 3; the end of its standard error: left a child" in text(
            await ask(tools, "orphan")
        )


# -- what is no message ---------------------------------------------------------------------------


async def test_what_a_server_prints_that_is_no_message_is_skipped() -> None:
    async with serving("raw", "chatty") as tools:
        lines = ["thinking...", '{"half', "", '{"jsonrpc": "2.0", "id": 77, "result": {}}']
        lines.append('{"jsonrpc":"2.0","id":@ID,"result":{"content":[{"type":"text","text":"x"}]}}')
        assert text(await ask(tools, "say", lines=lines)) == "x"


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":@ID,"result":{"content":[{"type":"text","text":"\\ud800"}]}}',
        '{"jsonrpc":"2.0","id":@ID,"result":[]}',
        '{"jsonrpc":"2.0","id":@ID,"result":{"content":"text"}}',
        '{"jsonrpc":"2.0","id":@ID,"result":{"content":[{"type":"hologram"}]}}',
        '{"jsonrpc":"2.0","id":@ID,"result":{}}',
        '{"jsonrpc":"2.0","id":@ID,"error":{"code":"x"}}',
        '{"jsonrpc":"2.0","id":@ID,"error":{"code":-1,"message":"m","data":{"deep":[1]}}}',
    ],
)
async def test_an_answer_that_cannot_be_read_ends_its_call_with_an_error(line: str) -> None:
    async with serving("raw") as tools:
        result = await ask(tools, "say", lines=[line])
        assert result.outcome == "error"
        assert text(result).startswith("error: the MCP server python")
        assert int(text(await ask(tools, "pid")))


async def test_a_message_beyond_the_bound_ends_the_server_and_is_not_kept() -> None:
    async with serving("raw", limits=McpLimits(max_message_bytes=2_000_000)) as tools:
        assert "it sent a message of more than 2000000 bytes" in text(
            await ask(tools, "flood", megabytes=3)
        )
