"""The entry point, and the pure functions that make text."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.command import Command
from trioagent.cli.lines import duration, plain, table
from trioagent.cli.safe import json_line, one_line, safe
from trioagent.cli.timeline import timeline
from trioagent.journal import Record


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_one_line_says_how_to_install_it(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; "
        "from trioagent.cli import main; sys.exit(main())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"the command line needs {missing}: pip install 'trioagent[cli]'\n"


def test_help_names_every_command_and_every_exit_code(command: Command) -> None:
    shown = command("--help").out
    words = ["demo", "run", "runs", "show", "resume", "approve", "deny", "doubts", "resolve"]
    for word in [*words, "verify", "prune", "backup"]:
        assert f"\n  {word} " in shown
    for code in (0, 1, 2, 3, 4, 5, 130):
        assert f"\n    {code} " in shown


def test_every_character_that_steers_a_terminal_is_escaped_and_lines_stay_lines() -> None:
    every = "".join(map(chr, [*range(0xA0), 0x202E, 0x2066, 0xD800]))
    left = safe(every)
    assert [c for c in left if not c.isprintable()] == ["\t", "\n"]
    assert one_line(every).isprintable()
    assert safe("ünïcode ☂ [bold]") == "ünïcode ☂ [bold]"


def test_json_escapes_what_steers_a_terminal_and_means_the_same() -> None:
    assert json_line({"a": "\x9b\u202e☂"}) == '{"a":"\\u009b\\u202e☂"}'


def test_a_cell_with_a_line_end_stays_in_its_row() -> None:
    rows = [[("a\nb", ""), ("c", "")], [("longer", ""), ("d", "")]]
    assert [plain(line) for line in table(rows)] == ["a\\nb    c", "longer  d"]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1000, "1.0 s"), (61_000, "1 min 1 s")],
)
def test_a_duration_has_a_unit_that_fits(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


def test_a_session_that_recorded_no_step_replayed_nothing() -> None:
    records = [
        Record("step.started", 1, 1, "llm/1", "read"),
        Record("step.completed", 2, 1, "llm/1"),
        Record("signal", 3, 2, "", "changed"),
    ]
    made = timeline(records)
    assert [attempt.replayed_in for attempt in made.attempts] == [[]]
    assert [session.epoch for session in made.sessions] == [1, 2]


def test_the_steps_of_run_step_are_never_said_to_be_replayed() -> None:
    records = [
        Record("step.started", 1, 1, "fetch", "read"),
        Record("step.completed", 2, 1, "fetch"),
        Record("step.started", 3, 2, "load", "write"),
    ]
    assert timeline(records).attempts[0].replayed_in == []
