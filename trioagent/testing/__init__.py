"""What users test their agents with: recorded runs replayed, crashes tried one by one.

Nothing here is needed to run an agent, and nothing that runs one imports it.
"""

from __future__ import annotations

from .replay import DivergedError, ReplayRunner

__all__ = ["DivergedError", "ReplayRunner"]
