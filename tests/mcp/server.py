"""An MCP server for tests, on the SDK: ``python -m tests.mcp.server stdio|http [option...]``.

Options: ``pages=a,/b,/c`` lists one tool a page, each after its cursor, which is the text before
the slash; ``repeat`` gives the last cursor again and again.  Over HTTP the port is the system's
choice, and the address is the first line on standard output.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.stdio import stdio_server

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
ORDER = {
    "type": "object",
    "properties": {"o": {"$ref": "#/$defs/O", "description": "d"}},
    "required": ["o"],
    "$defs": {"O": {"type": "object", "properties": {"id": {"type": "integer"}}}},
}
ANY: dict[str, Any] = {"type": "object", "properties": {}}
HINTS = {
    "echo": types.ToolAnnotations(read_only_hint=True),
    "picture": types.ToolAnnotations(idempotent_hint=True),
}


class World:
    """What the tools share."""

    def __init__(self, options: list[str]) -> None:
        self.options = options
        self.added: list[str] = []
        self.met = 0
        self.all_met = anyio.Event()
        self.asked: list[str | None] = []


def tool(name: str, schema: dict[str, Any] = ANY) -> types.Tool:
    return types.Tool(
        name=name, description=f"{name}.", input_schema=schema, annotations=HINTS.get(name)
    )


NAMES = [
    "echo", "meet", "wait", "die", "picture", "sound", "resource", "structured", "wrapped", "nan",
    "fail", "fail.silently", "change", "asked", "refuse", "long",
]  # fmt: skip


def listing(world: World, cursor: str | None) -> types.ListToolsResult:
    """A page of the list."""
    world.asked.append(cursor)
    pages = next((o.removeprefix("pages=") for o in world.options if o.startswith("pages=")), None)
    if pages is None:
        tools = [tool(name, ORDER if name == "echo" else ANY) for name in NAMES + world.added]
        return types.ListToolsResult(tools=tools)
    entries = [entry.rpartition("/")[::2] for entry in pages.split(",")]
    if "repeat" in world.options:
        return types.ListToolsResult(tools=[tool(entries[0][1])], next_cursor=entries[-1][0])
    place = 0
    if cursor is not None:
        place = next(index for index, (key, _) in enumerate(entries) if index and key == cursor)
    after = entries[place + 1][0] if place + 1 < len(entries) else None
    return types.ListToolsResult(tools=[tool(entries[place][1])], next_cursor=after)


def said(*texts: str, **rest: Any) -> types.CallToolResult:
    blocks = [types.TextContent(text=text) for text in texts]
    return types.CallToolResult(content=[*blocks], **rest)


def blob(media_type: str) -> types.EmbeddedResource:
    contents = types.BlobResourceContents(uri="test://x", mime_type=media_type, blob="AAECAwQ=")
    return types.EmbeddedResource(resource=contents)


def answer(name: str, given: dict[str, Any]) -> types.CallToolResult:
    """What the tools say that only say something."""
    match name:
        case "echo":
            return said(json.dumps(given))
        case "picture":
            image = types.ImageContent(data=PIXEL, mime_type="image/png")
            return types.CallToolResult(content=[types.TextContent(text="shot"), image])
        case "sound":
            sound = types.AudioContent(data="AAECAwQ=", mime_type="audio/wav")
            drawing = types.ImageContent(data="PHN2Zy8+", mime_type="image/svg+xml")
            return types.CallToolResult(content=[sound, drawing])
        case "resource":
            text = types.TextResourceContents(uri="test://t", text="a resource's text")
            link = types.ResourceLink(uri="test://l", name="l", mime_type="a/b", size=7)
            page = types.EmbeddedResource(resource=text)
            return types.CallToolResult(content=[page, blob("application/pdf"), link])
        case "structured":
            return said("in short", structured_content={"n": 1, "deep": [{"x": None}]})
        case "wrapped":
            return said("1", "2", structured_content={"result": [1, 2]})
        case "nan":
            return said("NaN", structured_content={"value": float(given.get("value", "nan"))})
        case "fail":
            return said("no such thing", is_error=True)
        case "fail.silently":
            return types.CallToolResult(content=[], is_error=True)
        case "long":
            return said(json.dumps([{"n": n, "text": "x" * 50} for n in range(1000)]))
    raise ValueError(f"no such tool: {name}")


def build(world: World) -> Server[Any]:
    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return listing(world, None if params is None else params.cursor)

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        given = params.arguments or {}
        match params.name:
            case "meet":
                world.met += 1
                if world.met == given["of"]:
                    world.all_met.set()
                await world.all_met.wait()
                return said(str(given["n"]))
            case "wait":
                # Tells the client that the call is under way.
                await ctx.session.send_notification(
                    types.ToolListChangedNotification(), related_request_id=ctx.request_id
                )
                await anyio.sleep_forever()
            case "die":
                print("\x1b[31mfatal:\x1b[0m out of luck\x07", file=sys.stderr, flush=True)
                os._exit(7)
            case "change":
                world.added.append(given["name"])
                await ctx.session.send_notification(
                    types.ToolListChangedNotification(), related_request_id=ctx.request_id
                )
                return said("changed")
            case "asked" | "a":
                return said(json.dumps(world.asked))
            case "refuse":
                raise RuntimeError("refused\n" + "y" * 5000)
        return answer(params.name, given)

    return Server("tests", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def over_stdio(server: Server[Any]) -> None:
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, options)


def over_http(server: Server[Any]) -> None:
    import uvicorn

    def end_with_the_parent() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=end_with_the_parent, daemon=True).start()
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    made = build(World(sys.argv[2:]))
    if sys.argv[1] == "http":
        over_http(made)
    else:
        anyio.run(over_stdio, made, backend="trio")
