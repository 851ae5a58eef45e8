"""``verify``, ``prune``, ``backup``."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.cli.command import Command, Inside, app


@pytest.fixture
def kept(inside: Inside) -> Inside:
    """A journal with two answered runs and one that waits."""
    for run_id in ("a", "b"):
        assert inside("run", "Go.", "--app", app("forecaster"), "--run-id", run_id).code == 0
    assert inside("run", "Go.", "--app", app("mailer"), "--run-id", "waits").code == 4
    return inside


def left(inside: Inside) -> list[str]:
    return [run["run_id"] for run in inside("runs", "--json").value["runs"]]


def test_verify_prints_what_it_checked_and_ends_with_0(kept: Inside) -> None:
    ran = kept("verify", "runs.db")
    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert lines[0].split() == ["CHECKED", "COUNT", "FOUND"]
    assert all(line.endswith("  ok") for line in lines[1:])
    assert "records by their checksum       20     ok" in lines
    value = kept("verify", "runs.db", "--json").value
    assert value["ok"] is True and len(value["checks"]) == len(lines) - 1


def test_verify_lists_every_fault_and_ends_with_1(kept: Inside) -> None:
    connection = sqlite3.connect("runs.db")
    connection.execute("UPDATE records SET tag = 'x' WHERE seq IN (2, 9)")
    connection.commit()
    connection.close()
    ran = kept("verify", "runs.db")
    assert ran.code == 1
    told = [line for line in ran.out.splitlines() if line.startswith("fault: ")]
    assert "fault: record 2 fails its checksum" in told
    assert "fault: record 9 fails its checksum" in told
    value = kept("verify", "runs.db", "--json")
    assert (value.code, value.value["ok"]) == (1, False)


def test_verify_of_what_is_no_journal_or_not_there_fails_and_makes_nothing(
    inside: Inside, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("no database" * 20)
    ran = inside("verify", "text")
    assert (ran.code, "no SQLite file" in ran.out) == (1, True)
    ran = inside("verify", "runs.db")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"error: {tmp_path / 'runs.db'} is not there\n"
    assert [file.name for file in tmp_path.iterdir()] == ["text"]


def test_prune_removes_what_the_rules_let_go_and_names_it(kept: Inside) -> None:
    told = kept("prune", "--keep", "1", "--dry-run")
    assert (told.code, told.out) == (0, "a\n")
    assert told.err.startswith("would remove 1 run with 8 records and 0 payloads: ")
    assert left(kept) == ["a", "b", "waits"]
    ran = kept("prune", "--keep", "1")
    assert (ran.code, ran.out) == (0, "a\n")
    assert ran.err.startswith("removed 1 run with 8 records")
    assert left(kept) == ["b", "waits"]
    shown = kept("show", "a")
    assert (shown.code, "'a' was pruned on" in shown.err) == (1, True)
    assert kept("verify", "runs.db").code == 0


def test_prune_never_removes_what_waits_whatever_the_rules_say(kept: Inside) -> None:
    ran = kept("prune", "--older-than", "0s", "--keep", "0", "--max-bytes", "0", "--json")
    assert ran.value["runs"] == ["a", "b"] and ran.value["dry_run"] is False
    also = [word for status in ("failed", "cancelled", "halted") for word in ("--also", status)]
    assert kept("prune", "--keep", "0", "--vacuum", *also).code == 0
    assert left(kept) == ["waits"]


def test_prune_takes_halted_runs_only_when_it_is_told(inside: Inside) -> None:
    assert inside("run", "Go.", "--app", app("endless"), "--run-id", "a").code == 3
    assert inside("prune", "--keep", "0").out == ""
    assert inside("prune", "--keep", "0", "--also", "halted").out == "a\n"


@pytest.mark.parametrize("age", ["30d", "12h", "1w", "90m"])
def test_a_run_of_today_is_younger_than(age: str, kept: Inside) -> None:
    assert kept("prune", "--older-than", age).out == ""
    assert kept("prune", "--max-bytes", "1G").out == ""
    assert left(kept) == ["a", "b", "waits"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--older-than", "30"],
        ["--older-than", "30y"],
        ["--older-than", "-1d"],
        ["--older-than", "d"],
        ["--keep", "-1"],
        ["--max-bytes", "1T"],
        ["--max-bytes", "1.5G"],
        ["--keep", "0", "--also", "suspended"],
    ],
)
def test_prune_refuses_what_is_no_rule(arguments: list[str], kept: Inside) -> None:
    assert kept("prune", *arguments).code == 2
    assert left(kept) == ["a", "b", "waits"]


def test_backup_copies_and_verifies_and_overwrites_nothing(kept: Inside, tmp_path: Path) -> None:
    ran = kept("backup", "runs.db", "copy.db")
    assert ran.code == 0
    assert ran.err == "runs.db was copied to copy.db, and the copy verified\n"
    assert "records by their checksum" in ran.out
    assert kept("runs", "--journal", "copy.db").out == kept("runs").out
    before = (tmp_path / "copy.db").read_bytes()
    again = kept("backup", "runs.db", "copy.db", "--json")
    assert (again.code, "is there already" in again.err) == (1, True)
    assert (tmp_path / "copy.db").read_bytes() == before


@pytest.mark.parametrize(
    "arguments", [["prune", "--keep", "0", "--journal", "runs.db"], ["backup", "runs.db", "b.db"]]
)
def test_a_journal_that_is_not_there_is_not_made(
    inside: Inside, arguments: list[str], tmp_path: Path
) -> None:
    assert inside(*arguments).code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_goes_on_while_others_verify_and_copy_its_journal(
    command: Command, tmp_path: Path
) -> None:
    command.run("forecaster", "over")
    live = command.start("run", "Go.", "--app", app("waiting"), "--run-id", "live")
    assert live.stderr is not None
    assert any(line == "waiting\n" for line in live.stderr)
    assert command("verify", "runs.db").code == 0
    assert command("backup", "runs.db", "copy.db").code == 0
    assert command("prune", "--keep", "0").out == "over\n"
    refused = command("prune", "--keep", "0", "--vacuum")
    assert (refused.code, "live is owned" in refused.err) == (1, True)
    assert live.poll() is None
