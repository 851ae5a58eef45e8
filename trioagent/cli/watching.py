"""A run as it goes on: its events on the screen, or as lines of JSON."""

from __future__ import annotations

import math
from typing import Protocol

import trio

from trioagent.cli.lines import Line, counted, duration
from trioagent.cli.safe import one_line
from trioagent.cli.screen import Screen
from trioagent.events import (
    Answered,
    Done,
    Event,
    ModelReset,
    TextDelta,
    ToolCalled,
    ToolFinished,
    UsageReported,
)
from trioagent.gate import Deny
from trioagent.messages import ToolCall
from trioagent.stream import AgentStream

TICK = 1.0
"""Seconds between two looks at the clock while tools run and somebody watches."""

LONG = 2_000
"""Milliseconds after which a call's progress is shown."""

_ARGUMENTS_SHOWN = 100
_RESULT_SHOWN = 120


class Watcher(Protocol):
    """Who is told of a run's events, and now and then that time has passed."""

    @property
    def tick(self) -> float:
        """Seconds after which it wants to be told, infinite for never."""
        ...

    def see(self, event: Event) -> None:
        """An event."""
        ...

    def wait(self) -> None:
        """Nothing has happened for `tick` seconds."""
        ...

    def stop(self) -> None:
        """Nothing more will happen."""
        ...


async def watch(stream: AgentStream, watcher: Watcher) -> None:
    """Read the stream to its end; raises what made the run fail."""
    while True:
        event: Event | None = None
        with trio.move_on_after(watcher.tick) as waiting:
            try:
                event = await anext(stream)
            except StopAsyncIteration:
                return
        if event is not None:
            watcher.see(event)
        elif waiting.cancelled_caught:
            watcher.wait()


class JsonWatcher:
    """Each event as a line of JSON; the last state is the command's own last line."""

    tick = math.inf

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def see(self, event: Event) -> None:
        """Write it."""
        if not isinstance(event, Done):
            self._screen.json(event)

    def wait(self) -> None:
        """Time alone is no event."""

    def stop(self) -> None:
        """Nothing is left open."""


class TextWatcher:
    """The answer on standard output as it comes; tool calls on standard error.

    What is replayed is counted, not shown again; only an answer that was replayed is.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._running: dict[int, tuple[ToolCall, int]] = {}
        self._rewriting = False
        self._replayed = 0
        self._replayed_reply = False

    @property
    def tick(self) -> float:
        """A second while tools run on a terminal."""
        return TICK if self._running and self._screen.live else math.inf

    def see(self, event: Event) -> None:
        """Show it."""
        self._clear()
        if getattr(event, "replayed", False):
            self._count(event)
            return
        self._tell_replayed()
        match event:
            case TextDelta(text=text):
                self._screen.stream(text)
            case ModelReset():
                self._screen.note("the reply broke off; the model is asked again")
            case UsageReported():
                self._replayed_reply = False
            case ToolCalled(call=call, verdict=verdict, index=index):
                if isinstance(verdict, Deny):
                    self._screen.note(_denied(call, verdict))
                else:
                    self._running[index] = (call, _now())
                    self._screen.note(_called(call))
            case ToolFinished():
                self._finished(event)
            case Done(state=Answered(message=message)) if self._replayed_reply:
                self._screen.stream(message.text)

    def wait(self) -> None:
        """Say what has been running for long."""
        now = _now()
        long = [
            f"{call.name} {(now - since) // 1000} s"
            for call, since in self._running.values()
            if now - since >= LONG
        ]
        if long:
            self._screen.rewrite("  running: " + ", ".join(long))
            self._rewriting = True

    def stop(self) -> None:
        """End the line that text or progress was written on."""
        self._clear()
        self._screen.end_line()

    def _finished(self, event: ToolFinished) -> None:
        started = self._running.pop(event.index, None)
        if started is not None:
            took = duration(_now() - started[1])
            self._screen.note(_ended(event, took))

    def _count(self, event: Event) -> None:
        if isinstance(event, UsageReported | ToolFinished):
            self._replayed += 1
        self._replayed_reply = self._replayed_reply or isinstance(event, UsageReported)

    def _tell_replayed(self) -> None:
        if self._replayed:
            told = counted(self._replayed, "recorded step")
            self._screen.note([(f"{told} replayed, not run again", "dim")])
            self._replayed = 0

    def _clear(self) -> None:
        if self._rewriting:
            self._screen.rewrite("")
            self._rewriting = False


def _now() -> int:
    """Trio's clock, in milliseconds."""
    return round(trio.current_time() * 1000)


def _called(call: ToolCall) -> Line:
    return [("  call  ", "dim"), (call.name, "bold"), (" " + _arguments(call), "")]


def _denied(call: ToolCall, verdict: Deny) -> Line:
    return [("  denied  ", "yellow"), (call.name, "bold"), (f" {verdict.reason}", "")]


def _ended(event: ToolFinished, took: str) -> Line:
    message = event.message
    style = "green" if message.outcome == "ok" else "red"
    return [
        ("  done  ", "dim"),
        (message.name, "bold"),
        (f" {message.outcome}", style),
        (f" in {took}: ", "dim"),
        (one_line(message.text, _RESULT_SHOWN), ""),
    ]


def _arguments(call: ToolCall) -> str:
    return one_line(call.arguments, _ARGUMENTS_SHOWN)
