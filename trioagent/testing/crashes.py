"""Crash experiments: a run is stopped everywhere it can be, and resumed until it ends.

    report = crash_everywhere(Scenario(build=agent_in, input="Note it.", observe=lines_of))
    print(report)
    assert report.ok

A crash within this process is a copy: at the moment of the crash the journal's files and the world
are copied as they stand, which is what a process that is killed there leaves behind, and the run
goes on from the copies.  With `kill` it is a real process and SIGKILL.

What must hold after every one of them: each write took effect as often as in the run that was left
alone, and the transcript is the same; or else a doubt names the write.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import trio

from trioagent.errors import UnknownOutcomeError
from trioagent.events import State
from trioagent.journal import open_journal

from .crash_report import Report, Trial
from .moments import Moments, Seen
from .scenario import Scenario

RUN_ID = "run"
JOURNAL = "runs.db"
WORLD = "world"

ATTEMPTS = 20
"""Times that a run is resumed before it is said not to end."""

OnTrial: TypeAlias = Callable[[Trial], None]


# -- the experiments ------------------------------------------------------------------------------


def crash_everywhere(
    scenario: Scenario,
    *,
    checkpoints: bool = False,
    kill: str | None = None,
    on_trial: OnTrial | None = None,
) -> Report:
    """Crash at every moment of the run, one trial each, and resume.

    Args:
        checkpoints: crash at each of Trio's checkpoints as well, some hundreds of trials more.
        kill: where a child process finds the scenario, as ``module:name``: then each crash is a
            SIGKILL of a real process.  Without it, it is a copy of the files at that moment.
        on_trial: called with each trial when it is done, for progress.

    Raises:
        ValueError: `checkpoints` with `kill`, or a scenario that does not end by itself.

    It starts Trio by itself, so it is called from outside of it.
    """
    if checkpoints and kill is not None:
        raise ValueError("a kill at a checkpoint is not offered; leave one of the two out")
    with _Laboratory(scenario) as laboratory:
        clean = laboratory.clean()
        trials: list[Trial] = []
        points: list[str | int] = [*clean.moments, *(range(clean.steps) if checkpoints else ())]
        for point in points:
            crash = partial(laboratory.killed, kill) if kill else laboratory.copied
            trials.append(laboratory.trial(point, crash))
            if on_trial is not None:
                on_trial(trials[-1])
    return Report(scenario.name, "crash", clean.effects, tuple(trials))


def cancel_everywhere(scenario: Scenario, *, on_trial: OnTrial | None = None) -> Report:
    """Cancel the run at every checkpoint of Trio, one trial each, and resume.

    Raises:
        ValueError: a scenario that does not end by itself.

    It starts Trio by itself, so it is called from outside of it.
    """
    with _Laboratory(scenario) as laboratory:
        clean = laboratory.clean()
        trials: list[Trial] = []
        for point in range(clean.steps):
            trials.append(laboratory.trial(point, laboratory.cancelled))
            if on_trial is not None:
                on_trial(trials[-1])
    return Report(scenario.name, "cancellation", clean.effects, tuple(trials))


# -- one of them ----------------------------------------------------------------------------------


class _Laboratory:
    """A folder for each trial of one scenario, until the end of the block."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._number = 0

    def __enter__(self) -> _Laboratory:
        self._temporary = tempfile.TemporaryDirectory(prefix="trioagent-crashes-")
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def _folder(self) -> Path:
        self._number += 1
        folder = Path(self._temporary.name, str(self._number))
        (folder / WORLD).mkdir(parents=True)
        return folder

    def clean(self) -> _Clean:
        """Run the scenario once, undisturbed."""
        folder, seen, counter = self._folder(), Seen(), _Counter()

        async def run() -> State:
            trio.lowlevel.add_instrument(counter)
            return await run_once(self._scenario, folder, seen)

        try:
            state = trio.run(run)
        except Exception as exc:
            raise ValueError(f"the scenario does not end by itself: {exc!r}") from exc
        effects = tuple(self._scenario.observe(folder / WORLD))
        self._clean = _Clean(tuple(seen.moments), counter.steps, state, effects)
        return self._clean

    def trial(self, point: str | int, stop: Stop) -> Trial:
        """Stop at `point`, and resume until the run ends."""
        left, ran = stop(point, self._folder())
        return trio.run(self._resume, point, left, ran)

    # -- the ways to stop -------------------------------------------------------------------------

    def copied(self, point: str | int, folder: Path) -> tuple[Path, list[str]]:
        """Copy the files at `point`; what the run does after that is no matter."""
        left, ran = self._folder(), list[str]()

        def copy(seen: Seen) -> None:
            copy_files(folder, left)
            ran.extend(seen.ran)

        if self._stopped(point, folder, copy):
            return left, ran
        return folder, []  # it went another way this time, to its end

    def cancelled(self, point: str | int, folder: Path) -> tuple[Path, list[str]]:
        """Cancel the run at `point`."""
        ran: list[str] = []
        self._stopped(point, folder, lambda seen: ran.extend(seen.ran))
        return folder, ran

    def _stopped(self, point: str | int, folder: Path, act: Callable[[Seen], None]) -> bool:
        """Run in `folder` until `point`, `act` and cancel; whether it came there."""
        scenario = self._scenario

        async def run() -> bool:
            with trio.CancelScope() as scope:
                came = False

                def stop() -> None:
                    nonlocal came
                    came = True
                    act(seen)
                    scope.cancel()

                seen = Seen(lambda moment: stop() if moment == point else None)
                if isinstance(point, int):
                    trio.lowlevel.add_instrument(_Counter(point, stop))
                try:
                    await run_once(scenario, folder, seen)
                except Exception:
                    if not came:
                        raise
            return came

        return trio.run(run)

    def killed(self, reference: str, point: str | int, folder: Path) -> tuple[Path, list[str]]:
        """Run in a process of its own, which kills itself at `point`."""
        command = [sys.executable, "-m", "trioagent.testing.crash_child", reference, str(folder)]
        done = subprocess.run([*command, str(point)], capture_output=True, text=True, check=False)
        if done.returncode not in (0, -signal.SIGKILL):
            raise RuntimeError(f"the child process failed: {done.stderr.strip()}")
        return folder, done.stdout.split() if done.returncode else []

    # -- after it ---------------------------------------------------------------------------------

    async def _resume(self, point: str | int, folder: Path, ran: list[str]) -> Trial:
        scenario, clean, seen = self._scenario, self._clean, Seen()
        doubts: list[str] = []
        problem, state = "", None
        for _ in range(ATTEMPTS):
            try:
                state = await run_once(scenario, folder, seen)
            except UnknownOutcomeError as exc:
                doubts.append(exc.step)
                if scenario.settle is None:
                    break
                await _settle(scenario, folder, exc.step)
            except Exception as exc:  # whatever it is, it is what the experiment found
                problem = f"{type(exc).__name__}: {exc}"
                break
            else:
                break
        else:
            problem = f"it did not end in {ATTEMPTS} attempts"
        found, expected = Counter(scenario.observe(folder / WORLD)), Counter(clean.effects)
        return Trial(
            point=point if isinstance(point, str) else f"checkpoint {point}",
            effects=found.total(),
            twice=tuple((found - expected).elements()),
            lost=tuple((expected - found).elements()) if state is not None else (),
            replayed=tuple(dict.fromkeys(seen.replayed)),
            again=tuple([step for step in dict.fromkeys(seen.ran) if step in ran]),
            doubts=tuple(doubts),
            ended=state is not None,
            same=state is not None and state.transcript == clean.state.transcript,
            problem=problem,
        )


Stop: TypeAlias = Callable[[str | int, Path], tuple[Path, list[str]]]
"""Runs in a folder until a point; the folder that is left, and the steps whose bodies ran."""


class _Clean(NamedTuple):
    """The run that is left alone; `steps` are those of Trio's tasks."""

    moments: tuple[str, ...]
    steps: int
    state: State
    effects: tuple[str, ...]


class _Counter(trio.abc.Instrument):
    """Counts the steps of Trio's tasks, and calls `stop` behind the one with the number `at`.

    Between two steps of a task lies a checkpoint.
    """

    def __init__(self, at: int | None = None, stop: Callable[[], None] | None = None) -> None:
        self.steps = 0
        self._at = at
        self._stop = stop

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Trio calls it."""
        if self.steps == self._at and self._stop is not None:
            self._stop()
        self.steps += 1


async def run_once(scenario: Scenario, folder: Path, seen: Seen) -> State:
    """Run or resume the scenario in `folder` until it ends, stops or fails."""
    agent = scenario.build(folder / WORLD)
    async with open_journal(folder / JOURNAL) as journal, journal.claim(RUN_ID) as run:
        state: State = await agent.run(
            scenario.input, step_runner=Moments(scenario.runner(run), seen)
        )
        return state


async def _settle(scenario: Scenario, folder: Path, step: str) -> None:
    assert scenario.settle is not None
    async with open_journal(folder / JOURNAL) as journal:
        for doubt in await journal.doubts(RUN_ID):
            if doubt.step == step:
                await journal.resolve(RUN_ID, step, scenario.settle(folder / WORLD, doubt))


def copy_files(folder: Path, left: Path) -> None:
    """What a process that dies now leaves: the journal's file and its log, then the world.

    In this order, as nothing is recorded that did not happen.  The index of the log, which is
    shared memory, and the owner's locks go with a process.  That opening the file here drops
    SQLite's own locks on it is no matter: nobody else uses it.
    """
    for name in (JOURNAL, f"{JOURNAL}-wal"):
        if (folder / name).exists():
            shutil.copyfile(folder / name, left / name)
    shutil.copytree(folder / WORLD, left / WORLD, dirs_exist_ok=True)
