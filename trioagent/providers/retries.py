"""When a failed model call is tried again, and after how long.  (pure but for the jitter)

A call is tried again only where its error is retryable, attempts are left and nothing was shown
of the reply.  The wait is the vendor's (``retry-after-ms``, ``Retry-After``) or else a back-off
that doubles, times a random share, so that callers that failed together do not come back
together ("full jitter").  A vendor that asks for more than `LONGEST_WAIT` is not waited for: the
error is raised with its `retry_after`, and whoever holds the run decides.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from trioagent.errors import ProviderError

FIRST_WAIT = 0.5
"""Seconds that the first back-off has at most; each further one has twice as much."""

LONGEST_BACKOFF = 8.0
"""Seconds that a back-off has at most."""

LONGEST_WAIT = 60.0
"""Seconds that a vendor's own wish is followed for."""

_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,15})?")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and how the waits are drawn.

    `max_retries` counts attempts after the first, from 0; `jitter` gives numbers from 0 to 1.
    """

    max_retries: int = 2
    jitter: Callable[[], float] = random.random

    def wait(self, retries: int, error: ProviderError, advice: bool | None = None) -> float | None:
        """Seconds to wait before the next attempt; ``None``: raise `error` instead.

        `retries` counts those made already, from 0; `advice` is the vendor's ``x-should-retry``,
        which outweighs the error's own class.
        """
        if retries >= self.max_retries or not (error.retryable if advice is None else advice):
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= LONGEST_WAIT else None
        # The exponent is bounded first: 2.0**1024 would not be a float.
        return min(LONGEST_BACKOFF, FIRST_WAIT * 2.0 ** min(retries, 10)) * self.jitter()


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds after which the vendor asks for the next attempt; ``None`` where it says nothing.

    What cannot be read (an odd date, a negative number) is treated as absent.  A date is compared
    with the response's own ``Date`` where it has one, which no skew between two clocks distorts,
    else with `now`, in seconds since the epoch.  Header names are looked up in lower case.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return seconds
    date = _date(value)
    if date is None:
        return None
    sent = _date(headers.get("date"))
    return max(0.0, date - (now if sent is None else sent))


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """The vendor's ``x-should-retry``; ``None`` where it says neither true nor false."""
    value = headers.get("x-should-retry", "").strip().lower()
    return {"true": True, "false": False}.get(value)


def _number(value: str | None) -> float | None:
    if value is None or not _NUMBER.fullmatch(value.strip()):
        return None
    return float(value)


def _date(value: str | None) -> float | None:
    """An HTTP date as seconds since the epoch; one that cannot be read as ``None``."""
    if value is None:
        return None
    try:
        date = parsedate_to_datetime(value)
        if date.tzinfo is None:
            date = date.replace(tzinfo=UTC)
        seconds = date.timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) else None
