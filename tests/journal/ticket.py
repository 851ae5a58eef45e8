"""One process of the ticket scenario: resume the run, and die where it is told to.

python -m tests.journal.ticket DIRECTORY BASE_URL nowhere|lookup|filed
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import trio

from tests.scripts import ASK, ByName
from trioagent import Agent, Answered, Suspended, UnknownOutcomeError, open_journal, tool
from trioagent.providers import OpenAIChat

from .child import say
from .killed import note


def agent(directory: Path, base_url: str, fatal: str) -> Agent:
    """A look-up, and a write that a person must approve."""

    def die_at(place: str) -> None:
        if fatal == place:
            os.kill(os.getpid(), signal.SIGKILL)

    @tool(effect="read")
    async def lookup(customer: str) -> str:
        """Look a customer up."""
        note(directory, "lookups", customer)
        die_at("lookup")
        return f"{customer} has the router X1"

    @tool(effect="write")
    def create_ticket(title: str) -> str:
        """File a ticket."""
        note(directory, "tickets", title)
        die_at("filed")
        return "filed"

    return Agent(
        OpenAIChat("served", base_url=base_url, max_retries=0),
        tools=[lookup, create_ticket],
        system="You answer the help desk.",
        gate=ByName(create_ticket=ASK),
    )


async def main(directory: Path, base_url: str, fatal: str) -> None:
    """One attempt at the run; a line says how it ended."""
    async with open_journal(directory / "runs.db") as journal, journal.claim("ticket") as run:
        question = "Ada's router is broken."
        try:
            state = await agent(directory, base_url, fatal).run(question, step_runner=run)
        except UnknownOutcomeError as exc:
            say(f"in doubt {exc.step}")
            return
    match state:
        case Answered(message=message):
            say(f"answered {message.text}")
        case Suspended(pending=(pending,)):
            say(f"suspended {pending.step} {pending.marker}")
        case _:
            say(f"ended as {state}")


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), sys.argv[2], sys.argv[3])
