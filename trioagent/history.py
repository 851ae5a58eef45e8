"""A part of a long transcript that a model can be given: whole turns, the newest ones."""

from __future__ import annotations

from collections.abc import Sequence

from .messages import Message, SystemMessage, UserMessage

__all__ = ["recent_turns"]


def recent_turns(transcript: Sequence[Message], at_most: int) -> tuple[Message, ...]:
    """The newest turns of `transcript` that together are at most so many messages.

    A turn is a user message and all that follows until the next one, so every tool message keeps
    its call and every call its result: where a cut would fall inside a turn, it moves on to the
    turn's end.  The last turn is always kept whole, also where it alone is longer, and so is a
    system prompt at the start, which is not counted.

    Raises:
        ValueError: if `at_most` is below 1.
    """
    if at_most < 1:
        raise ValueError(f"at_most is at least 1 message, not {at_most}")
    system = tuple([m for m in transcript[:1] if isinstance(m, SystemMessage)])
    starts = [i for i, message in enumerate(transcript) if isinstance(message, UserMessage)]
    if not starts:
        return tuple(transcript)
    whole = [start for start in starts if len(transcript) - start <= at_most]
    return (*system, *transcript[min(whole, default=starts[-1]) :])
