"""Large data as the file keeps them: once, by their hash, compressed where it pays.  (pure)

The hash is over the data themselves, so the same data are the same payload however they are kept.
`size` is how many bytes they have; a payload that is kept in fewer is compressed, one kept in as
many is not, and nothing else says so.

Only data whose hash is right are ever whole in memory: what is compressed is first unpacked piece
by piece, and given up where it has more bytes than it should.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator

COMPRESS_ABOVE = 4096
"""Bytes up to which compressing would save no page of the file."""

PAYS_BELOW = 0.9
"""Compressed data are kept where they are smaller than this share of the data."""

_LEVEL = 1
"""zlib's fastest: its best takes ten times as long, for some tenths less of JSON and text."""

_TRIED = 32_768
"""Bytes that are compressed to see whether the rest is worth it, so that a large picture costs no
more than a small one."""

_PIECE = 65_536
"""Bytes that are unpacked at once."""


def blob_hash(data: bytes) -> bytes:
    """The name that large data are stored under."""
    return hashlib.sha256(data).digest()


def pack(data: bytes) -> bytes:
    """What to keep of `data`: fewer bytes, or `data`."""
    if len(data) <= COMPRESS_ABOVE or not _pays(data[:_TRIED]):
        return data
    packed = zlib.compress(data, _LEVEL)
    return packed if len(packed) < PAYS_BELOW * len(data) else data


def _pays(sample: bytes) -> bool:
    return len(zlib.compress(sample, _LEVEL)) < PAYS_BELOW * len(sample)


def unpack(key: bytes, size: int, kept: bytes) -> bytes | None:
    """The data with the hash `key`, or ``None`` where what is kept is not they."""
    if len(kept) == size:
        return kept if blob_hash(kept) == key else None
    if not is_intact(key, size, kept):
        return None
    return zlib.decompress(kept, bufsize=size)


def is_intact(key: bytes, size: int, kept: bytes) -> bool:
    """Whether `kept` is the data of that hash and size, without having them in memory."""
    if len(kept) == size:
        return blob_hash(kept) == key
    seen, total = hashlib.sha256(), 0
    try:
        for piece in _pieces(kept):
            seen.update(piece)
            total += len(piece)
            if total > size:
                return False
    except zlib.error:
        return False
    return total == size and seen.digest() == key


def _pieces(kept: bytes) -> Iterator[bytes]:
    """The unpacked data; `zlib.error` where they end too early or something follows them."""
    unpacking = zlib.decompressobj()
    for start in range(0, len(kept), _PIECE):
        rest = kept[start : start + _PIECE]
        while rest and not unpacking.eof:
            yield unpacking.decompress(rest, _PIECE)
            rest = unpacking.unconsumed_tail
        if unpacking.eof and (unpacking.unused_data or start + _PIECE < len(kept)):
            raise zlib.error("more follows")
    yield unpacking.flush()
    if not unpacking.eof:
        raise zlib.error("cut off")
