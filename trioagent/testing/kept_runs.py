"""The fixture `replay`: a test's runs, recorded once beside it and replayed ever after.

    def test_weather(replay):
        state = replay(agent, "What is the weather in Paris?")
        assert state.unwrap().text == "It is sunny."

The first run calls the model and the tools and keeps what happened in
``journals/<module>.<test>.jsonl``, once the test has passed; every later one calls nothing, and
fails where the agent does something else.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
import trio

from trioagent.agent import Agent, Input
from trioagent.errors import TrioagentError
from trioagent.events import State
from trioagent.journal import Recording, open_journal, read_recordings, write_recordings
from trioagent.journal.divergence import Divergence, diverge
from trioagent.providers import Scripted
from trioagent.steps import StepRunner

from .replay import DivergedError, ReplayRunner, Requests

Record: TypeAlias = Literal["none", "once", "rewrite"]
"""What ``--journal-record`` says: record nothing, what is missing, or everything anew."""


class Replay:
    """The runs of one test; made by the fixture `replay` only.

    Called, it runs an agent and returns its state; within a Trio test it is ``await replay.run``.
    `difference` is where the last run with `live_from` first differed from the recorded one.
    """

    def __init__(self, path: Path, record: Record) -> None:
        self.path = path
        self.difference: Divergence | None = None
        self._record = record
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._made: dict[str, Recording] = {}
        self._number = 0
        self._runner: ReplayRunner | None = None
        self._kept = self._read()
        self._recording = record == "rewrite" or (record == "once" and not self._kept)

    def __call__(self, agent: Agent, input: Input | None = None, **options: Any) -> State:
        """`run`, for a test that is no coroutine."""
        return trio.run(partial(self.run, agent, input, **options))

    async def run(
        self,
        agent: Agent,
        input: Input | None = None,
        *,
        deps: Any = None,
        output: Any = None,
        approvals: Sequence[str] = (),
        denials: Mapping[str, str] | None = None,
        requests: Requests = "strict",
        live_from: str | None = None,
    ) -> State:
        """Run `agent` against what is recorded, or record it.

        Args:
            input: the question of a new run, each recorded under its place in the test; without
                one the last run goes on, as after an approval.
            requests: ``"ignore"`` looks past a changed prompt, as long as only reads are replayed.
            live_from: the step, such as ``llm/3``, from which on the agent really runs.
            deps, output, approvals, denials: as for `Agent.run`.

        Fails the test where the agent does something else than was recorded.
        """
        if input is not None:
            self._check_finished()
            self._number += 1
            self._runner = None
        elif not self._number:
            raise ValueError("there is no run yet that could go on; give the first one an input")
        given: dict[str, Any] = {"deps": deps, "approvals": approvals, "denials": denials}
        if output is not None:
            given["output"] = output
        if self._recording:
            return await self._record_run(agent, input, given)
        if self._runner is None:
            self._runner = ReplayRunner(
                self._recorded(),
                requests=requests,
                live_from=live_from,
                scripted=isinstance(agent.provider, Scripted),
            )
        try:
            state = await self._go(agent, input, self._runner, given)
        except DivergedError as exc:
            raise self._failure(str(exc)) from None
        self.difference = self._runner.difference
        return state

    def finish(self) -> None:
        """What is due when the test has passed: keep what was recorded, or see that nothing of it
        is left."""
        if self._recording:
            self._write()
            return
        self._check_finished()
        if self._number and self._number < len(self._kept):
            left = ", ".join(list(self._kept)[self._number :])
            raise self._failure(f"the runs {left} are recorded and do not happen")

    def close(self) -> None:
        """Remove what was only for the time of the test."""
        if self._folder is not None:
            self._folder.cleanup()

    def _check_finished(self) -> None:
        """The last run came to the end that was recorded."""
        try:
            if self._runner is not None:
                self._runner.check_finished()
        except DivergedError as exc:
            raise self._failure(str(exc)) from None

    # -- replaying --------------------------------------------------------------------------------

    def _read(self) -> dict[str, Recording]:
        if not self.path.exists():
            return {}
        try:
            return {recording.run_id: recording for recording in read_recordings(self.path)}
        except TrioagentError as exc:
            pytest.fail(f"{exc}\n{self._how('rewrite')}", pytrace=False)

    @property
    def _name(self) -> str:
        return f"run-{self._number}"

    def _recorded(self) -> Recording:
        recording = self._kept.get(self._name)
        if recording is None:
            path = os.path.relpath(self.path)
            what = f"{self._name} is not in {path}" if self._kept else f"there is no {path}"
            how = self._how("rewrite" if self._kept else "once")
            pytest.fail(f"nothing recorded to replay: {what}\n{how}", pytrace=False)
        return recording

    def _failure(self, text: str) -> BaseException:
        """The test's failure, without a traceback through this library."""
        path = os.path.relpath(self.path)
        head = f"the agent does something else than {path} has recorded"
        told = f"{head}\n\n{text}\n\n{self._how('rewrite')}"
        return pytest.fail.Exception(told, pytrace=False)

    def _how(self, record: Record) -> str:
        return f"to record it anew, with calls of the model: pytest --journal-record={record}"

    async def _go(
        self, agent: Agent, input: Input | None, runner: StepRunner, given: dict[str, Any]
    ) -> State:
        state: State = await agent.run(input, step_runner=runner, **given)
        return state

    # -- recording --------------------------------------------------------------------------------

    async def _record_run(self, agent: Agent, input: Input | None, given: dict[str, Any]) -> State:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="trioagent-")
        async with open_journal(Path(self._folder.name, "runs.db")) as journal:
            async with journal.claim(self._name) as run:
                state = await self._go(agent, input, run, given)
            self._made[self._name] = await journal.recording(self._name)
        return state

    def _write(self) -> None:
        """Keep what was recorded; what did the same as before is left as it is."""
        made, kept = self._made, self._kept
        if not made:
            return
        if list(made) == list(kept) and not any(diverge(kept[name], made[name]) for name in made):
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_recordings(self.path, made.values(), replace=True)
