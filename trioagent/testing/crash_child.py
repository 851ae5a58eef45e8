"""One process of a crash experiment: runs a scenario and kills itself at a moment.

``python -m trioagent.testing.crash_child MODULE:NAME FOLDER MOMENT``.  It kills itself by SIGKILL,
which nothing can catch: no handler runs, nothing is flushed.  The steps whose bodies ran stand on
its standard output.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path

import trio

from .crashes import run_once
from .moments import Seen
from .scenario import Scenario


def main(reference: str, folder: str, point: str) -> None:
    """Run until `point`, and no further."""
    module, _, name = reference.partition(":")
    sys.path.insert(0, os.getcwd())
    scenario = getattr(importlib.import_module(module), name)
    if not isinstance(scenario, Scenario):
        raise TypeError(f"{reference} is no Scenario")

    def die(moment: str) -> None:
        if moment == point:
            sys.stdout.write("\n".join(seen.ran))
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    seen = Seen(die)
    trio.run(run_once, scenario, Path(folder), seen)


if __name__ == "__main__":
    main(*sys.argv[1:])
