"""``run --mcp``: a model behind HTTP with the tools of real MCP servers."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from tests import chat_server
from tests.cli.command import Command
from tests.cli.test_model import ran

ROOT = Path(__file__).parents[2]
RAW = shlex.join([sys.executable, str(ROOT / "tests" / "mcp" / "raw.py")])


async def test_a_model_calls_the_tools_of_the_servers_that_the_command_names(
    command: Command,
) -> None:
    def reply(body: dict[str, Any]) -> chat_server.Reply:
        if body["messages"][-1]["role"] == "tool":
            return chat_server.says("It has one.")
        return chat_server.calls(("c1", "pid", {}))

    async with chat_server.chat_server(reply) as server:
        done = await ran(
            command,
            *("run", "Which?", "--model", "openai:tiny", "--base-url", server.base_url),
            *("--run-id", "a", "--mcp", RAW),
        )
        again = await ran(
            command,
            *("resume", "a", "--model", "openai:tiny", "--base-url", server.base_url),
            *("--mcp", RAW),
        )
    assert (done.code, done.out) == (0, "It has one.\n"), done.err
    assert (again.code, again.out) == (0, "It has one.\n"), again.err
    first, second = server.requests
    assert "pid" in {tool["function"]["name"] for tool in first.body["tools"]}
    assert int(second.body["messages"][-1]["content"])


async def test_a_server_that_does_not_start_fails_the_run_in_one_line(command: Command) -> None:
    async with chat_server.chat_server(lambda body: chat_server.says("no")) as server:
        done = await ran(
            command,
            *("run", "Go.", "--model", "openai:tiny", "--base-url", server.base_url),
            *("--run-id", "a", "--mcp", "no-such-program"),
        )
    assert done.code == 1
    assert "the MCP server no-such-program cannot be started" in done.err
    assert server.requests == []


def test_an_application_opens_its_own_servers(command: Command) -> None:
    done = command("run", "Go.", "--app", "a:b", "--mcp", "x")
    assert done.code == 2
    assert "--mcp goes with --model" in done.err
    assert done.out == ""
