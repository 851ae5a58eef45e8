"""The README's state diagram, made from the machine's table: ``python -m tests.diagram``."""

from __future__ import annotations

from trioagent.machine import TRANSITIONS


def diagram() -> str:
    """The table as a Mermaid state diagram, every row of it."""
    lines = ["stateDiagram-v2", "    [*] --> start"]
    for phase, row in TRANSITIONS.items():
        if not row:
            lines.append(f"    {phase.value} --> [*]")
        for event, targets in row.items():
            lines.extend([f"    {phase.value} --> {target.value}: {event}" for target in targets])
    return "\n".join(lines)


if __name__ == "__main__":
    print(diagram())
