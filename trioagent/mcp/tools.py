"""A tool of an MCP server as a `Tool`: its name made legal, its schema passed through whole.

What a server lists is hostile until it fits: see `listed`.  Its arguments are checked by the
server, which knows its schema in full; here they only have to be a JSON object, with what was
written twice over decoded (`trioagent.arguments`), so that no schema of a stranger (a pattern that
takes for ever, a reference to another host) is ever run here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types
import trio

from trioagent.arguments import no_object, read_json, undoubled
from trioagent.effects import Effect
from trioagent.errors import EncodingError
from trioagent.mcp.connection import Connection, McpError
from trioagent.mcp.content import as_result
from trioagent.messages import ToolResult, encode, error_result
from trioagent.provider import ToolSpec
from trioagent.rendering import DEFAULT_MAX_RESULT_CHARS, cut, render
from trioagent.steps import StepContext
from trioagent.tools import Tool

MAX_NAME = 64
"""Characters of a name that every vendor takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpLimits:
    """What is bounded of a server.

    `start_timeout`: seconds until it has started and listed its tools; one that a package runner
    has to fetch first takes a while.  `stop_timeout`: seconds that a program has to end after its
    input was closed, and as many after SIGTERM; then it is killed.  `max_message_bytes`: of one
    message; a large picture in base64 fits twice.  `max_result_chars`: of text that the model
    reads of a result, ``None`` for all.  `max_tools`: further ones are left out.
    `max_description_chars`: of a tool, the rest is cut.  `max_schema_bytes`: of a tool; one whose
    schema is longer is left out.
    """

    start_timeout: float = 60.0
    stop_timeout: float = 2.0
    max_message_bytes: int = 16 * 1024 * 1024
    max_result_chars: int | None = DEFAULT_MAX_RESULT_CHARS
    max_tools: int = 256
    max_description_chars: int = 8_000
    max_schema_bytes: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class Policy:
    """What the application says of a server's tools; see `open_mcp`."""

    prefix: str
    trust_annotations: bool
    timeout: float | None
    limits: McpLimits


class McpTool(Tool):
    """A tool of an MCP server; `original_name` is what the server calls it."""

    def __init__(
        self, connection: Connection, original: types.Tool, name: str, policy: Policy
    ) -> None:
        description = original.description or original.title or ""
        super().__init__(
            ToolSpec(
                name, cut(description, policy.limits.max_description_chars), original.input_schema
            ),
            effect=_effect(original.annotations) if policy.trust_annotations else "write",
            timeout=policy.timeout,
            max_result_chars=policy.limits.max_result_chars,
        )
        self.original_name = original.name
        self._connection = connection

    def parse(self, arguments: str) -> dict[str, Any]:
        """The arguments as a JSON object; the server checks them against its schema.

        Raises:
            ArgumentsError: they are no JSON object.
        """
        schema = self.spec.parameters
        value = undoubled(read_json(self.name, arguments), schema | {"type": "object"})
        if not isinstance(value, dict):
            raise no_object(self.name, value, schema)
        return value

    async def run(
        self, arguments: Mapping[str, Any], step: StepContext, *, tainted: bool, deps: Any
    ) -> ToolResult:
        """Call the server; a refusal, a wrong answer and a server that is gone are error results.

        Cancellation: the server is told that the call is cancelled, which it may ignore.
        """
        try:
            with trio.move_on_after(_seconds(self.timeout)):
                answer = await self._connection.call(self.original_name, dict(arguments))
                return render(as_result(answer), self.max_result_chars)
        except McpError as exc:
            return error_result(str(exc))
        except EncodingError as exc:
            return error_result(
                f"{self.name} ran, but its result is lost: {exc}; it is not run again"
            )
        return self.timed_out()


def _seconds(timeout: float | None) -> float:
    """A timeout as Trio takes it."""
    return float("inf") if timeout is None else timeout


def _effect(hints: types.ToolAnnotations | None) -> Effect:
    """What the server says of its tool, believed."""
    if hints is None:
        return "write"
    if hints.read_only_hint:
        return "read"
    return "idempotent" if hints.idempotent_hint else "write"


def listed(
    connection: Connection, originals: Iterable[types.Tool], policy: Policy
) -> tuple[list[McpTool], dict[str, str]]:
    """The tools that can be used, in the server's order, and those that cannot, each with why.

    Left out are: what comes after the first `max_tools`, a name that stood already, a schema that
    is none of an object, is longer than `max_schema_bytes`, or that JSON cannot hold.
    """
    made: dict[str, McpTool] = {}
    originally: set[str] = set()
    left_out: dict[str, str] = {}
    for original in originals:
        if len(made) >= policy.limits.max_tools:
            left_out["..."] = f"more than {policy.limits.max_tools} tools"
            break
        if original.name in originally:
            continue
        problem = _problem(original, policy)
        if problem:
            left_out[original.name[:MAX_NAME]] = problem
            continue
        originally.add(original.name)
        name = legal_name(policy.prefix + original.name, made)
        made[name] = McpTool(connection, original, name, policy)
    return list(made.values()), left_out


def _problem(original: types.Tool, policy: Policy) -> str:
    try:
        size = len(encode(original.input_schema))
        encode([original.name, original.description])
    except EncodingError as exc:
        return str(exc)
    if size > policy.limits.max_schema_bytes:
        return f"a schema of {size} bytes, more than {policy.limits.max_schema_bytes}"
    if original.input_schema.get("type", "object") != "object":
        return "a schema that is none of an object"
    return ""


def legal_name(name: str, taken: Iterable[str]) -> str:
    """`name` as vendors take it: what is not a letter, a digit, '_' or '-' becomes '_'.

    Where that makes it too long, empty or one that is taken, the end is a hash of the whole name,
    so that the same tool always gets the same name.
    """
    legal = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if legal and len(legal) <= MAX_NAME and legal not in set(taken):
        return legal
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{legal[: MAX_NAME - 9]}_{mark}"
