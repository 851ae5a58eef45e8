"""What a journal should say, in plain dicts: the rules of the contract without a file.  (pure)

A run is its steps in the order of their beginning, how its own scope stands, and, for an agent,
what waits for a person.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trioagent.effects import Effect

Answer = Literal["ran", "replayed", "raised", "doubt"]


@dataclass
class ModelStep:
    """A step: `by` says whose outcome it is where not its body's, `ran` how often its body did."""

    effect: Effect
    status: Literal["open", "void", "completed", "failed"] = "void"
    attempts: int = 0
    by: str = ""
    ran: int = 0

    @property
    def is_doubt(self) -> bool:
        """Whether nobody knows what became of it, once nobody is at it."""
        return self.effect == "write" and self.status == "open"


@dataclass
class ModelRun:
    """A run: `own` is how it stands by its records, whoever owns it; "" where it has none."""

    own: str = ""
    steps: dict[str, ModelStep] = field(default_factory=dict)

    @property
    def doubts(self) -> list[str]:
        """Its writes in doubt."""
        return [name for name, step in self.steps.items() if step.is_doubt]

    @property
    def status(self) -> str:
        """How it stands while nobody owns it."""
        if self.doubts:
            return "in_doubt"
        return "interrupted" if self.own == "running" else self.own

    def begins(self, name: str, effect: Effect) -> ModelStep:
        """An intent is recorded."""
        step = self.steps.setdefault(name, ModelStep(effect))
        step.status = "open"
        step.attempts += 1
        self.own = "running"
        return step

    def ends(self, name: str, status: Literal["completed", "failed"], by: str = "") -> None:
        """An outcome is recorded."""
        step = self.steps[name]
        step.status = status
        step.by = by
        self.own = "running"

    def step(self, name: str, effect: Effect, *, raises: bool) -> Answer:
        """A step is asked for, and ends if it may run."""
        known = self.steps.get(name)
        if known is not None and known.status in ("completed", "failed"):
            return "raised" if known.status == "failed" else "replayed"
        if known is not None and known.is_doubt:
            return "doubt"
        self.begins(name, effect).ran += 1
        self.ends(name, "failed" if raises else "completed")
        return "raised" if raises else "ran"

    def may_run(self, name: str) -> bool:
        """Whether asking for the step would run its body."""
        known = self.steps.get(name)
        return known is None or (known.status in ("open", "void") and not known.is_doubt)

    def left(self, how: Literal["well", "cancelled", "killed"]) -> None:
        """The claim ends; an agent's run has ended before, and stays as it is."""
        if self.own != "running" or how == "killed":
            return
        if how == "cancelled":
            self.own = "cancelled"
        elif not self.doubts:
            self.own = "completed"

    def resolved(self, name: str, *, applied: bool) -> None:
        """Somebody said what became of a write."""
        if applied:
            self.ends(name, "completed", "resolved")
        else:
            self.steps[name].status = "void"
