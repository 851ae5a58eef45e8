"""Tools: a function, its schema, and how its result becomes what the model reads.

The schema is the function's signature.  Arguments are checked once, by msgspec, on their way from
the model's JSON to Python values; what fails is told to the model with what would be right.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import re
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import msgspec
import trio

from .effects import EFFECTS, Effect
from .errors import EncodingError, ToolSignatureError
from .messages import File, Image, Text, ToolResult, encode, error_result
from .provider import ToolSpec
from .steps import Resolution, StepContext
from .threads import run_abandoned, run_held

ReconcileTool: TypeAlias = Callable[[dict[str, Any], str], Awaitable[Resolution] | Resolution]
"""Given a call's arguments and its idempotency key, finds out what became of the write."""

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every vendor takes as a tool's name."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool is told beside its arguments, in the parameter that it annotates with this.

    `attempt` counts from 1; `idempotency_key` is the same in every attempt; `tainted` says that
    the model had read a tool's result before it asked for this call; `deps` is what the
    application gave `run`.
    """

    run_id: str
    step: str
    attempt: int
    idempotency_key: str
    tainted: bool
    deps: Any = None


class ArgumentsError(ValueError):
    """Arguments that a tool cannot take; the text is for the model."""


class Tool:
    """A function that a model may call; made by `tool`.  Calling it calls the function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        description: str,
        effect: Effect,
        timeout: float | None,
        reconcile: ReconcileTool | None,
    ) -> None:
        if not TOOL_NAME.fullmatch(name):
            raise ToolSignatureError(
                f"the tool name {name!r} is not 1 to 64 letters, digits, '_' or '-'"
            )
        if effect not in EFFECTS:
            raise ToolSignatureError(f"{name}: effect is read, idempotent or write, not {effect!r}")
        if timeout is not None and not timeout > 0:
            raise ToolSignatureError(f"{name}: a timeout is above 0 seconds, not {timeout}")
        self._function = function
        self._context_parameter, struct = _arguments_struct(function, name)
        self._decoder = msgspec.json.Decoder(struct)
        self._is_async = inspect.iscoroutinefunction(function)
        self.spec = ToolSpec(name, description, _object_schema(struct, name))
        self.effect: Effect = effect
        self.timeout = timeout
        self.reconcile = reconcile

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        return self.spec.name

    def __repr__(self) -> str:
        return f"<Tool {self.name} effect={self.effect}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def parse(self, arguments: str) -> dict[str, Any]:
        """The arguments as Python values by parameter; an empty text stands for none.

        Raises:
            ArgumentsError: which says what is wrong and what would be right.
        """
        data = arguments.strip() or "{}"
        try:
            value = self._decoder.decode(data)
        except msgspec.ValidationError as exc:
            if not data.startswith("{"):
                raise ArgumentsError(
                    f"the arguments of {self.name} must be a JSON object, not {data[:40]}; "
                    f"its parameters are {self._signature()}"
                ) from None
            raise ArgumentsError(
                f"the arguments of {self.name} do not fit: {exc}; "
                f"its parameters are {self._signature()}"
            ) from None
        except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
            what = "are incomplete JSON" if "truncated" in str(exc) else f"are no JSON ({exc})"
            raise ArgumentsError(
                f"the arguments of {self.name} {what}; send one JSON object"
            ) from None
        return {name: getattr(value, name) for name in value.__struct_fields__}

    def _signature(self) -> str:
        properties: dict[str, Any] = self.spec.parameters.get("properties", {})
        return encode(properties).decode()

    async def run(
        self, arguments: Mapping[str, Any], step: StepContext, *, tainted: bool, deps: Any
    ) -> ToolResult:
        """Run the function and render what it returns; an exception becomes an error result.

        Cancellation: an async function is cancelled.  A sync one runs in a worker thread; a
        read's is abandoned, any other's is waited for, up to the tool's timeout, and holds the
        run until it ends.
        """
        given = dict(arguments)
        if self._context_parameter is not None:
            given[self._context_parameter] = ToolContext(
                step.run_id, step.step, step.attempt, step.key, tainted, deps
            )
        try:
            value = await self._value(given, step)
        except _TimedOutError:
            return self._timed_out()
        except Exception as exc:
            return error_result(describe_exception(exc))
        try:
            return render(value)
        except EncodingError as exc:
            return error_result(
                f"{self.name} ran, but its result is lost: {exc}; it is not run again"
            )

    async def _value(self, given: dict[str, Any], step: StepContext) -> Any:
        """What the function returns; `_TimedOutError` after the tool's own timeout."""
        seconds = math.inf if self.timeout is None else self.timeout
        call = functools.partial(self._function, **given)
        if self._is_async:
            if self.timeout is None:
                return await call()
            with trio.move_on_after(seconds):
                return await call()
        elif self.effect == "read":
            with trio.move_on_after(seconds):
                return await run_abandoned(call)
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
            # A thread cannot be cancelled, and a write that goes on unseen could not be recorded.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + seconds):
                return await run_held(call, step.hold)
        raise _TimedOutError

    def _timed_out(self) -> ToolResult:
        text = f"{self.name} timed out after {self.timeout:g} s"
        if self.effect != "read":
            text += "; it may have taken effect, so check before you repeat it"
        return error_result(text)


class _TimedOutError(Exception):
    """The tool's own timeout, told apart from a `TooSlowError` that its function raised."""


def describe_exception(exc: BaseException) -> str:
    """Type and message; of a group, those of its leaves."""
    if isinstance(exc, BaseExceptionGroup):
        return "; ".join(describe_exception(inner) for inner in exc.exceptions)
    text = str(exc).encode("utf-8", "backslashreplace").decode()
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def render(value: Any) -> ToolResult:
    """What a tool returned, as what the model reads.

    A `ToolResult` stands as it is; a `Text`, `Image` or `File`, or a list or tuple of them, become
    parts; a str is text; anything else is text that holds its JSON, so that "", 0, False, None and
    [] are each a result of their own.

    Raises:
        EncodingError: JSON has no form for it (an unknown type, NaN, a lone surrogate).
    """
    if isinstance(value, ToolResult):
        result = value
    elif isinstance(value, str):
        result = ToolResult((Text(value),))
    elif isinstance(value, Text | Image | File):
        result = ToolResult((value,))
    elif isinstance(value, list | tuple) and value and all(_is_part(item) for item in value):
        result = ToolResult(tuple(value))
    else:
        return ToolResult((Text(encode(value).decode()),))
    encode(result)
    return result


def _is_part(value: Any) -> bool:
    return isinstance(value, Text | Image | File)


# -- from a signature to a schema -----------------------------------------------------------------


def _arguments_struct(
    function: Callable[..., Any], name: str
) -> tuple[str | None, type[msgspec.Struct]]:
    """The parameter that takes the `ToolContext`, and a struct of all the others."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
    except (NameError, TypeError, ValueError, AttributeError) as exc:
        raise ToolSignatureError(f"{name}: its annotations cannot be read: {exc}") from exc
    context: str | None = None
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ToolSignatureError(
                f"{name}: *{parameter.name} has no schema; name every parameter"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ToolSignatureError(
                f"{name}: {parameter.name} is positional only, but arguments come by name"
            )
        if parameter.name not in hints:
            raise ToolSignatureError(
                f"{name}: parameter {parameter.name} has no annotation, so it has no schema"
            )
        hint = hints[parameter.name]
        if hint is ToolContext:
            context = parameter.name
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, _default(parameter.default)))
    try:
        struct = msgspec.defstruct(
            f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True
        )
    except (TypeError, ValueError) as exc:
        raise ToolSignatureError(f"{name}: {exc}") from exc
    return context, struct


def _default(value: Any) -> Any:
    """A mutable default is copied for each call, which a function's own default is not."""
    if isinstance(value, list | dict | set | bytearray):
        return msgspec.field(default_factory=lambda: copy.copy(value))
    return value


def _object_schema(struct: type[msgspec.Struct], name: str) -> dict[str, Any]:
    """The JSON schema of the arguments: an object, with ``$defs`` where types are shared."""
    try:
        (schema,), components = msgspec.json.schema_components(
            [struct], ref_template="#/$defs/{name}"
        )
        msgspec.json.Decoder(struct)
    except (TypeError, ValueError, RecursionError) as exc:
        raise ToolSignatureError(f"{name}: a parameter has no JSON schema: {exc}") from exc
    root = dict(components.pop(schema["$ref"].rsplit("/", 1)[1]))
    root.pop("title", None)
    if components:
        root["$defs"] = components
    return typing.cast("dict[str, Any]", msgspec.to_builtins(root))


# -- the decorator --------------------------------------------------------------------------------


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    effect: Effect = ...,
    timeout: float | None = ...,
    reconcile: ReconcileTool | None = ...,
    name: str | None = ...,
    description: str | None = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: Effect = "write",
    timeout: float | None = None,
    reconcile: ReconcileTool | None = None,
    name: str | None = None,
    description: str | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function a tool, its schema from its signature, its description from its docstring.

    A sync function runs in a worker thread.  A parameter annotated `ToolContext` is given one and
    is no part of the schema.

    Args:
        effect: what running it twice would do: ``read`` nothing, ``idempotent`` nothing more under
            the same idempotency key, ``write`` (the default of a tool that declares nothing) again.
        timeout: seconds after which the call ends with an error result; ``None`` for no limit.
        reconcile: asked, with the arguments and the idempotency key, what became of a write that
            was begun and whose outcome was never recorded.
        name: what the model calls it, by default the function's name.
        description: what the model reads of it, by default the function's docstring.

    Raises:
        ToolSignatureError: a parameter without a schema, or an option out of its range.
    """

    def make(function: Callable[..., Any]) -> Tool:
        return Tool(
            function,
            name=getattr(function, "__name__", "tool") if name is None else name,
            description=(inspect.getdoc(function) or "") if description is None else description,
            effect=effect,
            timeout=timeout,
            reconcile=reconcile,
        )

    return make if function is None else make(function)
