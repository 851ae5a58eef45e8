"""The form of a schema that a vendor's schema mode takes.  (pure)

Schema modes take less than JSON schema has.  Every object lists its fields, all of them required
and none besides; limits of numbers, texts and lists are refused by some vendors, so they become
part of the description, where the model still reads them; an object of free keys, a tuple and a
type that holds itself have no form at all.  Nothing is lost: the answer is checked here as well,
against the type itself.

The rules are OpenAI's for ``strict`` and Anthropic's for ``output_config.format``, whichever is
the stricter one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

Schema: TypeAlias = Mapping[str, Any]

_TOLD = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contentEncoding",
)
"""Keywords that no schema mode needs, and that the description tells instead."""

_DROPPED = ("title", "default", "discriminator", "examples", "required", "additionalProperties")
"""Keywords that only say what the others say too, or that are written anew."""

_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)


def closed(schema: Schema) -> dict[str, Any] | None:
    """The `schema` of an object as a schema mode takes it; ``None`` where it has no such form."""
    definitions = schema.get("$defs", {})
    try:
        for name in definitions:
            _refuse_recursion(definitions, name, ())
        root = _closed({key: value for key, value in schema.items() if key != "$defs"})
        inner = {name: _closed(one) for name, one in definitions.items()}
    except _NoFormError:
        return None
    return {**root, "$defs": inner} if inner else root


class _NoFormError(Exception):
    """The schema has no closed form."""


def _closed(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise _NoFormError
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    wire: dict[str, Any] = {}
    told: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("type", "enum", "const", "description"):
            wire[key] = value
        elif key == "format":
            (wire if value in _FORMATS else told)[key] = value
        elif key == "properties":
            wire[key] = {name: _closed(one) for name, one in value.items()}
            wire |= {"required": list(value), "additionalProperties": False}
        elif key == "items":
            wire[key] = _closed(value)
        elif key == "anyOf":
            wire[key] = [_closed(one) for one in value]
        elif key in _TOLD:
            told[key] = value
        elif key not in _DROPPED:
            raise _NoFormError
    if not {"type", "enum", "const", "anyOf"} & wire.keys():
        raise _NoFormError  # anything at all
    if (wire.get("type") == "object") is not ("properties" in wire):
        raise _NoFormError  # an object of free keys
    if wire.get("type") == "array" and "items" not in wire:
        raise _NoFormError
    if told:
        limits = msgspec.json.encode(told).decode()
        wire["description"] = f"{wire.get('description', '')} {limits}".strip()
    return wire


def _refuse_recursion(definitions: Schema, name: str, above: tuple[str, ...]) -> None:
    if name in above:
        raise _NoFormError
    for other in _references(definitions.get(name)):
        _refuse_recursion(definitions, other, (*above, name))


def _references(schema: Any) -> list[str]:
    """The names of the definitions that `schema` refers to, wherever in it."""
    if isinstance(schema, list):
        return [name for one in schema for name in _references(one)]
    if not isinstance(schema, Mapping):
        return []
    here = [schema["$ref"].rsplit("/", 1)[1]] if isinstance(schema.get("$ref"), str) else []
    return here + [
        name
        for key, one in schema.items()
        if key not in ("discriminator", "default", "enum", "const", "examples")
        for name in _references(one)
    ]
