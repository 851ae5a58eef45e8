"""What the HTTP side promises: retries, time-outs, typed errors, a key that is never told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx2
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests import chat_server
from tests.chat_server import Reply, answers, events, fails, in_turn
from tests.providers.wires import CHAT, WIRES, Wire
from trioagent.errors import (
    AuthenticationError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    OverloadedError,
    ProtocolError,
    ProviderError,
    RateLimitError,
    UnavailableError,
)
from trioagent.events import TextDelta
from trioagent.messages import AssistantMessage, Text, Usage, UserMessage
from trioagent.provider import Delta, Request
from trioagent.providers import Anthropic
from trioagent.providers.bodies import MAX_ERROR_TEXT
from trioagent.providers.retries import LONGEST_WAIT, RetryPolicy, retry_after, should_retry

KEY = "sk-very-secret-0123456789"
REQUEST = Request((UserMessage((Text("hi"),)),))
ANSWER = AssistantMessage((Text("hello"),), Usage(5, 2), "served", "stop")


def no_wait() -> float:
    return 0.0


def full_wait() -> float:
    return 1.0


def ignore(delta: Delta) -> None:
    pass


@pytest.fixture(params=WIRES, ids=lambda wire: wire.name)
def wire(request: pytest.FixtureRequest) -> Wire:
    """Each wire format in turn: what is promised here is promised of all."""
    found: Wire = request.param
    return found


def model_at(base_url: str, wire: Wire = CHAT, **options: Any) -> Any:
    return wire.at(base_url, api_key=KEY, **{"jitter": no_wait, **options})


async def failure(reply: Reply, wire: Wire = CHAT, **options: Any) -> ProviderError:
    """The error that a model ends with whose every request is answered with `reply`."""
    async with chat_server.chat_server(lambda body: reply) as server:
        model = model_at(server.base_url, wire, **{"max_retries": 0, **options})
        with pytest.raises(ProviderError) as caught:
            await model.complete(REQUEST, ignore)
    error: ProviderError = caught.value
    return error


# -- retries --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [
        lambda wire: Reply(status=None),
        lambda wire: fails(500),
        lambda wire: fails(429),
        lambda wire: fails(529),
        lambda wire: answers(408, "time-out"),
        lambda wire: events(),
        lambda wire: events("{"),
        lambda wire: wire.events(),
        lambda wire: wire.events(end="close"),
        lambda wire: wire.events(*wire.half_call, end="close"),
    ],
)
async def test_a_failure_before_anything_is_shown_is_tried_again(
    first: Callable[[Wire], Reply], wire: Wire
) -> None:
    shown: list[Delta] = []
    replies = [first(wire), first(wire), wire.says("hel", "lo")]
    async with chat_server.chat_server(in_turn(replies)) as server:
        assert await model_at(server.base_url, wire).complete(REQUEST, shown.append) == ANSWER
    assert shown == [TextDelta("hel"), TextDelta("lo")]
    assert len(server.requests) == 3
    assert len({str(request) for request in server.requests}) == 1
    assert server.requests[0].path == wire.path


async def test_wire_036_an_overload_in_the_stream_is_tried_again_by_its_type(wire: Wire) -> None:
    overload = wire.error({"type": "overloaded_error", "message": "Overloaded"})
    replies = [events(overload), wire.events(overload), wire.says("hello")]
    async with chat_server.chat_server(in_turn(replies)) as server:
        assert await model_at(server.base_url, wire).complete(REQUEST, ignore) == ANSWER
    error = await failure(events(overload), wire)
    assert type(error) is OverloadedError and error.retryable and error.status is None


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        (lambda wire: wire.events(wire.word("hel"), end="close"), ProtocolError),
        (lambda wire: wire.events(wire.word("hel")), ProtocolError),
        (
            lambda wire: wire.events(wire.word("hel"), wire.error({"code": 503})),
            UnavailableError,
        ),
        (
            lambda wire: wire.events(wire.word("hel"), wire.error({"type": "overloaded_error"})),
            OverloadedError,
        ),
    ],
)
async def test_a_failure_after_something_was_shown_is_raised(
    rest: Callable[[Wire], Reply], expected: type[ProviderError], wire: Wire
) -> None:
    shown: list[Delta] = []
    async with chat_server.chat_server(in_turn([rest(wire), wire.says("no")])) as server:
        with pytest.raises(expected):
            await model_at(server.base_url, wire).complete(REQUEST, shown.append)
    assert shown == [TextDelta("hel")]
    assert len(server.requests) == 1


async def test_the_last_error_is_raised_when_the_retries_are_used_up() -> None:
    replies = [fails(500), fails(500), fails(429)]
    async with chat_server.chat_server(in_turn(replies)) as server:
        with pytest.raises(RateLimitError):
            await model_at(server.base_url, max_retries=2).complete(REQUEST, ignore)
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_what_would_fail_again_is_not_tried_again(status: int) -> None:
    async with chat_server.chat_server(lambda body: fails(status)) as server:
        with pytest.raises(ProviderError):
            await model_at(server.base_url).complete(REQUEST, ignore)
    assert len(server.requests) == 1


async def times_asked(
    reply: Callable[[int], httpx2.Response], wire: Wire = CHAT, **options: Any
) -> tuple[list[float], ProviderError]:
    """When a model asked, in seconds from the first time, and the error that it ended with.

    The transport is one in memory, so that nothing but the model's own waits takes time.
    """
    times: list[float] = []

    async def handler(request: httpx2.Request) -> httpx2.Response:
        times.append(trio.current_time())
        return reply(len(times))

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(handler)) as client:
        model = wire.provider("m", client=client, **options)
        with pytest.raises(ProviderError) as caught:
            await model.complete(REQUEST, ignore)
    return [time - times[0] for time in times], caught.value


async def test_the_back_off_doubles_up_to_its_bound(autojump_clock: MockClock) -> None:
    times, _ = await times_asked(
        lambda number: httpx2.Response(500), max_retries=7, jitter=full_wait
    )
    assert times == pytest.approx([0, 0.5, 1.5, 3.5, 7.5, 15.5, 23.5, 31.5])


async def test_the_jitter_takes_a_share_of_the_back_off(autojump_clock: MockClock) -> None:
    shares = iter([0.5, 0.25])
    times, _ = await times_asked(
        lambda number: httpx2.Response(500), max_retries=2, jitter=lambda: next(shares)
    )
    assert times == pytest.approx([0, 0.25, 0.5])


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        (
            {
                "retry-after": "Wed, 21 Oct 2026 07:28:30 GMT",
                "date": "Wed, 21 Oct 2026 07:28:00 GMT",
            },
            30.0,
        ),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_wire_043_the_vendor_s_wait_is_kept_to_on_every_wire_format(
    headers: dict[str, str], expected: float, status: int, wire: Wire, autojump_clock: MockClock
) -> None:
    times, error = await times_asked(
        lambda number: httpx2.Response(status, headers=headers), wire, max_retries=1
    )
    assert times == pytest.approx([0, expected])
    assert error.retry_after == expected


async def test_a_wait_that_is_too_long_is_left_to_the_caller(autojump_clock: MockClock) -> None:
    headers = {"retry-after": str(LONGEST_WAIT + 1)}
    times, error = await times_asked(lambda number: httpx2.Response(429, headers=headers))
    assert times == [0]
    assert error.retry_after == LONGEST_WAIT + 1


@pytest.mark.parametrize("value", ["Wed, 21 Oct 99999 07:28:00 GMT", "soon", "-1", "nan", "1e400"])
async def test_wire_041_an_odd_retry_after_is_treated_as_absent(
    value: str, autojump_clock: MockClock
) -> None:
    times, error = await times_asked(
        lambda number: httpx2.Response(529, headers={"retry-after": value}),
        max_retries=1,
        jitter=full_wait,
    )
    assert times == pytest.approx([0, 0.5])
    assert isinstance(error, OverloadedError) and error.retry_after is None


async def test_wire_042_x_should_retry_outweighs_the_error_s_class(
    wire: Wire, autojump_clock: MockClock
) -> None:
    def reply(advice: str, status: int) -> httpx2.Response:
        return httpx2.Response(status, headers={"retry-after-ms": "500", "x-should-retry": advice})

    times, _ = await times_asked(lambda number: reply("false", 503), wire)
    assert times == [0]
    times, _ = await times_asked(lambda number: reply("true", 503), wire, max_retries=1)
    assert times == pytest.approx([0, 0.5])
    times, _ = await times_asked(lambda number: reply("true", 400), wire, max_retries=1)
    assert times == pytest.approx([0, 0.5])


def test_a_date_without_the_server_s_own_is_compared_with_the_clock() -> None:
    headers = {"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}
    assert retry_after(headers, now=20.0) == 40.0
    assert retry_after(headers, now=90.0) == 0.0
    assert retry_after({}, now=0.0) is None


def test_advice_that_is_neither_true_nor_false_is_none() -> None:
    assert should_retry({"x-should-retry": " True "}) is True
    assert should_retry({"x-should-retry": "maybe"}) is None
    assert should_retry({}) is None


def test_no_number_of_retries_makes_a_wait_overflow() -> None:
    policy = RetryPolicy(10**9, full_wait)
    assert policy.wait(10**8, UnavailableError("x")) == 8.0


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (fails(400), InvalidRequestError),
        (fails(401, code="invalid_api_key"), AuthenticationError),
        (fails(402), AuthenticationError),
        (fails(403), AuthenticationError),
        (fails(404, code="model_not_found"), InvalidRequestError),
        (fails(422), InvalidRequestError),
        (fails(429, kind="requests", code="rate_limit_exceeded"), RateLimitError),
        (fails(429, kind="insufficient_quota", code="insufficient_quota"), AuthenticationError),
        (fails(413, code="rate_limit_exceeded"), RateLimitError),
        (fails(413), InvalidRequestError),
        (fails(400, code="context_length_exceeded"), ContextLengthError),
        (fails(400, "This model's maximum context length is 8 tokens"), ContextLengthError),
        (fails(400, "prompt is too long: 9 tokens > 8"), ContextLengthError),
        (fails(400, code="content_filter"), ContentFilterError),
        (fails(400, "triggering Azure's content management policy"), ContentFilterError),
        (fails(500, kind="server_error"), UnavailableError),
        (fails(502), UnavailableError),
        (fails(503), UnavailableError),
        (fails(503, "The engine is currently overloaded"), OverloadedError),
        (fails(529), OverloadedError),
        (fails(408), UnavailableError),
        (answers(307, "", [("location", "https://example.org/")]), InvalidRequestError),
        (answers(500, "<html>\n Bad gateway\n</html>"), UnavailableError),
        (Reply((b"\xff\xfe",), 400), InvalidRequestError),
        (Reply((b"[" * 10_000,), 400), InvalidRequestError),
        (Reply((b'[{"error": {"message": "m", "code": 400}}]',), 400), InvalidRequestError),
        (Reply((b'{"error": "half',), 500, end="close"), UnavailableError),
        (Reply(status=None), UnavailableError),
        (events(), ProtocolError),
        (events("", end="close"), ProtocolError),
        (
            events({"error": {"message": "m", "code": "context_length_exceeded"}}),
            ContextLengthError,
        ),
        (answers(200, {"error": {"message": "m", "code": 503}}), UnavailableError),
        (answers(200, "<html>hello</html>"), ProtocolError),
        (Reply((b"zzz",), headers=(("content-encoding", "gzip"),)), ProtocolError),
        (Reply((b"zzz",), 401, headers=(("content-encoding", "gzip"),)), AuthenticationError),
    ],
)
async def test_a_failure_is_typed(reply: Reply, expected: type[ProviderError], wire: Wire) -> None:
    error = await failure(reply, wire)
    assert type(error) is expected
    assert error.status in (None, 503 if reply.status == 200 else reply.status)


async def test_what_the_vendor_says_is_told_and_cut() -> None:
    error = await failure(fails(400, "the field x is odd", code="odd", kind="invalid"))
    assert str(error) == "HTTP 400 (invalid odd): the field x is odd"
    error = await failure(fails(400, "long " * 1000))
    assert len(str(error)) == MAX_ERROR_TEXT
    assert str(error).startswith("HTTP 400: long long")


async def test_the_body_of_an_error_is_not_read_without_end() -> None:
    error = await failure(Reply((b"x" * 50_000,) * 4, 500, end="stall"))
    assert type(error) is UnavailableError


async def test_a_port_without_a_listener_is_unavailable() -> None:
    model = model_at(await chat_server.refused_base_url(), max_retries=1)
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1"):
        await model.complete(REQUEST, ignore)


# -- the key --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        fails(401, f"the key {KEY} is wrong"),
        fails(401, "x" * (MAX_ERROR_TEXT - 20) + KEY),
        answers(500, f"trace: Authorization: Bearer {KEY}"),
        events({"error": {"message": f"no such key: {KEY}", "type": "authentication_error"}}),
        answers(200, {"error": {"message": KEY}}),
    ],
)
async def test_a_key_that_is_echoed_is_struck_out(reply: Reply, wire: Wire) -> None:
    error = await failure(reply, wire)
    assert KEY[:8] not in str(error) and KEY[:8] not in repr(error)
    assert error.__cause__ is None


def test_the_key_is_in_no_repr(wire: Wire) -> None:
    model = model_at("http://127.0.0.1:1/v1", wire)
    assert repr(model) == f"{wire.provider.__name__}('m')"
    assert KEY not in repr(model._endpoint)


@pytest.mark.parametrize("bad", [KEY + "\n", KEY + "é", f"{KEY} {KEY}"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_told(bad: str, wire: Wire) -> None:
    with pytest.raises(ValueError, match="line end") as caught:
        wire.provider("m", api_key=bad)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "example.org"},
        {"base_url": "ftp://example.org"},
        {"base_url": "https://user:word@example.org"},
        {"base_url": "https://"},
        {"base_url": "https://example.org:port"},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"max_retries": -1},
    ],
)
def test_an_argument_out_of_its_range_is_refused(options: dict[str, Any], wire: Wire) -> None:
    with pytest.raises(ValueError) as caught:
        wire.provider("m", **options)
    assert "word" not in str(caught.value).replace("password", "")


# -- time-outs, cancellation, connections ---------------------------------------------------------


async def test_silence_for_the_time_out_is_unavailable(wire: Wire, mock_clock: MockClock) -> None:
    async def wait_it_out() -> None:
        await server.stalled.wait()
        await wait_all_tasks_blocked()
        mock_clock.jump(31)

    async with (
        chat_server.chat_server(lambda body: wire.events(end="stall")) as server,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(wait_it_out)
        model = model_at(server.base_url, wire, timeout=30, max_retries=0)
        with pytest.raises(UnavailableError, match="silent for 30 seconds"):
            await model.complete(REQUEST, ignore)
        await server.hung_up.wait()


async def test_a_cancelled_call_closes_its_connection(wire: Wire) -> None:
    def show(delta: Delta) -> None:
        scope.cancel()

    async with chat_server.chat_server(
        lambda body: wire.events(wire.word("hel"), end="stall")
    ) as server:
        with trio.CancelScope() as scope:
            await model_at(server.base_url, wire).complete(REQUEST, show)
        assert scope.cancelled_caught
        await server.hung_up.wait()
    assert len(server.requests) == 1


async def test_an_exception_of_emit_goes_through_and_closes_the_connection(wire: Wire) -> None:
    def show(delta: Delta) -> None:
        raise KeyError("mine")

    async with chat_server.chat_server(
        lambda body: wire.events(wire.word("hel"), end="stall")
    ) as server:
        with pytest.raises(KeyError, match="mine"):
            await model_at(server.base_url, wire).complete(REQUEST, show)
        await server.hung_up.wait()


async def test_a_reply_is_whole_at_its_end_though_the_server_never_ends_it(wire: Wire) -> None:
    async with chat_server.chat_server(lambda body: wire.says("hello", end="stall")) as server:
        assert await model_at(server.base_url, wire).complete(REQUEST, ignore) == ANSWER
        await server.hung_up.wait()


async def test_a_connection_that_breaks_after_the_stop_reason_has_given_the_reply(
    wire: Wire,
) -> None:
    ending = wire.ending("hello", 5, 2)
    reply = wire.events(wire.word("hello"), *ending, end="close")
    async with chat_server.chat_server(lambda body: reply) as server:
        assert await model_at(server.base_url, wire).complete(REQUEST, ignore) == ANSWER


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream", "text/html"])
@pytest.mark.parametrize("stream", [True, False])
async def test_json_is_read_whether_it_was_asked_for_or_not_whatever_its_content_type(
    content_type: str, stream: bool, wire: Wire
) -> None:
    body = b"\n" + json.dumps(wire.whole("hello")).encode()
    reply = Reply((body[:1], body[1:9], body[9:]), headers=(("content-type", content_type),))
    shown: list[Delta] = []
    async with chat_server.chat_server(lambda body: reply) as server:
        model = model_at(server.base_url, wire, stream=stream)
        assert await model.complete(REQUEST, shown.append) == ANSWER
    assert shown == [TextDelta("hello")]
    (request,) = server.requests
    assert request.body["stream"] is stream
    assert stream or "stream_options" not in request.body
    assert request.headers["accept"] == ("text/event-stream" if stream else "application/json")


async def test_a_stream_that_was_not_asked_for_is_read_all_the_same(wire: Wire) -> None:
    async with chat_server.chat_server(lambda body: wire.says("hello")) as server:
        model = model_at(server.base_url, wire, stream=False)
        assert await model.complete(REQUEST, ignore) == ANSWER


async def test_the_key_goes_in_the_header_of_the_vendor(wire: Wire) -> None:
    async with chat_server.chat_server(lambda body: wire.says("hello")) as server:
        await model_at(server.base_url, wire).complete(REQUEST, ignore)
        await wire.at(server.base_url).complete(REQUEST, ignore)
    with_key, without = server.requests
    header = "x-api-key" if wire.provider is Anthropic else "authorization"
    assert with_key.headers[header].removeprefix("Bearer ") == KEY
    assert header not in without.headers


async def test_each_call_has_a_connection_unless_the_caller_gives_a_client(wire: Wire) -> None:
    async with chat_server.chat_server(lambda body: wire.says("hello")) as server:
        model = model_at(server.base_url, wire)
        await model.complete(REQUEST, ignore)
        await model.complete(REQUEST, ignore)
        assert server.connections == 2
        async with httpx2.AsyncClient(trust_env=False) as client:
            model = model_at(server.base_url, wire, client=client)
            await model.complete(REQUEST, ignore)
            await model.complete(REQUEST, ignore)
        assert server.connections == 3


async def test_a_query_of_the_base_url_is_kept(wire: Wire) -> None:
    async with chat_server.chat_server(lambda body: wire.says("hello")) as server:
        await model_at(server.base_url + "/?api-version=1", wire).complete(REQUEST, ignore)
    assert server.requests[0].path == wire.path + "?api-version=1"


def test_one_provider_serves_one_event_loop_after_another() -> None:
    model = model_at(trio.run(chat_server.refused_base_url), max_retries=0)

    async def main() -> str:
        with pytest.raises(UnavailableError) as caught:
            await model.complete(REQUEST, ignore)
        return str(caught.value)

    assert trio.run(main) == trio.run(main)


# -- other processes ------------------------------------------------------------------------------

SERVER = """
from tests.chat_server import announce_on_stdout, run_server, says
run_server(lambda body: says("hello"), announce_on_stdout)
"""


async def test_the_server_runs_in_another_process_until_its_input_ends(
    pytestconfig: pytest.Config,
) -> None:
    run = partial(
        trio.run_process,
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=pytestconfig.rootpath,
    )
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(run)
        assert process.stdin is not None and process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            line += await process.stdout.receive_some()
        message = await model_at(line.decode().strip()).complete(REQUEST, ignore)
        await process.stdin.aclose()
    assert message == ANSWER
    assert process.returncode == 0


LAZY = """
import sys
import trioagent.providers
assert "OpenAIChat" in dir(trioagent.providers) and "httpx2" not in sys.modules
trioagent.providers.read_reply  # needs none either
sys.modules["httpx2"] = None  # as if it were not installed
from trioagent.providers import Scripted
for name in ("OpenAIChat", "OpenAIResponses", "Anthropic"):
    try:
        getattr(trioagent.providers, name)
    except ImportError as exc:
        assert "trioagent[http]" in str(exc), exc
    else:
        raise SystemExit("imported without httpx2")
"""


async def test_the_http_library_is_needed_only_by_models_over_http() -> None:
    done = await trio.run_process([sys.executable, "-W", "error", "-c", LAZY])
    assert done.returncode == 0
