"""The moments of a run at which a process may die: before and after each intent, body and record.

    begin | step: before its intent, body begins, body ended, recorded | ... | end, ended

A moment has a name and not a number, since parallel tools come to theirs in any order.
"""

from __future__ import annotations

from collections.abc import Callable

from trioagent.events import State
from trioagent.steps import Begun, Body, Failure, Start, Step, StepContext, StepRunner


class Seen:
    """What was seen of a run: its moments, the steps whose body was entered, and those whose
    outcome came without it."""

    def __init__(self, at: Callable[[str], None] | None = None) -> None:
        self.moments: list[str] = []
        self.ran: list[str] = []
        self.replayed: list[str] = []
        self._at = at

    def come_to(self, moment: str) -> None:
        """The run is at `moment`; whoever asked is told."""
        self.moments.append(moment)
        if self._at is not None:
            self._at(moment)


class Moments:
    """A `StepRunner` around another one, by which every moment is seen."""

    def __init__(self, runner: StepRunner, seen: Seen) -> None:
        self._runner = runner
        self._seen = seen
        self._at = seen.come_to

    async def begin(self, start: Start) -> Begun:
        """Two moments: nothing recorded yet, and the input recorded."""
        self._at("begin")
        begun = await self._runner.begin(start)
        self._at("begun")
        return begun

    async def end(self, end: State | Failure) -> None:
        """Two moments: before the end is recorded and behind it."""
        self._at("end")
        await self._runner.end(end)
        self._at("ended")

    def recorded(self, name: str) -> bool:
        """What the runner says."""
        return self._runner.recorded(name)

    async def replay(self, step: Step) -> bytes | None:
        """What the runner says."""
        data = await self._runner.replay(step)
        if data is not None:
            self._seen.replayed.append(step.name)
        return data

    async def run_step(self, step: Step, body: Body) -> bytes:
        """Four moments: before the intent, the body's two ends, and behind the record."""
        entered = False

        async def watched(context: StepContext) -> bytes:
            nonlocal entered
            entered = True
            self._seen.ran.append(step.name)
            self._at(f"{step.name}: body begins")
            data = await body(context)
            self._at(f"{step.name}: body ended")
            return data

        self._at(f"{step.name}: before its intent")
        data = await self._runner.run_step(step, watched)
        if entered:
            self._at(f"{step.name}: recorded")
        else:
            self._seen.replayed.append(step.name)
        return data
