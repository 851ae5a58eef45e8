"""The command line: ``trioagent``.  It needs the extra `cli`, and says so where that is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments`, by default those of the process; returns its exit code."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ModuleNotFoundError as exc:
        if exc.name not in ("click", "rich"):
            raise
        print(
            f"the command line needs {exc.name}: pip install 'trioagent[cli]'",
            file=sys.stderr,
        )
        return 1
    from trioagent.cli.commands import run_command

    return run_command(arguments)
