"""The file of recordings: one JSON object a line, compressed."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT = Path(__file__).parents[3] / "shared" / "wire" / "exchanges.jsonl.gz"
"""Where the recordings are where they are at all: beside the repository."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One exchange; `request` is None where it was not kept or is no JSON object."""

    id: str
    api: Any
    provider: str
    status: int
    content_type: str
    streaming: bool
    request: dict[str, Any] | None
    body: bytes


def recordings(path: Path = DEFAULT) -> Iterator[Recording]:
    """Every exchange of the file, in its order."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            body = base64.b64decode(row["base64"]) if "base64" in row else row["text"].encode()
            yield Recording(
                row["id"],
                row["api"],
                row["provider"],
                row["status"],
                row["content_type"],
                row["streaming"],
                _request(row["request"]),
                body,
            )


def _request(value: Any) -> dict[str, Any] | None:
    """Some requests were kept as text, with what line breaks they had in a source file."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None
