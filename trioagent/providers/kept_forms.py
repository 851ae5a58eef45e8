"""The encoded form of each message, kept for as long as the message lives.  (pure)

A run sends its whole transcript at every turn, so without this the work of encoding grows with the
square of the turns.  A message is frozen, hence its form is kept by identity: a changed transcript
holds other messages, which are encoded anew, and nothing can be stale.  The references are weak;
when a run's transcript goes, its forms go with it, so no size has to be chosen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from trioagent.messages import Message


class KeptForms:
    """The forms of one encoder with one set of options.

    Two event loops in two threads may use it at once: at worst both encode the same message.
    """

    def __init__(self, write: Callable[[Message], bytes]) -> None:
        self._write = write
        self._kept: dict[int, tuple[weakref.ref[Message], bytes]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, message: Message) -> bytes:
        """The form of `message`; it raises what writing it raises."""
        key = id(message)
        kept = self._kept.get(key)
        if kept is not None and kept[0]() is message:
            return kept[1]
        form = self._write(message)
        # An id is given to another object only after this one is gone, and then this has run.
        gone = weakref.ref(message, lambda _: self._kept.pop(key, None))
        self._kept[key] = (gone, form)
        return form
