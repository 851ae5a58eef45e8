"""A process killed at every boundary of a run, and the run resumed in a new one."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import trio

from trioagent import View, open_journal
from trioagent.messages import encode

from .children import ROOT
from .killed import noted


async def start(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    """The process of `killed`, until its end."""
    command = [sys.executable, "-m", "tests.journal.killed", *map(str, arguments)]
    return await trio.run_process(
        command, capture_stdout=True, capture_stderr=True, check=False, cwd=ROOT
    )


async def look(directory: Path) -> View | None:
    """The run as the journal has it, if it has."""
    async with open_journal(directory / "runs.db") as journal:
        return await journal.view("run") if await journal.runs() else None


async def test_killed_at_each_boundary_no_write_is_done_twice_and_no_recorded_step_runs_again(
    tmp_path: Path,
) -> None:
    """journal-109, langgraph#8039, crush#2622, copilot-cli#3183, pikku#1544, dbos-transact-py#688,
    openai-agents#3852, and that each call has exactly one result, which the transcript's equality
    says.
    """
    whole = tmp_path / "whole"
    whole.mkdir()
    clean = await start("run", whole, 0)
    points = int(clean.stdout)
    expected = await look(whole)
    assert expected is not None
    assert expected.status == "answered"
    assert points > 60
    slots = trio.CapacityLimiter(2)
    died: list[int] = []

    async def at(point: int) -> None:
        directory = tmp_path / str(point)
        directory.mkdir()
        async with slots:
            killed = await start("run", directory, point)
            assert killed.returncode == -signal.SIGKILL, (point, killed.stderr)
            died.append(point)
            left = await look(directory)
            before = Counter(noted(directory, "ran"))
            resumed = await start("resume", directory)
            assert resumed.returncode == 0, (point, resumed.stderr)
        after = Counter(noted(directory, "ran")) - before
        done = {step.name for step in left.steps if step.status == "completed"} if left else set()
        assert not done & after.keys(), (point, "a recorded step ran again")
        written = [line.split()[0] for line in noted(directory, "world")]
        assert len(set(written)) == len(written) == 3, (point, "a write was done twice")
        view = await look(directory)
        assert view is not None
        assert view.status == "answered"
        assert encode(view.transcript) == encode(expected.transcript), point
        assert view.usage == expected.usage, point

    async with trio.open_nursery() as nursery:
        for point in range(1, points + 1):
            nursery.start_soon(at, point)
    assert sorted(died) == list(range(1, points + 1))
