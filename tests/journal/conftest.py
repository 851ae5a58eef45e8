"""An open journal for each test that wants one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from trioagent import Journal, open_journal


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    """A journal of its own for each test."""
    async with open_journal(tmp_path / "runs.db") as journal:
        yield journal
