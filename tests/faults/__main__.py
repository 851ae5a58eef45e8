"""The full sweep: ``python -m tests.faults``; 1 where a promise was not kept."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .parts import Part, run_part
from .power import record, save
from .scenarios import SCENARIOS


def main() -> int:
    """Run every part of the sweep, as many at once as there are processors."""
    began = time.monotonic()
    workers = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as directory:
        parts: list[Part] = []
        for scenario in SCENARIOS:
            tape = Path(directory, scenario)
            save(record(scenario), tape)
            for sweep in ("power", "io", "kill"):
                parts += [Part(sweep, str(tape), workers, first) for first in range(workers)]
        with ThreadPoolExecutor(workers) as pool:
            results = list(pool.map(run_part, parts))
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(result.counts)
    findings = [finding for result in results for finding in result.findings]
    for finding in findings:
        print(f"{finding.kind}: {finding.text}")
    kinds = Counter(finding.kind for finding in findings)
    print(
        f"{counts['power']} power-cut files ({counts['images']} states of the disk, equal ones"
        f" tried once), {counts['io']} I/O faults ({counts['ended']} ended their run,"
        f" {counts['io cuts']} power cuts after failed syncs), {counts['kill']} kill points,"
        f" {time.monotonic() - began:.0f} s"
    )
    print(f"{kinds['lost']} lost, {kinds['twice']} twice" + _others(kinds["wrong"]))
    return 1 if findings else 0


def _others(wrong: int) -> str:
    return f", {wrong} ended otherwise than promised" if wrong else ""


if __name__ == "__main__":
    sys.exit(main())
