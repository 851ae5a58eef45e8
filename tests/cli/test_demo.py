"""``demo``: the real thing, end to end."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command
from trioagent import AssistantMessage, Usage, View
from trioagent.cli.demo_agent import Entry
from trioagent.cli.demo_facts import Evidence, facts
from trioagent.cli.demo_folder import MAX_BYTES, MAX_FILES, Folder
from trioagent.cli.timeline import Attempt


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with some texts in it."""
    path = tmp_path / "texts"
    path.mkdir()
    for number in range(8):
        (path / f"{number}.txt").write_text("word " * number + "\n")
    return path


def test_the_demo_is_killed_twice_refuses_once_and_ends_with_its_facts_true(
    command: Command, tmp_path: Path, folder: Path
) -> None:
    before = sorted(folder.iterdir())
    ran = command("demo", "texts", "--keep", "kept")
    assert (ran.code, ran.err) == (0, "")
    assert len(re.findall(r"process \d+ died of SIGKILL", ran.out)) == 2
    assert "UnknownOutcomeError: demo: the write tool/3/0/append_report was begun" in ran.out
    facts = [line for line in ran.out.splitlines() if re.match("  (true|FALSE) ", line)]
    assert len(facts) == 7 and not [fact for fact in facts if "FALSE" in fact]
    assert "  true   4 model calls made, 4 needed" in facts
    assert "  true   the write ran once; the report has 1 entry of it" in facts
    assert "\x1b" not in ran.out
    assert sorted(folder.iterdir()) == before

    shown = command("show", "demo", "--journal", "kept/runs.db", "--json").value
    assert shown["status"] == "answered"
    attempts = [attempt for session in shown["timeline"] for attempt in session["attempts"]]
    assert {attempt["epoch"] for attempt in attempts} == {1, 2, 4}
    lost = [attempt for attempt in attempts if attempt["repeated"]]
    assert len(lost) == 1 and lost[0]["step"].endswith("/read_file")
    (write,) = [attempt for attempt in attempts if attempt["effect"] == "write"]
    assert (write["epoch"], write["how"], write["ended_in"]) == (2, "reconciled", 4)
    assert (tmp_path / "kept" / "report.md").read_text().count("# What is in the folder") == 1


def test_the_demo_works_on_a_single_file(command: Command, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "only.txt").write_text("all there is\n")
    ran = command("demo", "one", "--keep", "kept")
    assert ran.code == 0
    assert "1 read was lost with a process and ran again" in ran.out


def test_a_demo_does_not_overwrite_an_earlier_one(
    command: Command, tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "report.md").write_text("mine")
    ran = command("demo", "texts", "--keep", "kept")
    assert (ran.code, ran.out) == (1, "")
    assert "kept already has a report.md" in ran.err
    assert (tmp_path / "kept" / "report.md").read_text() == "mine"


def test_a_folder_without_text_is_told_as_such(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ran = command("demo", "empty", "--keep", "kept")
    assert (ran.code, ran.out) == (1, "")
    assert "empty has no small text files to report on" in ran.err


def test_only_small_regular_text_files_of_the_folder_itself_are_read(
    tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "outside.txt").write_text("not yours")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "far.txt").write_text("not yours")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / ".env").write_text("KEY=secret")
    (folder / "binary").write_bytes(b"\x00\xff")
    (folder / "large.txt").write_text("x" * (MAX_BYTES + 1))
    os.mkfifo(folder / "pipe")
    (folder / "inner").mkdir()
    (folder / "inner" / "deep.txt").write_text("deep")
    (folder / "kept").mkdir()
    (folder / "kept" / "report.md").write_text("ours")
    files = Folder(folder, without=folder / "kept")
    assert [path for path, _ in files.files()] == [f"{n}.txt" for n in range(8)] + [
        "inner/deep.txt"
    ]
    assert files.read("inner/deep.txt") == "deep"
    for name in (
        *("link.txt", "linked/far.txt", "../outside.txt", str(tmp_path / "outside.txt"), ".env"),
        *("binary", "large.txt", "pipe", "inner", "nothing.txt", "a\0b", "inner/../../outside.txt"),
    ):
        with pytest.raises(ValueError, match="is no text file of the folder"):
            files.read(name)


def test_the_list_of_a_large_folder_is_short(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 5):
        (tmp_path / f"{number:03d}.txt").write_text("x")
    assert len(Folder(tmp_path, without=tmp_path / "kept").files()) == MAX_FILES


def evidence(**changed: Any) -> Evidence:
    """What a demo leaves that went as it should, but for what is `changed`."""
    read, lost, write = "tool/1/0/read_file", "tool/1/1/read_file", "tool/2/0/append_report"
    right = Evidence(
        exits=[-9, -9, 5, 0],
        view=View("demo", "answered", (AssistantMessage(),), Usage(), (), (), ()),
        attempts=[
            Attempt(read, "read", 1, 1, 1, 2),
            Attempt(lost, "read", 1, 1, 1),
            Attempt(lost, "read", 2, 2, 3, 4),
            Attempt(write, "write", 1, 2, 5, 6),
        ],
        ledger=[
            Entry(1, "model"),
            Entry(1, "read_file", read),
            Entry(1, "read_file", lost),
            Entry(2, "read_file", lost),
            Entry(2, "append_report", write, "key"),
        ],
        entries_in_report={write: 1},
    )
    return replace(right, **changed)


@pytest.mark.parametrize(
    ("changed", "false"),
    [
        ({"exits": [-9, 0, 5, 0]}, "1 process died of SIGKILL"),
        ({"exits": [-9, -9, 0, 0]}, "without reconcile the run was refused 0 times"),
        ({"ran": Entry(4, "model")}, "2 model calls made, 1 needed"),
        ({"ran": Entry(2, "read_file", "tool/1/0/read_file")}, "2 reads recorded, 1 never run"),
        ({"ran": Entry(4, "append_report", "tool/2/0/append_report")}, "the write ran twice"),
        ({"entries_in_report": {"tool/2/0/append_report": 2}}, "the report has 2 entries"),
        ({"entries_in_report": {}}, "the report has 0 entries"),
    ],
)
def test_a_claim_of_the_demo_that_is_not_so_is_told_as_false(
    changed: dict[str, Any], false: str
) -> None:
    assert all(fact.true for fact in facts(evidence()))
    if "ran" in changed:
        changed = {"ledger": [*evidence().ledger, changed["ran"]]}
    told = [fact.text for fact in facts(evidence(**changed)) if not fact.true]
    assert any(false in text for text in told)
