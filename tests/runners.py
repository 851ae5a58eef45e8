"""Step runners for tests: one that remembers in a dict, and ones that refuse."""

from __future__ import annotations

from collections.abc import Callable

from trioagent import Begun, Direct, Failure, Start, State, Step, StepContext, StepError
from trioagent.steps import Body


class Remembering(Direct):
    """Records outcome bytes by step name; a step that is recorded is replayed, not run.

    It holds a second request under a recorded name to be a fault of the loop.
    """

    def __init__(self, earlier: Remembering | None = None) -> None:
        super().__init__()
        self.outcomes: dict[str, bytes] = dict(earlier.outcomes) if earlier else {}
        self.requests: dict[str, bytes] = dict(earlier.requests) if earlier else {}
        self.input = earlier.input if earlier else None
        self.ran: list[Step] = []
        self.ends: list[State | Failure] = []

    async def begin(self, start: Start) -> Begun:
        if start.input is None:
            assert self.input is not None
            start = Start(self.input, start.config, start.approvals, start.denials)
        self.input = start.input
        return await super().begin(start)

    async def end(self, end: State | Failure) -> None:
        self.ends.append(end)

    def recorded(self, name: str) -> bool:
        return name in self.outcomes

    async def replay(self, step: Step) -> bytes | None:
        if step.name in self.outcomes:
            assert self.requests[step.name] == step.request, step.name
        return self.outcomes.get(step.name)

    async def run_step(self, step: Step, body: Body) -> bytes:
        data = await self.replay(step)
        if data is None:
            self.ran.append(step)
            self.requests[step.name] = step.request
            data = self.outcomes[step.name] = await super().run_step(step, body)
        return data


class Refusing(Remembering):
    """Refuses the named steps, when they are about to run or already when they are looked up."""

    def __init__(self, *names: str, early: bool = False) -> None:
        super().__init__()
        self.names = names
        self.early = early

    def _refuse(self, step: Step) -> None:
        if step.name in self.names:
            error = StepError(f"{step.name} may not run")
            error.step = step.name
            raise error

    async def replay(self, step: Step) -> bytes | None:
        if self.early:
            self._refuse(step)
        return await super().replay(step)

    async def run_step(self, step: Step, body: Body) -> bytes:
        self._refuse(step)
        return await super().run_step(step, body)


def context(
    name: str = "tool/1/0/t", hold: Callable[[], Callable[[], None]] | None = None
) -> StepContext:
    """What a body is told, for tests that run a tool without an agent."""
    return StepContext("run", name, 1, b"nonce", hold or (lambda: lambda: None))
