"""Runs out of a journal's file and into one: as recordings, which `recording` writes as lines.

    journal --recording_of--> Recording --write_recordings--> FILE
    FILE --read_recordings--> Recording --take_in--> journal

A run that was branched from another is taken out whole, with the records that both share, so that
a file of lines never needs another one.  What is taken in is read-only until somebody claims it:
nobody else's decisions are about it, and its writes are known only by what the file says.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import apsw

from trioagent.errors import JournalCorruptError, JournalError, JournalFormatError

from . import sqlite
from .fold import fold
from .recording import LINE_BYTES, Recording, read_lines, write_lines
from .records import config_of
from .sqlite import RunRow

# -- between a journal and recordings -------------------------------------------------------------


def recording_of(connection: apsw.Connection, run: RunRow) -> Recording:
    """All that is recorded of a run, with its configurations.

    Raises:
        JournalCorruptError: a record or a configuration is missing or altered.
    """
    records = sqlite.load(connection, run)
    configs: dict[bytes, bytes] = {}
    for record in records:
        key = config_of(record)
        if key and key not in configs:
            config = sqlite.load_blob(connection, key)
            if config is None:
                raise JournalCorruptError(f"{run.run_id}: its configuration is missing or altered")
            configs[key] = config
    return Recording(run.run_id, tuple(records), configs)


def take_in(connection: apsw.Connection, recordings: Iterable[Recording]) -> tuple[str, ...]:
    """Record runs as they were recorded elsewhere, all or none, in a caller's transaction.

    Raises:
        JournalError: ids that are taken, every one of them named; nothing is overwritten.
        JournalCorruptError: records that make no run.
    """
    made: dict[str, None] = {}
    taken: list[str] = []
    for recording in recordings:
        if recording.run_id in made:
            raise JournalCorruptError(f"the file holds the run {recording.run_id} twice")
        made[recording.run_id] = None
        known = sqlite.find_run(connection, recording.run_id)
        if known is not None and (known.last or not known.pruned):
            taken.append(recording.run_id)
            continue
        if not recording.records:
            raise JournalCorruptError(f"the run {recording.run_id} has no record")
        try:
            fold(recording.records).view(recording.run_id)
        except Exception as exc:  # a file may hold anything, so anything may come of it
            raise JournalCorruptError(
                f"{recording.run_id} makes no run: {type(exc).__name__}: {exc}"
            ) from exc
        sqlite.insert_run(connection, recording.run_id, recording.records)
        for config in recording.configs.values():
            sqlite.store_blob(connection, config)
    if taken:
        raise JournalError(
            f"the journal has {', '.join(taken)} already; nothing was imported, since no run is "
            "ever overwritten"
        )
    return tuple(made)


# -- between recordings and a file ----------------------------------------------------------------


def read_recordings(path: str | os.PathLike[str]) -> Iterator[Recording]:
    """The runs of a file of JSON lines; nothing is to be believed before the end.

    Raises:
        JournalError: the file cannot be read.
        JournalFormatError: it is no such file, or one of a newer version.
        JournalCorruptError: it was cut off or edited.
    """
    place = Path(path)
    try:
        if not place.is_file():
            raise JournalError(f"{place} is no file of runs; `export` writes one")
        with place.open("rb") as file:
            yield from read_lines(iter(lambda: file.readline(LINE_BYTES + 1), b""))
    except (JournalFormatError, JournalCorruptError) as exc:
        raise type(exc)(f"{place}: {exc}") from None
    except OSError as exc:
        raise JournalError(f"{place}: {exc.strerror}") from exc


def write_recordings(
    path: str | os.PathLike[str], recordings: Iterable[Recording], *, replace: bool = False
) -> None:
    """Write a file that holds `recordings`, whole or not at all.

    Args:
        replace: put it in the place of a file that is there.

    Raises:
        JournalError: the file is there already, or cannot be written.
    """
    place = Path(path)
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            file.writelines(write_lines(recordings))
            file.flush()
            os.fsync(file.fileno())
        if replace:
            part.replace(place)
        else:
            os.link(part, place)
    except FileExistsError:
        raise JournalError(f"{place} is there already; nothing is overwritten") from None
    except OSError as exc:
        raise JournalError(f"{place}: {exc.strerror}") from exc
    finally:
        part.unlink(missing_ok=True)
