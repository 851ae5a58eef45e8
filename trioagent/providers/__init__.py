"""Models to give an `Agent`."""

from __future__ import annotations

from .scripted import Scripted

__all__ = ["Scripted"]
