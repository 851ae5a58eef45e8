"""What the decoders of all wire formats share: JSON into a shape, counts, and a bound.  (pure)"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from trioagent.errors import ProtocolError

MAX_REPLY = 64 * 1024 * 1024
"""Characters that one reply may have in all, a fixed charge for each fragment included."""

_FRAGMENT_COST = 64

_T = TypeVar("_T")


class Bound:
    """How much of a reply has come; an endless one ends in an error, not in all the memory."""

    __slots__ = ("_size",)

    def __init__(self) -> None:
        self._size = 0

    def add(self, size: int) -> None:
        """Count a fragment of `size` characters; `ProtocolError` where that is too much."""
        self._size += size + _FRAGMENT_COST
        if self._size > MAX_REPLY:
            raise ProtocolError(f"the reply is over {MAX_REPLY} characters")


def decoded(data: str | bytes | msgspec.Raw, shape: type[_T], what: str) -> _T:
    """`data` as `shape`.  The text of the error quotes nothing: a reply is not for logs."""
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise ProtocolError(f"the reply is no {what}: {exc}") from None


def json_text(value: Any) -> str:
    """`value`, which came out of JSON, as JSON text again.

    Raises:
        ProtocolError: it cannot be written (a lone surrogate, a depth that has no end).
    """
    try:
        return msgspec.json.encode(value).decode()
    except (msgspec.EncodeError, ValueError, RecursionError):
        raise ProtocolError("the reply holds what cannot be written as JSON again") from None


def is_object(text: str) -> bool:
    """Whether `text` is one whole JSON object."""
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def tokens(count: float | None) -> int:
    """A count as the vendor reports it.  A wrong one would mislead a budget, so it is refused."""
    if not count:
        return 0
    if not 0 < count < 2**53 or count != int(count):
        raise ProtocolError(f"the reply reports {count:g} tokens, which is no count")
    return int(count)
