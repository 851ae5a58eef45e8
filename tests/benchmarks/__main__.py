"""``python -m tests.benchmarks``: one JSON line a row."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import trio

from . import rows, sizes, wire

ROWS = {
    "loop": rows.loop_without_journal,
    "reads": rows.journal_of_reads,
    "writes": rows.journal_of_writes,
    "many": rows.many_runs,
    "bytes": sizes.bytes_per_step,
    "resume": sizes.resuming,
    "deltas": rows.text_deltas,
    "stalls": sizes.stalls,
    "import": sizes.importing,
    "memory": sizes.memory,
    "decoding": wire.decoding,
    "requests": wire.requests,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("rows", nargs="*", choices=[[], *ROWS], help="which rows (default: all)")
    parser.add_argument("--runs", type=int, default=7, help="measured runs of each side, from 7")
    parser.add_argument("--folder", type=Path, help="where the databases go: a real disk")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder or Path.cwd()) as folder:
        for name in options.rows or ROWS:
            for row in trio.run(ROWS[name], Path(folder), options.runs):
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
