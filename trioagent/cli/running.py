"""``run`` and ``resume``: an agent on a claimed run, watched."""

from __future__ import annotations

import secrets
import sys
import traceback as tracebacks
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import trio

from trioagent.agent import Agent
from trioagent.cli.application import Limits, Source
from trioagent.cli.ending import (
    EXIT_CODES,
    INTERRUPTED,
    Ending,
    Invocation,
    describe,
    end_line,
    next_commands,
)
from trioagent.cli.lines import STATUS_STYLES
from trioagent.cli.options import (
    application_options,
    checked_run_id,
    existing_journal,
    failing_clearly,
    is_interrupt,
    journal_option,
    json_option,
    run_argument,
)
from trioagent.cli.safe import one_line
from trioagent.cli.screen import Screen
from trioagent.cli.servers import with_servers
from trioagent.cli.watching import JsonWatcher, TextWatcher, Watcher, watch
from trioagent.errors import TrioagentError
from trioagent.events import Halted, Suspended
from trioagent.journal import View, open_journal
from trioagent.messages import SystemMessage

_ADJECTIVES = (
    "amber brave calm deep early fair green high keen light mild new open plain quiet wise"
)
_NOUNS = (
    "brook cedar delta ember field grove heron island lake maple otter peak reed stone tide wren"
)


@dataclass(frozen=True)
class Plan:
    """One attempt at a run."""

    journal: str
    run_id: str
    agent: Agent
    prompt: str | None = None
    approvals: Sequence[str] = ()
    denials: Mapping[str, str] = field(default_factory=dict)
    accept_changes: bool = False
    take_over: bool = False
    mcp: Sequence[str] = ()
    after: str | None = None


@click.command(short_help="Run an agent on a prompt.", epilog=EXIT_CODES)
@click.argument("prompt")
@application_options
@journal_option
@click.option(
    "--run-id", callback=checked_run_id, help="The run's name.  [default: a new one, printed]"
)
@click.option(
    "--after",
    metavar="RUN",
    callback=checked_run_id,
    help="Ask the next question of RUN's conversation, which is answered.",
)
@json_option
@failing_clearly
def run(
    prompt: str,
    journal: str,
    run_id: str | None,
    after: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Run an agent on PROMPT (``-`` reads it from standard input) until it answers.

    The answer goes to standard output, tool calls to standard error.  Every step is recorded in
    the journal; `resume` goes on with a run that stopped, whatever stopped it.
    """
    source, limits = _source_and_limits(options)
    agent = limits.on(source.agent())
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise click.UsageError("the prompt is empty")
    plan = Plan(journal, run_id or _fresh_id(), agent, text, mcp=source.mcp, after=after)
    return _carry_out(plan, Invocation(journal, source.arguments()), as_json)


@click.command(short_help="Go on with a run that stopped.", epilog=EXIT_CODES)
@run_argument
@application_options
@journal_option
@click.option("--approve", metavar="MARKER", multiple=True, help="Let a waiting call run.")
@click.option(
    "--deny", metavar="MARKER=REASON", multiple=True, help="Keep a waiting call from running."
)
@click.option("--accept-changes", is_flag=True, help="Go on although the agent has changed.")
@click.option("--take-over", is_flag=True, help="Take the run from an owner that hangs.")
@json_option
@failing_clearly
def resume(
    run_id: str,
    journal: str,
    approve: Sequence[str],
    deny: Sequence[str],
    accept_changes: bool,
    take_over: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Go on with RUN from its record: nothing recorded is asked or done again."""
    source, limits = _source_and_limits(options)
    denials = dict([_denial(text) for text in deny])
    source.check()
    recorded_system = trio.run(_system_of, journal, run_id)
    plan = Plan(
        journal,
        run_id,
        limits.on(source.agent(recorded_system)),
        approvals=tuple(approve),
        denials=denials,
        accept_changes=accept_changes,
        take_over=take_over,
        mcp=source.mcp,
    )
    return _carry_out(plan, Invocation(journal, source.arguments()), as_json)


def _source_and_limits(options: dict[str, Any]) -> tuple[Source, Limits]:
    names = ("max_iter", "max_tokens", "max_tool_calls", "max_cost", "max_seconds")
    limits = Limits(**{name: options.pop(name) for name in names})
    return Source(**options), limits


def _denial(text: str) -> tuple[str, str]:
    marker, equals, reason = text.partition("=")
    if not equals or not marker or not reason:
        raise click.BadParameter(f"{one_line(text)!r} is not MARKER=REASON", param_hint="--deny")
    return marker, reason


def _fresh_id() -> str:
    adjective, noun = secrets.choice(_ADJECTIVES.split()), secrets.choice(_NOUNS.split())
    return f"{adjective}-{noun}-{secrets.token_hex(3)}"


async def _system_of(path: str, run_id: str) -> str:
    """The recorded system prompt; `LookupError` where there is no such run."""
    async with existing_journal(path) as journal:
        view = await journal.view(run_id)
        if not view.transcript and not view.steps:
            raise LookupError(f"there is no run {run_id!r} in this journal")
    first = view.transcript[0] if view.transcript else None
    return first.text if isinstance(first, SystemMessage) else ""


# -- one attempt ----------------------------------------------------------------------------------


def _carry_out(plan: Plan, invocation: Invocation, as_json: bool) -> int:
    """Run, then tell how it ended and what to do next; returns the exit code."""
    screen = Screen()
    watcher: Watcher = JsonWatcher(screen) if as_json else TextWatcher(screen)
    if as_json:
        screen.json({"event": "run", "run_id": plan.run_id, "journal": plan.journal})
    else:
        screen.note([("run ", "dim"), (plan.run_id, "bold"), (f" in {plan.journal}", "dim")])
    try:
        state = trio.run(_attempt, plan, watcher)
        ending = Ending(state)
    except BrokenPipeError:  # nobody reads any more; the run is recorded and can be resumed
        raise
    except BaseException as exc:
        if is_interrupt(exc):
            ending = Ending(error=KeyboardInterrupt("interrupted"))
        elif isinstance(exc, Exception):
            ending = Ending(error=exc)
        else:
            raise
    watcher.stop()
    if ending.error is not None and click.get_current_context().params.get("traceback"):
        tracebacks.print_exception(ending.error)
    view = _view_after(plan)
    commands = [] if view is None else next_commands(view, invocation)
    if as_json:
        screen.json(end_line(plan.run_id, ending, view, [command for _, command in commands]))
    _tell(screen, ending, view, [] if as_json else commands)
    return ending.exit_code


async def _attempt(plan: Plan, watcher: Watcher) -> Any:
    async with (
        open_journal(plan.journal) as journal,
        journal.claim(plan.run_id, take_over=plan.take_over, after=plan.after) as claimed,
        with_servers(plan.agent, plan.mcp) as agent,
        agent.stream(
            plan.prompt,
            step_runner=claimed,
            approvals=plan.approvals,
            denials=plan.denials,
            accept_changes=plan.accept_changes,
        ) as stream,
    ):
        await watch(stream, watcher)
        return await stream.result()


def _view_after(plan: Plan) -> View | None:
    """How the run stands now; ``None`` where it has no record, or none that can be read."""

    async def look() -> View | None:
        async with existing_journal(plan.journal) as journal:
            view = await journal.view(plan.run_id)
            return view if view.transcript or view.steps else None

    try:
        return trio.run(look)
    except (TrioagentError, LookupError):
        return None


def _tell(
    screen: Screen, ending: Ending, view: View | None, commands: list[tuple[str, str]]
) -> None:
    """How the run ended and what to type next, on standard error; an answer speaks for itself."""
    if isinstance(ending.state, Halted):
        used, limit = ending.state.used, ending.state.limit
        screen.note([("halted", "yellow"), (f": {ending.state.reason} {used:g} of {limit:g}", "")])
    elif isinstance(ending.state, Suspended):
        screen.note([("suspended", "yellow"), (": these calls wait for approval", "")])
        for pending in ending.state.pending:
            call = f"{pending.call.name} {pending.call.arguments}"
            screen.note(f"  {pending.marker}  {call}  ({pending.reason})")
    elif ending.exit_code == INTERRUPTED:
        screen.note([("interrupted", "red")])
    elif ending.error is not None:
        screen.error(describe(ending.error))
    if commands and view is not None:
        if view.status != ending.status:
            style = STATUS_STYLES.get(view.status, "")
            screen.note([("the run is ", ""), (view.status.replace("_", " "), style)])
        for why, command in commands:
            screen.note([(f"  {why}:", "dim")], [("    " + command, "bold")])
