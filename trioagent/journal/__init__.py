"""The journal: what remembers an agent's steps in a SQLite file."""

from __future__ import annotations

from .branching import Forked
from .doubts import Doubt
from .fold import Status, StepView, View
from .journal import Journal, PendingApproval, RunSummary
from .opening import open_journal
from .prune import Pruned
from .records import Record, Stopped
from .run import Run
from .verify import Check, Report, verify
from .writer import Durability

__all__ = [
    "Check",
    "Doubt",
    "Durability",
    "Forked",
    "Journal",
    "PendingApproval",
    "Pruned",
    "Record",
    "Report",
    "Run",
    "RunSummary",
    "Status",
    "StepView",
    "Stopped",
    "View",
    "open_journal",
    "verify",
]
