"""What a request means, whatever its spelling: the form in which two requests are compared.

A meaning is a list, in the request's order, of (role, kind, what): texts that touch are one,
arguments are parsed, a text alone is the same as a list of one text, a field that says nothing
(``is_error: false``, a status) is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

JSON = dict[str, Any]
Meaning = list[tuple[str, str, Any]]

_SYSTEM = ("system", "developer")


def meaning(api: str, request: JSON) -> Meaning:
    """What the request means."""
    found = {
        "openai-chat": _chat,
        "openai-responses": _responses,
        "anthropic-messages": _anthropic,
    }[api](request)
    return _joined((role if role not in _SYSTEM else "system", k, w) for role, k, w in found)


def _joined(found: Iterable[tuple[str, str, Any]]) -> Meaning:
    """Texts of one role that touch are one text; an empty one says nothing."""
    joined: Meaning = []
    for role, kind, what in found:
        if kind == "text" and not what:
            continue
        if kind == "text" and joined and joined[-1][:2] == (role, "text"):
            between = "\n\n" if role == "system" else ""
            joined[-1] = (role, "text", joined[-1][2] + between + what)
        else:
            joined.append((role, kind, what))
    return joined


def _arguments(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def _parts(role: str, content: Any) -> Meaning:
    if content is None or isinstance(content, str):
        return [(role, "text", content or "")]
    return [
        (role, "text", part["text"]) if "text" in part else (role, part["type"], part)
        for part in content
    ]


def _chat(request: JSON) -> Meaning:
    found: Meaning = []
    for message in request["messages"]:
        role = message["role"]
        thinking = message.get("reasoning_content") or message.get("reasoning")
        if thinking:
            found.append((role, "thinking", thinking))
        if message.get("reasoning_details"):
            found.append((role, "details", message["reasoning_details"]))
        if role == "tool":
            texts = _joined(_parts(role, message["content"]))
            found.append((role, message.get("tool_call_id", ""), texts))
            continue
        found += _parts(role, message.get("content"))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            what = (call.get("id", ""), function["name"], _arguments(function["arguments"]))
            found.append((role, "call", what))
    return found


def _responses(request: JSON) -> Meaning:
    found: Meaning = [("system", "text", request.get("instructions") or "")]
    for item in request["input"]:
        kind = item.get("type", "message")
        rest = {
            name: value
            for name, value in item.items()
            if name not in ("type", "role", "content", "call_id", "name", "arguments", "output")
        }
        if kind == "message":
            found += _parts(item["role"], item["content"])
            if rest:
                found.append((item["role"], "rest", rest))
        elif kind == "function_call":
            call = (item["call_id"], item["name"], _arguments(item["arguments"]), rest)
            found.append(("assistant", "call", call))
        elif kind == "function_call_output":
            found.append(("tool", item["call_id"], _joined(_parts("tool", item["output"]))))
        else:
            found.append(("", kind, item))
    return found


def _anthropic(request: JSON) -> Meaning:
    found = _parts("system", request.get("system"))
    for message in request["messages"]:
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for block in content:
            kind = block["type"]
            if kind == "text":
                found.append((message["role"], kind, block["text"]))
            elif kind == "tool_result":
                inner = _joined(_parts("tool", block.get("content")))
                failed = bool(block.get("is_error"))
                found.append(("tool", block["tool_use_id"], (inner, failed)))
            else:
                found.append((message["role"], kind, block))
    return found
