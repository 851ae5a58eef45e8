"""A server over HTTP that misbehaves: each time one call fails, and the session goes on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.chat_server import ChatServer, Reply, chat_server
from trioagent.mcp import McpError, McpLimits, open_mcp

from .serving import ask, text

JSON = (("content-type", "application/json"),)
SSE = (("content-type", "text/event-stream"),)


def said(body: dict[str, Any], words: str) -> bytes:
    result = {"content": [{"type": "text", "text": words}]}
    return json.dumps({"jsonrpc": "2.0", "id": body["id"], "result": result}).encode()


def server(wild: Callable[[dict[str, Any]], Reply]) -> Callable[[dict[str, Any]], Reply]:
    """A server whose tool `tame` answers, and whose tool `wild` answers as told."""

    def handle(body: dict[str, Any]) -> Reply:
        if "id" not in body:
            return Reply(status=202, headers=())
        match body["method"]:
            case "initialize":
                result: dict[str, Any] = {
                    "protocolVersion": body["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "wild", "version": "1"},
                }
            case "tools/list":
                schema = {"type": "object"}
                result = {"tools": [{"name": n, "inputSchema": schema} for n in ("tame", "wild")]}
            case _ if body["params"]["name"] == "wild":
                return wild(body)
            case _:
                return Reply((said(body, "tame"),), headers=JSON)
        answer = {"jsonrpc": "2.0", "id": body["id"], "result": result}
        return Reply((json.dumps(answer).encode(),), headers=JSON)

    return handle


def address(running: ChatServer) -> str:
    return running.base_url.removesuffix("/v1") + "/mcp"


LONG = b'{"jsonrpc": "2.0", "id": 1, "result": {"x": "' + b"y" * 200_000


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply((LONG,), headers=JSON), "a body of more than 100000 bytes"),
        (Reply((LONG,), status=400, headers=JSON), "error"),
        (Reply((b"data: " + LONG + b"\n\n",), headers=SSE), "SSE"),
        (
            Reply((gzip.compress(LONG),), headers=(*JSON, ("content-encoding", "gzip"))),
            "compressed its answer",
        ),
        (Reply((b'{"jsonrpc"',), headers=JSON), "parse"),
        (Reply((b'{"jsonrpc"',), headers=JSON, end="close"), "Failed to parse JSON response"),
        (Reply((b"data: {",), headers=SSE, end="close"), "ended without a response"),
        (Reply(status=None), "may have taken effect"),
        (Reply((b"<html>",), headers=(("content-type", "text/html"),)), "text/html"),
        (Reply(status=202, headers=()), "202"),
        (Reply(status=500, headers=()), "error response"),
        (
            Reply(status=307, headers=(("location", "http://127.0.0.2:1/mcp"),)),
            "Redirect to http://127.0.0.2:1/mcp not followed",
        ),
        (Reply((b"data: not json\n\n",), headers=SSE), "Failed to parse SSE message"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_wild_answer_is_an_error_of_its_call_alone(reply: Reply, says: str) -> None:
    async with (
        chat_server(server(lambda body: reply)) as running,
        open_mcp(url=address(running), limits=McpLimits(max_message_bytes=100_000)) as tools,
    ):
        result = await ask(tools, "wild")
        assert result.outcome == "error"
        assert says in text(result)
        assert len(text(result)) < 2000
        assert text(await ask(tools, "tame")) == "tame"


async def test_a_stalled_answer_ends_with_the_calls_timeout() -> None:
    stall = Reply((b" ",), headers=JSON, end="stall")
    async with (
        chat_server(server(lambda body: stall)) as running,
        open_mcp(url=address(running), timeout=0.05) as tools,
    ):
        assert "timed out after 0.05 s" in text(await ask(tools, "wild"))
        tools[0].timeout = None
        assert text(await ask(tools, "tame")) == "tame"


async def test_headers_go_with_every_request_and_stand_in_no_error() -> None:
    def refuse(body: dict[str, Any]) -> Reply:
        return Reply(status=401, headers=())

    secret = {"authorization": "Bearer secret"}
    async with chat_server(refuse) as running:
        with pytest.raises(McpError) as caught:
            async with open_mcp(url=address(running) + "?key=secret", headers=secret):
                pytest.fail("it started")
        sent = [request.headers["authorization"] for request in running.requests]
    assert sent and set(sent) == {"Bearer secret"}
    assert "secret" not in str(caught.value)
