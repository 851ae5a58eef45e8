"""Agents for the command line's tests, named with ``--app tests.cli.apps:NAME``.

The models are functions of the messages, so they go on rightly in whichever process asks them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import trio

from tests.scripts import MAIL, call, calling, saying
from trioagent import (
    Agent,
    Allow,
    AssistantMessage,
    Budget,
    CallContext,
    Message,
    NeedApproval,
    ToolCall,
    Usage,
    Verdict,
    tool,
)
from trioagent.providers import Scripted

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp[bold red]markup[/bold red]\rover"
"""A window's title, a cleared screen, an eight-bit colour, reversed text, markup, an overwrite."""

SENT = "sent.txt"
"""Where the writes of these agents go, in the folder that the command runs in."""

WAITED = "waited"
"""The file that says that one process has waited already."""


def model(*turns: tuple[ToolCall, ...], answer: str = "It is sunny.") -> Scripted:
    """Asks for one turn of calls after another, then answers."""

    def reply(messages: tuple[Message, ...]) -> AssistantMessage:
        done = sum(isinstance(message, AssistantMessage) for message in messages)
        usage = Usage(15, 5)
        return (
            calling(*turns[done], usage=usage) if done < len(turns) else saying(answer, usage=usage)
        )

    return Scripted(reply)


@tool(effect="read")
async def weather(city: str) -> str:
    """The weather in a city, now."""
    return f"sunny in {city}"


@tool
async def send_email(to: str, body: str) -> str:
    """Send a mail."""
    with open(SENT, "a") as file:  # noqa: ASYNC230
        file.write(f"{to}: {body}\n")
    return f"sent to {to}"


@tool
def send_and_die(to: str, body: str) -> str:
    """Send a mail, and take the process with it before anything can be recorded of it."""
    with open(SENT, "a") as file:
        file.write(f"{to}: {body}\n")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the process is dead")


@tool(effect="read")
async def wait_forever() -> str:
    """Say so, then wait until the process is told to stop; only the first one does."""
    if not os.path.exists(WAITED):  # noqa: ASYNC240
        open(WAITED, "x").close()  # noqa: ASYNC230
        print("waiting", file=sys.stderr, flush=True)
        await trio.sleep_forever()
    return "waited"


@tool
async def write_forever() -> str:
    """A write that never ends."""
    print("writing", file=sys.stderr, flush=True)
    await trio.sleep_forever()
    return "never"


@tool(effect="read")
async def shout() -> str:
    """A result that would like to own the terminal."""
    return HOSTILE


class AskAboutMail:
    """Wants a person to look at every mail."""

    def check(self, call: ToolCall, context: CallContext) -> Verdict:
        return NeedApproval("mail leaves the house") if call.name == "send_email" else Allow()


forecaster = Agent(
    model((call("weather", {"city": "Paris"}),)), tools=[weather], system="Be brief."
)
mailer = Agent(
    model((call("send_email", MAIL),), answer="The mail is out."),
    tools=[send_email],
    gate=AskAboutMail(),
)
dying = Agent(model((call("send_and_die", MAIL),), answer="The mail is out."), tools=[send_and_die])
waiting = Agent(model((call("wait_forever"),), answer="At last."), tools=[wait_forever])
writing = Agent(model((call("write_forever"),)), tools=[write_forever])
hostile = Agent(model((call("shout", {}),), answer=HOSTILE), tools=[shout], system=HOSTILE)
endless = Agent(
    Scripted(lambda messages: calling(call("weather", {"city": "Paris"}, id=str(len(messages))))),
    tools=[weather],
    max_iter=2,
)
frugal = Agent(
    model((call("weather", {"city": "Paris"}),)), tools=[weather], budget=Budget(max_tokens=1)
)


def failing() -> Agent:
    """An agent whose model says nothing."""
    return Agent(Scripted([]))


def changed() -> Agent:
    """The forecaster under another system prompt."""
    return Agent(forecaster.provider, tools=[weather], system="Be long.")


def with_argument(name: str) -> Agent:
    """Cannot be called without arguments."""
    return Agent(Scripted([name]))


async def asynchronous() -> Agent:
    """A coroutine is no agent."""
    return forecaster


def raising() -> Agent:
    """An application whose set-up fails."""
    raise RuntimeError("no database")


not_an_agent = 7
returns_another: Callable[[], int] = lambda: 7  # noqa: E731
