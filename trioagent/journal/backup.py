"""A copy of a journal, made while others go on recording.

    the target's name is taken -> SQLite writes TARGET.part from one state of the file
    -> the copy is verified and synced -> it gets the target's name

So under the target's name there is never half a copy.  A backup that was killed leaves an empty
target and perhaps ``TARGET.part``, both of which may be removed.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import apsw

from trioagent.errors import JournalCorruptError, JournalError

from . import sqlite
from .verify import Report, verify_file

_BESIDE = ("", ".part", "-wal", "-shm", "-journal")
"""Endings of names that must be free.  SQLite would take a log that lay beside the target for the
copy's own.  https://www.sqlite.org/howtocorrupt.html, section 1.4"""


def backup_file(source: Path, target: Path) -> Report:
    """Copy the journal at `source` to `target`; gives the report about the copy.

    Raises:
        JournalError: the target or a file beside it is there already, or it cannot be written.
        JournalCorruptError: the copy has faults, so the journal has; the copy was removed.
    """
    for ending in _BESIDE:
        if os.path.lexists(f"{target}{ending}"):
            raise JournalError(f"{target}{ending} is there already; give a target that is not")
    part = target.with_name(f"{target.name}.part")
    made: list[Path] = []
    try:
        for file in (target, part):
            # Whoever may not read the journal may not read its copy, from its first byte on.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(file, flags, source.stat().st_mode & 0o777))
            made.append(file)
        _copy(source, part)
        report = verify_file(part)
        if not report.ok:
            raise JournalCorruptError(
                f"{source} has {len(report.faults)} faults, the first: {report.faults[0]}; "
                "no backup was made of it, trioagent verify lists them all"
            )
        _sync(part)
        os.replace(part, target)
        made.clear()
        _sync(target.parent)
    except OSError as exc:
        raise JournalError(f"{exc.filename or target}: {exc.strerror}") from exc
    finally:
        for file in made:
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
    return Report(str(target), report.checks)


def _copy(source: Path, part: Path) -> None:
    try:
        connection = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_timeout(sqlite.BUSY_SECONDS * 1000)
            connection.execute("VACUUM INTO ?", (str(part),))
        finally:
            connection.close()
    except apsw.Error as exc:
        raise sqlite.translate(exc, str(part)) from exc


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
