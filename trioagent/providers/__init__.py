"""Models to give an `Agent`.

Those that speak HTTP are imported when they are first asked for: the scripted ones, and whoever
brings a provider, need no HTTP library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .scripted import Scripted

if TYPE_CHECKING:
    from .openai_chat import OpenAIChat

__all__ = ["OpenAIChat", "Scripted"]

_LAZY = {"OpenAIChat": "openai_chat"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f".{_LAZY[name]}", __name__)
    except ModuleNotFoundError as exc:
        if exc.name != "httpx2":
            raise
        raise ImportError(
            f"{name} needs httpx2, the extra `http`: pip install 'trioagent[http]'"
        ) from exc
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
