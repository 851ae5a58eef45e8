"""What a model wrote as the arguments of a call: read, mended if plain, or refused.  (pure)

Models write some arguments twice over: a list as the text of a list (``{"tags": "[\\"a\\"]"}``), or
the whole object as one JSON text.  Such a text is decoded once, and only where the schema takes an
object or an array and no text, so that nothing a tool could have meant as text is changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

Schema: TypeAlias = Mapping[str, Any]

MAX_SHOWN = 2000
"""Characters of a schema in an error text."""

_NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)
_AT = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


class ArgumentsError(ValueError):
    """Arguments that a tool cannot take; the text is for the model."""


def read_json(name: str, text: str) -> Any:
    """The JSON of the arguments of the tool `name`; an empty text stands for no arguments.

    Raises:
        ArgumentsError: it is no JSON; the text says where.
    """
    try:
        return msgspec.json.decode(text.strip() or "{}")
    except _NOT_JSON as exc:
        raise no_json(name, exc) from None


def no_json(name: str, exc: Exception) -> ArgumentsError:
    """The error for arguments that are no JSON."""
    what = "are incomplete JSON" if "truncated" in str(exc) else f"are no JSON ({exc})"
    return ArgumentsError(f"the arguments of {name} {what}; send one JSON object")


def no_object(name: str, value: Any, schema: Schema) -> ArgumentsError:
    """The error for arguments that are JSON, but no object."""
    return ArgumentsError(
        f"the arguments of {name} must be a JSON object, not {shown(value)}; "
        f"its parameters are {_parameters(schema, '')}"
    )


def misfit(name: str, problem: str, value: Any, schema: Schema) -> ArgumentsError:
    """The error for an object that does not fit: the field, what was found, what is wanted."""
    return ArgumentsError(f"the arguments of {name} do not fit: {fault(problem, value, schema)}")


def fault(problem: str, value: Any, schema: Schema, fields: str = "parameters") -> str:
    """What is wrong with `value`, an object, of which msgspec says `problem`: the field, what was
    found there, and what is wanted."""
    found, field = "", ""
    if (at := _AT.search(problem)) is not None:
        steps = [key or int(index) for key, index in _STEP.findall(at[1])]
        field = str(steps[0]) if steps else ""
        if problem.startswith(("Expected", "Invalid")) and "[...]" not in at[1]:
            found = _found(value, steps)
    return f"{problem}{found}; its {fields} are {_parameters(schema, field)}"


def shown(value: Any, limit: int = 60) -> str:
    """The JSON of `value`, its beginning where it is long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= limit else f"{text[:limit]}..."


def _found(value: Any, steps: list[str | int]) -> str:
    for step in steps:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return ""
    return f", which is {shown(value)}"


def _parameters(schema: Schema, field: str) -> str:
    """What is wanted: all the parameters, the one at fault where all are too many, or names."""
    properties = schema.get("properties", {})
    for choice in (properties, {key: properties[key] for key in properties if key == field}):
        text = msgspec.json.encode(choice).decode()
        if choice and len(text) <= MAX_SHOWN:
            return text
    return shown(list(properties), MAX_SHOWN) if properties else "{}"


# -- what was written twice over ------------------------------------------------------------------


def undoubled(value: Any, schema: Schema) -> Any:
    """`value` with every text decoded that stands where `schema` wants an object or an array.

    A value that needs nothing is given back as it is, the same object.  What was decoded is not
    looked into again.
    """
    return _undoubled(value, schema, schema)


def _undoubled(value: Any, schema: Any, root: Schema) -> Any:
    if isinstance(value, str):
        return _decoded(value, _types(schema, root)) if value.lstrip()[:1] in ("{", "[") else value
    if isinstance(value, dict):
        inner = {
            key: _undoubled(item, _under(schema, root, key), root) for key, item in value.items()
        }
        return value if all(inner[key] is value[key] for key in value) else inner
    if isinstance(value, list):
        items = [
            _undoubled(item, _under(schema, root, index), root) for index, item in enumerate(value)
        ]
        return value if all(map(_same, items, value)) else items
    return value


def _same(one: Any, other: Any) -> bool:
    return one is other


def _decoded(text: str, types: set[str]) -> Any:
    if not types or not types <= {"object", "array", "null"}:
        return text
    try:
        value = msgspec.json.decode(text)
    except _NOT_JSON:
        return text
    fits = (isinstance(value, dict) and "object" in types) or (
        isinstance(value, list) and "array" in types
    )
    return value if fits else text


def _choices(schema: Any, root: Schema, depth: int = 8) -> list[Schema]:
    """The schemas of which one holds, references followed: a hostile one ends at `depth`."""
    if not isinstance(schema, Mapping) or depth == 0:
        return []
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _choices(_referred(reference, root), root, depth - 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return [found for one in schema[key] for found in _choices(one, root, depth - 1)]
    return [schema]


def _referred(reference: str, root: Schema) -> Any:
    found: Any = root
    if not reference.startswith("#"):
        return None
    for name in reference[1:].split("/")[1:]:
        if not isinstance(found, Mapping):
            return None
        found = found.get(name.replace("~1", "/").replace("~0", "~"))
    return found


def _types(schema: Any, root: Schema) -> set[str]:
    """The JSON types that `schema` takes; empty where it does not say."""
    types: set[str] = set()
    for choice in _choices(schema, root):
        kind = choice.get("type")
        if isinstance(kind, str):
            types.add(kind)
        elif isinstance(kind, list):
            types.update([item for item in kind if isinstance(item, str)])
        else:
            return set()
    return types


def _under(schema: Any, root: Schema, key: str | int) -> Any:
    """The schema of what stands at `key`, where it is plain which one that is."""
    found: list[Any] = []
    for choice in _choices(schema, root):
        if isinstance(key, int):
            prefix = choice.get("prefixItems")
            inner = choice.get("items")
            if isinstance(prefix, list) and key < len(prefix):
                inner = prefix[key]
        else:
            properties = choice.get("properties")
            inner = choice.get("additionalProperties")
            if isinstance(properties, Mapping) and key in properties:
                inner = properties[key]
        if isinstance(inner, Mapping):
            found.append(inner)
    return found[0] if len(found) == 1 else {"anyOf": found}
