"""What every recorded body must hold to, checked; each check gives the faults that it found."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from tests.wire.plain import NotAReplyError, plain_reading
from tests.wire.recordings import Recording
from trioagent.errors import ProviderError
from trioagent.events import TextDelta
from trioagent.messages import AssistantMessage
from trioagent.provider import Delta
from trioagent.providers import Reply, read_reply
from trioagent.providers.bodies import BodyReader
from trioagent.providers.recorded import DECODERS

Verdict: TypeAlias = Literal["read", "typed error", "refused"]


def verdict(recording: Recording) -> tuple[Verdict, Reply | ProviderError]:
    """How `read_reply` took the recording; anything but a `ProviderError` goes through."""
    try:
        return "read", read_reply(
            recording.api,
            recording.body,
            status=recording.status,
            content_type=recording.content_type,
        )
    except ProviderError as exc:
        try:
            plain_reading(recording.api, recording.status, recording.body)
        except NotAReplyError as found:
            return ("refused" if "not finished" in str(found) else "typed error"), exc
        raise


def disagreements(recording: Recording, reply: Reply) -> Iterator[str]:
    """Where the plain reading finds another text, other calls or other counts."""
    plain = plain_reading(recording.api, recording.status, recording.body)
    message = reply.message
    if message.text != plain.text:
        yield f"text: {message.text!r} is not {plain.text!r}"
    calls = [(call.name, _parsed(call.arguments)) for call in message.tool_calls]
    if calls != plain.calls:
        yield f"calls: {calls} are not {plain.calls}"
    usage = message.usage
    counts = (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
    )
    if counts != (plain.usage or (0, 0, 0, 0, 0)):
        yield f"usage: {counts} is not {plain.usage}"
    if message.usage_missing != (plain.usage is None):
        yield f"usage_missing: {message.usage_missing}, the body reports {plain.usage}"


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


# -- splits ---------------------------------------------------------------------------------------


def splits(body: bytes, *, thorough: bool) -> Iterator[list[bytes]]:
    """Ways to cut a body: by line, in two, at random; byte by byte where it is small."""
    yield body.splitlines(keepends=True)
    seed = random.Random(len(body))
    for count in (1, 5, 200) if thorough else (7,):
        cuts = sorted(seed.randrange(len(body) + 1) for _ in range(count))
        yield [body[a:b] for a, b in pairwise([0, *cuts, len(body)])]
    if thorough:
        yield [body[a : a + 1021] for a in range(0, len(body), 1021)]
        if len(body) <= 60_000:
            yield [body[a : a + 1] for a in range(len(body))]


def read_in_chunks(api: str, chunks: Iterable[bytes]) -> tuple[AssistantMessage, str]:
    """The reply of a body that comes in chunks, and the text that was shown of it."""
    decoder = DECODERS[api]()
    shown: list[Delta] = []
    reader = BodyReader(decoder, shown.append)
    for chunk in chunks:
        reader.feed(chunk)
        if decoder.ended:
            break
    else:
        reader.close()
    text = "".join(delta.text for delta in shown if isinstance(delta, TextDelta))
    return decoder.finish(), text


def split_faults(recording: Recording, reply: Reply, *, thorough: bool) -> Iterator[str]:
    """Splits that give another reply, and text that was shown and is not the reply's."""
    for chunks in splits(recording.body, thorough=thorough):
        message, shown = read_in_chunks(recording.api, chunks)
        if message != reply.message:
            yield f"a split into {len(chunks)} chunks gives another reply"
        if shown != reply.message.text:
            yield f"the text shown is {shown!r}, the reply's {reply.message.text!r}"


# -- a stream and the whole -----------------------------------------------------------------------


def final_response_faults(recording: Recording, reply: Reply) -> Iterator[str]:
    """A Responses stream ends with the whole response, which is the same as a body of its own."""
    if recording.api != "openai-responses" or not recording.streaming:
        return
    for line in recording.body.decode().splitlines():
        if line.startswith("data:") and '"response.completed"' in line:
            whole = json.dumps(json.loads(line[5:])["response"]).encode()
            other = read_reply("openai-responses", whole).message
            if _bare(other) != _bare(reply.message):
                yield "the final response, read alone, is another reply"
            return


def _bare(message: AssistantMessage) -> Any:
    """A message with its opaque parts parsed, since a twin may be written with other spaces."""
    parts = [json.loads(p.json) if hasattr(p, "json") else p for p in message.parts]
    return parts, message.usage, message.stop_reason, message.model


def twin_key(recording: Recording) -> str | None:
    """The same for two recordings whose requests differ in nothing but streaming."""
    if recording.request is None:
        return None
    asked = {
        name: value
        for name, value in recording.request.items()
        if name not in ("stream", "stream_options")
    }
    return json.dumps([recording.api, recording.provider, asked], sort_keys=True)


def shape(reply: Reply) -> Any:
    """What two samples of a model's answer to one request have in common, whatever their words."""
    message = reply.message
    calls = sorted({call.name for call in message.tool_calls})
    return message.stop_reason, calls, bool(message.text)
