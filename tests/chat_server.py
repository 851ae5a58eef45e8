"""A real HTTP/1.1 chat-completions server on the loopback interface, for tests.

What it says is a function from the request's JSON to a `Reply`, so it is the same function that a
test runs in its own process (`chat_server`) and that another process serves (`run_server`).  The
port is the operating system's choice.  Nothing here sleeps: a reply that stalls waits for its
client to hang up.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import h11
import trio

JSON: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server sends: each of `pieces` as one HTTP chunk, and then `end`.

    `end` is ``whole`` (the body ends as it should), ``close`` (the connection closes inside it) or
    ``stall`` (nothing more comes until the client hangs up).  Without a `status` the connection is
    closed before anything is answered.
    """

    pieces: tuple[bytes, ...] = ()
    status: int | None = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "text/event-stream"),)
    end: Literal["whole", "close", "stall"] = "whole"


Handler: TypeAlias = Callable[[JSON], Reply]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request as it came: header names in lower case, the body parsed."""

    path: str
    headers: dict[str, str]
    body: JSON


@dataclass(slots=True)
class ChatServer:
    """A server under way.

    `stalled` is set when a reply has sent all that it will and waits, `hung_up` when the client of
    a stalled reply has closed its connection, `over` when any connection is.  `connections` counts
    those accepted, `sent` the pieces of replies that were sent.
    """

    base_url: str
    handler: Handler
    requests: list[Recorded] = field(default_factory=list)
    connections: int = 0
    stalled: trio.Event = field(default_factory=trio.Event)
    hung_up: trio.Event = field(default_factory=trio.Event)
    over: trio.Event = field(default_factory=trio.Event)
    sent: int = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer the requests of one connection."""
        self.connections += 1
        conn = h11.Connection(h11.SERVER)
        try:
            while await self._answer(conn, stream):
                conn.start_next_cycle()
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            pass  # The client went away, which is what many tests are about.
        finally:
            await trio.aclose_forcefully(stream)
            self.over.set()

    async def _answer(self, conn: h11.Connection, stream: trio.SocketStream) -> bool:
        """One request and its reply; whether the connection can have another."""
        request = await _event(conn, stream)
        if not isinstance(request, h11.Request):
            return False
        body = bytearray()
        while isinstance(event := await _event(conn, stream), h11.Data):
            body += event.data
        headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
        recorded = Recorded(request.target.decode(), headers, json.loads(bytes(body) or b"{}"))
        self.requests.append(recorded)
        reply = self.handler(recorded.body)
        if reply.status is None:
            return False
        start = h11.Response(
            status_code=reply.status, headers=[*reply.headers, ("transfer-encoding", "chunked")]
        )
        await _send(conn, stream, start)
        for piece in reply.pieces:
            await _send(conn, stream, h11.Data(data=piece))
            self.sent += 1
        if reply.end == "stall":
            self.stalled.set()
            while await stream.receive_some():
                pass
            self.hung_up.set()
        if reply.end != "whole":
            return False
        await _send(conn, stream, h11.EndOfMessage())
        return conn.our_state is h11.DONE and conn.their_state is h11.DONE


async def _event(conn: h11.Connection, stream: trio.SocketStream) -> Any:
    while (event := conn.next_event()) is h11.NEED_DATA:
        conn.receive_data(await stream.receive_some())
    return event


async def _send(conn: h11.Connection, stream: trio.SocketStream, event: h11.Event) -> None:
    data = conn.send(event)
    assert data is not None
    await stream.send_all(data)


# -- running it -----------------------------------------------------------------------------------


async def serve(
    handler: Handler, *, task_status: trio.TaskStatus[ChatServer] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled: ``server = await nursery.start(serve, handler)``."""
    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        server = ChatServer(f"http://127.0.0.1:{port}/v1", handler)
        await nursery.start(trio.serve_listeners, server.serve, listeners)
        task_status.started(server)


@asynccontextmanager
async def chat_server(handler: Handler) -> AsyncIterator[ChatServer]:
    """``async with chat_server(handler) as server``: serving while the block lasts."""
    async with trio.open_nursery() as nursery:
        yield await nursery.start(serve, handler)
        nursery.cancel_scope.cancel()


def run_server(handler: Handler, announce: Callable[[str], object]) -> None:
    """Serve in this process, which is another one than the test's, until standard input ends.

    `announce` is called once with the base URL, when connections are accepted.  Standard input is
    a pipe of the parent: it ends also where the parent was killed, so no server is left over.
    """

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            server = await nursery.start(serve, handler)
            announce(server.base_url)
            async with trio.lowlevel.FdStream(0) as parent:
                while await parent.receive_some():
                    pass
            nursery.cancel_scope.cancel()

    trio.run(main)


def announce_on_stdout(base_url: str) -> None:
    """One line on standard output, for the parent to read."""
    print(base_url, flush=True)


async def refused_base_url() -> str:
    """A base URL at which nobody listens: a port that was just bound and never listened on."""
    with trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        await sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}/v1"


# -- replies --------------------------------------------------------------------------------------


def event(data: JSON | str) -> bytes:
    """One server-sent event."""
    return b"data: " + (data if isinstance(data, str) else json.dumps(data)).encode() + b"\n\n"


def chunk(delta: JSON, finish_reason: str | None = None) -> JSON:
    """One chunk of a chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"object": "chat.completion.chunk", "model": "served", "choices": [choice]}


def usage(prompt: int, completion: int) -> JSON:
    """The chunk that reports usage, in tokens."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {"object": "chat.completion.chunk", "model": "served", "choices": [], "usage": counts}


def events(*datas: JSON | str, end: Literal["whole", "close", "stall"] = "whole") -> Reply:
    """A stream of these events and no others."""
    return Reply(tuple(event(data) for data in datas), end=end)


def says(*words: str, tokens: tuple[int, int] = (5, 2)) -> Reply:
    """A streamed answer, a chunk for each of `words`."""
    return events(
        *[chunk({"content": word}) for word in words],
        chunk({}, "stop"),
        usage(*tokens),
        "[DONE]",
    )


def calls(*wanted: tuple[str, str, JSON], tokens: tuple[int, int] = (5, 2)) -> Reply:
    """A streamed turn of tool calls, each ``(id, name, arguments)``, arguments in two halves."""
    chunks: list[JSON] = []
    for index, (call_id, name, arguments) in enumerate(wanted):
        text = json.dumps(arguments)
        head = {"name": name, "arguments": text[: len(text) // 2]}
        tail = {"arguments": text[len(text) // 2 :]}
        for fragment in ({"id": call_id, "type": "function", "function": head}, {"function": tail}):
            chunks.append(chunk({"tool_calls": [{"index": index, **fragment}]}))
    return events(*chunks, chunk({}, "tool_calls"), usage(*tokens), "[DONE]")


def answers(status: int, body: JSON | str, headers: Iterable[tuple[str, str]] = ()) -> Reply:
    """A response that is not streamed: `body` as JSON, or as the text that it is."""
    text = body if isinstance(body, str) else json.dumps(body)
    content_type = "text/plain" if isinstance(body, str) else "application/json"
    return Reply((text.encode(),), status, (("content-type", content_type), *headers))


def fails(
    status: int,
    message: str = "no",
    *,
    code: str | None = None,
    kind: str | None = None,
    headers: Iterable[tuple[str, str]] = (),
) -> Reply:
    """An error as the vendor writes one."""
    return answers(status, {"error": {"message": message, "type": kind, "code": code}}, headers)


def in_turn(replies: Sequence[Reply]) -> Handler:
    """A handler that gives `replies` one after another, and the last of them for ever."""
    left = list(replies)

    def handler(body: JSON) -> Reply:
        return left.pop(0) if len(left) > 1 else left[0]

    return handler
