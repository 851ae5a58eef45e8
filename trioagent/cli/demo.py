"""``demo``: an agent is killed twice, and goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
import trio

from trioagent.cli.application import ApplicationError, Source
from trioagent.cli.demo_agent import FILES_READ, RUN_ID, Entry, Setup, times_in_report
from trioagent.cli.demo_facts import Evidence, fact_lines, facts
from trioagent.cli.demo_folder import Folder
from trioagent.cli.ending import ANSWERED, FAILED, IN_DOUBT, Invocation
from trioagent.cli.lines import Line, block, heading
from trioagent.cli.looking import look_at
from trioagent.cli.options import failing_clearly
from trioagent.cli.safe import one_line
from trioagent.cli.screen import Screen
from trioagent.cli.timeline import timeline_lines
from trioagent.journal import View
from trioagent.messages import AssistantMessage

ACT_SECONDS = 600
"""How long a process may take; with the scripted model it takes half a second."""


@dataclass(frozen=True)
class Act:
    """One process: what is told of it before, and the exit code that it is to end with."""

    crash: str
    reconcile: bool
    expected: int
    told: tuple[str, ...]


ACTS = (
    Act(
        "reading",
        False,
        -signal.SIGKILL,
        (
            "An agent lists the folder and reads several files in parallel.",
            "Its process is killed in the middle of a read, when the other reads are recorded.",
        ),
    ),
    Act(
        "writing",
        False,
        -signal.SIGKILL,
        (
            "A new process resumes the run: what is recorded stands, the lost read runs again.",
            "Then it appends to the report, and is killed before it can record that it did.",
        ),
    ),
    Act(
        "",
        False,
        IN_DOUBT,
        (
            "Resumed again.  The journal knows that the write was begun, not whether it happened.",
            "Running it again might write it twice, so the run is refused until somebody knows.",
        ),
    ),
    Act(
        "",
        True,
        ANSWERED,
        (
            "Resumed with a `reconcile`: a function of the application that finds out.",
            "It looks for the write's key in the report, finds it, and the run ends.",
        ),
    ),
)


@click.command(short_help="Watch an agent survive two kills.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False), default=".")
@click.option("--keep", metavar="DIR", help="Where journal and report go.  [default: a new folder]")
@click.option("--model", metavar="API:NAME", help="A real model instead of the scripted one.")
@click.option("--base-url", metavar="URL", help="Where the model is, if not at the vendor's.")
@click.option("--api-key-env", metavar="VAR", help="The variable that holds the API key.")
@failing_clearly
def demo(
    folder: str,
    keep: str | None,
    model: str | None,
    base_url: str | None,
    api_key_env: str | None,
) -> int:
    """Watch an agent survive: it reports on FOLDER, and its process is killed twice.

    FOLDER (default: the current one) is only read.  Needs no network and no API key, unless a
    real model is asked for.  Exits with 1 if anything that it claims is not so.
    """
    if model is not None:
        Source(model=model, base_url=base_url, api_key_env=api_key_env).provider()
    elif base_url or api_key_env:
        raise click.UsageError("--base-url and --api-key-env go with --model")
    place = _place(keep)
    files = Folder(Path(folder), without=place).files()
    if not files:
        raise ApplicationError(
            f"{one_line(folder)} has no small text files to report on; name another folder"
        )
    setup = Setup(
        folder=str(Path(folder).resolve()),
        keep=str(place),
        act=1,
        victim=min(2, len(files), FILES_READ),
        model=model,
        base_url=base_url,
        api_key_env=api_key_env,
    )
    return _perform(Screen(), setup)


def _place(keep: str | None) -> Path:
    """The folder for journal and report, empty of those of another demo."""
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="trioagent-demo-")).resolve()
    place = Path(keep).resolve()
    place.mkdir(parents=True, exist_ok=True)
    for name in ("runs.db", "report.md", "ledger.jsonl"):
        if (place / name).exists():
            raise ApplicationError(
                f"{one_line(keep)} already has a {name}; keep this demo elsewhere"
            )
    return place


def _perform(screen: Screen, setup: Setup) -> int:
    """All acts, then the timeline and the facts."""
    began = time.monotonic()
    screen.lines(
        [
            [("An agent reports on ", ""), (setup.folder, "bold"), (", which is only read.", "")],
            [("Its journal and its report: ", ""), (setup.keep, "bold")],
        ]
    )
    exits: list[int] = []
    for number, act in enumerate(ACTS, 1):
        code = _perform_act(screen, act, number, setup)
        exits.append(code)
        if code not in (act.expected, ANSWERED):
            screen.error(f"act {number} was to end with {act.expected} and ended with {code}")
            return FAILED
    view, made = trio.run(look_at, str(setup.journal), RUN_ID)
    screen.lines([[("", "")], heading("What ran, in which process"), *timeline_lines(made)])
    ledger = [
        msgspec.json.decode(line, type=Entry) for line in setup.ledger.read_bytes().splitlines()
    ]
    entries = {
        entry.step: times_in_report(setup.report, entry.key) for entry in ledger if entry.key
    }
    found = facts(Evidence(exits, view, made.attempts, ledger, entries))
    screen.lines([[("", "")], heading("Facts, counted by the tools and the model themselves")])
    screen.lines(fact_lines(found))
    again = Invocation(str(setup.journal)).command("show", RUN_ID)
    screen.lines(
        [
            [("", "")],
            [(f"That took {time.monotonic() - began:.1f} s.  To look again: {again}", "")],
            [(f"The report: {setup.report}", "")],
        ]
    )
    return ANSWERED if all(fact.true for fact in found) else FAILED


def _perform_act(screen: Screen, act: Act, number: int, setup: Setup) -> int:
    """Run one process and tell what became of it."""
    screen.lines([[("", "")], *_told(number, act.told)])
    told = msgspec.structs.replace(setup, act=number, crash=act.crash, reconcile=act.reconcile)
    command = [sys.executable, "-m", "trioagent.cli.demo_child", msgspec.json.encode(told).decode()]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            _, errors = process.communicate(timeout=ACT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise ApplicationError(f"act {number} took longer than {ACT_SECONDS} s") from None
        except BaseException:
            process.kill()
            raise
    code = process.returncode
    said = errors.decode("utf-8", "backslashreplace").strip().splitlines()
    if code == -signal.SIGKILL:
        screen.lines([[("   -> ", "dim"), (f"process {process.pid} died of SIGKILL", "red")]])
    elif said:
        screen.lines([[("   -> ", "dim"), (one_line(said[-1]), "yellow")]])
    if code == ANSWERED:
        view, _ = trio.run(look_at, str(setup.journal), RUN_ID)
        screen.lines(_answer(view))
    return code


def _told(number: int, told: Sequence[str]) -> list[Line]:
    first, *rest = told
    return [[(f"{number}  ", "bold"), (first, "bold")], *[[(f"   {text}", "")] for text in rest]]


def _answer(view: View) -> list[Line]:
    last = view.transcript[-1]
    text = last.text if isinstance(last, AssistantMessage) else ""
    return [[("   -> the agent's answer:", "green")], *block(text, indent="      ")]
