"""The rows of the wire formats: a long stream decoded, a long transcript written as a request."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tests.providers.wires import WIRES, Wire
from trioagent.messages import AssistantMessage, Message, Text, ToolCall, ToolMessage, UserMessage
from trioagent.provider import Request
from trioagent.providers.anthropic_encoder import AnthropicEncoder
from trioagent.providers.bodies import BodyReader
from trioagent.providers.chat_encoder import ChatEncoder
from trioagent.providers.recorded import DECODERS
from trioagent.providers.responses_encoder import ResponsesEncoder

from .measure import exponent, pair, seconds

Row = dict[str, Any]

_WORDS = 5000
_TURNS = [100, 200, 400]
_TIMES = 20
"""Requests a measurement: one takes less than a millisecond, which is no time to measure."""


async def decoding(_: Path, runs: int) -> list[Row]:
    """A stream of 5,000 deltas, cut as a network cuts it, against its JSON alone; a delta."""
    return [await _decoding_row(wire, runs) for wire in WIRES]


async def _decoding_row(wire: Wire, runs: int) -> Row:
    words = [f"word{number} " for number in range(_WORDS)]
    body = b"".join(wire.says(*words).pieces)
    chunks = [body[start : start + 1400] for start in range(0, len(body), 1400)]
    datas = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")]

    async def read() -> None:
        decoder, shown = DECODERS[wire.name](), 0

        def show(delta: object) -> None:
            nonlocal shown
            shown += 1

        reader = BodyReader(decoder, show)
        for chunk in chunks:
            reader.feed(chunk)
        assert decoder.finish().text == "".join(words)
        assert shown == _WORDS

    async def parse() -> None:
        for data in datas:
            msgspec.json.decode(data)

    found = await pair(partial(seconds, read), partial(seconds, parse), runs)
    return {
        "row": f"decoding, {wire.name}",
        "ratio": round(found.ratio, 2),
        "us_per_delta": round(found.ours / _WORDS * 1e6, 2),
        "base_us_per_delta": round(found.base / _WORDS * 1e6, 2),
        "runs": found.runs,
    }


async def requests(_: Path, runs: int) -> list[Row]:
    """The request of turn 400, whose earlier messages were sent before, against its bytes copied.

    The exponent is over turns 100, 200 and 400: 1 is a cost that grows with the bytes sent.
    """
    encoders: list[Any] = [ChatEncoder("m"), ResponsesEncoder("m"), AnthropicEncoder("m")]
    return [await _request_row(encoder, runs) for encoder in encoders]


async def _request_row(encoder: Any, runs: int) -> Row:
    messages = _conversation(_TURNS[-1])
    times = []
    for turns in _TURNS:
        sent = tuple(messages[: 2 * turns + 1])
        encoder.encode(Request(sent[:-2]))
        forms = [encoder._forms.of(message) for message in sent[:-2]]

        async def build(sent: tuple[Message, ...] = sent) -> None:
            # A new last turn each time: what a run adds and what has to be encoded.
            *before, last_call, last_result = sent
            for _ in range(_TIMES):
                call = AssistantMessage(last_call.parts)  # type: ignore[union-attr, arg-type]
                result = ToolMessage(last_result.call_id, "f", last_result.parts)  # type: ignore[union-attr, arg-type]
                encoder.encode(Request((*before, call, result)))

        async def copy(forms: list[bytes] = forms) -> None:
            for _ in range(_TIMES):
                msgspec.json.encode({"messages": msgspec.Raw(b"[" + b",".join(forms) + b"]")})

        found = await pair(partial(seconds, build), partial(seconds, copy), runs)
        times.append(found.ours)
    return {
        "row": f"request of turn {_TURNS[-1]}, {type(encoder).__name__}",
        "us_per_request": round(found.ours / _TIMES * 1e6, 1),
        "base_us_per_request": round(found.base / _TIMES * 1e6, 1),
        "bytes": len(encoder.encode(Request(tuple(messages)))),
        "cold_us_per_request": round(await _cold(encoder, messages) * 1e6, 1),
        "exponent": round(exponent(_TURNS, times), 3),
        "runs": found.runs,
    }


async def _cold(encoder: Any, messages: list[Message]) -> float:
    """The same request where no message was ever sent."""
    fresh = type(encoder)("m")

    async def build() -> None:
        fresh.encode(Request(tuple(messages)))

    return await seconds(build)


def _conversation(turns: int) -> list[Message]:
    messages: list[Message] = [UserMessage((Text("go"),))]
    for turn in range(turns):
        call = ToolCall(f"c{turn}", "f", json.dumps({"query": f"q{turn}", "limit": 10}))
        messages.append(AssistantMessage((Text("I look at it now. " * 8), call)))
        messages.append(ToolMessage(f"c{turn}", "f", (Text("a line that was found\n" * 40),)))
    return messages
