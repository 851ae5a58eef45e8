"""Sync functions in worker threads, and what a cancellation does to them.

A thread cannot be stopped.  One whose caller no longer waits goes on by itself, so a function that
hangs would take a thread at every call until the system has none left.  `Abandoned` counts those
of one tool, and refuses the next call while there are too many.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import trio

_T = TypeVar("_T")

MAX_ABANDONED = 16
"""Threads of one tool that may run with nobody waiting for them, unless the tool says otherwise:
more than a few are a tool that hangs, and each holds a stack and whatever its call holds."""


class TooManyThreadsError(Exception):
    """A call was not started, since so many earlier ones of the same tool never ended."""


class Abandoned:
    """How many threads of one tool go on with nobody waiting for them.

    `count` may be read at any time; a thread that ends takes itself off.
    """

    def __init__(self, limit: int = MAX_ABANDONED) -> None:
        self.limit = limit
        self.count = 0
        self._lock = threading.Lock()

    async def run(self, call: Callable[[], _T]) -> _T:
        """Run `call` in a worker thread, and count the thread while it goes on unawaited.

        Raises:
            TooManyThreadsError: `limit` threads do already; `call` was not started.

        Cancellation: as it is for `run_abandoned`.
        """
        if self.count >= self.limit:
            await trio.lowlevel.checkpoint()
            raise TooManyThreadsError
        ended = unawaited = False

        def counted() -> _T:
            nonlocal ended
            try:
                return call()
            finally:
                with self._lock:
                    ended = True
                    if unawaited:
                        self.count -= 1

        # What is cancelled after this has started its thread: nothing below waits before that.
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            return await run_abandoned(counted)
        except (trio.Cancelled, KeyboardInterrupt):  # Trio's main task gets Ctrl-C in its wait
            with self._lock:
                if not ended:
                    unawaited = True
                    self.count += 1
            raise


async def run_abandoned(call: Callable[[], _T]) -> _T:
    """Run `call` in a worker thread.

    Cancellation: the thread goes on by itself, and nobody learns what it returns.
    """
    # A limiter of its own: a hung tool must not take the application's threads away.
    return await trio.to_thread.run_sync(
        call, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
    )


async def run_held(
    call: Callable[[], _T],
    hold: Callable[[], Callable[[], None]],
    abandoned: Abandoned | None = None,
) -> _T:
    """Run `call` in a worker thread, with a hold that ends when the thread does, waited for or not.

    `abandoned` counts the thread where nobody waits for it any more.

    Raises:
        TooManyThreadsError: `abandoned` is at its limit; `call` was not started.

    Cancellation: as it is for `run_abandoned`; a caller that must know how `call` ended shields it.
    """
    release = hold()
    started = False

    def held() -> _T:
        nonlocal started
        started = True
        try:
            return call()
        finally:
            release()

    try:
        return await (run_abandoned(held) if abandoned is None else abandoned.run(held))
    except (RuntimeError, TooManyThreadsError):
        if not started:  # the system had no thread to give, or the tool has too many
            release()
        raise
