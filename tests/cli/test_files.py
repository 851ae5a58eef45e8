"""``export``, ``import``, ``fork``, ``diff`` and ``run --after``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Inside, app
from tests.scripts import MAIL_MARKER
from trioagent.journal import read_recordings


@pytest.fixture
def kept(inside: Inside) -> Inside:
    """A journal with an answered run and one that waits."""
    assert inside("run", "Go.", "--app", app("forecaster"), "--run-id", "a").code == 0
    assert inside("run", "Go.", "--app", app("mailer"), "--run-id", "waits").code == 4
    return inside


def test_what_is_exported_is_imported_elsewhere_and_can_be_gone_on_with(kept: Inside) -> None:
    ran = kept("export", "-o", "runs.jsonl")
    assert (ran.code, ran.out, ran.err) == (0, "", "wrote 2 runs to runs.jsonl\n")
    ran = kept("import", "runs.jsonl", "--journal", "other.db")
    assert (ran.code, ran.out, ran.err) == (0, "a\nwaits\n", "imported 2 runs into other.db\n")
    shown = kept("show", "waits", "--journal", "other.db").out
    assert "  imported, and read-only until it is resumed" in shown.splitlines()
    ran = kept("approve", "waits", MAIL_MARKER, "--journal", "other.db")
    assert (ran.code, ran.err) == (
        1,
        "error: waits was imported and is read-only until it is claimed\n",
    )
    resume = ("resume", "waits", "--app", app("mailer"), "--journal", "other.db")
    assert kept(*resume).code == 4
    assert kept(*resume, "--approve", MAIL_MARKER).out == "The mail is out.\n"


def test_an_import_of_runs_that_are_there_fails_and_names_them(kept: Inside) -> None:
    kept("export", "-o", "runs.jsonl")
    ran = kept("import", "runs.jsonl")
    assert (ran.code, ran.out) == (1, "")
    assert "the journal has a, waits already; nothing was imported" in ran.err


def test_an_export_goes_to_the_standard_output_and_overwrites_no_file(
    kept: Inside, tmp_path: Path
) -> None:
    ran = kept("export", "a")
    assert ran.code == 0
    assert [line.get("run") for line in ran.lines if "run" in line] == ["a"]
    (tmp_path / "there.jsonl").write_text("mine")
    ran = kept("export", "a", "-o", "there.jsonl")
    assert (ran.code, "is there already" in ran.err) == (1, True)
    assert (tmp_path / "there.jsonl").read_text() == "mine"


def test_an_import_of_nothing_makes_no_journal(inside: Inside, tmp_path: Path) -> None:
    ran = inside("import", "nothing.jsonl")
    told = "error: nothing.jsonl is no file of runs; `export` writes one\n"
    assert (ran.code, ran.err) == (1, told)
    assert list(tmp_path.iterdir()) == []


def test_a_fork_is_gone_on_with_and_lists_the_writes_behind_it(kept: Inside) -> None:
    assert kept("resume", "waits", "--app", app("mailer"), "--approve", MAIL_MARKER).code == 0
    ran = kept("fork", "waits", "b", "--at-turn", "0")
    assert (ran.code, ran.out) == (0, "happened  tool/1/0/send_email  (completed)\n")
    assert "trioagent resume b --app MODULE:AGENT" in ran.err
    assert kept("show", "b").out.splitlines()[1] == "  forked from waits at turn 0"
    assert kept("resume", "b", "--app", app("mailer")).code == 4
    value = kept("fork", "waits", "c", "--at-turn", "1", "--json").value
    assert (value["of"], value["at_turn"], value["later_writes"]) == ("waits", 1, [])
    ran = kept("fork", "waits", "b", "--at-turn", "1")
    assert (ran.code, "there is a run 'b' already" in ran.err) == (1, True)


def test_a_follow_up_knows_what_was_said(kept: Inside) -> None:
    ran = kept("run", "And then?", "--app", app("forecaster"), "--run-id", "b", "--after", "a")
    assert ran.code == 0
    shown = kept("show", "b").out.splitlines()
    assert shown[1] == "  follows a"
    assert [line for line in shown if line.startswith("    ") and line.endswith("?")]
    ran = kept("run", "And then?", "--app", app("forecaster"), "--after", "waits")
    assert (ran.code, "waits is suspended; only a run that is answered" in ran.err) == (1, True)


def test_diff_ends_with_6_where_two_runs_part_and_with_0_where_they_do_not(kept: Inside) -> None:
    assert kept("run", "Go.", "--app", app("forecaster"), "--run-id", "b").code == 0
    ran = kept("diff", "a", "b")
    assert (ran.code, ran.out, ran.err) == (0, "", "a and b did the same\n")
    ran = kept("diff", "a", "waits")
    assert ran.code == 6
    assert ran.out.splitlines()[0].startswith("run configuration: ")
    value = kept("diff", "a", "waits", "--json").value
    assert value["divergence"]["name"] == "run configuration"


def test_diff_reads_files_too(kept: Inside) -> None:
    kept("export", "-o", "both.jsonl")
    kept("export", "a", "-o", "one.jsonl")
    assert kept("diff", "one.jsonl", "both.jsonl:a").code == 0
    assert kept("diff", "both.jsonl:waits", "waits").code == 0
    ran = kept("diff", "both.jsonl", "a")
    assert (ran.code, ran.err) == (
        1,
        "error: say which run: both.jsonl:RUN; the file holds a, waits\n",
    )


def test_a_name_with_another_meaning_for_the_terminal_is_shown_harmless(
    kept: Inside, tmp_path: Path
) -> None:
    lines = kept("export", "a").out.splitlines()
    assert json.loads(lines[0])["format"] == "trioagent.journal"
    (tmp_path / "bad\x1b[31m.jsonl").write_text("\n".join(lines[:-2]) + "\n")
    ran = kept("diff", "bad\x1b[31m.jsonl", "a")
    assert ran.code == 1
    assert "\x1b" not in ran.err and "cut off" in ran.err


def test_an_exported_file_is_what_the_library_reads(kept: Inside, tmp_path: Path) -> None:
    kept("export", "-o", "runs.jsonl")
    assert [r.run_id for r in read_recordings(tmp_path / "runs.jsonl")] == ["a", "waits"]
