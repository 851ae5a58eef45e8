"""``run`` and ``resume``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.apps import SENT
from tests.cli.command import Command, Inside, app, wait_for_line
from tests.scripts import MAIL_MARKER
from trioagent import Agent, Budget, Price, PriceError
from trioagent.cli.application import Limits
from trioagent.providers import Scripted

STEP = "tool/1/0/send_and_die"


def test_an_answer_goes_to_standard_output_alone_and_tool_calls_to_standard_error(
    command: Command,
) -> None:
    ran = command.run("forecaster", "a")
    assert (ran.code, ran.out) == (0, "It is sunny.\n")
    assert 'call  weather {"city": "Paris"}' in ran.err
    assert "done  weather ok in" in ran.err and "sunny in Paris" in ran.err
    assert "\x1b" not in ran.err


def test_a_fresh_run_id_is_printed_and_names_the_run(command: Command) -> None:
    ran = command("run", "-", "--app", app("forecaster"), stdin="From a pipe.\n")
    assert ran.code == 0
    run_id = ran.err.split()[1]
    shown = command("show", run_id, "--json").value
    assert shown["status"] == "answered"
    assert "From a pipe." in json.dumps(shown["transcript"])


def test_an_answered_run_is_answered_again_from_its_record(command: Command) -> None:
    command.run("forecaster", "a")
    again = command.resume("forecaster", "a")
    assert (again.code, again.out) == (0, "It is sunny.\n")
    assert "3 recorded steps replayed, not run again" in again.err
    assert "call  " not in again.err


def test_json_gives_each_event_and_then_how_it_ended(command: Command) -> None:
    lines = command.run("forecaster", "a", "--json").lines
    assert [line["event"] for line in lines] == [
        *("run", "usage", "tool_called", "tool_finished", "text", "text", "text", "usage", "end"),
    ]
    assert lines[0] == {"event": "run", "run_id": "a", "journal": "runs.db"}
    end = lines[-1]
    assert (end["status"], end["exit_code"], end["answer"]) == ("answered", 0, "It is sunny.")
    assert end["usage"] == {"input_tokens": 30, "output_tokens": 10}
    assert end["next"] == []


def test_a_halted_run_exits_with_3_and_goes_on_by_the_command_that_it_names(
    command: Command,
) -> None:
    ran = command.run("forecaster", "a", "--max-tokens", "10")
    assert ran.code == 3
    assert "halted: tokens 20 of 10" in ran.err
    words = ran.err.splitlines()[-1].split()
    assert words[0] == "trioagent" and words[-2:] == ["--max-tokens", "40"]
    again = command(*words[1:])
    assert (again.code, again.out) == (0, "It is sunny.\n")


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [("--max-iter", "1", "max_iter"), ("--max-tool-calls", "0", "tool_calls")],
)
def test_every_limit_can_be_given(inside: Inside, option: str, value: str, reason: str) -> None:
    end = inside("run", "Go.", "--app", app("forecaster"), option, value, "--json").lines[-1]
    assert (end["exit_code"], end["status"], end["reason"]) == (3, "halted", reason)


def test_limits_are_laid_over_a_copy_of_the_agent_and_its_own_stand_where_none_is_given() -> None:
    own = Budget(max_tokens=7, max_tool_calls=8)
    priced = {"scripted": Price(input=1, output=2)}
    agent = Agent(Scripted([]), max_iter=3, budget=own, prices=priced)
    limited = Limits(max_tokens=100, max_cost=0.5, max_seconds=5.0).on(agent)
    whole = Budget(max_tokens=100, max_tool_calls=8, max_cost=0.5, max_seconds=5.0)
    assert limited.budget == whole
    assert (limited.max_iter, agent.budget) == (3, own)


def test_a_limit_of_cost_needs_prices() -> None:
    priced = Agent(Scripted([], model="m"), prices={"m": Price(input=1, output=2)})
    assert Limits(max_cost=0.5).on(priced).cost_of is not None
    with pytest.raises(PriceError):
        Limits(max_cost=0.5).on(Agent(Scripted([], model="m"), prices={}))


def test_a_suspended_run_exits_with_4_and_goes_on_when_its_call_is_approved(
    command: Command, tmp_path: Path
) -> None:
    ran = command.run("mailer", "a")
    assert ran.code == 4
    assert f"trioagent approve a {MAIL_MARKER}" in ran.err
    assert not (tmp_path / SENT).exists()
    again = command.resume("mailer", "a", "--approve", MAIL_MARKER)
    assert (again.code, again.out) == (0, "The mail is out.\n")
    assert (tmp_path / SENT).read_text() == "bob@corp.example: hi\n"


def test_a_denied_call_does_not_run_and_the_model_reads_why(
    command: Command, tmp_path: Path
) -> None:
    command.run("mailer", "a")
    assert command.resume("mailer", "a", "--deny", f"{MAIL_MARKER}=not today").code == 0
    assert not (tmp_path / SENT).exists()
    assert "not today" in command("show", "a").out


def test_a_write_whose_process_died_is_in_doubt_and_exits_with_5_until_it_is_resolved(
    command: Command, tmp_path: Path
) -> None:
    assert command.run("dying", "a").code == -signal.SIGKILL
    refused = command.resume("dying", "a", "--json")
    end = refused.lines[-1]
    assert (refused.code, end["status"], end["doubts"]) == (5, "in_doubt", [STEP])
    assert end["error"]["type"] == "UnknownOutcomeError"
    assert f"trioagent resolve a {STEP} --applied-text RESULT" in end["next"]
    assert "Traceback" not in refused.err

    resolved = command("resolve", "a", STEP, "--applied-text", "sent to bob", "--json")
    assert resolved.value == {"run_id": "a", "step": STEP, "decision": "applied"}
    again = command.resume("dying", "a")
    assert (again.code, again.out) == (0, "The mail is out.\n")
    assert (tmp_path / SENT).read_text().count("bob") == 1


def test_a_failure_is_one_clear_line_and_a_traceback_only_where_it_is_asked_for(
    command: Command,
) -> None:
    ran = command.run("failing", "a")
    assert (ran.code, ran.out) == (1, "")
    assert "error: the script has 0 replies, not 1\n" in ran.err
    assert "Traceback" not in ran.err
    assert "Traceback" in command.resume("failing", "a", "--traceback").err


def test_a_changed_agent_is_refused_with_the_difference_until_the_change_is_accepted(
    command: Command,
) -> None:
    command.run("forecaster", "a", "--max-iter", "1")
    refused = command.resume("changed", "a")
    assert refused.code == 1
    assert 'system was "Be brief." and is "Be long."' in refused.err
    assert "--accept-changes" in refused.err
    assert command.resume("changed", "a", "--accept-changes").code == 0


# -- what is wrong with the way it is called ------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "code", "said"),
    [
        ("tests.cli.apps", 2, "is not MODULE:AGENT"),
        ("nowhere.to_be:found", 1, "there is no module nowhere"),
        ("tests.cli.apps:nothing", 1, "has no nothing"),
        ("tests.cli.apps:not_an_agent", 1, "is of type int, neither an Agent nor a function"),
        ("tests.cli.apps:returns_another", 1, "returned of type int, not an Agent"),
        ("tests.cli.apps:with_argument", 1, "must be callable without arguments"),
        ("tests.cli.apps:asynchronous", 1, "is an async function"),
        ("tests.cli.apps:raising", 1, "failed: RuntimeError: no database"),
        ("needs_more:agent", 1, "needs_more imports a_package_too_many, which is not installed"),
        ("broken:agent", 1, "importing broken failed: SyntaxError"),
    ],
)
def test_an_app_that_cannot_be_had_says_why_and_makes_no_journal(
    inside: Inside, tmp_path: Path, spec: str, code: int, said: str
) -> None:
    (tmp_path / "needs_more.py").write_text("import a_package_too_many\n")
    (tmp_path / "broken.py").write_text("def\n")
    ran = inside("run", "Go.", "--app", spec)
    assert ran.code == code
    assert said in " ".join(ran.err.split())
    assert "Traceback" not in ran.err
    assert not (tmp_path / "runs.db").exists()


def test_an_app_of_the_current_folder_is_found(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from trioagent import Agent\n"
        "from trioagent.providers import Scripted\n"
        "def make(): return Agent(Scripted(['Mine.']))\n"
    )
    assert command("run", "Go.", "--app", "mine:make").out == "Mine.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "Go."], "give one of --app MODULE:AGENT and --model"),
        (["run", "Go.", "--app", "a:b", "--model", "openai:c"], "give one of"),
        (["run", "Go.", "--app", "a:b", "--base-url", "http://x"], "--base-url goes with --model"),
        (["run", "Go.", "--model", "gpt"], "is not openai:NAME"),
        (["run", "Go.", "--model", "gpt"], "responses:NAME or anthropic:NAME"),
        (["run", "Go.", "--model", "openai:gpt"], "the environment has no OPENAI_API_KEY"),
        (["run", "Go.", "--model", "responses:gpt"], "the environment has no OPENAI_API_KEY"),
        (["run", "Go.", "--model", "anthropic:c"], "the environment has no ANTHROPIC_API_KEY"),
        (["run", " ", "--app", "tests.cli.apps:forecaster"], "the prompt is empty"),
        (["run", "Go.", "--app", "a:b", "--run-id", "-x y"], "a run id is 1 to 128"),
        (["resume", "a", "--app", "a:b", "--deny", "marker"], "is not MARKER=REASON"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_would_be_right(
    inside: Inside, arguments: list[str], said: str
) -> None:
    ran = inside(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in " ".join(ran.err.split())


def test_resuming_what_is_not_there_makes_nothing(inside: Inside, tmp_path: Path) -> None:
    missing = inside("resume", "a", "--app", app("forecaster"))
    assert (missing.code, list(tmp_path.iterdir())) == (1, [])
    assert "the journal runs.db is not there" in missing.err
    inside("run", "Go.", "--app", app("forecaster"), "--run-id", "a")
    assert (
        "there is no run 'b' in this journal"
        in inside("resume", "b", "--app", app("forecaster")).err
    )
    assert [run["run_id"] for run in inside("runs", "--json").value["runs"]] == ["a"]


# -- somebody holds the run, and Ctrl-C -----------------------------------------------------------


def started(command: Command, agent: str, line: str) -> subprocess.Popen[str]:
    """A run that has come as far as saying `line` in its tool."""
    process = command.start("run", "Go.", "--app", app(agent), "--run-id", "a")
    wait_for_line(process, line)
    return process


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it says after Ctrl-C; it must end by itself, with 130."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    return out, err


def test_ctrl_c_in_a_read_ends_in_good_order_and_the_command_it_names_goes_on(
    command: Command,
) -> None:
    _, err = interrupted(started(command, "waiting", "waiting"))
    assert "interrupted" in err
    words = err.splitlines()[-1].split()
    assert words == ["trioagent", "resume", "a", "--app", app("waiting")]
    again = command(*words[1:])
    assert (again.code, again.out) == (0, "At last.\n")


def test_ctrl_c_in_a_write_leaves_a_doubt_that_is_named(command: Command) -> None:
    _, err = interrupted(started(command, "writing", "writing"))
    assert "the run is in doubt" in err
    assert "trioagent resolve a tool/1/0/write_forever --not-applied --by NAME" in err
    assert command("doubts", "a", "--json").value["doubts"][0]["step"] == "tool/1/0/write_forever"
    assert command.resume("writing", "a").code == 5


def test_a_run_that_somebody_holds_is_refused_until_it_is_taken_over(command: Command) -> None:
    holder = started(command, "waiting", "waiting")
    refused = command.resume("forecaster", "a")
    assert refused.code == 1
    assert "owned by a live owner" in refused.err and "--take-over" in refused.err
    assert "running" in command("runs").out
    taken = command.resume("waiting", "a", "--take-over")
    assert (taken.code, taken.out) == (0, "At last.\n")
    interrupted(holder)
    assert command("show", "a", "--json").value["status"] == "answered"


# -- text that would like to own the terminal -----------------------------------------------------


def printed_on_a_terminal(command: Command, *arguments: str) -> str:
    """What the command writes where both its outputs are a terminal."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        command.words(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        cwd=command.folder,
        env=command.environment(TERM="xterm-256color"),
    ):
        os.close(theirs)
        written = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # Linux says so when the last writer has closed
                break
            if not piece:
                break
            written += piece
    os.close(ours)
    return written.decode()


@pytest.mark.parametrize("name", ["run", "show"])
def test_hostile_text_reaches_a_terminal_only_as_its_escapes(command: Command, name: str) -> None:
    arguments: tuple[Any, ...] = ("run", "Go.", "--app", app("hostile"), "--run-id", "a")
    if name == "show":
        command(*arguments)
        arguments = ("show", "a")
    shown = printed_on_a_terminal(command, *arguments)
    assert "\x1b]0;" not in shown and "\x1b[2J" not in shown
    assert not {"\x07", "\x9b", "\u202e"} & set(shown)
    assert r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp[bold red]markup[/bold red]over" in shown
    assert "\x1b[1m" in shown, "what is ours has its styles"


def test_hostile_text_is_plain_where_it_is_piped_and_whole_in_json(command: Command) -> None:
    ran = command.run("hostile", "a")
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(ran.out + ran.err)
    as_json = command.resume("hostile", "a", "--json")
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(as_json.out)
    assert as_json.lines[-1]["answer"].startswith("\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp")
