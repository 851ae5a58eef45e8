"""What users test their agents with: recorded runs replayed, crashes tried one by one.

Nothing here is needed to run an agent, and nothing that runs one imports it.
"""

from __future__ import annotations

from .crash_report import Report, Trial
from .crashes import cancel_everywhere, crash_everywhere
from .replay import DivergedError, ReplayRunner
from .scenario import Scenario

__all__ = [
    "DivergedError",
    "ReplayRunner",
    "Report",
    "Scenario",
    "Trial",
    "cancel_everywhere",
    "crash_everywhere",
]
