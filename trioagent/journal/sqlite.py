"""The file: its schema, what it refuses to open, and the few statements that touch it.

Nothing here knows of Trio.  Every function may block, and says so by taking a connection: the
writer decides in which thread it is called.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

import apsw

from trioagent.errors import JournalCorruptError, JournalError, JournalFormatError

from .payloads import blob_hash, pack, unpack
from .records import BRANCHES, SIGNAL, Record, Row, from_row, to_row

APPLICATION_ID = 0x74726961
"""``tria`` in ASCII: says that a SQLite file is a journal of this library."""

SCHEMA_VERSION = 2

BUSY_SECONDS = 30
"""How long a thread waits for another process's transaction before it gives up: those of this
library take milliseconds."""

PAGE_SIZE = 1024
"""Bytes of a page.  A commit writes whole pages, and a step has some hundreds of bytes."""

LOG_BYTES = 4 << 20
"""What the log is cut down to once a reader that kept it from coming home has left."""

_SCHEMA = """
CREATE TABLE runs (
    run    INTEGER PRIMARY KEY,
    id     TEXT NOT NULL UNIQUE,
    epoch  INTEGER NOT NULL,
    last   INTEGER NOT NULL,
    pruned INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE records (
    seq   INTEGER PRIMARY KEY,
    prev  INTEGER NOT NULL,
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
CREATE TABLE blobs (
    hash BLOB PRIMARY KEY,
    size INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT, WITHOUT ROWID;
"""

_BRANCHES = """
ALTER TABLE runs ADD COLUMN imported INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN parent INTEGER NOT NULL DEFAULT 0;
"""

MIGRATIONS: tuple[str, ...] = (_SCHEMA, _BRANCHES)
"""What makes version n + 1 of version n; all that a file lacks run in one transaction."""

_MAGIC = b"SQLite format 3\0"


class RunRow(NamedTuple):
    """A run as the journal numbers it.

    `epoch` is that of its last owner, from 1; `last` is the place of its newest record, 0 where it
    has none: its records are a chain, each naming the place of the one before it.  `pruned` is when
    records of it were last removed, in Unix milliseconds, 0 for never.  `imported` says that nobody
    has claimed it since it was read from a file.  `parent` is the number of the run whose
    record its chain leads into, 0 for none: the one it was branched from, or the one that that has
    the record from.
    """

    number: int
    run_id: str
    epoch: int
    last: int
    pruned: int = 0
    imported: int = 0
    parent: int = 0


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
    if not any(header) and _has_companion(path):
        return  # the power went while the file was made, and SQLite will take all of it back
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
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")  # heeded by a new file only
        migrate(connection, path)
        _turn_to_wal(connection, path)
        connection.wal_autocheckpoint(0)
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        # On macOS a plain sync leaves the data in the drive's cache; elsewhere these say nothing.
        # https://www.sqlite.org/pragma.html#pragma_fullfsync
        connection.execute("PRAGMA fullfsync = 1; PRAGMA checkpoint_fullfsync = 1")
    except apsw.Error as exc:
        connection.close()
        raise translate(exc, str(path)) from exc
    except BaseException:
        connection.close()
        raise
    return connection


def _turn_to_wal(connection: apsw.Connection, path: Path) -> None:
    """Use a write-ahead log.  Where processes make one file together, SQLite refuses some at once
    without asking its busy handler, which might wait for ever; so the waiting is done here.

    Raises:
        JournalError: the file system has no shared memory for a log, and SQLite would go on with a
            rollback journal, whose commits do not survive what those of a log do.
    """
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            # To its end: the statement gives the mode first, and only then does its commit fail.
            mode = connection.pragma("journal_mode", "WAL")
        except apsw.BusyError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.005)
            continue
        if mode != "wal":
            raise JournalError(f"{path}: no write-ahead log could be made; the mode stayed {mode}")
        return


_PIECE = 1 << 20
"""Bytes of a log that are in memory at once while it is written again."""


def write_log_again(connection: apsw.Connection, path: Path) -> None:
    """Write the bytes of the log over themselves, and sync them.

    After a sync that failed, the system may call clean what it never wrote, and then the next sync
    says nothing about it: only what is written anew is synced.  Until then the log must not be
    brought home, since a half of it in the database without the other in the log is a damaged file.
    The transaction keeps everybody else from writing meanwhile.
    """
    flags = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0]
    with transaction(connection):
        log = apsw.VFSFile("", f"{path}-wal", flags)
        try:
            size = log.xFileSize()
            for offset in range(0, size, _PIECE):
                log.xWrite(log.xRead(min(_PIECE, size - offset), offset), offset)
            log.xSync(apsw.SQLITE_SYNC_FULL)
        finally:
            log.xClose()


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
            connection.execute(statements).fetchall()  # the later of several run only when asked
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


class FencedOffError(Exception):
    """The run has another epoch than the writer's; it carries nothing and changed nothing."""


def advance(connection: apsw.Connection, run: int, epoch: int, last: int, new: int) -> int:
    """Move a run's newest record from `last` to `new`, if `epoch` is still the run's own.

    Returns `last`, or what stands in the file instead of it, where nothing was moved.

    Raises:
        FencedOffError: another owner has raised the epoch.
    """
    connection.execute(
        "UPDATE runs SET last = ? WHERE run = ? AND epoch = ? AND last = ?", (new, run, epoch, last)
    )
    if connection.changes():
        return last
    row = connection.execute("SELECT epoch, last FROM runs WHERE run = ?", (run,)).fetchone()
    if row is None or row[0] != epoch:
        raise FencedOffError
    return int(row[1])


PLACE_TAKEN = (apsw.SQLITE_CONSTRAINT_PRIMARYKEY, apsw.SQLITE_CONSTRAINT_ROWID)
"""What a `ConstraintError` of `insert` says where a record's place is not free."""


def insert(connection: apsw.Connection, rows: Sequence[Row]) -> None:
    """Append rows, each at a place that is still free; `apsw.ConstraintError` where one is not."""
    connection.executemany("INSERT INTO records VALUES (?,?,?,?,?,?,?,?,?,?,?)", rows)


def append(connection: apsw.Connection, run: RunRow, record: Record) -> None:
    """Append one record to a run, in a transaction of the caller's."""
    seq = last_seq(connection) + 1
    row, large = to_row(record, run.number, seq, run.last)
    if large is not None:
        store_blob(connection, large)
    insert(connection, [row])
    advance(connection, run.number, run.epoch, run.last, seq)


def store_blob(connection: apsw.Connection, data: bytes) -> None:
    """Keep large data under their hash, once."""
    key = blob_hash(data)
    if not connection.execute("SELECT 1 FROM blobs WHERE hash = ?", (key,)).fetchall():
        connection.execute("INSERT INTO blobs VALUES (?, ?, ?)", (key, len(data), pack(data)))


def last_seq(connection: apsw.Connection) -> int:
    """The place of the newest record, 0 where there is none."""
    row = connection.execute("SELECT max(seq) FROM records").fetchone()
    return (row[0] if row else None) or 0


_CHAIN = """
WITH RECURSIVE chain (seq, prev) AS (
    SELECT seq, prev FROM records WHERE seq = ?1
    UNION ALL
    SELECT r.seq, r.prev FROM chain JOIN records AS r ON r.seq = chain.prev
    WHERE r.seq < chain.seq AND r.seq > ?2
)
SELECT r.* FROM chain JOIN records AS r ON r.seq = chain.seq
"""


def load(connection: apsw.Connection, run: RunRow, after: int = 0) -> list[Record]:
    """A run's records behind the place `after`, each checked.

    Raises:
        JournalCorruptError: a record that is missing, is another run's or fails its checksum, or
            a payload that is not there.
    """
    return read(connection, chain(connection, run, after))


def chain(connection: apsw.Connection, run: RunRow, after: int = 0) -> list[Row]:
    """The rows of a run's records behind the place `after`, every one of them.

    Raises:
        JournalCorruptError: a record that is missing or another run's.
    """
    if run.last <= after:
        return []
    found = connection.execute(_CHAIN, (run.last, after))
    try:
        rows = cast("list[Row]", found.fetchall())
    except UnicodeDecodeError as exc:
        raise JournalCorruptError(f"a record of {run.run_id} holds no text: {exc}") from None
    if not rows or rows[-1][1] > after or not _is_chain(rows, run):
        raise JournalCorruptError(f"a record of {run.run_id} is missing; nothing was changed")
    rows.reverse()
    return rows


def _is_chain(rows: Sequence[Row], run: RunRow) -> bool:
    """Whether `rows`, the newest first, are the run's own, and below the first record of a branch
    those of the run that it was branched from."""
    number = run.number
    for row, newer in zip(rows, (None, *rows), strict=False):
        if row[2] != number:
            if newer is None or not begins_branch(newer):
                return False
            number = row[2]
    return True


def begins_branch(row: Row) -> bool:
    """Whether a row is the first of a run that was branched from another."""
    return row[4] == SIGNAL and row[7] in BRANCHES


def read(connection: apsw.Connection, rows: Sequence[Row]) -> list[Record]:
    """The records of rows, each checked, with their payloads.

    Raises:
        JournalCorruptError: a record that fails its checksum, or a payload that is not there.
    """
    blobs: dict[bytes, bytes] = {}
    for key in {row[9] for row in rows if row[9]}:
        data = load_blob(connection, key)
        if data is not None:
            blobs[key] = data
    return [from_row(row, blobs) for row in rows]


def load_blob(connection: apsw.Connection, key: bytes) -> bytes | None:
    """The data under a hash, or ``None`` where they are missing or altered."""
    row = connection.execute("SELECT size, data FROM blobs WHERE hash = ?", (key,)).fetchone()
    return None if row is None else unpack(key, row[0], row[1])


_RUN = "SELECT run, id, epoch, last, pruned, imported, parent FROM runs"


def find_run(connection: apsw.Connection, run_id: str) -> RunRow | None:
    """The run of that id, or ``None``."""
    row = connection.execute(f"{_RUN} WHERE id = ?", (run_id,)).fetchone()
    return None if row is None else RunRow(*row)


def all_runs(connection: apsw.Connection) -> list[RunRow]:
    """Every run, the oldest first."""
    return [RunRow(*row) for row in connection.execute(f"{_RUN} ORDER BY run")]


def next_epoch(connection: apsw.Connection, run_id: str) -> RunRow:
    """Make the run if need be and raise its epoch: the caller owns it from the commit on."""
    row = connection.execute(
        "INSERT INTO runs (id, epoch, last) VALUES (?, 1, 0)"
        " ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1, imported = 0"
        " RETURNING run, id, epoch, last, pruned, imported, parent",
        (run_id,),
    ).fetchone()
    assert row is not None
    return RunRow(*row)


def begin_branch(connection: apsw.Connection, run_id: str, base: Row, record: Record) -> RunRow:
    """Make a run whose chain goes on from the row `base`, with its first record.

    In a transaction of the caller's, who knows that the id is free.
    """
    place, parent = base[0], base[2]
    made = next_epoch(connection, run_id)
    connection.execute(
        "UPDATE runs SET parent = ?, last = ? WHERE run = ?", (parent, place, made.number)
    )
    append(connection, made._replace(last=place, parent=parent), record)
    found = find_run(connection, run_id)
    assert found is not None
    return found


def insert_run(connection: apsw.Connection, run_id: str, records: Sequence[Record]) -> None:
    """Make a run with all its records at once, which nobody has claimed yet.

    In a transaction of the caller's, who knows that the id is free.
    """
    made = next_epoch(connection, run_id)
    rows: list[Row] = []
    prev, seq = 0, last_seq(connection)
    for record in records:
        seq += 1
        row, large = to_row(record, made.number, seq, prev)
        if large is not None:
            store_blob(connection, large)
        rows.append(row)
        prev = seq
    insert(connection, rows)
    # An owner to come gets an epoch above those that the records name.
    epoch = max(made.epoch, *[record.epoch for record in records])
    connection.execute(
        "UPDATE runs SET last = ?, epoch = ?, imported = 1 WHERE run = ?", (seq, epoch, made.number)
    )


def has_branches(connection: apsw.Connection, run: RunRow) -> bool:
    """Whether a run that still has records was branched from this one."""
    found = connection.execute("SELECT 1 FROM runs WHERE parent = ? AND last > 0", (run.number,))
    return bool(found.fetchall())
