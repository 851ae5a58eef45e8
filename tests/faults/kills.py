"""Kills: a real process that kills itself with SIGKILL before an entry of its tape.

Between two entries nothing reaches the file system or the world, so these are all the moments that
differ; the boundary after each record's commit is one of them, in parallel tools too.

A process forks a child for each moment and another that looks at what it left.  Forked from one
that has no thread and no open journal, they cost milliseconds rather than an interpreter each.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import trio

from .power import FILE
from .promise import Expected, Finding, as_events, check, describe
from .scenarios import SCENARIOS, drive
from .vfs import Tape, under
from .world import Event, World

_LOG = "world"
"""The file that the world's events go to as they happen, one a line."""


class Killed(msgspec.Struct):
    """What a sweep over one scenario came to: kills that hit, and what was found after them."""

    points: int = 0
    findings: list[Finding] = []


class _KeptWorld(World):
    """A world that outlives the process."""

    def __init__(self, path: Path, tape: Tape) -> None:
        super().__init__(tape=tape)
        self._log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def happens(self, *event: object) -> None:
        """Written before anything else can happen: a kill comes before an entry or after it."""
        super().happens(*event)
        os.write(self._log, msgspec.json.encode(event) + b"\n")


def sweep(scenario: str, stride: int, first: int) -> Killed:
    """Kill a run before every entry of its tape that is `first` modulo `stride`."""
    killed = Killed()
    expected = _clean(scenario)
    place = first
    while True:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, FILE)
            if _in_child(lambda: _run_until(path, scenario, place)) != -signal.SIGKILL:  # noqa: B023
                return killed  # the run ended before it
            killed.points += 1
            answer = Path(directory, "findings")
            _in_child(lambda: _look(path, scenario, expected, answer))  # noqa: B023
            found = msgspec.json.decode(answer.read_bytes(), type=list[Finding])
        where = f"{scenario}: killed before entry {place}"
        killed.findings += [Finding(f.kind, f"{where}: {f.text}") for f in found]
        place += stride


def _clean(scenario: str) -> Expected:
    """What the scenario's runs end with, found out in a child: this process stays as it is."""
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory, "results")

        def run() -> None:
            results = trio.run(drive, Path(directory, FILE), SCENARIOS[scenario], World())
            answer.write_bytes(msgspec.json.encode(results))

        _in_child(run)
        return Expected(msgspec.json.decode(answer.read_bytes(), type=dict[str, bytes]))


def _run_until(path: Path, scenario: str, place: int) -> None:
    def kill(now: int) -> None:
        if now >= place:
            os.kill(os.getpid(), signal.SIGKILL)

    tape = Tape(before=kill)
    world = _KeptWorld(path.with_name(_LOG), tape)
    with under(tape), SCENARIOS[scenario].checkpoints():
        trio.run(drive, path, SCENARIOS[scenario], world)


def _look(path: Path, scenario: str, expected: Expected, answer: Path) -> None:
    async def look() -> list[Finding]:
        return await check(path, scenario, _events(path.with_name(_LOG)), expected, power=False)

    try:
        with under(Tape()):
            found = trio.run(look)
    except BaseException as exc:
        found = [Finding("lost", describe(exc))]
    answer.write_bytes(msgspec.json.encode(found))


def _events(log: Path) -> list[Event]:
    if not log.exists():
        return []
    return as_events([msgspec.json.decode(line) for line in log.read_bytes().splitlines()])


def _in_child(work: Callable[[], None]) -> int:
    """Do `work` in a forked child; its exit status, negative for a signal."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as exc:
            os.write(2, f"{describe(exc)}\n".encode())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
