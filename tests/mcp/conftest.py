"""What the SDK does under Trio and our own code must not: it leaves httpx2's generators open."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The SDK stops reading an event stream without closing its generators; Trio says so."""
    left = pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(left)


@pytest.fixture(autouse=True)
def nothing_is_left_for_later_tests() -> Iterator[None]:
    """What is left is collected here, where it is no error."""
    yield
    gc.collect()
