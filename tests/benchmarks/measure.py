"""Timing: two ways of doing the same, alternating, and what their medians say."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Timed = Callable[[], Awaitable[float]]
"""Does the work once and gives its seconds."""


@dataclass(frozen=True)
class Pair:
    """Median seconds of both, and the median of the ratios run by run."""

    ours: float
    base: float
    ratio: float
    runs: int


async def seconds(work: Callable[[], Awaitable[object]]) -> float:
    """Wall seconds of `work`, without the garbage of whatever ran before it."""
    gc.collect()
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def pair(ours: Timed, base: Timed, runs: int) -> Pair:
    """Measure both `runs` times, one after the other, after a warm-up of each."""
    await base()
    await ours()
    times = []
    for _ in range(runs):
        times.append((await ours(), await base()))
    return Pair(
        statistics.median([mine for mine, _ in times]),
        statistics.median([theirs for _, theirs in times]),
        statistics.median([mine / theirs for mine, theirs in times]),
        runs,
    )


def exponent(sizes: list[int], values: list[float]) -> float:
    """The slope of log(value) over log(size), by least squares: 1 is linear."""
    xs = [math.log(size) for size in sizes]
    ys = [math.log(value) for value in values]
    mean_x, mean_y = statistics.mean(xs), statistics.mean(ys)
    top = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return top / sum((x - mean_x) ** 2 for x in xs)
