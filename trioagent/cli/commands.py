"""The group of all commands, and how one call of it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from trioagent.cli.deciding import approve, deny, resolve
from trioagent.cli.demo import demo
from trioagent.cli.ending import EXIT_CODES, FAILED, INTERRUPTED
from trioagent.cli.files import diff, export_runs, fork, import_runs
from trioagent.cli.looking import doubts, runs, show
from trioagent.cli.running import resume, run
from trioagent.cli.upkeep import backup, prune, verify


@click.group(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trioagent")
def trioagent() -> None:
    """Agents that survive: every model call and tool call is a recorded step.

    `demo` shows it in a few seconds.  `run` runs an agent, `resume` goes on with a run that
    stopped, `runs` and `show` look at what is recorded.  `export` and `import` make runs files,
    `diff` compares them, `fork` makes a new one of another.  `verify`, `prune` and `backup` keep a
    journal's file.
    """


_deciding = (approve, deny, doubts, resolve)
_files = (export_runs, import_runs, diff, fork)
for _command in (demo, run, runs, show, resume, *_deciding, *_files, verify, prune, backup):
    trioagent.add_command(_command)


def run_command(arguments: Sequence[str] | None) -> int:
    """One call of the command line; returns its exit code."""
    words = None if arguments is None else list(arguments)
    try:
        code = trioagent.main(words, prog_name="trioagent", standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        return exc.exit_code
    except click.Abort:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read has left, as `head` does; what is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code if isinstance(code, int) else 0
