"""``export``, ``import``, ``fork`` and ``diff``: runs as files, and runs made of runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec
import trio

from trioagent.cli.ending import DIFFERENT, EXIT_CODES, Invocation
from trioagent.cli.lines import Line, counted
from trioagent.cli.options import (
    checked_run_id,
    existing_journal,
    failing_clearly,
    journal_option,
    json_option,
    run_argument,
)
from trioagent.cli.screen import Screen
from trioagent.errors import JournalError
from trioagent.journal import Forked, Recording, open_journal, read_recordings
from trioagent.journal.divergence import Divergence, diverge
from trioagent.journal.recording import write_lines


@click.command(name="export", short_help="Write runs as JSON lines.")
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@journal_option
@click.option("--output", "-o", metavar="FILE", help="A new file.  [default: the standard output]")
@failing_clearly
def export_runs(run_ids: tuple[str, ...], journal: str, output: str | None) -> int:
    """Write each RUN, or every run of the journal, as JSON lines with a hash at their end.

    Such a file can be imported elsewhere, compared with `diff`, and kept beside a test.  What was
    said in a run stands in it as it is.
    """
    if output is None:
        for line in write_lines(trio.run(_recordings, journal, run_ids)):
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        return 0

    async def write() -> tuple[str, ...]:
        async with existing_journal(journal) as opened:
            return await opened.export(output, run_ids or None)

    written = trio.run(write)
    Screen().note(f"wrote {counted(len(written), 'run')} to {output}")
    return 0


async def _recordings(journal: str, run_ids: tuple[str, ...]) -> list[Recording]:
    async with existing_journal(journal) as opened:
        asked = run_ids or tuple([run.run_id for run in await opened.runs()])
        return [await opened.recording(run_id) for run_id in asked]


@click.command(name="import", short_help="Take in runs from a file.")
@click.argument("file")
@journal_option
@json_option
@failing_clearly
def import_runs(file: str, journal: str, as_json: bool) -> int:
    """Take in the runs of FILE, which `export` wrote: all of them or none.

    No run is ever overwritten.  What is imported can be looked at and forked; it is read-only
    until it is resumed.
    """

    async def take() -> tuple[str, ...]:
        if not Path(file).is_file():  # noqa: ASYNC240 - one look, before a journal is made
            raise JournalError(f"{file} is no file of runs; `export` writes one")
        async with open_journal(journal) as opened:
            return await opened.import_file(file)

    taken = trio.run(take)
    screen = Screen()
    if as_json:
        screen.json({"runs": taken})
    else:
        screen.lines([[(run_id, "")] for run_id in taken])
        screen.note(f"imported {counted(len(taken), 'run')} into {journal}")
    return 0


@click.command(short_help="Make a new run of another's first turns.")
@run_argument
@click.argument("new_run_id", metavar="NEW", callback=checked_run_id)
@click.option(
    "--at-turn",
    type=click.IntRange(0),
    required=True,
    help="How many turns to keep, each a reply with its tools' results; 0 keeps the input.",
)
@journal_option
@json_option
@failing_clearly
def fork(run_id: str, new_run_id: str, at_turn: int, journal: str, as_json: bool) -> int:
    """Make the run NEW of the first turns of RUN, which stays as it is.

    Nothing is copied and nothing is called; `resume` NEW asks the model for the turn after.  Writes
    that RUN made behind that turn are listed: they have happened, and NEW knows nothing of them.
    """

    async def make() -> Forked:
        async with existing_journal(journal) as opened:
            return await opened.fork(run_id, new_run_id, at_turn=at_turn)

    forked = trio.run(make)
    screen = Screen()
    command = Invocation(journal).command("resume", new_run_id, application=True)
    if as_json:
        screen.json(msgspec.to_builtins(forked) | {"next": [command]})
        return 0
    for step in forked.later_writes:
        screen.lines([[("happened  ", "yellow"), (f"{step.name}  ({step.status})", "")]])
    screen.note(
        f"{new_run_id} begins with {counted(at_turn, 'turn')} of {run_id}",
        [("  to go on:", "dim")],
        [(f"    {command}", "bold")],
    )
    return 0


@click.command(short_help="Say where two runs part.", epilog=EXIT_CODES)
@click.argument("a")
@click.argument("b")
@journal_option
@json_option
@failing_clearly
def diff(a: str, b: str, journal: str, as_json: bool) -> int:
    """Say in what the run B first differs from the run A: which step, and what of it.

    Each is a run of the journal, or a file that `export` wrote: FILE.jsonl, or FILE.jsonl:RUN where
    it holds several.  Times, owners and the order in which parallel tools finished are no
    difference.
    """
    found = diverge(trio.run(_side, journal, a), trio.run(_side, journal, b))
    screen = Screen()
    if as_json:
        screen.json({"a": a, "b": b, "divergence": found})
    elif found is None:
        screen.note(f"{a} and {b} did the same")
    else:
        screen.lines(divergence_lines(found))
    return 0 if found is None else DIFFERENT


def divergence_lines(found: Divergence) -> list[Line]:
    """The step, what differs, and both sides with what came before."""
    first, *others = str(found).splitlines()
    styles = {"-": "red", "+": "green"}
    return [[(first, "bold")], *[[(line, styles.get(line[2], "dim"))] for line in others]]


async def _side(journal: str, name: str) -> Recording:
    """A run by its name, or the one of a file."""
    path, colon, run_id = name.rpartition(":")
    if not colon or not path.endswith(".jsonl"):
        path, run_id = name, ""
    if not path.endswith(".jsonl"):
        async with existing_journal(journal) as opened:
            return await opened.recording(name)
    held = {recording.run_id: recording for recording in read_recordings(path)}
    if not run_id and len(held) == 1:
        (run_id,) = held
    if run_id not in held:
        runs = ", ".join(held) or "none"
        raise LookupError(f"say which run: {path}:RUN; the file holds {runs}")
    return held[run_id]
