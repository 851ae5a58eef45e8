"""Servers that other people wrote: from PyPI, and the reference server from npm.

The reference server is not downloaded by a test: where `TRIOAGENT_EVERYTHING` names a folder into
which npm has installed `@modelcontextprotocol/server-everything`, it is started from there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.scripts import call, calling, saying, tool_messages
from trioagent import Agent, Image, open_journal
from trioagent.mcp import McpTools, open_mcp
from trioagent.providers import Scripted

from .serving import ask, text

TIME = [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"]


async def test_the_time_server_converts_a_time_for_an_agent_with_a_journal(tmp_path: Path) -> None:
    arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Kolkata"}
    async with open_mcp(command=TIME) as tools, open_journal(tmp_path / "runs.db") as journal:
        assert {tool.name for tool in tools} == {"get_current_time", "convert_time"}
        provider = Scripted([calling(call("convert_time", arguments)), saying("17:30")])
        agent = Agent(provider, tools=[*tools])
        async with journal.claim("time") as run:
            state = await agent.run("And in Kolkata?", step_runner=run)
    (message,) = tool_messages(state.transcript)
    assert message.outcome == "ok"
    assert json.loads(message.text)["time_difference"] == "+5.5h"


async def test_the_time_server_says_what_is_wrong_with_an_argument() -> None:
    async with open_mcp(command=TIME) as tools:
        result = await ask(tools, "get_current_time", timezone="Nowhere/Never")
    assert result.outcome == "error"
    assert "Nowhere/Never" in text(result)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
async def test_the_git_server_commits_and_tells_its_log(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    await trio.run_process(["git", "init", "-q", str(repository)])
    for key, value in (("user.name", "A Tester"), ("user.email", "tester@example.com")):
        await trio.run_process(["git", "-C", str(repository), "config", key, value])
    (repository / "file.txt").write_text("contents\n")
    where = {"repo_path": str(repository)}
    command = [sys.executable, "-m", "mcp_server_git", "--repository", str(repository)]
    async with open_mcp(command=command, trust_annotations=True) as tools:
        effects = {tool.name: tool.effect for tool in tools}
        assert (effects["git_status"], effects["git_commit"]) == ("read", "write")
        assert "file.txt" in text(await ask(tools, "git_status", **where))
        await ask(tools, "git_add", files=["file.txt"], **where)
        await ask(tools, "git_commit", message="the first", **where)
        assert "the first" in text(await ask(tools, "git_log", **where))
        assert (await ask(tools, "git_status", repo_path="/")).outcome == "error"


# -- the reference server -------------------------------------------------------------------------

FOLDER = os.environ.get("TRIOAGENT_EVERYTHING", "")
SCRIPT = Path(FOLDER, "node_modules/@modelcontextprotocol/server-everything/dist/index.js")
everything = pytest.mark.skipif(
    not FOLDER or not SCRIPT.exists() or shutil.which("node") is None,
    reason="TRIOAGENT_EVERYTHING names no folder with the reference server, or there is no Node",
)

TELL_PORT = """
const { Server } = require('node:net');
const listen = Server.prototype.listen;
Server.prototype.listen = function (...given) {
  this.once('listening', () => console.log('port ' + this.address().port));
  return listen.apply(this, given);
};
"""
"""The server prints the port that it was told, 0; this prints the one that it got."""


@asynccontextmanager
async def reference(how: str, folder: Path) -> AsyncIterator[McpTools]:
    """The reference server over ``stdio`` or ``streamableHttp``."""
    if how == "stdio":
        async with open_mcp(command=["node", str(SCRIPT), "stdio"]) as tools:
            yield tools
        return
    told = folder / "tell_port.cjs"
    told.write_text(TELL_PORT)
    process = await trio.lowlevel.open_process(
        ["node", "--require", str(told), str(SCRIPT), how],
        env={**os.environ, "PORT": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        said = b""
        while b"port " not in said or not said.endswith(b"\n"):
            chunk = await process.stdout.receive_some()
            assert chunk, said
            said += chunk
        port = int(said.partition(b"port ")[2].split()[0])
        async with open_mcp(url=f"http://127.0.0.1:{port}/mcp") as tools:
            yield tools
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdout.aclose()


@everything
@pytest.mark.parametrize("how", ["stdio", "streamableHttp"])
async def test_the_reference_server_answers_text_images_structures_and_errors(
    how: str, tmp_path: Path
) -> None:
    async with reference(how, tmp_path) as tools:
        assert not tools.left_out
        assert text(await ask(tools, "echo", message="hi")) == "Echo: hi"
        assert "42" in text(await ask(tools, "get-sum", a=40, b=2))
        picture = await ask(tools, "get-tiny-image")
        assert any(isinstance(part, Image) for part in picture.parts)
        structured = await ask(tools, "get-structured-content", location="Chicago")
        assert any("temperature" in getattr(part, "text", "") for part in structured.parts)
        assert (await ask(tools, "get-sum", a="no number", b=2)).outcome == "error"


@everything
@pytest.mark.parametrize("how", ["stdio", "streamableHttp"])
async def test_the_reference_servers_long_operations_run_side_by_side(
    how: str, tmp_path: Path
) -> None:
    results: list[Any] = []
    async with reference(how, tmp_path) as tools:

        async def one() -> None:
            results.append(
                await ask(tools, "trigger-long-running-operation", duration=0.2, steps=2)
            )

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
    assert [result.outcome for result in results] == ["ok"] * 20
