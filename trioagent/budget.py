"""The limits of one run, and what it has used of them.  (pure)"""

from __future__ import annotations

import msgspec


class Budget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits for one run, each counted since its last user message; ``None`` is no limit.

    `max_tokens`: input and output tokens together; a model call is made only while fewer are
    used, and calls of a reply that went past it are not run.
    `max_tool_calls`: calls of tools, denied ones too; a turn that would pass it does not run.
    `max_cost`: an amount in the currency of the agent's prices; a model call is made only while
    less is spent.
    `max_seconds`: seconds in which a process holds the run.  They may end a model call, never a
    tool.

    Where a reply comes without token counts, a run with `max_tokens` or `max_cost` that would go
    on ends with `UsageMissingError`; a reply that is the answer is given all the same, and its
    `usage_missing` says that its counts are unknown.

    Raises:
        ValueError: a limit below zero (or not above zero, for seconds).
    """

    max_tokens: int | None = None
    max_tool_calls: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_tool_calls", "max_cost"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} counts from 0, not {value}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds is above 0, not {self.max_seconds}")


UNLIMITED = Budget()
