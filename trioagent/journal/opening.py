"""Opening a journal, and closing it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import apsw
import trio

from . import sqlite
from .journal import Journal
from .locks import LockFile
from .writer import Durability, Writer


@asynccontextmanager
async def open_journal(
    path: str | os.PathLike[str], *, durability: Durability = "effect"
) -> AsyncIterator[Journal]:
    """Open the journal at `path`, made if there is none, for the block.

    Beside the file stand its lock file (``.lock``) and, while it is open, SQLite's ``-wal`` and
    ``-shm``.

    Every outcome is committed before anything that depends on it goes on, so it survives the death
    of its process.  `durability` says what is also synced first, and so survives a loss of power:

    ===========  ===============================  ==============  ==================================
    durability   synced before the loop goes on   lost at a kill  lost at a power cut
    ===========  ===============================  ==============  ==================================
    ``effect``   a write's intent and outcome,    nothing         reads since the last sync, which
                 decisions, ends                                  then happen again
    ``power``    every record                     nothing         nothing
    ``process``  nothing                          nothing         whatever came last, also a write's
                                                                  intent: it may then run twice
    ===========  ===============================  ==============  ==================================

    What is lost are always the last records, and the file is never damaged by it.  It belongs to
    this opening, not to the file: another process may open it otherwise, and what one syncs carries
    all that was committed before.

    Raises:
        ValueError: another durability than these three.
        JournalFormatError: the file is no journal, or of a newer version; it was not changed.
        JournalCorruptError: it is damaged; it was not changed.
        JournalError: it cannot be opened.
    """
    if durability not in get_args(Durability):
        raise ValueError(f"durability is effect, power or process, not {durability!r}")
    file = await trio.to_thread.run_sync(lambda: Path(path).resolve())

    def connect() -> tuple[apsw.Connection, apsw.Connection]:
        writer = sqlite.connect(file)
        try:
            return writer, sqlite.connect(file)
        except BaseException:
            writer.close()
            raise

    connection, reader = await trio.to_thread.run_sync(connect)
    pid = os.getpid()
    try:
        locks = LockFile(file.with_name(file.name + ".lock"))
    except BaseException:
        reader.close()
        connection.close()
        raise
    journal = Journal(file, Writer(connection, file, durability), reader, locks)
    try:
        yield journal
    finally:
        journal._closed = True
        if os.getpid() == pid:  # a forked child's copy must not touch its parent's connections
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(
                    _close_connections, journal._writer, reader, connection
                )
            locks.close()


def _close_connections(writer: Writer, *connections: apsw.Connection) -> None:
    writer.mend()
    for connection in connections:
        # Here the log is brought home, as far as the disk lets it; the rest stays in the log, where
        # the next to open the file finds it.  So nothing is lost, and no failure is hidden by this.
        with contextlib.suppress(apsw.Error):
            connection.close()
