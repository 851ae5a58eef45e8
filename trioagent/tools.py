"""Tools: what a model may call, and a function made one.

The schema is the function's signature (`trioagent.schema`).  Arguments are checked once, by
msgspec, on their way from the model's JSON to Python values; what fails is told to the model with
what would be right (`trioagent.arguments`).  What comes back is shortened to a budget of
characters (`trioagent.rendering`).
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, overload

import msgspec
import trio

from .arguments import misfit, no_json, no_object, read_json, undoubled
from .effects import EFFECTS, Effect
from .errors import EncodingError, ToolSignatureError
from .messages import ToolResult, error_result
from .provider import ToolSpec
from .rendering import DEFAULT_MAX_RESULT_CHARS, cut, describe_exception, render
from .schema import described, read_signature
from .steps import Patched, Resolution, StepContext, new_code
from .threads import MAX_ABANDONED, Abandoned, TooManyThreadsError, run_held

ReconcileTool: TypeAlias = Callable[[dict[str, Any], str], Awaitable[Resolution] | Resolution]
"""Given a call's arguments and its idempotency key, finds out what became of the write."""

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every vendor takes as a tool's name."""

LEAST_RESULT_CHARS = 200
"""The least budget of a result: room for a note on what was left out, and for some of the rest."""

MAX_ERROR_CHARS = 4_000
"""Characters of the text of an exception: a model needs its beginning."""


class ToolContext(msgspec.Struct, frozen=True):
    """What a tool is told beside its arguments, in the parameter that it annotates with this.

    `attempt` counts from 1; `idempotency_key` is the same in every attempt; `tainted` says that
    the model had read a tool's result before it asked for this call; `deps` is what the
    application gave `run`; ``await patched(name)`` is `Run.patched`.
    """

    run_id: str
    step: str
    attempt: int
    idempotency_key: str
    tainted: bool
    deps: Any = None
    patched: Patched = new_code


class Tool(ABC):
    """What a model may call: a function made a tool by `tool`, or another server's tool.

    A subclass says how the arguments are read and what the call does.  `timeout` is in seconds;
    `max_result_chars` are the characters of text that the model reads of a result, ``None`` for
    all; `reconcile` finds out what became of a write whose outcome was never recorded.

    Raises:
        ToolSignatureError: an option out of its range.
    """

    def __init__(
        self,
        spec: ToolSpec,
        *,
        effect: Effect = "write",
        timeout: float | None = None,
        reconcile: ReconcileTool | None = None,
        max_result_chars: int | None = DEFAULT_MAX_RESULT_CHARS,
    ) -> None:
        name = spec.name
        if not TOOL_NAME.fullmatch(name):
            raise ToolSignatureError(
                f"the tool name {name!r} is not 1 to 64 letters, digits, '_' or '-'"
            )
        if effect not in EFFECTS:
            raise ToolSignatureError(f"{name}: effect is read, idempotent or write, not {effect!r}")
        if timeout is not None and not timeout > 0:
            raise ToolSignatureError(f"{name}: a timeout is above 0 seconds, not {timeout}")
        if max_result_chars is not None and max_result_chars < LEAST_RESULT_CHARS:
            raise ToolSignatureError(
                f"{name}: max_result_chars counts from {LEAST_RESULT_CHARS}, not {max_result_chars}"
            )
        self.spec = spec
        self.effect: Effect = effect
        self.timeout = timeout
        self.reconcile = reconcile
        self.max_result_chars = max_result_chars

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        return self.spec.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} effect={self.effect}>"

    @abstractmethod
    def parse(self, arguments: str) -> dict[str, Any]:
        """The arguments as `run` takes them; an empty text stands for none.

        Raises:
            ArgumentsError: which says what is wrong and what would be right.
        """

    @abstractmethod
    async def run(
        self, arguments: Mapping[str, Any], step: StepContext, *, tainted: bool, deps: Any
    ) -> ToolResult:
        """Do what the call asks for; what goes wrong in it is an error result, no exception."""

    def timed_out(self) -> ToolResult:
        """The result of a call that took longer than `timeout`."""
        text = f"{self.name} timed out after {self.timeout:g} s"
        if self.effect != "read":
            text += "; it may have taken effect, so check before you repeat it"
        return error_result(text)


class FunctionTool(Tool):
    """A function that a model may call; made by `tool`.  Calling it calls the function.

    `abandoned` counts the threads of a sync function that go on though nobody waits for them.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        description: str | None = None,
        effect: Effect = "write",
        timeout: float | None = None,
        reconcile: ReconcileTool | None = None,
        max_result_chars: int | None = DEFAULT_MAX_RESULT_CHARS,
        max_abandoned: int = MAX_ABANDONED,
    ) -> None:
        said, parameters = described(function)
        signature = read_signature(function, name, ToolContext, parameters)
        super().__init__(
            ToolSpec(name, said if description is None else description, signature.schema),
            effect=effect,
            timeout=timeout,
            reconcile=reconcile,
            max_result_chars=max_result_chars,
        )
        if max_abandoned < 1:
            raise ToolSignatureError(f"{name}: max_abandoned counts from 1, not {max_abandoned}")
        self.abandoned = Abandoned(max_abandoned)
        self._function = function
        self._context_parameter = signature.context
        self._decoder = msgspec.json.Decoder(signature.struct)
        self._is_async = inspect.iscoroutinefunction(function)

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
            value = self._mended(data, exc)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
            raise no_json(self.name, exc) from None
        return msgspec.structs.asdict(value)

    def _mended(self, data: str, problem: msgspec.ValidationError) -> Any:
        """The arguments if a text in them is an object or a list that was written twice over."""
        schema = self.spec.parameters
        found = read_json(self.name, data)
        value = undoubled(found, schema)
        if not isinstance(value, dict):
            raise no_object(self.name, value, schema) from None
        if value is not found:
            try:
                return self._decoder.decode(msgspec.json.encode(value))
            except msgspec.ValidationError as exc:
                problem = exc
        raise misfit(self.name, str(problem), value, schema) from None

    async def run(
        self, arguments: Mapping[str, Any], step: StepContext, *, tainted: bool, deps: Any
    ) -> ToolResult:
        """Run the function and render what it returns; an exception becomes an error result.

        Cancellation: an async function is cancelled.  A sync one runs in a worker thread; a
        read's is abandoned, any other's is waited for, up to the tool's timeout, and holds the
        run until it ends.
        """
        given = arguments
        if self._context_parameter is not None:
            context = ToolContext(
                step.run_id, step.step, step.attempt, step.key, tainted, deps, step.patched
            )
            given = {**arguments, self._context_parameter: context}
        try:
            if self._is_async and self.timeout is None:
                value = await self._function(**given)
            else:
                value = await self._bounded(functools.partial(self._function, **given), step)
        except _TimedOutError:
            return self.timed_out()
        except TooManyThreadsError:
            return self._too_many_threads()
        except Exception as exc:
            return error_result(cut(describe_exception(exc), MAX_ERROR_CHARS))
        try:
            return render(value, self.max_result_chars)
        except EncodingError as exc:
            return error_result(
                f"{self.name} ran, but its result is lost: {exc}; it is not run again"
            )

    async def _bounded(self, call: Callable[[], Any], step: StepContext) -> Any:
        """What the function returns; `_TimedOutError` after the tool's own timeout."""
        seconds = math.inf if self.timeout is None else self.timeout
        if self._is_async:
            with trio.move_on_after(seconds):
                return await call()
        elif self.effect == "read":
            with trio.move_on_after(seconds):
                return await self.abandoned.run(call)
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
            # A thread cannot be cancelled, and a write that goes on unseen could not be recorded.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + seconds):
                return await run_held(call, step.hold, self.abandoned)
        raise _TimedOutError

    def _too_many_threads(self) -> ToolResult:
        return error_result(
            f"{self.name} was not started: {self.abandoned.limit} earlier calls of it never ended"
        )


class _TimedOutError(Exception):
    """The tool's own timeout, told apart from a `TooSlowError` that its function raised."""


# -- the decorator --------------------------------------------------------------------------------


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *,
    effect: Effect = ...,
    timeout: float | None = ...,
    reconcile: ReconcileTool | None = ...,
    name: str | None = ...,
    description: str | None = ...,
    max_result_chars: int | None = ...,
    max_abandoned: int = ...,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: Effect = "write",
    timeout: float | None = None,
    reconcile: ReconcileTool | None = None,
    name: str | None = None,
    description: str | None = None,
    max_result_chars: int | None = DEFAULT_MAX_RESULT_CHARS,
    max_abandoned: int = MAX_ABANDONED,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a function a tool, its schema from its signature, its description from its docstring.

    A sync function runs in a worker thread.  A parameter annotated `ToolContext` is given one and
    is no part of the schema.  What the docstring's parameter section says of a parameter is told
    there, and not in the description.

    Args:
        effect: what running it twice would do: ``read`` nothing, ``idempotent`` nothing more under
            the same idempotency key, ``write`` (the default of a tool that declares nothing) again.
        timeout: seconds after which the call ends with an error result; ``None`` for no limit.
        reconcile: asked, with the arguments and the idempotency key, what became of a write that
            was begun and whose outcome was never recorded.
        name: what the model calls it, by default the function's name.
        description: what the model reads of it, by default the function's docstring.
        max_result_chars: characters of text that the model reads of a result, from
            `LEAST_RESULT_CHARS`; what is longer is shortened (see `trioagent.rendering`).  ``None``
            for all of it.
        max_abandoned: threads of a sync function, from 1, that may go on after their calls timed
            out or were cancelled; while so many do, a call is answered with an error at once.

    Raises:
        ToolSignatureError: a parameter without a schema, or an option out of its range.
    """

    def make(function: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(
            function,
            name=getattr(function, "__name__", "tool") if name is None else name,
            description=description,
            effect=effect,
            timeout=timeout,
            reconcile=reconcile,
            max_result_chars=max_result_chars,
            max_abandoned=max_abandoned,
        )

    return make if function is None else make(function)
