"""``runs``, ``show``, ``doubts``, ``approve``, ``deny``, ``resolve``."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path

import pytest

from tests.cli.apps import SENT
from tests.cli.command import Command, Inside, app
from tests.scripts import MAIL_MARKER

STEP = "tool/1/0/send_and_die"


@pytest.fixture
def doubtful(command: Command) -> Command:
    """A journal in which one run is in doubt, seen by a second session."""
    assert command.run("dying", "a").code == -signal.SIGKILL
    assert command.resume("dying", "a").code == 5
    return command


def test_runs_lists_every_run_with_its_status(command: Command) -> None:
    command.run("forecaster", "a")
    command.run("mailer", "b")
    listed = command("runs").out.splitlines()
    assert [line.split()[:3] for line in listed] == [
        ["RUN", "STATUS", "STEPS"],
        ["a", "answered", "3"],
        ["b", "suspended", "1"],
    ]
    found = command("runs", "--json").value["runs"]
    assert [(run["run_id"], run["status"], run["steps"]) for run in found] == [
        ("a", "answered", 3),
        ("b", "suspended", 1),
    ]


def test_show_tells_which_session_ran_a_step_which_replayed_it_and_which_is_in_doubt(
    doubtful: Command,
) -> None:
    lines = doubtful("show", "a").out.splitlines()
    first = next(line for line in lines if "llm/1" in line)
    write = next(line for line in lines if STEP in line and "attempt" in line)
    assert "read" in first and "done" in first and first.endswith("replayed in session 2")
    assert "write" in write and write.endswith("IN DOUBT")
    assert [line.split()[1] for line in lines if line.startswith("session ")] == ["1", "2"]
    assert "status  in doubt" in lines
    assert f"    trioagent resolve a {STEP} --applied-text RESULT" in lines
    assert "usage   15 input and 5 output tokens" in lines


def test_show_tells_how_a_doubt_was_settled_and_when_it_was_replayed(doubtful: Command) -> None:
    assert doubtful("resolve", "a", STEP, "--applied", '"sent"').code == 0
    assert doubtful.resume("dying", "a").code == 0
    lines = doubtful("show", "a").out.splitlines()
    write = next(line for line in lines if STEP in line and "attempt" in line)
    assert "was in doubt; resolved as applied by a person" in write
    assert write.endswith("replayed in session 3")
    assert "status  answered" in lines


def test_show_gives_scripts_the_view_and_the_timeline(doubtful: Command) -> None:
    shown = doubtful("show", "a", "--json").value
    assert (shown["run_id"], shown["status"], shown["doubts"]) == ("a", "in_doubt", [STEP])
    attempts = [attempt for session in shown["timeline"] for attempt in session["attempts"]]
    assert [(a["step"], a["epoch"], a["replayed_in"], a["doubtful"]) for a in attempts] == [
        ("llm/1", 1, [2], False),
        (STEP, 1, [], True),
    ]


def test_doubts_names_the_call_its_key_and_the_commands_that_settle_it(doubtful: Command) -> None:
    (doubt,) = doubtful("doubts", "--json").value["doubts"]
    assert (doubt["run_id"], doubt["step"], doubt["attempt"]) == ("a", STEP, 1)
    assert doubt["call"]["name"] == "send_and_die"
    told = doubtful("doubts", "a").out
    assert doubt["key"] in told
    assert f"trioagent resolve a {STEP} --not-applied --by NAME" in told


def test_a_write_that_is_found_not_applied_runs_again(doubtful: Command, tmp_path: Path) -> None:
    (tmp_path / SENT).unlink()
    assert doubtful("resolve", "a", STEP, "--not-applied", "--by", "me").code == 0
    assert doubtful.resume("dying", "a").code == -signal.SIGKILL
    assert (tmp_path / SENT).exists()
    shown = doubtful("show", "a").out
    assert f"{STEP} was found not applied, says me" in shown
    assert "attempt 2" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--applied", "1", "--applied-text", "1"],
        ["--not-applied"],
        ["--applied", "1", "--by", "me"],
        ["--applied", "{"],
    ],
)
def test_resolve_takes_exactly_one_resolution(inside: Inside, arguments: list[str]) -> None:
    assert inside("resolve", "a", STEP, *arguments).code == 2


def test_resolving_what_is_not_in_doubt_changes_nothing(inside: Inside) -> None:
    inside("run", "Go.", "--app", app("forecaster"), "--run-id", "a")
    before = inside("show", "a", "--json").out
    ran = inside("resolve", "a", "llm/1", "--applied", "1")
    assert ran.code == 1
    assert "llm/1 is not in doubt; in doubt: nothing" in ran.err
    assert inside("show", "a", "--json").out == before


def test_approve_and_deny_decide_once_about_what_waits(inside: Inside) -> None:
    inside("run", "Go.", "--app", app("mailer"), "--run-id", "a")
    wrong = inside("approve", "a", "0000")
    assert (wrong.code, MAIL_MARKER in wrong.err) == (1, True)
    denied = inside("deny", "a", MAIL_MARKER, "--reason", "no", "--json")
    assert denied.value == {
        "run_id": "a",
        "marker": MAIL_MARKER,
        "decision": "denied",
        "reason": "no",
    }
    assert inside("approve", "a", MAIL_MARKER).code == 1
    assert inside("resume", "a", "--app", app("mailer")).code == 0


def test_approve_lets_the_call_run_in_the_next_process(command: Command, tmp_path: Path) -> None:
    command.run("mailer", "a")
    approved = command("approve", "a", MAIL_MARKER)
    assert approved.code == 0
    assert "trioagent resume a --app MODULE:AGENT" in approved.out
    assert not (tmp_path / SENT).exists()
    assert command.resume("mailer", "a").code == 0
    assert (tmp_path / SENT).exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs"],
        ["show", "a"],
        ["doubts"],
        ["approve", "a", "m"],
        ["deny", "a", "m", "--reason", "no"],
        ["resolve", "a", STEP, "--applied", "1"],
    ],
)
def test_a_journal_that_is_not_there_is_not_made(
    inside: Inside, tmp_path: Path, arguments: list[str]
) -> None:
    ran = inside(*arguments, "--journal", "other.db")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: the journal other.db is not there; name another with --journal\n"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_journal_is_refused_and_left_alone(
    inside: Inside, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    for arguments in (["runs"], ["run", "Go.", "--app", "tests.cli.apps:forecaster"]):
        ran = inside(*arguments)
        assert ran.code == 1
        assert "is a SQLite file, but no journal of trioagent" in ran.err
    assert path.read_bytes() == before


def test_a_run_that_is_not_there_and_a_bad_run_id_are_told_apart(
    inside: Inside,
) -> None:
    inside("run", "Go.", "--app", app("forecaster"), "--run-id", "a")
    assert inside("show", "b").code == 1
    assert inside("show", "../b").code == 2
    assert inside("doubts", "b").code == 1
