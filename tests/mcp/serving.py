"""Servers for the tests, each a real child process, and short forms for what they are asked."""

from __future__ import annotations

import atexit
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import trio

from tests.runners import context
from trioagent import Text, ToolResult
from trioagent.mcp import McpTools, open_mcp

ROOT = Path(__file__).resolve().parents[2]
RAW = [sys.executable, "-m", "tests.mcp.raw"]
SDK = [sys.executable, "-m", "tests.mcp.server"]


@asynccontextmanager
async def serving(how: str, *options: str, **kwargs: Any) -> AsyncIterator[McpTools]:
    """The tools of the tests' own server, over ``stdio`` or ``http``; ``raw`` is the wild one.

    Over HTTP it is one process for all tests.
    """
    if how == "http":
        async with open_mcp(url=shared_http(), **kwargs) as tools:
            yield tools
        return
    command = [*RAW, *options] if how == "raw" else [*SDK, "stdio", *options]
    async with open_mcp(command=command, cwd=ROOT, **kwargs) as tools:
        yield tools


@cache
def shared_http() -> str:
    """The address of a server that runs until the tests end, or are killed."""
    process = subprocess.Popen(
        [*SDK, "http"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )

    def end() -> None:
        process.kill()
        process.communicate()

    atexit.register(end)
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


@asynccontextmanager
async def over_http() -> AsyncIterator[str]:
    """The address of a server that runs while the block does."""
    process = await trio.lowlevel.open_process(
        [*SDK, "http"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None and process.stdin is not None
        line = b""
        while not line.endswith(b"\n"):
            chunk = await process.stdout.receive_some()
            assert chunk, "the server did not start"
            line += chunk
        yield line.decode().strip()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdin.aclose()
            await process.stdout.aclose()


async def ask(tools: McpTools, name: str, /, **arguments: Any) -> ToolResult:
    """What the tool answers."""
    tool = {tool.original_name: tool for tool in tools}[name]
    return await tool.run(arguments, context(), tainted=False, deps=None)


def text(result: ToolResult) -> str:
    """The one text of a result."""
    (part,) = result.parts
    assert isinstance(part, Text)
    return part.text
