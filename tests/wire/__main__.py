"""``python -m tests.wire [PATH]``: every recording through every check; exit code 1 for a fault."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.wire.recordings import DEFAULT, recordings
from tests.wire.sweep import report, sweep


def main(arguments: list[str]) -> int:
    """Sweep the recordings at the path given, or at their usual place."""
    path = Path(arguments[0]) if arguments else DEFAULT
    if not path.is_file():
        print(f"no recordings at {path}", file=sys.stderr)
        return 2
    found = sweep(recordings(path), thorough=True)
    for line in report(found):
        print(line)
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
