"""Any order of claims, steps, kills, cancellations, decisions and resolutions: a real journal and
the plain model beside it agree after each of them.

Every rule opens the journal anew.  A kill is what it is to a file: the bytes are copied as they
stand at that moment, without those of the shared memory and without any lock, and the machine goes
on with the copy, while the claim it was copied from ends somewhere else.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.scripts import ASK, QUESTION, ByName, call, calling, saying, tool_texts
from trioagent import (
    Agent,
    Answered,
    Applied,
    AssistantMessage,
    FencedError,
    Journal,
    Message,
    NotApplied,
    NotPendingError,
    ReplayMismatchError,
    RunOwnedError,
    StepFailedError,
    Suspended,
    UnknownOutcomeError,
    open_journal,
    tool,
)
from trioagent.effects import Effect
from trioagent.providers import Scripted

from .model import Answer, ModelRun

PLAIN = st.sampled_from(["one", "two"])
EFFECT = st.sampled_from(["read", "idempotent", "write"])
NUMBER = st.integers(0, 2)
AGENT = "agent"
CALLS = ("write", "ask", "write", "ask")
"""What the agent calls, one a turn: what runs side by side in a turn may begin in any order."""


class JournalMachine(RuleBasedStateMachine):
    """A journal at `path`, and what it should say in `runs`."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.TemporaryDirectory()
        self.copies = 0
        self.path = Path(self.root.name, "0", "runs.db")
        self.path.parent.mkdir()
        self.runs: dict[str, ModelRun] = {}
        self.ran: dict[tuple[str, str], int] = {}
        self.turn = 1
        self.waits: str | None = None
        self.decided: bool | None = None
        self.texts: list[str] = []

    def teardown(self) -> None:
        self.root.cleanup()

    # -- the two sides ----------------------------------------------------------------------------

    def act(self, action: Callable[[Journal], Awaitable[Any]]) -> Any:
        """Do `action` with the journal, then see that both sides say the same."""

        async def main() -> Any:
            async with open_journal(self.path) as journal:
                result = await action(journal)
            async with open_journal(self.path) as journal:
                await self.compare(journal)
            return result

        return trio.run(main)

    async def compare(self, journal: Journal) -> None:
        """The views, the doubts, what waits, and how often each body ran."""
        known = {run_id: run for run_id, run in self.runs.items() if run.own}
        assert {s.run_id: s.status for s in await journal.runs()} == {
            run_id: run.status for run_id, run in known.items()
        }
        for run_id, run in known.items():
            view = await journal.view(run_id)
            steps = {s.name: (s.effect, s.status, s.attempts, s.by) for s in view.steps}
            steps = {n: s for n, s in steps.items() if not n.startswith("llm/")}
            assert list(steps.items()) == [
                (name, (s.effect, s.status, s.attempts, s.by)) for name, s in run.steps.items()
            ]
            assert list(view.doubts) == run.doubts
            for name, step in run.steps.items():
                assert self.ran.get((run_id, name), 0) == step.ran
        doubts = {(doubt.run_id, doubt.step) for doubt in await journal.doubts()}
        assert doubts == {(run_id, name) for run_id, run in known.items() for name in run.doubts}
        waiting = [found.pending.step for found in await journal.pending()]
        expected = self.waits is not None and self.decided is None
        assert waiting == ([self.waits] if expected else [])

    def model(self, run_id: str) -> ModelRun:
        """The model's run."""
        return self.runs.setdefault(run_id, ModelRun())

    def enter(self, run_id: str, name: str) -> None:
        """A body ran."""
        self.ran[run_id, name] = self.ran.get((run_id, name), 0) + 1

    def kill(self) -> None:
        """From now on the journal is what its files are at this moment."""
        self.copies += 1
        target = Path(self.root.name, str(self.copies))
        target.mkdir()
        for name in ("runs.db", "runs.db-wal"):
            if (self.path.parent / name).exists():
                shutil.copy(self.path.parent / name, target)
        self.path = target / "runs.db"

    # -- steps of plain runs ----------------------------------------------------------------------

    @rule(run_id=PLAIN, effect=EFFECT, number=NUMBER, raises=st.booleans(), killed=st.booleans())
    def step(self, run_id: str, effect: Effect, number: int, raises: bool, killed: bool) -> None:
        """A step is asked for; then the claim ends well, or the process dies."""
        name = f"{effect}-{number}"

        def body(_: str) -> str:
            self.enter(run_id, name)
            if raises:
                raise ValueError("no")
            return name

        async def ask(journal: Journal) -> Answer:
            before = self.ran.get((run_id, name), 0)
            async with journal.claim(run_id) as run:
                try:
                    assert await run.step(name, body, "same", effect=effect) in (name, "looked")
                    ran = self.ran.get((run_id, name), 0) > before
                    answer: Answer = "ran" if ran else "replayed"
                except StepFailedError:
                    answer = "raised"
                except UnknownOutcomeError:
                    answer = "doubt"
                if killed:
                    self.kill()
            return answer

        run = self.model(run_id)
        expected = run.step(name, effect, raises=raises)
        run.left("killed" if killed else "well")
        assert self.act(ask) == expected

    @rule(run_id=PLAIN, effect=EFFECT, number=NUMBER, killed=st.booleans())
    def leave(self, run_id: str, effect: Effect, number: int, killed: bool) -> None:
        """A body is cancelled, or its process dies in it, if it may run at all."""
        name = f"{effect}-{number}"
        run = self.model(run_id)
        if not run.may_run(name):
            return
        run.begins(name, effect).ran += 1
        run.left("killed" if killed else "cancelled")

        async def ask(journal: Journal) -> bool:
            with trio.CancelScope() as scope:
                async with journal.claim(run_id) as claimed:

                    async def body(_: str) -> None:
                        self.enter(run_id, name)
                        # A read's intent may be committed with what follows it; here nothing does.
                        if killed and effect != "read":
                            self.kill()
                        scope.cancel()
                        await trio.sleep_forever()

                    await claimed.step(name, body, "same", effect=effect)
            return scope.cancelled_caught

        if killed and effect == "read":
            run.left("cancelled")
        assert self.act(ask)

    @rule(run_id=PLAIN, effect=EFFECT, number=NUMBER)
    def ask_otherwise(self, run_id: str, effect: Effect, number: int) -> None:
        """A recorded step is asked for with another request: refused, and nothing runs."""
        name = f"{effect}-{number}"
        run = self.model(run_id)
        if name not in run.steps or run.steps[name].status not in ("completed", "failed"):
            return
        run.left("well")

        async def ask(journal: Journal) -> None:
            async with journal.claim(run_id) as claimed:
                with pytest.raises(ReplayMismatchError):
                    await claimed.step(
                        name, lambda _: self.enter(run_id, name), "other", effect=effect
                    )

        self.act(ask)

    @rule(run_id=PLAIN, number=NUMBER)
    def take_over(self, run_id: str, number: int) -> None:
        """While a write is under way its run is refused, then taken over: the outcome is too."""
        name = f"write-{number}"
        run = self.model(run_id)
        if not run.may_run(name):
            return
        run.begins(name, "write").ran += 1

        async def ask(journal: Journal) -> None:
            async def body(_: str) -> None:
                self.enter(run_id, name)
                with pytest.raises(RunOwnedError):
                    async with journal.claim(run_id):
                        raise AssertionError("claimed twice")
                async with journal.claim(run_id, take_over=True):
                    assert name in [doubt.step for doubt in await journal.doubts(run_id)]

            with pytest.raises(FencedError):
                async with journal.claim(run_id) as claimed:
                    await claimed.step(name, body, "same")

        self.act(ask)

    # -- doubts -----------------------------------------------------------------------------------

    @rule(data=st.data(), applied=st.booleans())
    def resolve(self, data: st.DataObject, applied: bool) -> None:
        """Somebody says what became of a write, which counts only where it is in doubt."""
        steps = [(run_id, name) for run_id, run in self.runs.items() for name in run.steps]
        if not steps:
            return
        run_id, name = data.draw(st.sampled_from(steps))
        resolution = Applied("looked") if applied else NotApplied(by="a test")
        run = self.runs[run_id]

        async def ask(journal: Journal) -> bool:
            try:
                await journal.resolve(run_id, name, resolution)
            except LookupError:
                return False
            return True

        expected = name in run.doubts
        if expected:
            run.resolved(name, applied=applied)
        assert self.act(ask) is expected

    # -- an agent ---------------------------------------------------------------------------------

    def agent(self, interrupt: Callable[[], Awaitable[None]] | None) -> Agent:
        """Writes that may be interrupted, and calls that a person decides about."""

        def tools(name: str) -> Any:
            async def function(turn: int) -> str:
                self.enter(AGENT, f"tool/{turn}/0/{name}")
                if name == "write" and interrupt is not None:
                    await interrupt()
                return "looked"

            return tool(name=name)(function)

        def script(messages: tuple[Message, ...]) -> AssistantMessage:
            turn = 1 + sum(isinstance(message, AssistantMessage) for message in messages)
            if turn > len(CALLS):
                return saying("Done.")
            return calling(call(CALLS[turn - 1], {"turn": turn}, id=f"{turn}"))

        made = [tools(name) for name in dict.fromkeys(CALLS)]
        return Agent(Scripted(script), tools=made, gate=ByName(ask=ASK))

    @rule(how=st.sampled_from(["well", "well", "cancelled", "killed"]))
    def run_agent(self, how: str) -> None:
        """The agent runs on, and is interrupted in a write if one of it runs."""

        async def ask(journal: Journal) -> str | list[str]:
            with trio.CancelScope() as scope:

                async def interrupt() -> None:
                    if how == "killed":
                        self.kill()
                    scope.cancel()
                    await trio.sleep_forever()

                agent = self.agent(None if how == "well" else interrupt)
                async with journal.claim(AGENT) as run:
                    try:
                        state = await agent.run(QUESTION, step_runner=run)
                    except UnknownOutcomeError as exc:
                        return f"doubt {exc.step}"
                    if isinstance(state, Answered):
                        return tool_texts(state.transcript)
                    assert isinstance(state, Suspended)
                    return [pending.step for pending in state.pending]
            return how

        expected = self.expected_of_agent(how)
        assert self.act(ask) == expected

    def expected_of_agent(self, how: str) -> str | list[str]:
        """What the model says that running on comes to; it goes on with the next turn by itself."""
        run = self.model(AGENT)
        while self.turn <= len(CALLS):
            kind = CALLS[self.turn - 1]
            name = f"tool/{self.turn}/0/{kind}"
            if run.doubts:
                run.own = "failed"
                return f"doubt {run.doubts[0]}"
            if kind == "ask" and self.decided is None:
                self.waits = name
                run.own = "suspended"
                return [name]
            denied = kind == "ask" and self.decided is False
            self.waits = self.decided = None
            if run.may_run(name):
                # A denied call runs nothing, so its step is a read.
                step = run.begins(name, "read" if denied else "write")
                step.ran += not denied
                if kind == "write" and how != "well":
                    run.left("killed" if how == "killed" else "cancelled")
                    return how
                run.ends(name, "completed")
            self.texts.append("error: denied by a person: no" if denied else "looked")
            self.turn += 1
        run.own = "answered"
        return self.texts

    @precondition(lambda self: self.waits is not None)
    @rule(yes=st.booleans())
    def decide(self, yes: bool) -> None:
        """A person decides about what waits; a second decision is refused."""

        async def ask(journal: Journal) -> bool:
            waiting = await journal.pending(AGENT)
            if not waiting:
                with pytest.raises(NotPendingError):
                    await journal.approve(AGENT, "0123456789abcdef")
                return False
            marker = waiting[0].pending.marker
            if yes:
                await journal.approve(AGENT, marker)
            else:
                await journal.deny(AGENT, marker, "no")
            return True

        expected = self.decided is None
        if expected:
            self.decided = yes
        assert self.act(ask) is expected


TestJournalModel = JournalMachine.TestCase
TestJournalModel.settings = settings(
    max_examples=60,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
