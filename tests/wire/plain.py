"""A plain reading of recorded bodies, which shares no code with the decoders that it is held to.

It knows only what well-formed recordings need: a stream is read to its first end, a whole body is
looked up field by field.  What it gives is what the two readings must agree on.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]


@dataclass(slots=True)
class Plain:
    """Text, calls as (name, arguments parsed), and token counts (None: none reported)."""

    text: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    usage: tuple[int, int, int, int, int] | None = None
    """Input, output, read from the cache, written to it, reasoning."""


class NotAReplyError(Exception):
    """The body is an error, or nothing that a model said."""


def plain_reading(api: str, status: int, body: bytes) -> Plain:
    """What the body says; `NotAReplyError` where it is no reply of a model."""
    if status != 200:
        raise NotAReplyError(f"status {status}")
    text = body.decode()
    if text.lstrip().startswith("{"):
        whole = json.loads(text)
        if whole.get("error"):
            raise NotAReplyError("an error in the body")
        return WHOLE[api](whole)
    return STREAMED[api](events(text))


def events(text: str) -> list[JSON]:
    """The JSON of each event up to the first ``[DONE]``."""
    found: list[JSON] = []
    for block in re.split(r"\r\n\r\n|\n\n|\r\r", text):
        lines = [line[5:].lstrip() for line in block.splitlines() if line.startswith("data:")]
        data = "\n".join(lines).strip()
        if data == "[DONE]":
            break
        if data:
            found.append(json.loads(data))
    if any(isinstance(event, dict) and event.get("error") for event in found):
        raise NotAReplyError("an error in the stream")
    return found


def parsed(arguments: Any) -> Any:
    """Arguments as a value; what is no JSON stays text."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    if not arguments.strip():
        return {}
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


# -- chat completions -----------------------------------------------------------------------------


def chat_content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if part.get("type") == "text")
    return content or ""


def chat_usage(usage: JSON | None) -> tuple[int, int, int, int, int] | None:
    if not usage or usage.get("prompt_tokens") is None:
        return None
    prompt = usage.get("prompt_tokens_details") or {}
    completion = usage.get("completion_tokens_details") or {}
    cached = prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
    return (
        usage["prompt_tokens"],
        usage.get("completion_tokens") or 0,
        cached,
        prompt.get("cache_write_tokens") or 0,
        completion.get("reasoning_tokens") or 0,
    )


def chat_whole(body: JSON) -> Plain:
    message = body["choices"][0]["message"]
    calls = [call["function"] for call in message.get("tool_calls") or []]
    if message.get("function_call"):
        calls.append(message["function_call"])
    return Plain(
        chat_content(message.get("content")) + (message.get("refusal") or ""),
        [(call["name"], parsed(call.get("arguments"))) for call in calls if any(call.values())],
        chat_usage(body.get("usage")),
    )


def chat_streamed(chunks: list[JSON]) -> Plain:
    plain = Plain()
    calls: dict[Any, list[str]] = {}
    for chunk in chunks:
        usages = [chunk.get("usage")]
        for choice in chunk.get("choices") or []:
            if choice.get("index"):
                continue
            usages.append(choice.get("usage"))
            delta = choice.get("delta") or {}
            plain.text += chat_content(delta.get("content")) + (delta.get("refusal") or "")
            fragments = [(f.get("index", f.get("id")), f) for f in delta.get("tool_calls") or []]
            if delta.get("function_call"):
                fragments.append(("function_call", {"function": delta["function_call"]}))
            for key, fragment in fragments:
                call = calls.setdefault(key, ["", ""])
                function = fragment.get("function") or {}
                call[0] = call[0] or function.get("name") or ""
                call[1] += function.get("arguments") or ""
        for usage in usages:
            plain.usage = chat_usage(usage) or plain.usage
    plain.calls = [(name, parsed(arguments)) for name, arguments in calls.values()]
    return plain


# -- Responses ------------------------------------------------------------------------------------


def responses_whole(body: JSON) -> Plain:
    if body.get("status") in ("queued", "in_progress"):
        raise NotAReplyError("the response is not finished")
    plain = Plain()
    for item in body["output"]:
        if item["type"] == "message":
            for part in item["content"]:
                plain.text += part.get("text") or part.get("refusal") or ""
        elif item["type"] == "function_call":
            plain.calls.append((item["name"], parsed(item["arguments"])))
    usage = body.get("usage")
    if usage:
        given = usage.get("input_tokens_details") or {}
        made = usage.get("output_tokens_details") or {}
        plain.usage = (
            usage["input_tokens"],
            usage["output_tokens"],
            given.get("cached_tokens") or 0,
            given.get("cache_write_tokens") or 0,
            made.get("reasoning_tokens") or 0,
        )
    return plain


def responses_streamed(found: list[JSON]) -> Plain:
    """The final response for calls and usage, the deltas for the text: two sources on purpose."""
    text = ""
    for event in found:
        if event["type"] in ("response.output_text.delta", "response.refusal.delta"):
            text += event["delta"]
        elif event["type"] in ("response.completed", "response.incomplete"):
            plain = responses_whole(event["response"])
            if text:
                assert text == plain.text
            return plain
    raise NotAReplyError("no final response")


# -- Anthropic Messages ---------------------------------------------------------------------------


def anthropic_usage(usage: JSON) -> tuple[int, int, int, int, int] | None:
    if not usage:
        return None
    read = usage.get("cache_read_input_tokens") or 0
    written = usage.get("cache_creation_input_tokens") or 0
    thinking = (usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0
    new = usage.get("input_tokens") or 0
    return (new + read + written, usage.get("output_tokens") or 0, read, written, thinking)


def anthropic_whole(body: JSON) -> Plain:
    blocks = body["content"]
    return Plain(
        "".join(block["text"] for block in blocks if block["type"] == "text"),
        [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"],
        anthropic_usage(body.get("usage") or {}),
    )


def anthropic_streamed(found: list[JSON]) -> Plain:
    blocks: dict[int, JSON] = {}
    usage: JSON = {}
    for event in found:
        kind = event["type"]
        if kind == "message_start":
            usage |= _given(event["message"].get("usage"))
        elif kind == "content_block_start":
            blocks[event["index"]] = {"json": "", **event["content_block"]}
        elif kind == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            if delta["type"] == "text_delta":
                block["text"] += delta["text"]
            elif delta["type"] == "input_json_delta":
                block["json"] += delta["partial_json"]
        elif kind == "message_delta":
            usage |= _given(event.get("usage"))
        elif kind == "message_stop":
            break
    for block in blocks.values():
        if block["json"]:
            block["input"] = parsed(block["json"])
    return anthropic_whole({"content": list(blocks.values()), "usage": usage})


def _given(usage: JSON | None) -> JSON:
    return {name: count for name, count in (usage or {}).items() if count is not None}


WHOLE = {
    "openai-chat": chat_whole,
    "openai-responses": responses_whole,
    "anthropic-messages": anthropic_whole,
}
STREAMED = {
    "openai-chat": chat_streamed,
    "openai-responses": responses_streamed,
    "anthropic-messages": anthropic_streamed,
}
