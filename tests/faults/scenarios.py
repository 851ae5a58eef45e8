"""The runs that the sweeps put under fire, and the one driver that begins, resumes and ends them.

`drive` is what an application would be: it claims each run, runs it, decides what waits for a
person, and where a write is in doubt it looks at the world and says what it saw.  Called again on
what a fault left, it goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import trio

from tests.scripts import ASK, QUESTION, ByName, call, calling, saying
from trioagent import (
    Agent,
    Answered,
    Applied,
    AssistantMessage,
    Journal,
    JournalError,
    Message,
    NotApplied,
    Run,
    StepFailedError,
    UnknownOutcomeError,
    open_journal,
)
from trioagent.effects import Effect
from trioagent.journal import writer
from trioagent.messages import encode
from trioagent.providers import Scripted

from .world import Watched, World

ATTEMPTS = 12
"""How often a run is claimed before it counts as stuck; the longest scenario needs 5."""

Body: TypeAlias = Callable[[World, Run, str], Awaitable[bytes]]


def by_turn(*replies: AssistantMessage) -> Scripted:
    """A model whose reply follows from the transcript alone, so that any process may ask it."""

    def script(messages: tuple[Message, ...]) -> AssistantMessage:
        return replies[sum(isinstance(message, AssistantMessage) for message in messages)]

    return Scripted(script)


def turn(*names: str) -> AssistantMessage:
    """A reply that calls the named tools, each with its place as the argument."""
    return calling(*[call(n, {"what": f"{i}"}, id=f"{n}-{i}") for i, n in enumerate(names)])


# -- the agents -----------------------------------------------------------------------------------


def _turns(world: World) -> Agent:
    tools = [
        world.tool("look", "read", ticks=2),
        world.tool("write", "write", ticks=1),
        world.tool("large", "write", size=6000),
        world.tool("put", "idempotent", ticks=3),
        world.tool("fail", "write", raises=True),
    ]
    replies = (turn("look", "write", "large", "put"), turn("fail", "look"), saying("Done."))
    return Agent(by_turn(*replies), tools=tools, system="Be brief.")


def _people(world: World) -> Agent:
    tools = [world.tool(name, "write") for name in ("write", "mail", "pay")]
    replies = (turn("write", "mail"), turn("mail", "pay"), turn("write"), saying("Done."))
    return Agent(by_turn(*replies), tools=tools, gate=ByName(mail=ASK, pay=ASK))


def _leaving(world: World) -> Agent:
    tools = [
        world.leaving("early", "write", before=True),
        world.leaving("late", "write", before=False),
        world.leaving("put", "idempotent", before=False),
        world.tool("write", "write"),
    ]
    replies = (turn("write", "early"), turn("late", "write"), turn("put"), saying("Done."))
    return Agent(by_turn(*replies), tools=tools)


def _pair(world: World) -> Agent:
    tools = [world.tool("look", "read"), world.tool("write", "write", ticks=1)]
    return Agent(by_turn(turn("look", "write"), turn("write"), saying("Done.")), tools=tools)


STEPS: Mapping[str, Effect] = {
    "fetch": "read",
    "load": "write",
    "put": "idempotent",
    "broken": "read",
    "last": "write",
}


async def _plain(world: World, run: Run, run_id: str) -> bytes:
    """Steps without an agent, in threads; one of them raises, which is an outcome too."""
    told: list[object] = []
    for name, effect in STEPS.items():

        def body(name: str = name, effect: Effect = effect) -> str:
            if effect != "read":
                world.promise(run_id, "step.started", name, power=True)
            world.effect(run_id, name, effect, "-", name)
            if name == "broken":
                raise ValueError(name)
            return name

        try:
            told.append(await run.step(name, body, effect=effect))
        except StepFailedError as exc:
            told.append(f"{exc.error_type}: {exc.message}")
        world.promise(run_id, "step.completed", name, power=effect != "read")
    return encode(told)


# -- the scenarios --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """Runs by their ids, in phases: those of one go on at once, each phase opens the journal anew.

    `frames` is how many pages a write-ahead log may have before it is brought home: with few of
    them checkpoints, and logs that begin again, come into runs of a sweep's length.
    """

    phases: tuple[Mapping[str, Callable[[World], Agent] | Body], ...]
    frames: int = writer.CHECKPOINT_FRAMES

    @property
    def runs(self) -> list[str]:
        """The ids of all runs."""
        return [run_id for phase in self.phases for run_id in phase]

    @contextmanager
    def checkpoints(self) -> Iterator[None]:
        """For the block, the product's own limit is that of the scenario."""
        before, writer.CHECKPOINT_FRAMES = writer.CHECKPOINT_FRAMES, self.frames
        try:
            yield
        finally:
            writer.CHECKPOINT_FRAMES = before


SCENARIOS: dict[str, Scenario] = {
    "turns": Scenario(({"turns": _turns},)),
    "people": Scenario(({"people": _people},)),
    "leaving": Scenario(({"leaving": _leaving},)),
    "pair": Scenario(({"one": _pair, "two": _pair, "plain": _plain},)),
    "checkpoints": Scenario(
        ({"one": _pair, "two": _pair}, {"three": _pair}, {"people": _people}), frames=10
    ),
}


# -- the driver -----------------------------------------------------------------------------------


class StuckError(Exception):
    """A run that does not end, or a step that a broken journal took."""


Inspect: TypeAlias = Callable[[Journal], Awaitable[None]]


async def drive(
    path: Path, scenario: Scenario, world: World, inspect: Inspect | None = None
) -> dict[str, bytes]:
    """Bring every run of the scenario to its end; what each ended with.

    `inspect` sees the journal after it was first opened and before anything is claimed.
    """
    results: dict[str, bytes] = {}
    for phase in scenario.phases:
        async with open_journal(path) as journal:
            if inspect is not None:
                await inspect(journal)
                inspect = None

            async def finish(run_id: str, what: Callable[[World], Agent] | Body) -> None:
                results[run_id] = await _finish(journal, run_id, what, world)

            async with trio.open_nursery() as nursery:
                for run_id, what in phase.items():
                    nursery.start_soon(finish, run_id, what)
    return results


async def _finish(
    journal: Journal, run_id: str, what: Callable[[World], Agent] | Body, world: World
) -> bytes:
    for _ in range(ATTEMPTS):
        result: bytes | None = None
        with trio.CancelScope() as world.scopes[run_id]:
            try:
                async with journal.claim(run_id) as run:
                    if what is _plain:
                        result = await _plain(world, run, run_id)
                    else:
                        result = await _run_agent(what(world), run, run_id, world)  # type: ignore[arg-type]
            except UnknownOutcomeError as exc:
                await _settle(journal, run_id, exc.step, world)
        if result is not None:
            if what is _plain and world.once(f"{run_id} ended"):
                world.promise(run_id, "run.completed", "", power=True)
            return result
        await _decide(journal, run_id, world)
    raise StuckError(f"{run_id} did not end within {ATTEMPTS} attempts")


async def _run_agent(agent: Agent, run: Run, run_id: str, world: World) -> bytes | None:
    """What the agent said, ``None`` where it waits for a person.

    Where its journal failed under it, nothing more may be taken or run.
    """
    watched = Watched(run, run_id, world)
    try:
        state = await agent.run(QUESTION, step_runner=watched)
    except JournalError:
        if watched.broke:
            await _must_refuse(run)
        raise
    return encode(state.transcript) if isinstance(state, Answered) else None


async def _must_refuse(run: Run) -> None:
    ran: list[str] = []
    for effect in ("write", "read"):
        try:
            await run.step(f"later-{effect}", ran.append, "ran", effect=effect)  # type: ignore[arg-type]
        except JournalError:
            if not ran:
                continue
        raise StuckError("a journal that had failed took a later step, or ran its body")


async def _decide(journal: Journal, run_id: str, world: World) -> None:
    """Mails may go, payments not."""
    for waiting in await journal.pending(run_id):
        marker, step = waiting.pending.marker, waiting.pending.step
        if waiting.pending.call.name == "pay":
            await journal.deny(run_id, marker, "too dear")
        else:
            await journal.approve(run_id, marker)
        world.promise(run_id, "signal", step, power=True)


async def _settle(journal: Journal, run_id: str, step: str, world: World) -> None:
    """Look at the world and say what became of the write."""
    result = world.outcome(run_id, step)
    if result is None:
        await journal.resolve(run_id, step, NotApplied(by="a look at the world"))
        world.promise(run_id, "signal", step, power=True)
    else:
        await journal.resolve(run_id, step, Applied(result))
        world.promise(run_id, "step.completed", step, power=True)
