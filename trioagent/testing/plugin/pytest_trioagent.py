"""The pytest plugin: the fixture `replay` and the option ``--journal-record``.

pytest imports it before a coverage measurement can start, so it is a module of its own outside the
package, and imports the package only when a test asks for the fixture.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--journal-record``."""
    parser.getgroup("trioagent").addoption(
        "--journal-record",
        choices=["none", "once", "rewrite"],
        default=None,
        help="what the fixture replay records, calling models and tools: nothing, what is missing, "
        "or everything anew (default: once; none where the variable CI is set)",
    )


@pytest.fixture
def replay(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Runs of agents, recorded in ``journals`` beside the test and replayed without a call."""
    from trioagent.testing.kept_runs import Replay

    record = request.config.getoption("--journal-record")
    if record is None:
        record = "none" if os.environ.get("CI") else "once"
    name = _UNSAFE.sub("-", request.node.name).strip("-")
    kept = Replay(request.path.parent / "journals" / f"{request.path.stem}.{name}.jsonl", record)
    yield kept
    kept.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that passed has kept what it recorded, or replayed all that was recorded."""
    result = yield
    kept: Any = getattr(item, "funcargs", {}).get("replay")
    if hasattr(kept, "finish"):
        kept.finish()
    return result
