"""What commands share: their options, how they open a journal, and how they fail."""

from __future__ import annotations

import functools
import traceback as tracebacks
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from trioagent.cli.ending import DEFAULT_JOURNAL, FAILED, INTERRUPTED, describe
from trioagent.cli.safe import one_line
from trioagent.cli.screen import Screen
from trioagent.errors import JournalError
from trioagent.journal import Journal, open_journal
from trioagent.journal.records import check_run_id

_F = TypeVar("_F", bound=Callable[..., Any])


def run_argument(function: _F) -> _F:
    """The argument RUN, checked before anything is opened."""
    return click.argument("run_id", metavar="RUN", callback=checked_run_id)(function)


def checked_run_id(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """A run id as click's callback takes it; what is none is wrong usage."""
    if value is not None:
        try:
            check_run_id(value)
        except ValueError as exc:
            raise click.BadParameter(one_line(str(exc))) from None
    return value


journal_option = click.option(
    "--journal",
    metavar="FILE",
    default=DEFAULT_JOURNAL,
    show_default=True,
    help="The journal's file.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON, for scripts.")


def application_options(function: _F) -> _F:
    """``--app`` or ``--model``, and the limits."""
    for option in reversed(_APPLICATION_OPTIONS):
        function = option(function)
    return function


_APPLICATION_OPTIONS = (
    click.option(
        "--app",
        metavar="MODULE:AGENT",
        help="An Agent, or a function that returns one; the current folder is importable.",
    ),
    click.option(
        "--model",
        metavar="API:NAME",
        help="A model without tools, instead of --app: openai:, responses: or anthropic:.",
    ),
    click.option(
        "--mcp",
        metavar="COMMAND|URL",
        multiple=True,
        help="An MCP server whose tools the model gets, with --model; may be repeated.",
    ),
    click.option("--base-url", metavar="URL", help="Where the model is, if not at the vendor's."),
    click.option(
        "--api-key-env",
        metavar="VAR",
        help="The variable that holds the API key.  [default: the vendor's, as OPENAI_API_KEY]",
    ),
    click.option("--system", metavar="TEXT", help="The system prompt, with --model."),
    click.option("--max-iter", type=click.IntRange(1), help="Model calls, from 1."),
    click.option("--max-tokens", type=click.IntRange(0), help="Input and output tokens."),
    click.option("--max-tool-calls", type=click.IntRange(0), help="Calls of tools."),
    click.option(
        "--max-cost",
        type=click.FloatRange(0),
        help="US dollars; needs known prices (the extra prices, or the --app's own).",
    ),
    click.option(
        "--max-seconds",
        type=click.FloatRange(0, min_open=True),
        help="Seconds in which a process holds the run.",
    ),
)


def failing_clearly(function: Callable[..., int]) -> Callable[..., int]:
    """Failures as one line on standard error and an exit code; adds ``--traceback``."""

    @click.option("--traceback", is_flag=True, help="Show where a failure came from.")
    @functools.wraps(function)
    def command(*args: Any, traceback: bool, **options: Any) -> int:
        try:
            return function(*args, **options)
        except (click.ClickException, click.exceptions.Exit, click.Abort) as exc:
            if traceback and exc.__cause__ is not None:
                tracebacks.print_exception(exc.__cause__)
            raise
        except BrokenPipeError:
            raise
        except BaseException as exc:
            if is_interrupt(exc):
                Screen().note("interrupted")
                return INTERRUPTED
            if not isinstance(exc, Exception):
                raise
            if traceback:
                tracebacks.print_exception(exc)
            Screen().error(describe(exc))
            return FAILED

    return command


def is_interrupt(exc: BaseException) -> bool:
    """Whether this is Ctrl-C, bare or in a nursery's group."""
    if isinstance(exc, BaseExceptionGroup):
        return any(is_interrupt(inner) for inner in exc.exceptions)
    return isinstance(exc, KeyboardInterrupt)


@asynccontextmanager
async def existing_journal(path: str) -> AsyncIterator[Journal]:
    """The journal at `path`, which must be there: looking at runs makes no file.

    Raises:
        JournalError: there is none.
    """
    if not Path(path).is_file():  # noqa: ASYNC240 - one look, before anything runs
        what = "is no file" if Path(path).exists() else "is not there"  # noqa: ASYNC240
        raise JournalError(f"the journal {path} {what}; name another with --journal")
    async with open_journal(path) as journal:
        yield journal
