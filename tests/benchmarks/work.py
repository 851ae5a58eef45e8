"""The work that every row does: T turns of one model call and 4 parallel tools, all in memory.

Payloads are random and distinct: a reply of 100 characters of text and 4 calls, results of 200.
"""

from __future__ import annotations

import random
import string
from dataclasses import dataclass

import trio

from trioagent import (
    Agent,
    Answered,
    AssistantMessage,
    StepRunner,
    Text,
    Tool,
    ToolCall,
    tool,
)
from trioagent.effects import Effect
from trioagent.provider import Emit, Request

TOOLS = 4


@dataclass(frozen=True)
class Work:
    """T turns and an answer; `results[turn][tool]` is what a tool returns."""

    turns: int
    replies: list[AssistantMessage]
    results: list[list[str]]


def make_work(turns: int, seed: int = 0) -> Work:
    rng = random.Random(seed)

    def text(length: int) -> str:
        return "".join(rng.choices(string.ascii_letters + string.digits, k=length))

    replies = [
        AssistantMessage(
            (
                Text(text(100)),
                *[ToolCall(f"call-{t}-{i}", f"tool_{i}", f'{{"turn":{t}}}') for i in range(TOOLS)],
            )
        )
        for t in range(turns)
    ]
    replies.append(AssistantMessage((Text(text(100)),)))
    return Work(turns, replies, [[text(200) for _ in range(TOOLS)] for _ in range(turns)])


class InMemory:
    """A model that replies at once, with the reply of the turn it is asked in."""

    model = "in-memory"

    def __init__(self, work: Work) -> None:
        self._replies = work.replies

    async def complete(self, request: Request, emit: Emit) -> AssistantMessage:
        return self._replies[len(request.messages) // (TOOLS + 1)]


def make_agent(work: Work, effect: Effect) -> Agent:
    def make_tool(index: int) -> Tool:
        async def run(turn: int) -> str:
            return work.results[turn][index]

        return tool(effect=effect, name=f"tool_{index}")(run)

    return Agent(
        InMemory(work), tools=[make_tool(i) for i in range(TOOLS)], max_iter=work.turns + 1
    )


async def run_agent(agent: Agent, runner: StepRunner | None = None) -> None:
    state = await agent.run("go", step_runner=runner)
    assert isinstance(state, Answered), state


async def bare_turns(turns: int) -> None:
    """The least that a loop with 4 parallel tools costs in Trio: the baseline of every row."""
    limiter = trio.CapacityLimiter(TOOLS)

    async def work() -> None:
        async with limiter:
            pass

    for _ in range(turns):
        async with trio.open_nursery() as nursery:
            for _ in range(TOOLS):
                nursery.start_soon(work)
        await trio.lowlevel.checkpoint()
