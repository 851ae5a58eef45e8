"""One part of a sweep over one scenario, in a process of its own.

    python -m tests.faults.parts power|io|kill TAPE STRIDE FIRST [PLANTED]

Every process numbers the cases alike and takes those that are FIRST modulo STRIDE.  The answer is
one JSON document on standard output.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from .io_faults import faults, try_fault
from .kills import sweep as sweep_kills
from .planted import plant
from .power import Recording, cuts, distinct, load, try_cut
from .promise import Finding

_ROOT = Path(__file__).parents[2]


class Part(NamedTuple):
    """What to try: `sweep` is power, io or kill, `tape` a file with a recording, `planted` a fault
    of `planted` that the product has meanwhile."""

    sweep: str
    tape: str
    stride: int
    first: int
    planted: str = ""


class Result(msgspec.Struct):
    """How many were tried, and what was found."""

    counts: dict[str, int]
    findings: list[Finding]


def run_part(part: Part) -> Result:
    """Run a part in a process of its own."""
    command = [sys.executable, "-m", "tests.faults.parts", *map(str, part)]
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=Result)


def try_power(recording: Recording, stride: int, first: int) -> Result:
    """Power cuts; `images` counts also those that are one case with another."""
    images = sum(1 for _ in cuts(recording.entries)) if first == 0 else 0
    result = Result({"power": 0, "images": images}, [])
    for place, cut in enumerate(distinct(recording)):
        if place % stride == first:
            result.counts["power"] += 1
            result.findings += try_cut(recording, cut)
    return result


def try_io(recording: Recording, stride: int, first: int) -> Result:
    """I/O faults; only those count that were met, since a run may make a call less than another."""
    result = Result({"io": 0, "ended": 0, "io cuts": 0}, [])
    for fault in faults(recording.scenario, stride, first):
        tried = try_fault(recording, fault)
        result.counts["io"] += tried.fired
        result.counts["ended"] += tried.ended
        result.counts["io cuts"] += tried.cuts
        result.findings += tried.findings
    return result


def try_kills(recording: Recording, stride: int, first: int) -> Result:
    """Kills."""
    killed = sweep_kills(recording.scenario, stride, first)
    return Result({"kill": killed.points}, killed.findings)


SWEEPS = {"power": try_power, "io": try_io, "kill": try_kills}


if __name__ == "__main__":
    part = Part(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
    with plant(part.planted):
        answer = SWEEPS[part.sweep](load(Path(part.tape)), part.stride, part.first)
    sys.stdout.buffer.write(msgspec.json.encode(answer))
