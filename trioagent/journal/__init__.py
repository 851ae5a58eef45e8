"""The journal: what remembers an agent's steps in a SQLite file."""

from __future__ import annotations

from .branching import Forked
from .doubts import Doubt
from .fold import Status, StepView, View
from .journal import Journal, PendingApproval, RunSummary
from .opening import open_journal
from .prune import Pruned
from .recording import Recording
from .records import Record, Stopped
from .run import Run
from .transfer import read_recordings, write_recordings
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
    "Recording",
    "Report",
    "Run",
    "RunSummary",
    "Status",
    "StepView",
    "Stopped",
    "View",
    "open_journal",
    "read_recordings",
    "verify",
    "write_recordings",
]
