"""The file: its schema, what it refuses to open, and the few statements that touch it.

Nothing here knows of Trio.  Every function may block, and says so by taking a connection: the
writer decides in which thread it is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
    try:
        with path.open("rb") as file:
            header = file.read(100)
            size = file.seek(0, 2)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise JournalError(f"{path}: {exc.strerror}") from exc
    if not header:
        return
    if len(header) < 100 or not header.startswith(_MAGIC):
        raise JournalFormatError(f"{path} is no SQLite file; give the path of a journal")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise JournalFormatError(f"{path} is a SQLite file, but no journal of trioagent")
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    log = path.with_name(path.name + "-wal")
    # With a log beside it the file may lag behind its header, and SQLite puts it right.
    logged = log.exists() and log.stat().st_size > 0
    if not logged and size < pages * (65536 if page == 1 else page):
        raise JournalCorruptError(f"{path} is cut off: {size} bytes of {pages} pages of {page}")


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
        connection.execute("PRAGMA journal_mode = WAL")
        connection.wal_autocheckpoint(0)
    except apsw.Error as exc:
        connection.close()
        raise translate(exc, str(path)) from exc
    except BaseException:
        connection.close()
        raise
    return connection


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


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """All of the block, or nothing of it; nobody else writes meanwhile."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


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
    rows = cast("list[Row]", found.fetchall())
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
