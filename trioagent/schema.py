"""From a function's signature to the JSON schema of its arguments.

The types are those that msgspec reads from JSON: defaults, optionals, enums, literals, dates,
nested structs and dataclasses, unions that JSON can tell apart, types that refer to themselves.
What several parameters share, or what refers to itself, is told once, in ``$defs``.

Descriptions come from the docstring.  `docstring-parser` reads its parameter section, in any of
the usual styles; it is imported where the first such section is met, never for a program whose
tools have none.
"""

from __future__ import annotations

import copy
import datetime
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from .errors import ToolSignatureError

_PARAMETER_SECTION = re.compile(
    r"^[ \t]*(?:(?:keyword )?arg(?:ument)?s|param(?:eter)?s)[ \t]*(?::[ \t]*$|\n[ \t]*-{3,}[ \t]*$)"
    r"|^[ \t]*[:@]param\b",
    re.MULTILINE | re.IGNORECASE,
)


class Signature(msgspec.Struct, frozen=True):
    """The parameter that takes the context, if one does, and the arguments as a struct and as the
    schema of an object."""

    context: str | None
    struct: type[msgspec.Struct]
    schema: dict[str, Any]


def described(function: Callable[..., Any]) -> tuple[str, Mapping[str, str]]:
    """What the docstring says: of the function, and of each parameter that it names.

    What it says of the returned value is kept, what it says of exceptions is not.
    """
    text = inspect.getdoc(function) or ""
    if not _PARAMETER_SECTION.search(text):
        return text, {}
    import docstring_parser

    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    parameters = {
        item.arg_name: item.description.strip() for item in parsed.params if item.description
    }
    if not parameters:
        return text, {}
    paragraphs = [parsed.short_description, parsed.long_description]
    if parsed.returns is not None and parsed.returns.description:
        paragraphs.append(f"Returns: {parsed.returns.description.strip()}")
    return "\n\n".join([part.strip() for part in paragraphs if part]), parameters


def read_signature(
    function: Callable[..., Any], name: str, context: type, descriptions: Mapping[str, str]
) -> Signature:
    """The signature of `function`; the parameter annotated `context` is no argument.

    Raises:
        ToolSignatureError: a parameter has no annotation, no name, or a type without a schema.
    """
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
    except (NameError, TypeError, ValueError, AttributeError) as exc:
        raise ToolSignatureError(f"{name}: its annotations cannot be read: {exc}") from exc
    taker: str | None = None
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in parameters.values():
        _check_parameter(parameter, name, hints)
        hint = _dated(hints[parameter.name])
        if _takes_context(hint, context, name):
            taker = parameter.name
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
    schema = _object_schema(struct, name)
    for key, text in descriptions.items():
        if key in schema["properties"]:
            schema["properties"][key].setdefault("description", text)
    return Signature(taker, struct, schema)


def _check_parameter(parameter: inspect.Parameter, name: str, hints: Mapping[str, Any]) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ToolSignatureError(f"{name}: *{parameter.name} has no schema; name every parameter")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ToolSignatureError(
            f"{name}: {parameter.name} is positional only, but arguments come by name"
        )
    if parameter.name not in hints:
        raise ToolSignatureError(
            f"{name}: parameter {parameter.name} has no annotation, so it has no schema"
        )


def _takes_context(hint: Any, context: type, name: str) -> bool:
    """Whether the parameter is for the context; a model is never asked for one."""
    choices = typing.get_args(hint)
    if context in choices and not set(choices) <= {context, types.NoneType}:
        raise ToolSignatureError(f"{name}: a {context.__name__} is annotated with nothing beside")
    return hint is context or context in choices


def _dated(hint: Any) -> Any:
    """`hint` with the format of a date and time told, which msgspec tells only of those that must
    have a time zone; a struct's own fields are left as they are."""
    if hint is datetime.datetime or hint is datetime.time:
        form = "date-time" if hint is datetime.datetime else "time"
        return Annotated[hint, msgspec.Meta(extra_json_schema={"format": form})]
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    dated = tuple([_dated(one) for one in inner])
    if all(map(operator.is_, dated, inner)) or origin is Annotated:
        return hint
    if origin in (typing.Union, types.UnionType):
        return typing.Union[dated]  # noqa: UP007 - the types are only known here
    return origin[dated] if origin in (list, dict, set, frozenset, tuple) else hint


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
