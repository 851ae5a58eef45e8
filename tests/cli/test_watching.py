"""What is shown of a run while it goes on."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.cli.apps import model
from tests.scripts import call
from trioagent import Agent, ModelReset, TextDelta, tool
from trioagent.cli.screen import Screen
from trioagent.cli.watching import TextWatcher, watch


class Terminal(Screen):
    """A screen that somebody watches."""

    live = True


async def watched(seconds: float) -> None:
    """Watch a run whose one tool takes so long."""

    @tool(effect="read")
    async def dig() -> str:
        await trio.sleep(seconds)
        return "gold"

    watcher = TextWatcher(Terminal())
    async with Agent(model((call("dig"),), answer="Gold."), tools=[dig]).stream("Dig.") as stream:
        await watch(stream, watcher)
    watcher.stop()


async def test_a_call_that_takes_long_shows_for_how_long_until_it_ends(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    await watched(4.5)
    out, err = capsys.readouterr()
    assert out == "Gold.\n"
    call, *progress, done = err.replace("\r\x1b[2K", "\n").split("\n  ")
    assert (call, done.strip()) == ("  call  dig {}\n", "done  dig ok in 4.5 s: gold")
    assert [line.strip() for line in progress] == [f"running: dig {n} s" for n in (2, 3, 4)]


async def test_a_short_call_shows_no_progress(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    await watched(1.5)
    assert "\x1b" not in capsys.readouterr().err


def test_a_reply_that_breaks_off_is_told_and_begins_on_a_line_of_its_own(capsys: Any) -> None:
    watcher = TextWatcher(Screen())
    for event in (TextDelta("It "), ModelReset(), TextDelta("It is.")):
        watcher.see(event)
    watcher.stop()
    out, err = capsys.readouterr()
    assert (out, err) == ("It \nIt is.\n", "the reply broke off; the model is asked again\n")
