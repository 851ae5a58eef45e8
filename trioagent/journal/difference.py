"""Where two JSON texts first differ.  (pure)"""

from __future__ import annotations

from typing import Any

import msgspec

_SHOWN = 200
"""Characters of each side that a difference shows."""


def first_difference(recorded: bytes, now: bytes) -> str | None:
    """The first place where two JSON texts differ in value, with both sides; ``None`` where equal.

    Key order and white space are no difference.
    """
    return _differ(msgspec.json.decode(recorded), msgspec.json.decode(now), "")


def _differ(recorded: Any, now: Any, path: str) -> str | None:
    if isinstance(recorded, dict) and isinstance(now, dict):
        for key in [*recorded, *[key for key in now if key not in recorded]]:
            inner = f"{path}.{key}" if path else str(key)
            if key not in now:
                return f"{inner} was {_show(recorded[key])} and is gone"
            if key not in recorded:
                return f"{inner} is new: {_show(now[key])}"
            if found := _differ(recorded[key], now[key], inner):
                return found
        return None
    if isinstance(recorded, list) and isinstance(now, list):
        for place, (was, is_now) in enumerate(zip(recorded, now, strict=False)):
            if found := _differ(was, is_now, f"{path}[{place}]"):
                return found
        if len(recorded) != len(now):
            return f"{path} had {len(recorded)} items and has {len(now)}"
        return None
    if type(recorded) is type(now) and recorded == now:
        return None
    return f"{path or 'it'} was {_show(recorded)} and is {_show(now)}"


def _show(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
