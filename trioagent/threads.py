"""Sync functions in worker threads, and what a cancellation does to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

_T = TypeVar("_T")


async def run_abandoned(call: Callable[[], _T]) -> _T:
    """Run `call` in a worker thread.

    Cancellation: the thread goes on by itself, and nobody learns what it returns.
    """
    # A limiter of its own: a hung tool must not take the application's threads away.
    return await trio.to_thread.run_sync(
        call, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
    )


async def run_held(call: Callable[[], _T], hold: Callable[[], Callable[[], None]]) -> _T:
    """Run `call` in a worker thread, with a hold that ends when the thread does, waited for or not.

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
        return await run_abandoned(held)
    except RuntimeError:
        if not started:  # the system had no thread to give
            release()
        raise
