"""A SQLite VFS that writes a tape of all that is done to files, and fails where it is told to."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import apsw
import msgspec

_NAME = "trioagent-faults"
_OURS = "a fault of this test"


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing that happened, in the order of its happening.

    `kind` is write, truncate, sync, failed_sync, create or delete, of the file `name`; or world,
    with what happened outside in `event`.  `at` is an offset, or a size for truncate.
    """

    kind: str
    name: str = ""
    at: int = 0
    data: bytes = b""
    event: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Fault:
    """Call number `nth`, from 1, of a kind fails; with `lasting` every later one too.

    The kinds are full and write (both calls to write: half arrives, or nothing), sync, truncate,
    delete, read, open and lock.
    """

    kind: str
    nth: int
    lasting: bool = False


_CODES = {
    "full": (apsw.FullError, apsw.SQLITE_FULL),
    "write": (apsw.IOError, apsw.SQLITE_IOERR_WRITE),
    "sync": (apsw.IOError, apsw.SQLITE_IOERR_FSYNC),
    "truncate": (apsw.IOError, apsw.SQLITE_IOERR_TRUNCATE),
    "delete": (apsw.IOError, apsw.SQLITE_IOERR_DELETE),
    "read": (apsw.IOError, apsw.SQLITE_IOERR_READ),
    "open": (apsw.CantOpenError, apsw.SQLITE_CANTOPEN),
    "lock": (apsw.IOError, apsw.SQLITE_IOERR_LOCK),
}
FAULTS = tuple(_CODES)


class Tape:
    """What happened, and what is to fail.

    Args:
        fault: the call to fail.
        before: called before each entry with its place, from 0; a kill goes here.
        really_sync: whether a sync reaches the disk.  A sweep does without: its power cuts are
            made of the tape, and what a real sync took would be most of its time.
    """

    def __init__(
        self,
        fault: Fault | None = None,
        *,
        before: Callable[[int], None] | None = None,
        really_sync: bool = False,
    ) -> None:
        self.entries: list[Entry] = []
        self.calls: Counter[str] = Counter()
        self.fault = fault
        self.fired = False
        self.really_sync = really_sync
        self._before = before
        self._lock = threading.Lock()

    def about_to(self, *kinds: str) -> str | None:
        """Count a call that may fail as any of `kinds`; the kind it fails as, if it is to."""
        with self._lock:
            self.calls.update(kinds)
            fault = self.fault
            if fault is None or fault.kind not in kinds:
                return None
            count = self.calls[fault.kind]
            if count == fault.nth or (fault.lasting and count > fault.nth):
                self.fired = True
                return fault.kind
            return None

    def mark(self) -> None:
        """Something is about to be done: the moment before it."""
        if self._before is not None:
            self._before(len(self.entries))

    def add(self, entry: Entry) -> None:
        """It was done."""
        self.entries.append(entry)

    def happened(self, event: tuple[Any, ...]) -> None:
        """Something happened outside of the file system."""
        self.mark()
        self.add(Entry("world", event=event))


def _error(kind: str) -> apsw.Error:
    error, code = _CODES[kind]
    exc = error(f"{_OURS}: {kind}")
    exc.extendedresult = code
    return exc


class _File(apsw.VFSFile):
    """An open file; `super` is the system's own VFS."""

    def __init__(self, tape: Tape, base: str, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        is_new = not os.path.exists(path)
        self._tape = tape
        self._name = os.path.basename(path)
        is_made = is_new and bool(flags[0] & apsw.SQLITE_OPEN_CREATE)
        if is_made:
            tape.mark()
        super().__init__(base, name, flags)
        if is_made:
            tape.add(Entry("create", self._name))

    def _meet(self, *kinds: str) -> None:
        if kind := self._tape.about_to(*kinds):
            raise _error(kind)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._meet("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        whole = bytes(data)
        self._tape.mark()
        failed = self._tape.about_to("full", "write")
        # A full disk takes what there is room for; an input/output error takes nothing.
        taken = whole if failed is None else whole[: len(whole) // 2] if failed == "full" else b""
        if taken:
            super().xWrite(taken, offset)
            self._tape.add(Entry("write", self._name, offset, taken))
        if failed is not None:
            raise _error(failed)

    def xTruncate(self, size: int) -> None:
        self._tape.mark()
        self._meet("truncate")
        super().xTruncate(size)
        self._tape.add(Entry("truncate", self._name, size))

    def xSync(self, flags: int) -> None:
        self._tape.mark()
        try:
            self._meet("sync")
        except apsw.Error:
            self._tape.add(Entry("failed_sync", self._name))
            raise
        if self._tape.really_sync:
            super().xSync(flags)
        self._tape.add(Entry("sync", self._name))

    def xLock(self, level: int) -> None:
        self._meet("lock")
        super().xLock(level)


class _FaultyVFS(apsw.VFS):
    def __init__(self, tape: Tape, base: str) -> None:
        self._tape = tape
        self._base = base
        super().__init__(_NAME, base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if kind := self._tape.about_to("open"):
            raise _error(kind)
        return _File(self._tape, self._base, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        self._tape.mark()
        if kind := self._tape.about_to("delete"):
            raise _error(kind)
        super().xDelete(name, sync)
        self._tape.add(Entry("delete", os.path.basename(name), int(sync)))


@contextmanager
def under(tape: Tape) -> Iterator[Tape]:
    """All that SQLite opens in the block goes through `tape`; it must be closed in the block."""
    base = apsw.vfs_names()[0]
    vfs = _FaultyVFS(tape, base)
    report = sys.unraisablehook

    def passed_over(unraisable: sys.UnraisableHookArgs) -> None:
        # What SQLite itself passes over (a failed checkpoint when a file is closed), apsw reports.
        if _OURS not in str(unraisable.exc_value):
            report(unraisable)

    sys.unraisablehook = passed_over
    try:
        yield tape
    finally:
        sys.unraisablehook = report
        apsw.set_default_vfs(base)
        vfs.unregister()
