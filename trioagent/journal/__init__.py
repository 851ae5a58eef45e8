"""The journal: what remembers an agent's steps in a SQLite file."""

from __future__ import annotations

from .fold import Status, StepView, View
from .journal import Doubt, Journal, PendingApproval, RunSummary, open_journal
from .records import Record, Stopped
from .run import Run

__all__ = [
    "Doubt",
    "Journal",
    "PendingApproval",
    "Record",
    "Run",
    "RunSummary",
    "Status",
    "StepView",
    "Stopped",
    "View",
    "open_journal",
]
