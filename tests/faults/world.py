"""The world outside of a journal: what was done to it, and what somebody was promised.

It survives every cut, as a sent mail survives the power of the machine that sent it.  It is a list
of events, so that the world at any moment is a prefix of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio

from trioagent import Answered, JournalError, StepContext, Tool, ToolContext, tool
from trioagent.effects import Effect
from trioagent.messages import error_result
from trioagent.steps import Begun, Body, Failure, Start, State, Step, StepRunner

from .vfs import Tape

Event = tuple[Any, ...]
"""("ran", run, step, effect, key, text, is_error): a body took effect.
("promised", run, kind, step, nth, power): somebody was told of that many records of a kind about
a step; with `power` they must survive a power cut, without it the death of the process.
("once", label): something that happens once in the life of the world.
"""


class World:
    """The events so far, with the tape that takes every new one."""

    def __init__(self, events: Iterable[Event] = (), tape: Tape | None = None) -> None:
        self.events: list[Event] = [tuple(event) for event in events]
        self.scopes: dict[str, trio.CancelScope] = {}
        self._tape = tape

    def happens(self, *event: Any) -> None:
        """Something happens, and the tape takes it in its place among the writes."""
        if self._tape is not None:
            self._tape.happened(event)
        self.events.append(event)

    def once(self, label: str) -> bool:
        """Whether this is the first time."""
        first = ("once", label) not in self.events
        if first:
            self.happens("once", label)
        return first

    def promise(self, run_id: str, kind: str, step: str, *, power: bool) -> None:
        """One more record of that kind about that step was told of to somebody."""
        same = [e for e in self.events if e[0] == "promised" and e[1:4] == (run_id, kind, step)]
        self.happens("promised", run_id, kind, step, len(same) + 1, power)

    def ran(self, run_id: str, step: str) -> list[Event]:
        """How often the body of a step took effect."""
        return [event for event in self.events if event[:3] == ("ran", run_id, step)]

    def effect(self, run_id: str, step: str, effect: Effect, key: str, text: str) -> None:
        """The body of a step takes effect; `text` is what it returns, or raises."""
        self.happens("ran", run_id, step, effect, key, text)

    # -- tools ------------------------------------------------------------------------------------

    def tool(
        self, name: str, effect: Effect, *, size: int = 0, ticks: int = 0, raises: bool = False
    ) -> Tool:
        """A tool that takes effect here after some ticks of the loop, and returns so many bytes."""

        async def function(what: str, context: ToolContext) -> str:
            for _ in range(ticks + 1):
                await trio.lowlevel.checkpoint()
            text = f"{name} {what} " + what * size
            self.effect(context.run_id, context.step, effect, context.idempotency_key, text)
            if raises:
                raise ValueError(text)
            return text

        return tool(name=name, effect=effect)(function)

    def leaving(self, name: str, effect: Effect, *, before: bool) -> Tool:
        """A tool whose run is cancelled the first time, before it takes effect or after."""

        async def function(what: str, context: ToolContext) -> str:
            text = f"{name} {what}"
            first = self.once(f"{context.run_id} {context.step} was cancelled")
            if first and before:
                await self._cancelled(context.run_id)
            self.effect(context.run_id, context.step, effect, context.idempotency_key, text)
            if first:
                await self._cancelled(context.run_id)
            return text

        return tool(name=name, effect=effect)(function)

    async def _cancelled(self, run_id: str) -> None:
        self.scopes[run_id].cancel()
        await trio.lowlevel.checkpoint()

    def outcome(self, run_id: str, step: str) -> object | None:
        """What a look at the world says that the step returned; ``None``: it did nothing."""
        ran = self.ran(run_id, step)
        if not ran:
            return None
        text: str = ran[-1][5]
        return error_result(f"ValueError: {text}") if text.startswith("fail") else text


class Watched:
    """A step runner that notes what its caller is told, the moment the caller is.

    `broke` says that the journal failed at a step or at the run's end.
    """

    def __init__(self, runner: StepRunner, run_id: str, world: World) -> None:
        self.runner = runner
        self.run_id = run_id
        self.world = world
        self.broke = False

    async def begin(self, start: Start) -> Begun:
        begun = await self.runner.begin(start)
        if self.world.once(f"{self.run_id} was begun"):
            self.world.promise(self.run_id, "run.started", "", power=False)
        return begun

    async def end(self, end: State | Failure) -> None:
        """Record the end: it is promised to whoever reads it."""
        try:
            await self.runner.end(end)
        except JournalError:
            self.broke = True
            raise
        kind = "run.completed" if isinstance(end, Answered) else "run.stopped"
        self.world.promise(self.run_id, kind, "", power=True)

    def recorded(self, name: str) -> bool:
        return self.runner.recorded(name)

    async def replay(self, step: Step) -> bytes | None:
        return await self.runner.replay(step)

    async def run_step(self, step: Step, body: Body) -> bytes:
        """Run the step: its intent is promised to its body, its outcome to whoever asked."""
        world, ran = self.world, False
        durable = step.effect != "read"

        async def noted(context: StepContext) -> bytes:
            nonlocal ran
            ran = True
            if durable:
                world.promise(self.run_id, "step.started", step.name, power=True)
            return await body(context)

        try:
            data = await self.runner.run_step(step, noted)
        except JournalError:
            self.broke = True
            raise
        if ran:
            world.promise(self.run_id, "step.completed", step.name, power=durable)
        return data
