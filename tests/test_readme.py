"""The README says what is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .diagram import diagram

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_the_embedding_example_answers_and_then_answers_from_its_journal(tmp_path: Path) -> None:
    example = blocks("python")[0]
    # With a script that is used up, a second model call would fail: the journal answers instead.
    again = re.sub(r"Scripted\(\[.*\]\)\n", "Scripted([])\n", example)
    assert again != example
    for source in (example, again):
        done = subprocess.run(
            [sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert (done.stdout, done.stderr) == ("It is sunny.\n", "")


def test_the_embedding_example_is_short() -> None:
    lines = [line for line in blocks("python")[0].splitlines() if line.strip()]
    assert len(lines) <= 15


def test_the_state_diagram_is_the_machines_table() -> None:
    assert blocks("mermaid") == [diagram() + "\n"]


def test_the_first_two_commands_set_everything_up_and_are_the_ones_that_ci_runs() -> None:
    demo, tests = (block.strip() for block in blocks("sh")[:2])
    assert demo.startswith("python3 -m venv") and demo.endswith("trioagent demo")
    assert tests.startswith("python3 -m venv") and tests.endswith("pytest")
    script = (ROOT / ".ci" / "run").read_text()
    assert "grep -m1 'pytest$' README.md" in script
    assert "grep -m1 'trioagent demo$' README.md" in script
