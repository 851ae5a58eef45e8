"""A write in doubt, as it is told to whoever can settle it."""

from __future__ import annotations

import msgspec

from trioagent.messages import ToolCall, decode_assistant
from trioagent.steps import idempotency_key

from .fold import Fold, StepState, split_step


class Doubt(msgspec.Struct, frozen=True):
    """A write that was begun and whose outcome nobody recorded.

    `call` is the model's, where it is an agent's tool call; `key` is the idempotency key that its
    body was given; `began_at` is Unix milliseconds.
    """

    run_id: str
    step: str
    key: str
    attempt: int
    began_at: int
    call: ToolCall | None = None


def doubt_of(run_id: str, state: Fold, step: StepState) -> Doubt:
    """What is known of the open step of that run."""
    key = idempotency_key(state.nonce, step.name)
    call = _call_of(state, step.name)
    return Doubt(run_id, step.name, key, step.attempts, step.started_at, call)


def _call_of(state: Fold, step: str) -> ToolCall | None:
    """The model's call that a tool step runs, from the reply that asked for it."""
    prefix, name = split_step(step)
    parts = name.split("/")
    if parts[0] != "tool" or len(parts) < 4:
        return None
    reply = state.steps.get(f"{prefix}llm/{parts[1]}")
    if reply is None or reply.status != "completed":
        return None
    calls = decode_assistant(reply.data).tool_calls
    index = int(parts[2])
    return calls[index] if index < len(calls) else None
