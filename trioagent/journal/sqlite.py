"""The file: its schema, what it refuses to open, and the few statements that touch it.

Nothing here knows of Trio.  Every function may block, and says so by taking a connection: the
writer decides in which thread it is called.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, cast

import apsw

from trioagent.errors import JournalCorruptError, JournalError, JournalFormatError

from .records import Record, Row, blob_hash, from_row, to_row

APPLICATION_ID = 0x74726961
"""``tria`` in ASCII: says that a SQLite file is a journal of this library."""

SCHEMA_VERSION = 1

BUSY_SECONDS = 30
"""How long a thread waits for another process's transaction before it gives up: those of this
library take milliseconds."""

_SCHEMA = """
CREATE TABLE runs (
    run   INTEGER PRIMARY KEY,
    id    TEXT NOT NULL UNIQUE,
    epoch INTEGER NOT NULL
) STRICT;
CREATE TABLE records (
    seq   INTEGER PRIMARY KEY,
    run   INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    kind  INTEGER NOT NULL,
    at    INTEGER NOT NULL,
    step  TEXT NOT NULL,
    tag   TEXT NOT NULL,
    data  BLOB,
    blob  BLOB,
    sum   INTEGER NOT NULL
) STRICT;
CREATE INDEX records_of_run ON records (run);
CREATE TABLE blobs (
    hash BLOB PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;
"""

MIGRATIONS: tuple[str, ...] = (_SCHEMA,)
"""What makes version n + 1 of version n; all that a file lacks run in one transaction."""

_MAGIC = b"SQLite format 3\0"


class RunRow(NamedTuple):
    """A run as the journal numbers it; `epoch` is that of its last owner, from 1."""

    number: int
    run_id: str
    epoch: int


def translate(exc: apsw.Error, path: str) -> JournalError:
    """The library's error for SQLite's."""
    if isinstance(exc, apsw.CorruptError | apsw.NotADBError):
        return JournalCorruptError(f"{path}: {exc}; nothing was changed")
    return JournalError(f"{path}: {type(exc).__name__.removesuffix('Error')}: {exc}")


def check_header(path: Path) -> None:
    """Refuse a file that is no journal, before SQLite opens it and leaves files beside it.

    The application id is written before the file ever turns to WAL mode, so it stands in the file
    itself.  https://www.sqlite.org/fileformat.html, section 1.3

    Raises:
        JournalFormatError: another kind of file.
        JournalCorruptError: a journal whose end is missing.
    """
    header, size = _read_header(path)
    if not header:
        return
    if len(header) < 100 or not header.startswith(_MAGIC):
        raise JournalFormatError(f"{path} is no SQLite file; give the path of a journal")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise JournalFormatError(f"{path} is a SQLite file, but no journal of trioagent")
    # With a log or a rollback journal beside it the file may lag behind its header (another process
    # may be making it just now), and SQLite puts it right.  Read again, since it may be right now.
    if _is_cut_off(header, size) and not _has_companion(path):
        header, size = _read_header(path)
        if _is_cut_off(header, size):
            raise JournalCorruptError(f"{path} is cut off: it has only {size} bytes")


def _read_header(path: Path) -> tuple[bytes, int]:
    """The first 100 bytes of the file, or none, and how many it has.

    Read through SQLite's own VFS: closing any other descriptor of the file would drop the locks
    that an open journal of this process has on it.  https://www.sqlite.org/howtocorrupt.html, 2.2
    """
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            raise JournalError(f"{path} is a directory; give the path of a journal")
    except FileNotFoundError:
        return b"", 0
    except OSError as exc:
        raise JournalError(f"{path}: {exc.strerror}") from exc
    try:
        flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
        file = apsw.VFSFile("", str(path), flags)
        try:
            size = file.xFileSize()
            return file.xRead(min(size, 100), 0) if size else b"", size
        finally:
            file.xClose()
    except apsw.Error as exc:
        raise translate(exc, str(path)) from exc


def _is_cut_off(header: bytes, size: int) -> bool:
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    return size < pages * (65536 if page == 1 else page)


def _has_companion(path: Path) -> bool:
    beside = (path.with_name(path.name + ending) for ending in ("-wal", "-journal"))
    return any(file.exists() and file.stat().st_size > 0 for file in beside)


def connect(path: Path) -> apsw.Connection:
    """A connection to the journal at `path`, which is made or brought up to date if need be.

    Raises:
        JournalError: and its kinds, with nothing changed.
    """
    check_header(path)
    try:
        connection = apsw.Connection(str(path))
    except apsw.Error as exc:
        raise translate(exc, str(path)) from exc
    try:
        connection.set_busy_timeout(BUSY_SECONDS * 1000)
        migrate(connection, path)
        _turn_to_wal(connection)
        connection.wal_autocheckpoint(0)
    except apsw.Error as exc:
        connection.close()
        raise translate(exc, str(path)) from exc
    except BaseException:
        connection.close()
        raise
    return connection


def _turn_to_wal(connection: apsw.Connection) -> None:
    """Use a write-ahead log.  Where processes make one file together, SQLite refuses some at once
    without asking its busy handler, which might wait for ever; so the waiting is done here."""
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except apsw.BusyError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.005)


def migrate(connection: apsw.Connection, path: Path) -> None:
    """Bring the schema to `SCHEMA_VERSION`, in one transaction, if it is older.

    Raises:
        JournalFormatError: a newer version wrote the file.
    """
    if _version(connection, path) == SCHEMA_VERSION:
        return
    with transaction(connection):
        # Asked again: another process may have done it while this one waited for its turn.
        for statements in MIGRATIONS[_version(connection, path) :]:
            connection.execute(statements)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _version(connection: apsw.Connection, path: Path) -> int:
    version = int(connection.pragma("user_version"))
    if version > SCHEMA_VERSION:
        raise JournalFormatError(
            f"{path} is a journal of version {version}; this trioagent reads up to "
            f"{SCHEMA_VERSION}, so use a newer one"
        )
    return version


class transaction:
    """``with transaction(connection)``: all of the block or nothing; nobody else writes meanwhile.

    A class, since a generator would cost as much as the transaction itself.
    """

    __slots__ = ("_connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, exc: object, traceback: object) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def insert(connection: apsw.Connection, entries: Iterable[tuple[int, Record]]) -> int:
    """Append records, each with the number of its run; returns the place of the last one."""
    seq = last_seq(connection)
    rows: list[Row] = []
    for run, record in entries:
        seq += 1
        row, large = to_row(record, run, seq)
        rows.append(row)
        if large is not None:
            store_blob(connection, large)
    connection.executemany("INSERT INTO records VALUES (?,?,?,?,?,?,?,?,?,?)", rows)
    return seq


def store_blob(connection: apsw.Connection, data: bytes) -> None:
    """Keep large data under their hash, once."""
    connection.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (blob_hash(data), data))


def last_seq(connection: apsw.Connection) -> int:
    """The place of the newest record, 0 where there is none."""
    row = connection.execute("SELECT max(seq) FROM records").fetchone()
    return (row[0] if row else None) or 0


def load(connection: apsw.Connection, run: int, after: int = 0) -> tuple[list[Record], int]:
    """A run's records behind the place `after`, each checked, and the place of the last one.

    Raises:
        JournalCorruptError: a record that fails its checksum, or a payload that is not there.
    """
    found = connection.execute(
        "SELECT * FROM records WHERE run = ? AND seq > ? ORDER BY seq", (run, after)
    )
    try:
        rows = cast("list[Row]", found.fetchall())
    except UnicodeDecodeError as exc:
        raise JournalCorruptError(f"a record of run {run} holds no text: {exc}") from None
    blobs: dict[bytes, bytes] = {}
    for key in {row[8] for row in rows if row[8]}:
        data = load_blob(connection, key)
        if data is not None:
            blobs[key] = data
    return [from_row(row, blobs) for row in rows], rows[-1][0] if rows else after


def load_blob(connection: apsw.Connection, key: bytes) -> bytes | None:
    """The data under a hash, or ``None``."""
    row = connection.execute("SELECT data FROM blobs WHERE hash = ?", (key,)).fetchone()
    return None if row is None else row[0]


def find_run(connection: apsw.Connection, run_id: str) -> RunRow | None:
    """The run of that id, or ``None``."""
    row = connection.execute("SELECT run, id, epoch FROM runs WHERE id = ?", (run_id,)).fetchone()
    return None if row is None else RunRow(*row)


def all_runs(connection: apsw.Connection) -> list[RunRow]:
    """Every run, the oldest first."""
    return [
        RunRow(*row) for row in connection.execute("SELECT run, id, epoch FROM runs ORDER BY run")
    ]


def epoch_of(connection: apsw.Connection, run: int) -> int:
    """The epoch of the run's last owner."""
    row = connection.execute("SELECT epoch FROM runs WHERE run = ?", (run,)).fetchone()
    return 0 if row is None else int(row[0])


def next_epoch(connection: apsw.Connection, run_id: str) -> RunRow:
    """Make the run if need be and raise its epoch: the caller owns it from the commit on."""
    row = connection.execute(
        "INSERT INTO runs (id, epoch) VALUES (?, 1)"
        " ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1 RETURNING run, id, epoch",
        (run_id,),
    ).fetchone()
    assert row is not None
    return RunRow(*row)
