"""A process that forks while its journal is open, and goes on unharmed.

python -m tests.journal.forked PATH        one line an attempt of the child's, then the parent's
"""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine
from typing import Any

import outcome
import trio

from trioagent import JournalError, open_journal


def attempt(name: str, coroutine: Coroutine[Any, Any, Any]) -> None:
    """Say how far the coroutine comes before it would wait; a forked child has no loop."""
    try:
        coroutine.send(None)
        for _ in range(5):
            coroutine.send(outcome.Value(None))
    except JournalError as exc:
        print(name, "refused", "fork" in str(exc), flush=True)
    except StopIteration:
        print(name, "done", flush=True)
    else:
        print(name, "went on", flush=True)


def fork() -> int:
    """0 in the child; in the parent the child's id, once it has ended."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return child


async def main(path: str) -> None:
    """Fork in the middle of a claim."""
    opening = open_journal(path)
    journal = await opening.__aenter__()
    claim = journal.claim("run")
    run = await claim.__aenter__()
    await run.step("before", lambda: 1)
    if fork() == 0:
        try:
            attempt("view", journal.view("run"))
            attempt("claim", journal.claim("other").__aenter__())
            attempt("step", run.step("in-child", lambda: 1))
            attempt("approve", journal.approve("run", "m"))
            attempt("close", opening.__aexit__(None, None, None))
        finally:
            os._exit(0)
    await run.step("after", lambda: 2)
    await claim.__aexit__(None, None, None)
    print("parent", (await journal.view("run")).status, flush=True)
    await opening.__aexit__(None, None, None)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
