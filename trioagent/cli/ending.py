"""How a run ended: the exit code, and the commands to type next.  (pure)"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trioagent.errors import FencedError, ReplayMismatchError, RunOwnedError, UnknownOutcomeError
from trioagent.events import Answered, Halted, Pending, State, Suspended
from trioagent.journal import View

DEFAULT_JOURNAL = "runs.db"

ANSWERED, FAILED, USAGE, HALTED, SUSPENDED, IN_DOUBT, DIFFERENT = 0, 1, 2, 3, 4, 5, 6
INTERRUPTED = 130

EXIT_CODES = """\b
Exit codes:
  0    answered, or done what was asked
  1    failed; one line on standard error says why
  2    wrong usage
  3    halted by a limit
  4    suspended: calls wait for approval
  5    in doubt: a write was begun and its outcome never recorded
  6    `diff`: the runs differ
  130  interrupted (Ctrl-C)"""
"""For ``--help``; ``\\b`` keeps click from filling the paragraph."""


@dataclass(frozen=True)
class Ending:
    """How an attempt at a run ended: with a state, or with what it raised."""

    state: State | None = None
    error: BaseException | None = None

    @property
    def exit_code(self) -> int:
        """The code that tells the ends apart."""
        match self.state:
            case Answered():
                return ANSWERED
            case Halted():
                return HALTED
            case Suspended():
                return SUSPENDED
        if isinstance(self.error, UnknownOutcomeError):
            return IN_DOUBT
        return INTERRUPTED if isinstance(self.error, KeyboardInterrupt) else FAILED

    @property
    def status(self) -> str:
        """The end in one word, for scripts."""
        names = {FAILED: "failed", IN_DOUBT: "in_doubt", INTERRUPTED: "interrupted"}
        names |= {ANSWERED: "answered", HALTED: "halted", SUSPENDED: "suspended"}
        return names[self.exit_code]


@dataclass(frozen=True)
class Invocation:
    """How this command was called, as far as the next one has to repeat it."""

    journal: str
    application: Sequence[str] = ("--app", "MODULE:AGENT")

    def command(self, name: str, *arguments: str, application: bool = False) -> str:
        """A command to type, quoted for a shell."""
        words = ["trioagent", name, *arguments]
        if application:
            words += self.application
        if self.journal != DEFAULT_JOURNAL:
            words += ["--journal", self.journal]
        return shlex.join(words)


def describe(exc: BaseException) -> str:
    """What went wrong, with the option that helps where there is one."""
    text = str(exc)
    if isinstance(exc, KeyError):
        text = str(exc.args[0]) if exc.args else ""
    if not isinstance(exc, LookupError | OSError | ValueError) and not _is_ours(exc):
        text = f"{type(exc).__name__}: {text}" if text else type(exc).__name__
    if isinstance(exc, RunOwnedError):
        text += "; wait for it, or take the run from an owner that hangs with resume --take-over"
    elif isinstance(exc, ReplayMismatchError) and "accept_changes" in text:
        text = text.replace("accept_changes=True records", "resume with --accept-changes records")
    elif isinstance(exc, FencedError):
        text += " after that"
    told = "; ".join([text or type(exc).__name__, *getattr(exc, "__notes__", ())])
    return told.encode("utf-8", "backslashreplace").decode()  # JSON has no lone surrogates


def _is_ours(exc: BaseException) -> bool:
    return type(exc).__module__.startswith("trioagent.")


# -- what to do next ------------------------------------------------------------------------------


def next_commands(view: View, invocation: Invocation) -> list[tuple[str, str]]:
    """What can be done about a run that is not over: each a reason and the command to type."""
    run = view.run_id
    resume = invocation.command("resume", run, application=True)
    match view.status:
        case "answered" | "completed":
            return []
        case "running":
            return [("to watch", invocation.command("show", run))]
        case "in_doubt":
            return [*_about_doubts(view, invocation), ("then go on", resume)]
        case "suspended":
            waiting = _about_pending(view.pending, run, invocation)
            return [*waiting, ("then go on" if waiting else "to go on", resume)]
        case "halted":
            return [("to go on under a higher limit", f"{resume} {_higher(view)}".rstrip())]
        case _:
            return [("to go on", resume)]


def _about_doubts(view: View, invocation: Invocation) -> list[tuple[str, str]]:
    found = [("to look at what is in doubt", invocation.command("doubts", view.run_id))]
    for step in view.doubts:
        applied = invocation.command("resolve", view.run_id, step, "--applied-text", "RESULT")
        not_applied = invocation.command(
            "resolve", view.run_id, step, "--not-applied", "--by", "NAME"
        )
        found += [("if it took effect", applied), ("if it did not", not_applied)]
    return found


def _about_pending(
    waiting: Sequence[Pending], run: str, invocation: Invocation
) -> list[tuple[str, str]]:
    found = []
    for pending in waiting:
        approve = invocation.command("approve", run, pending.marker)
        deny = invocation.command("deny", run, pending.marker, "--reason", "WHY")
        found += [(f"to let {pending.call.name} run", approve), ("to keep it from running", deny)]
    return found


def _higher(view: View) -> str:
    """The option that raises the limit, to twice what it was."""
    if view.stopped is None:
        return ""
    option = {
        "max_iter": "--max-iter",
        "tokens": "--max-tokens",
        "tool_calls": "--max-tool-calls",
        "cost": "--max-cost",
        "deadline": "--max-seconds",
    }.get(view.stopped.reason, "")
    limit = max(view.stopped.limit, view.stopped.used)
    return f"{option} {math.ceil(limit * 2) or 1}" if option else ""


# -- for scripts ----------------------------------------------------------------------------------


def end_line(run_id: str, ending: Ending, view: View | None, commands: list[str]) -> dict[str, Any]:
    """The last line of ``--json``: how the run ended, and what to do next."""
    line: dict[str, Any] = {
        "event": "end",
        "run_id": run_id,
        "status": ending.status,
        "exit_code": ending.exit_code,
    }
    match ending.state:
        case Answered(message=message):
            line["answer"] = message.text
        case Halted(reason=reason, used=used, limit=limit):
            line |= {"reason": reason, "used": used, "limit": limit}
        case Suspended(pending=pending):
            line["pending"] = pending
    if ending.error is not None:
        line["error"] = {"type": type(ending.error).__name__, "message": describe(ending.error)}
    if view is not None:
        line |= {"usage": view.usage, "doubts": view.doubts}
    return line | {"next": commands}
