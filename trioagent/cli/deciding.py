"""``approve``, ``deny`` and ``resolve``: what a person decides about a run that waits."""

from __future__ import annotations

from typing import Any

import click
import msgspec
import trio

from trioagent.cli.ending import Invocation
from trioagent.cli.options import (
    existing_journal,
    failing_clearly,
    journal_option,
    json_option,
    run_argument,
)
from trioagent.cli.screen import Screen
from trioagent.steps import Applied, NotApplied


@click.command(short_help="Let a waiting call run.")
@run_argument
@click.argument("marker")
@journal_option
@json_option
@failing_clearly
def approve(run_id: str, marker: str, journal: str, as_json: bool) -> int:
    """Let the waiting call MARKER of RUN run, when RUN is resumed."""

    async def decide() -> None:
        async with existing_journal(journal) as opened:
            await opened.approve(run_id, marker)

    trio.run(decide)
    _tell(run_id, journal, as_json, {"marker": marker, "decision": "approved"})
    return 0


@click.command(short_help="Keep a waiting call from running.")
@run_argument
@click.argument("marker")
@click.option("--reason", required=True, help="Why not; the model reads it.")
@journal_option
@json_option
@failing_clearly
def deny(run_id: str, marker: str, reason: str, journal: str, as_json: bool) -> int:
    """Keep the waiting call MARKER of RUN from running; the model reads the reason."""

    async def decide() -> None:
        async with existing_journal(journal) as opened:
            await opened.deny(run_id, marker, reason)

    trio.run(decide)
    _tell(run_id, journal, as_json, {"marker": marker, "decision": "denied", "reason": reason})
    return 0


@click.command(short_help="Say what became of a write in doubt.")
@run_argument
@click.argument("step")
@click.option("--applied", metavar="JSON", help="It took effect and would have returned this.")
@click.option("--applied-text", metavar="TEXT", help="The same, for a result that is a text.")
@click.option("--not-applied", is_flag=True, help="It did not take effect and may run.")
@click.option("--by", metavar="WHO", help="Who knows that, with --not-applied.")
@journal_option
@json_option
@failing_clearly
def resolve(
    run_id: str,
    step: str,
    applied: str | None,
    applied_text: str | None,
    not_applied: bool,
    by: str | None,
    journal: str,
    as_json: bool,
) -> int:
    """Say what became of a write of RUN whose outcome nobody recorded; STEP is its name."""
    resolution = _resolution(applied, applied_text, not_applied, by)

    async def decide() -> None:
        async with existing_journal(journal) as opened:
            await opened.resolve(run_id, step, resolution)

    trio.run(decide)
    decision = "applied" if isinstance(resolution, Applied) else "not applied"
    _tell(run_id, journal, as_json, {"step": step, "decision": decision})
    return 0


def _resolution(
    applied: str | None, applied_text: str | None, not_applied: bool, by: str | None
) -> Applied | NotApplied:
    if [applied is not None, applied_text is not None, not_applied].count(True) != 1:
        raise click.UsageError(
            "give one of --applied JSON, --applied-text TEXT and --not-applied --by WHO"
        )
    if not_applied != bool(by):
        raise click.UsageError("--not-applied and --by WHO go together")
    if not_applied:
        return NotApplied(by or "")
    if applied_text is not None:
        return Applied(applied_text)
    assert applied is not None
    try:
        return Applied(msgspec.json.decode(applied))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise click.BadParameter(
            f"this is no JSON ({exc}); a plain text goes with --applied-text",
            param_hint="--applied",
        ) from None


def _tell(run_id: str, journal: str, as_json: bool, decided: dict[str, Any]) -> None:
    screen = Screen()
    if as_json:
        screen.json({"run_id": run_id, **decided})
        return
    subject = decided.get("marker", decided.get("step", ""))
    resume = Invocation(journal).command("resume", run_id, application=True)
    screen.lines([[(f"{subject}: {decided['decision']}", "")], [(f"to go on: {resume}", "dim")]])
