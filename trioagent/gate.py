"""Who may call what: verdicts, markers and the `Gate` protocol.  (pure)

A gate is asked before a turn runs, about every call of a known tool, in call order.  It may be
asked again about a call that has not started (after a resume, say): the policy of today holds,
and an approval that a person gave answers only a gate that still wants one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

from .messages import ToolCall


class Allow(msgspec.Struct, frozen=True, tag="allow", tag_field="verdict"):
    """The call may run."""


class Deny(msgspec.Struct, frozen=True, tag="deny", tag_field="verdict"):
    """The call must not run; the model reads the reason."""

    reason: str


class NeedApproval(msgspec.Struct, frozen=True, tag="need_approval", tag_field="verdict"):
    """A person must approve; `marker` names the question, by default the call's own marker."""

    reason: str
    marker: str | None = None


Verdict: TypeAlias = Allow | Deny | NeedApproval
ALLOW = Allow()


class CallContext(msgspec.Struct, frozen=True):
    """What a gate knows beside the call.

    `tainted` is true once any tool message is in the model's context, and stays true on a resumed
    transcript: from then on the call may be somebody else's wish.  Without a context a gate must
    assume the worst, so the default is true.  `iter` counts model calls from 1.
    """

    tainted: bool = True
    iter: int = 1
    run_id: str = ""


class Gate(Protocol):
    """A policy.  It decides from values and must not block: it runs on the event loop's thread."""

    def check(self, call: ToolCall, context: CallContext) -> Verdict:
        """The verdict on one call; raising denies it."""
        ...


def judge(gates: Sequence[Gate], call: ToolCall, context: CallContext) -> Verdict:
    """The most restrictive verdict of `gates`: deny, then need approval, then allow.

    A gate that raises, or answers with something that is no verdict, denies: ``gate error: ...``.
    """
    worst: Verdict = ALLOW
    for gate in gates:
        try:
            verdict = gate.check(call, context)
        except Exception as exc:
            verdict = Deny(f"gate error: {type(exc).__name__}: {exc}")
        if not isinstance(verdict, Allow | Deny | NeedApproval):
            verdict = Deny(f"gate error: {type(verdict).__name__} is no verdict")
        if isinstance(verdict, Deny):
            return Deny(_recordable(verdict.reason))
        if isinstance(verdict, NeedApproval) and isinstance(worst, Allow):
            worst = NeedApproval(_recordable(verdict.reason), verdict.marker)
    return worst


def _recordable(reason: str) -> str:
    """`reason` with what UTF-8 has no form for escaped: a policy must not fail for its wording."""
    return reason.encode("utf-8", "backslashreplace").decode()


def default_marker(call: ToolCall) -> str:
    """The first 16 hex digits of SHA-256 over name, 0x00 and canonical JSON of the arguments.

    Canonical JSON has sorted keys, no white space and no escapes but those that JSON needs.
    Arguments that are no JSON stand for themselves, so that every call has a marker.
    """
    try:
        value = json.loads(call.arguments)
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        text = call.arguments
    data = call.name.encode("utf-8", "backslashreplace") + b"\0"
    data += text.encode("utf-8", "backslashreplace")
    return hashlib.sha256(data).hexdigest()[:16]
