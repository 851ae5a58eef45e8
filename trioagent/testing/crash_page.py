"""The report of a crash experiment as a page: each point against what happened.  (pure)"""

from __future__ import annotations

from trioagent.page import coloured, document, facts, legend, row, stack

from .crash_report import GOOD, Report, Trial

_KEY = (
    ("dim", "replayed from the record"),
    ("cool", "read again"),
    ("warn", "in doubt, by name"),
    ("bad", "an effect twice, lost or otherwise wrong"),
)


def crash_page(report: Report) -> str:
    """The whole page."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(report.counts.items()))
    kept = coloured("kept", "good") if report.ok else coloured("BROKEN", "bad")
    head = facts(
        [
            ("the promise", kept),
            ("points", coloured(f"{len(report.trials)} of {report.how}", "")),
            ("verdicts", coloured(counts, "")),
            ("effects", coloured(f"{len(report.effects)} in a run left alone", "")),
        ]
    )
    whole = max([_length(trial) for trial in report.trials], default=1)
    rows = [_row(trial, whole) for trial in report.trials]
    title = f"{report.how} everywhere: {report.name}"
    return document(title, [f"<h1>{coloured(title, '')}</h1>\n", head, legend(_KEY), *rows])


def _row(trial: Trial, whole: int) -> str:
    style = "good" if trial.verdict == "clean" else "warn" if trial.verdict in GOOD else "bad"
    told = [coloured(trial.verdict, style), coloured(trial.told, "")]
    return row(trial.point, told, stack(_parts(trial), whole))


def _parts(trial: Trial) -> list[tuple[int, str]]:
    wrong = len(trial.twice) + len(trial.lost) or int(trial.verdict not in GOOD)
    return [
        (len(trial.replayed), "dim"),
        (len(trial.again), "cool"),
        (len(trial.doubts), "warn"),
        (wrong, "bad"),
    ]


def _length(trial: Trial) -> int:
    return sum(count for count, _ in _parts(trial))
