"""Tool names and call ids as the vendors take them, and back.  (pure)

Every vendor takes letters, digits, ``_`` and ``-``, up to 64 of them.  A name that is legal goes
as it is.  Any other goes with its illegal characters replaced, cut, and with a digest of the whole
name at its end.  So the wire's name of a tool follows from its own name alone: it is the same in
every request, whatever other tools there are, and ``a.b`` and ``a_b`` stay two names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

import msgspec

from trioagent.errors import InvalidRequestError
from trioagent.messages import AssistantMessage, AssistantPart, ToolCall
from trioagent.provider import ToolSpec

LONGEST = 64
"""Characters that a name may have on the wire."""

_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 8


def wire_name(name: str) -> str:
    """`name` as the API takes it; one that a model made up must not end the run either."""
    if _LEGAL.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{_ILLEGAL.sub('_', name)[: LONGEST - _DIGEST - 1]}_{digest}"


def wire_names(tools: Iterable[ToolSpec]) -> Mapping[str, str]:
    """The tools whose name on the wire is another than their own: from that name to their own.

    Raises:
        InvalidRequestError: a tool has the very name that another's was made into.
    """
    taken: dict[str, str] = {}
    for tool in tools:
        name = wire_name(tool.name)
        if name in taken:
            raise InvalidRequestError(
                f"the tools {taken[name]!r} and {tool.name!r} would both be called {name!r} on "
                "the wire; give one of them another name"
            )
        taken[name] = tool.name
    return {name: own for name, own in taken.items() if name != own}


def own_names(message: AssistantMessage, names: Mapping[str, str]) -> AssistantMessage:
    """`message` with the names of its calls as the application knows them."""
    if not names or not any(call.name in names for call in message.tool_calls):
        return message
    parts: list[AssistantPart] = [
        msgspec.structs.replace(part, name=names.get(part.name, part.name))
        if isinstance(part, ToolCall)
        else part
        for part in message.parts
    ]
    return msgspec.structs.replace(message, parts=tuple(parts))
