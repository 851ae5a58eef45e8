"""What running a step twice would do, and the one table that decides about it.  (pure)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

Effect: TypeAlias = Literal["read", "idempotent", "write"]
"""What running a step twice would do: nothing; nothing more under the same key; it again."""

EFFECTS: tuple[Effect, ...] = ("read", "idempotent", "write")
"""All of them."""

Standing: TypeAlias = Literal["nothing", "intent", "outcome", "other_request"]
"""What is recorded of a step: nothing, that it began, its outcome, or that of another request."""

Decision: TypeAlias = Literal["execute", "replay", "again", "reconcile", "mismatch"]

TABLE: Mapping[Effect, Mapping[Standing, Decision]] = {
    "read": {
        "nothing": "execute",
        "intent": "again",
        "outcome": "replay",
        "other_request": "mismatch",
    },
    "idempotent": {
        "nothing": "execute",
        "intent": "again",
        "outcome": "replay",
        "other_request": "mismatch",
    },
    "write": {
        "nothing": "execute",
        "intent": "reconcile",
        "outcome": "replay",
        "other_request": "mismatch",
    },
}


def decide(effect: Effect, standing: Standing) -> Decision:
    """What to do about a step.

    ``again`` is another attempt under the same key; ``reconcile`` asks whoever can find out, and
    refuses where nobody can: a write is never repeated by itself.
    """
    return TABLE[effect][standing]
