"""The recordings hold, where they are at hand; ``python -m tests.wire`` splits them finer."""

from __future__ import annotations

import pytest

from tests.wire.recordings import DEFAULT, recordings
from tests.wire.sweep import Sweep, sweep


@pytest.fixture(scope="module")
def found() -> Sweep:
    if not DEFAULT.is_file():
        pytest.skip(f"the recordings are not there ({DEFAULT.name} beside the repository)")
    return sweep(recordings(), thorough=False)


def test_every_recording_is_read_or_ends_in_a_typed_error_and_agrees_with_a_plain_reading(
    found: Sweep,
) -> None:
    assert found.faults == []
    assert found.total == 1324


def test_only_what_is_no_reply_is_not_read(found: Sweep) -> None:
    totals = {kind: sum(c[kind] for c in found.verdicts.values()) for kind in ("read", "refused")}
    assert totals == {"read": 1291, "refused": 3}
    assert all("not finished" in reason for reason in found.refused)


def test_requests_with_tool_results_mean_the_same_when_they_are_written_again(
    found: Sweep,
) -> None:
    assert found.requests["differs"] == 0
    assert found.requests["means the same"] >= 195
