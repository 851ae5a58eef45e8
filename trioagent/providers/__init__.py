"""Models to give an `Agent`.

Those that speak HTTP are imported when they are first asked for: the scripted ones, and whoever
brings a provider, need no HTTP library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trioagent.providers.fallback import FallbackProvider
from trioagent.providers.recorded import Reply, read_reply
from trioagent.providers.scripted import Scripted

if TYPE_CHECKING:
    from trioagent.providers.anthropic import Anthropic
    from trioagent.providers.openai_chat import OpenAIChat
    from trioagent.providers.openai_responses import OpenAIResponses

__all__ = [
    "Anthropic",
    "FallbackProvider",
    "OpenAIChat",
    "OpenAIResponses",
    "Reply",
    "Scripted",
    "read_reply",
]

_LAZY = {
    "Anthropic": "anthropic",
    "OpenAIChat": "openai_chat",
    "OpenAIResponses": "openai_responses",
}


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
