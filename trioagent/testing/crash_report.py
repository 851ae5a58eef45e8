"""What crash experiments found: a row for each trial, as text and as a page."""

from __future__ import annotations

import os
from collections import Counter
from typing import Literal, TypeAlias

import msgspec

from trioagent.page import save_page

Verdict: TypeAlias = Literal["clean", "settled", "doubt", "twice", "lost", "other", "failed"]
"""clean: as if nothing had happened; settled: so after a doubt was; doubt: a write is in doubt, by
name; twice: an effect happened again; lost: one is missing; other: another transcript; failed: the
run does not end."""

GOOD: tuple[Verdict, ...] = ("clean", "settled", "doubt")


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One stop, and what came of it.

    `effects` counts what the world shows in the end, `twice` and `lost` are what it shows more
    often or less than after a run that was left alone; `replayed` are the steps whose outcome came
    from the record, `again` those whose body ran before the stop and once more after it; `doubts`
    are writes whose outcome was unknown.
    """

    point: str
    effects: int
    twice: tuple[str, ...]
    lost: tuple[str, ...]
    replayed: tuple[str, ...]
    again: tuple[str, ...]
    doubts: tuple[str, ...]
    ended: bool
    same: bool
    problem: str = ""

    @property
    def verdict(self) -> Verdict:
        """The worst that can be said of it."""
        if self.twice:
            return "twice"
        if self.lost:
            return "lost"
        if self.problem:
            return "failed"
        if not self.ended:
            return "doubt" if self.doubts else "failed"
        if not self.same:
            return "other"
        return "settled" if self.doubts else "clean"

    @property
    def told(self) -> str:
        """What there is to say beside the verdict."""
        found = [
            ("twice", self.twice),
            ("lost", self.lost),
            ("in doubt", self.doubts),
            ("again", self.again),
        ]
        texts = [f"{what}: {', '.join(which)}" for what, which in found if which]
        return "; ".join([*texts, *([self.problem] if self.problem else [])])


class Report(msgspec.Struct, frozen=True):
    """All trials of one scenario; `how` is what was tried, `effects` what a clean run does."""

    name: str
    how: str
    effects: tuple[str, ...]
    trials: tuple[Trial, ...]

    @property
    def ok(self) -> bool:
        """Whether every trial kept the promise."""
        return all(trial.verdict in GOOD for trial in self.trials)

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many trials had which verdict."""
        return dict(Counter(trial.verdict for trial in self.trials))

    @property
    def summary(self) -> str:
        """One line."""
        told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.counts.items()))
        kept = "the promise is kept" if self.ok else "THE PROMISE IS BROKEN"
        return f"{self.name}: {len(self.trials)} points of {self.how}, {told}: {kept}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report as a page: each point against what happened.

        Raises:
            FileExistsError: `path` is a file of another kind than such a page.
        """
        from .crash_page import crash_page

        save_page(path, crash_page(self))

    def __str__(self) -> str:
        """A table, a line for each trial."""
        head = ("POINT", "EFFECTS", "REPLAYED", "AGAIN", "VERDICT", "")
        rows: list[tuple[str, ...]] = [head]
        for trial in self.trials:
            numbers = (trial.effects, len(trial.replayed), len(trial.again))
            rows.append((trial.point, *map(str, numbers), trial.verdict.upper(), trial.told))
        widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([*lines, self.summary])
