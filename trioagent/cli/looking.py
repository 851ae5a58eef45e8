"""``runs``, ``show`` and ``doubts``: what a journal holds."""

from __future__ import annotations

import click
import msgspec
import trio

from trioagent.cli.ending import Invocation, next_commands
from trioagent.cli.listing import doubt_lines, run_lines, runs_lines
from trioagent.cli.options import (
    checked_run_id,
    existing_journal,
    failing_clearly,
    journal_option,
    json_option,
    run_argument,
)
from trioagent.cli.run_page import run_page
from trioagent.cli.screen import Screen
from trioagent.cli.timeline import Timeline, timeline
from trioagent.journal import Doubt, RunSummary, View
from trioagent.page import save_page


@click.command(short_help="List the runs of a journal.")
@journal_option
@json_option
@failing_clearly
def runs(journal: str, as_json: bool) -> int:
    """List the runs of a journal, the oldest first."""

    async def look() -> list[RunSummary]:
        async with existing_journal(journal) as opened:
            return await opened.runs()

    found = trio.run(look)
    screen = Screen()
    if as_json:
        screen.json({"runs": found})
    elif found:
        screen.lines(runs_lines(found))
    else:
        screen.note(f"{journal} has no runs yet")
    return 0


@click.command(short_help="Show a run as a timeline.")
@run_argument
@journal_option
@click.option("--full", is_flag=True, help="Show every message whole, however long.")
@click.option("--html", "page", metavar="FILE", help="Write a page that needs nothing else.")
@json_option
@failing_clearly
def show(run_id: str, journal: str, full: bool, page: str | None, as_json: bool) -> int:
    """Show RUN as a timeline: which steps ran when, in which session, and what was replayed.

    A session is one claim of the run by a process.  Below the timeline stand what was said, the
    tokens used, how the run stands, and what to do next.
    """
    view, made = trio.run(look_at, journal, run_id)
    screen = Screen()
    if page is not None:
        save_page(page, run_page(view, made))
        screen.note(f"wrote {page}")
        return 0
    if as_json:
        shown = msgspec.to_builtins(view)
        screen.json(shown | {"timeline": msgspec.to_builtins(made.sessions)})
    else:
        commands = next_commands(view, Invocation(journal))
        screen.lines(run_lines(view, made, commands, full=full))
    return 0


async def look_at(path: str, run_id: str) -> tuple[View, Timeline]:
    """A run's view and its timeline.

    Raises:
        JournalError: the journal is not there or cannot be read.
        LookupError: the run is not there.
    """
    async with existing_journal(path) as journal:
        records = await journal.records(run_id)
        if not records:
            raise LookupError(f"there is no run {run_id!r} in this journal")
        view = await journal.view(run_id)
    return view, timeline(records, doubts=view.doubts, running=view.status == "running")


@click.command(short_help="List writes whose outcome is unknown.")
@click.argument("run_id", metavar="[RUN]", required=False, callback=checked_run_id)
@journal_option
@json_option
@failing_clearly
def doubts(run_id: str | None, journal: str, as_json: bool) -> int:
    """List writes that were begun and whose outcome nobody recorded, of RUN or of every run.

    Find out whether each took effect (its key was given to the tool as the idempotency key), then
    say so with `resolve`.
    """

    async def look() -> list[Doubt]:
        async with existing_journal(journal) as opened:
            return await opened.doubts(run_id)

    found = trio.run(look)
    screen = Screen()
    if as_json:
        screen.json({"doubts": found})
    elif found:
        screen.lines(doubt_lines(found, Invocation(journal)))
    else:
        screen.note("nothing is in doubt")
    return 0
