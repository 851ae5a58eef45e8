"""The real command in a process of its own, in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """Standard output as lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def value(self) -> Any:
        """Standard output as one line of JSON."""
        (value,) = self.lines
        return value


Inside: TypeAlias = Callable[..., Ran]
"""The command as a function of its words, within the test's own process."""


class Command:
    """Calls ``python -m trioagent`` in `folder`, where the tests' agents can be imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> Ran:
        """Run it to its end."""
        done = subprocess.run(
            self.words(*arguments),
            input=stdin.encode(),
            capture_output=True,
            cwd=self.folder,
            env=self.environment(**environment),
            timeout=60,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def run(self, agent: str, run_id: str, *arguments: str) -> Ran:
        """``run`` with one of the tests' agents."""
        return self("run", "Go.", "--app", app(agent), "--run-id", run_id, *arguments)

    def resume(self, agent: str, run_id: str, *arguments: str) -> Ran:
        """``resume`` with one of the tests' agents."""
        return self("resume", run_id, "--app", app(agent), *arguments)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin it, and leave it running; what still runs at the test's end is killed."""
        process = subprocess.Popen(
            self.words(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environment(),
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        """Leave no process and no pipe behind."""
        for process in self.started:
            process.kill()
            process.communicate()

    @staticmethod
    def words(*arguments: str) -> list[str]:
        """The command's words."""
        return [sys.executable, "-m", "trioagent", *arguments]

    @staticmethod
    def environment(**more: str) -> dict[str, str]:
        """The process's environment: no key, no colour that was asked for."""
        left_out = ("OPENAI_API_KEY", "FORCE_COLOR", "NO_COLOR", "COLUMNS")
        kept = {name: value for name, value in os.environ.items() if name not in left_out}
        return kept | {"PYTHONPATH": str(ROOT), "TZ": "UTC"} | more


def app(agent: str) -> str:
    """What ``--app`` calls one of the tests' agents."""
    return f"tests.cli.apps:{agent}"


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    """Read standard error up to the line `text`."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.rstrip("\n") == text:
            return
    raise AssertionError(f"the command ended without saying {text!r}")
