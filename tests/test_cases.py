"""Every case of the shared collection of others' faults is named by a test."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CASES = TESTS.parent.parent / "shared" / "cases" / "cases.jsonl"


@pytest.mark.skipif(not CASES.exists(), reason="the collection of cases is not beside the project")
def test_every_case_has_a_test_that_names_it() -> None:
    cases = [json.loads(line)["id"] for line in CASES.read_text().splitlines() if line]
    tests = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    named = {f"{area}-{number}" for area, number in re.findall(r"([a-z]+)[-_](\d{3})(?!\d)", tests)}
    assert len(cases) > 60
    assert [case for case in cases if case not in named] == []
