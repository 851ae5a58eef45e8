"""Recorded requests read into messages, as an application that held them would have them.

What only one vendor understands is an opaque part: a file that is kept there, a result of its own
kind; a system message in the middle is one that stands alone.  What messages have no place for
even so is refused by name.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from trioagent.messages import (
    AssistantMessage,
    AssistantPart,
    ContentPart,
    File,
    Image,
    Message,
    Opaque,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    UserMessage,
)

JSON = dict[str, Any]
_SYSTEM = ("system", "developer")


class InexpressibleError(Exception):
    """Messages have no place for it."""


def has_tool_results(api: str, request: JSON) -> bool:
    """Whether the request tells the model what a tool gave."""
    if api == "openai-chat":
        return any(message["role"] == "tool" for message in request.get("messages") or ())
    if api == "openai-responses":
        items = request.get("input")
        return isinstance(items, list) and any(
            item.get("type") == "function_call_output" for item in items
        )
    return any(block["type"] == "tool_result" for _, block in _blocks(request))


def messages_of(api: str, request: JSON) -> tuple[Message, ...]:
    """The request's messages."""
    reader = {
        "openai-chat": _chat,
        "openai-responses": _responses,
        "anthropic-messages": _anthropic,
    }[api]
    system, messages = reader(request)
    head: list[Message] = [SystemMessage(system)] if system else []
    return (*head, *messages)


def _data(url: str) -> tuple[str, bytes]:
    head, _, data = url.partition(",")
    return head.removeprefix("data:").partition(";")[0], base64.b64decode(data)


def _image(url: str) -> Image:
    if not url.startswith("data:"):
        return Image(url=url)
    media_type, data = _data(url)
    return Image(media_type, data)


def _leading_system(roles: list[str]) -> int:
    """How many messages at the start are the system's."""
    count = 0
    while count < len(roles) and roles[count] in _SYSTEM:
        count += 1
    return count


def _whole(api: str, message: JSON) -> UserMessage:
    """A system message in the middle."""
    return UserMessage((Opaque(api, json.dumps(message)),))


# -- chat completions -----------------------------------------------------------------------------


def _chat(request: JSON) -> tuple[str, list[Message]]:
    wire = request["messages"]
    leading = _leading_system([message["role"] for message in wire])
    system = "\n\n".join(_chat_text(message["content"]) for message in wire[:leading])
    names: dict[str, str] = {}
    messages: list[Message] = []
    for message in wire[leading:]:
        content = message.get("content")
        if message["role"] == "user":
            messages.append(UserMessage(tuple(_chat_parts(content))))
        elif message["role"] == "assistant":
            parts = list(_chat_reply(message))
            names |= {part.id: part.name for part in parts if isinstance(part, ToolCall)}
            messages.append(AssistantMessage(tuple(parts)))
        elif message["role"] == "tool":
            call_id = message.get("tool_call_id", "")
            text = Text(_chat_text(content))
            messages.append(ToolMessage(call_id, names.get(call_id, ""), (text,)))
        elif message["role"] in _SYSTEM:
            messages.append(_whole("openai-chat", message))
        else:
            raise InexpressibleError(f"the role {message['role']}")
    return system, messages


def _chat_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content or ())


def _chat_parts(content: Any) -> Iterator[ContentPart]:
    if isinstance(content, str):
        yield Text(content)
        return
    for part in content:
        if part["type"] == "text":
            yield Text(part["text"])
        elif part["type"] == "image_url":
            yield _image(part["image_url"]["url"])
        elif part["type"] == "file" and "file_data" in part["file"]:
            yield File(*_data(part["file"]["file_data"]), part["file"].get("filename", ""))
        else:
            yield Opaque("openai-chat", json.dumps(part))


def _chat_reply(message: JSON) -> Iterator[AssistantPart]:
    thinking = message.get("reasoning_content") or message.get("reasoning")
    if thinking:
        yield Thinking(thinking)
    if message.get("reasoning_details"):
        kept = {"reasoning_details": message["reasoning_details"]}
        yield Opaque("openai-chat", json.dumps(kept))
    content = message.get("content")
    if isinstance(content, list) and any(part["type"] != "text" for part in content):
        raise InexpressibleError("thinking in the content")
    if content:
        yield Text(_chat_text(content))
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield ToolCall(call.get("id", ""), function["name"], function["arguments"])


# -- Responses ------------------------------------------------------------------------------------


def _responses(request: JSON) -> tuple[str, list[Message]]:
    items = request["input"]
    roles = [item["role"] if "content" in item and "role" in item else "" for item in items]
    leading = _leading_system(roles)
    texts = [request.get("instructions") or "", *[item["content"] for item in items[:leading]]]
    messages: list[Message] = []
    reply: list[AssistantPart] = []
    names: dict[str, str] = {}
    for item in items[leading:]:
        kind, role = item.get("type", "message"), item.get("role")
        asked = kind == "message" and role in ("user", *_SYSTEM)
        if asked or kind == "function_call_output":
            if reply:
                messages.append(AssistantMessage(tuple(reply)))
                reply = []
            if role in _SYSTEM:
                messages.append(_whole("openai-responses", item))
            elif role == "user":
                messages.append(UserMessage(tuple(_responses_parts(item["content"]))))
            else:
                parts = tuple(_responses_parts(item["output"]))
                name = names.get(item["call_id"], "")
                messages.append(ToolMessage(item["call_id"], name, parts))
            continue
        if kind == "function_call":
            names[item["call_id"]] = item["name"]
        reply += _responses_reply(kind, item)
    if reply:
        messages.append(AssistantMessage(tuple(reply)))
    return "\n\n".join(text for text in texts if text), messages


def _responses_parts(content: Any) -> Iterator[ContentPart]:
    if isinstance(content, str):
        yield Text(content)
        return
    for part in content:
        if part["type"] == "input_text":
            yield Text(part["text"])
        elif part["type"] == "input_image" and "image_url" in part:
            yield _image(part["image_url"])
        elif part["type"] == "input_file" and "file_data" in part:
            yield File(*_data(part["file_data"]), part.get("filename", ""))
        elif part["type"] == "input_file" and "file_url" in part:
            yield File(url=part["file_url"])
        else:
            yield Opaque("openai-responses", json.dumps(part))


def _responses_reply(kind: str, item: JSON) -> Iterator[AssistantPart]:
    if kind == "function_call":
        yield ToolCall(item["call_id"], item["name"], item["arguments"])
        rest = {k: v for k, v in item.items() if k not in ("call_id", "name", "arguments")}
        if rest.keys() != {"type"}:
            yield Opaque("openai-responses", json.dumps(rest))
    elif kind == "message":
        content = item["content"]
        plain = isinstance(content, str)
        contents = [{"type": "output_text", "text": content}] if plain else content
        yield from [Text(part["text"]) for part in contents]
        rest = {k: v for k, v in item.items() if k not in ("role", "content")}
        if rest or not plain:
            bare = [{k: v for k, v in part.items() if k != "text"} for part in contents]
            yield Opaque("openai-responses", json.dumps({"type": kind, **rest, "content": bare}))
    else:
        yield Opaque("openai-responses", json.dumps(item))


# -- Anthropic Messages ---------------------------------------------------------------------------


def _blocks(request: JSON) -> Iterator[tuple[str, JSON]]:
    """Every block with its message's role; a bare text is a block of text."""
    for message in request["messages"]:
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        yield from [(message["role"], block) for block in content]


def _anthropic(request: JSON) -> tuple[str, list[Message]]:
    system = request.get("system") or ""
    if isinstance(system, list):
        system = "\n\n".join(block["text"] for block in system)
    messages: list[Message] = []
    names: dict[str, str] = {}
    for role, block in _blocks(request):
        last = messages[-1] if messages else None
        if role == "system":
            messages.append(_whole("anthropic-messages", {"role": role, "content": [block]}))
            continue
        if role == "assistant":
            parts = _anthropic_reply(block)
            names |= {part.id: part.name for part in parts if isinstance(part, ToolCall)}
            if isinstance(last, AssistantMessage):
                messages[-1] = AssistantMessage((*last.parts, *parts))
            else:
                messages.append(AssistantMessage(parts))
        elif block["type"] == "tool_result":
            content = block.get("content") or ()
            inner = [{"type": "text", "text": content}] if isinstance(content, str) else content
            messages.append(
                ToolMessage(
                    block["tool_use_id"],
                    names.get(block["tool_use_id"], ""),
                    tuple(_anthropic_part(one) for one in inner),
                    "error" if block.get("is_error") else "ok",
                )
            )
        elif isinstance(last, UserMessage) and not _is_whole(last):
            messages[-1] = UserMessage((*last.parts, _anthropic_part(block)))
        else:
            messages.append(UserMessage((_anthropic_part(block),)))
    return system, messages


def _is_whole(message: UserMessage) -> bool:
    part = message.parts[0]
    return isinstance(part, Opaque) and "role" in json.loads(part.json)


def _anthropic_reply(block: JSON) -> tuple[AssistantPart, ...]:
    kind = block["type"]
    if kind == "text":
        return (Text(block["text"]),)
    if kind == "thinking":
        return (Thinking(block["thinking"], block["signature"]),)
    if kind == "tool_use":
        call = ToolCall(block["id"], block["name"], json.dumps(block["input"]))
        if "caller" not in block:
            return (call,)
        rest = {"type": kind, "caller": block["caller"]}
        return (call, Opaque("anthropic-messages", json.dumps(rest)))
    return (Opaque("anthropic-messages", json.dumps(block)),)


def _anthropic_part(block: JSON) -> ContentPart:
    kind, source = block["type"], block.get("source") or {}
    if kind == "text":
        return Text(block["text"])
    if kind == "image" and source["type"] == "url":
        return Image(url=source["url"])
    if kind == "image" and source["type"] == "base64":
        return Image(source["media_type"], base64.b64decode(source["data"]))
    if kind == "document" and source["type"] == "base64":
        data = base64.b64decode(source["data"])
        return File(source["media_type"], data, block.get("title") or "")
    if kind == "document" and source["type"] == "text":
        return File(source["media_type"], source["data"].encode(), block.get("title") or "")
    if kind == "document" and source["type"] == "url":
        return File(url=source["url"], name=block.get("title") or "")
    return Opaque("anthropic-messages", json.dumps(block))
