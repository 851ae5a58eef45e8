"""``verify``, ``prune`` and ``backup``: keeping a journal's file."""

from __future__ import annotations

import re

import click
import msgspec
import trio

from trioagent.cli.ending import FAILED
from trioagent.cli.lines import Line, Span, counted, table
from trioagent.cli.options import existing_journal, failing_clearly, journal_option, json_option
from trioagent.cli.safe import one_line
from trioagent.cli.screen import Screen
from trioagent.journal import Pruned, Report
from trioagent.journal import verify as verify_journal
from trioagent.journal.prune import OVER, Over

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_BYTES = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@click.command(short_help="Check every invariant of a journal.")
@click.argument("file")
@json_option
@failing_clearly
def verify(file: str, as_json: bool) -> int:
    """Check every invariant of the journal FILE and print what was checked; nothing is changed.

    It may be in use.  The exit code is 1 if there is a fault, and every one is listed.
    """
    report = trio.run(verify_journal, file)
    screen = Screen()
    if as_json:
        screen.json(msgspec.to_builtins(report) | {"ok": report.ok})
    else:
        screen.lines(report_lines(report))
    return 0 if report.ok else FAILED


def report_lines(report: Report) -> list[Line]:
    """What was checked, one check a line, each fault below its check."""
    rows: list[list[Span]] = [[("CHECKED", "bold"), ("COUNT", "bold"), ("FOUND", "bold")]]
    for check in report.checks:
        found = counted(len(check.faults), "fault") if check.faults else "ok"
        style = "bold red" if check.faults else "green"
        rows.append([(check.what, ""), (str(check.count), ""), (found, style)])
    lines = table(rows)
    lines += [[("fault: ", "bold red"), (fault, "")] for fault in report.faults]
    return lines


def seconds(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """An age such as ``30d``, in seconds, as click's callback gives it."""
    return None if value is None else _measured(value, _SECONDS, "30d, 12h or 90s")


def size(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """A size such as ``500M``, in bytes, as click's callback gives it."""
    return None if value is None else _measured(value, _BYTES, "500M, 2G or 100000")


def _measured(value: str, units: dict[str, int], such_as: str) -> int:
    found = re.fullmatch(r"(\d{1,15})([A-Za-z]?)", value, re.ASCII)
    if found is None or found[2] not in units:
        raise click.BadParameter(f"{one_line(value, 100)!r} is not like {such_as}")
    return int(found[1]) * units[found[2]]


@click.command(short_help="Remove runs that are over.")
@journal_option
@click.option(
    "--older-than",
    metavar="AGE",
    callback=seconds,
    help="Runs whose last record is that old: 30d, 12h, 90m, 90s or 2w.",
)
@click.option("--keep", type=click.IntRange(0), help="All but the N that ended last.")
@click.option(
    "--max-bytes",
    metavar="SIZE",
    callback=size,
    help="Those that ended first, until the file uses no more: 500M, 2G or a number.",
)
@click.option(
    "--also",
    multiple=True,
    type=click.Choice(["failed", "cancelled", "halted"]),
    help="Runs that stand so as well, which could still go on; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--vacuum", is_flag=True, help="Then make the file smaller; nothing may run.")
@json_option
@failing_clearly
def prune(
    journal: str,
    older_than: float | None,
    keep: int | None,
    max_bytes: int | None,
    also: tuple[Over, ...],
    dry_run: bool,
    vacuum: bool,
    as_json: bool,
) -> int:
    """Remove runs that are answered or completed, and the payloads that only they used.

    A run is removed only if every rule given lets it go.  Runs that are suspended, in doubt,
    interrupted or owned are never removed.  What is removed leaves free pages, which are used
    again; with --vacuum the file is written anew without them.
    """
    if older_than is None and keep is None and max_bytes is None:
        raise click.UsageError("give at least one of --older-than, --keep and --max-bytes")

    async def remove() -> Pruned:
        async with existing_journal(journal) as opened:
            return await opened.prune(
                older_than=older_than,
                keep=keep,
                max_bytes=max_bytes,
                statuses=(*OVER, *also),
                dry_run=dry_run,
                vacuum=vacuum,
            )

    pruned = trio.run(remove)
    screen = Screen()
    if as_json:
        screen.json(msgspec.to_builtins(pruned) | {"dry_run": dry_run})
    else:
        screen.lines([[(run_id, "")] for run_id in pruned.runs])
        screen.note(_told(pruned, dry_run))
    return 0


def _told(pruned: Pruned, dry_run: bool) -> str:
    runs = counted(len(pruned.runs), "run")
    records = counted(pruned.records, "record")
    payloads = counted(pruned.payloads, "payload")
    return (
        f"{'would remove' if dry_run else 'removed'} {runs} with {records} and {payloads}: "
        f"{pruned.freed_bytes} bytes less, {pruned.used_bytes} in use"
    )


@click.command(short_help="Copy a journal that may be in use.")
@click.argument("file")
@click.argument("target")
@json_option
@failing_clearly
def backup(file: str, target: str, as_json: bool) -> int:
    """Copy the journal FILE to TARGET, which must not be there, and verify the copy.

    The journal may be in use: the copy is of one moment.
    """

    async def copy() -> Report:
        async with existing_journal(file) as opened:
            return await opened.backup(target)

    report = trio.run(copy)
    screen = Screen()
    if as_json:
        screen.json(msgspec.to_builtins(report) | {"ok": report.ok})
    else:
        screen.lines(report_lines(report))
        screen.note(f"{file} was copied to {target}, and the copy verified")
    return 0
