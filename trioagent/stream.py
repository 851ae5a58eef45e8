"""A run under way, for those who watch it: its events, then how it ended."""

from __future__ import annotations

from collections import deque
from typing import Generic

import trio

from .events import Event, State, StateOf, TextDelta, ValueT
from .loop import Loop
from .messages import Message, Usage
from .steps import Start

MERGE_ABOVE = 256
"""Unread events above which neighbouring text deltas merge: far more than a reader that keeps up
leaves, and little memory where nobody reads at all."""


class AgentStream(Generic[ValueT]):
    """What ``async with agent.stream(...)`` gives: iterate it, then ask for `result`.

    The run never waits for a reader.  Iterating ends with the run, and raises what made it fail.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._unread: deque[Event | list[str]] = deque()
        self._changed = trio.Event()
        self._state: State | None = None
        self._failure: BaseException | None = None
        self._ended = False
        self._told = False

    @property
    def transcript(self) -> tuple[Message, ...]:
        """Everything said so far, also after a failure."""
        return self._loop.transcript

    @property
    def usage(self) -> Usage:
        """Tokens used so far since the last user message, also after a failure."""
        return self._loop.usage

    async def result(self) -> StateOf[ValueT]:
        """Wait for the run's end, with or without reading its events, and give its state.

        Raises whatever made the run fail.
        """
        await trio.lowlevel.checkpoint()
        while not self._ended:
            await self._changed.wait()
        return self._outcome()

    def __aiter__(self) -> AgentStream[ValueT]:
        return self

    async def __anext__(self) -> Event:
        await trio.lowlevel.checkpoint()
        while not self._unread:
            if self._ended:
                if self._failure is not None:
                    self._outcome()
                raise StopAsyncIteration
            await self._changed.wait()
        event = self._unread.popleft()
        return TextDelta("".join(event)) if isinstance(event, list) else event

    # -- the side of the run ----------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Keep `event` for the reader; when it is far behind, neighbouring texts become one."""
        unread = self._unread
        if type(event) is TextDelta and not event.replayed and len(unread) > MERGE_ABOVE:
            if isinstance(unread[-1], list):
                unread[-1].append(event.text)
                return
            unread.append([event.text])
        else:
            unread.append(event)
        self._wake()

    async def drive(self, start: Start) -> None:
        """Run to the end and keep how it ended; only a cancellation goes on from here."""
        try:
            self._state = await self._loop.run(start)
        except trio.Cancelled as exc:
            self._failure = exc
            raise
        except BaseException as exc:
            self._failure = exc
        finally:
            self._ended = True
            self._wake()

    def untold_failure(self) -> BaseException | None:
        """What made the run fail, if nobody was told."""
        return None if self._told or isinstance(self._failure, trio.Cancelled) else self._failure

    def _outcome(self) -> State:
        if self._failure is not None:
            self._told = True
            raise self._failure
        assert self._state is not None
        return self._state

    def _wake(self) -> None:
        self._changed.set()
        if not self._ended:
            self._changed = trio.Event()
