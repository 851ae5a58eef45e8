"""Who owns a run: operating-system locks in a file beside the journal.

A lock is one byte of the lock file, which stays empty.  The system frees it the moment its process
dies, however it dies, so nothing here needs a clock or a heartbeat.  Each owner of a run locks a
byte of its own, by the run's number and its epoch: an owner that was taken over keeps its byte,
and who asks about the run asks about the byte of the epoch that the journal names.

POSIX record locks belong to a process, and closing any descriptor of a file drops all that the
process has on it.  So each process keeps one descriptor a lock file, found by device and inode,
and a table of what it holds: the table also refuses the second owner within the process, which the
system would not.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import threading
from pathlib import Path

from trioagent.errors import JournalError

_EPOCHS = 2**20
"""Bytes kept apart for one run; epochs beyond use them again, long after their owners ended."""


def lock_place(run: int, epoch: int) -> int:
    """The byte that the owner of the run with number `run` locks in `epoch`."""
    return run * _EPOCHS + epoch % _EPOCHS


class _Shared:
    """One lock file of this process: its descriptor, what is held of it, and how many use it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.held: set[int] = set()
        self.users = 0


_table: dict[tuple[int, int], _Shared] = {}
_table_lock = threading.Lock()
_table_pid = os.getpid()


class LockFile:
    """The lock file of one open journal.  Every method is safe from any thread.

    Raises:
        JournalError: the file cannot be opened, or its file system has no locks.
    """

    def __init__(self, path: Path) -> None:
        global _table_pid
        with _table_lock:
            if _table_pid != os.getpid():  # a forked child holds none of its parent's locks
                _table.clear()
                _table_pid = os.getpid()
            try:
                # Looked up before it is opened: a second descriptor could never be closed again.
                status = os.stat(path)
                shared = _table.get((status.st_dev, status.st_ino))
            except FileNotFoundError:
                shared = None
            except OSError as exc:
                raise JournalError(f"{path}: {exc.strerror}") from exc
            if shared is None:
                try:
                    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                except OSError as exc:
                    raise JournalError(f"{path}: {exc.strerror}") from exc
                status = os.fstat(descriptor)
                shared = _table[status.st_dev, status.st_ino] = _Shared(descriptor)
            shared.users += 1
            self._shared = shared

    def acquire(self, place: int) -> bool:
        """Hold `place`, unless somebody holds it, here or in another process."""
        with _table_lock:
            if place in self._shared.held:
                return False
            try:
                fcntl.lockf(
                    self._shared.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place, os.SEEK_SET
                )
            except OSError as exc:
                if exc.errno in (errno.EACCES, errno.EAGAIN):
                    return False
                raise JournalError(f"the lock file: {exc.strerror}") from exc
            # Until `release`, whoever closes this object: an abandoned thread may hold a run.
            self._shared.held.add(place)
            self._shared.users += 1
            return True

    def release(self, place: int) -> None:
        """Hold `place` no longer."""
        with _table_lock:
            self._shared.held.remove(place)
            fcntl.lockf(self._shared.descriptor, fcntl.LOCK_UN, 1, place, os.SEEK_SET)
            self._left()

    def is_held(self, place: int) -> bool:
        """Whether anybody holds `place`, without holding it for a moment."""
        with _table_lock:
            if place in self._shared.held:
                return True
            return _held_elsewhere(self._shared.descriptor, place)

    def close(self) -> None:
        """Let go of the file; what is held stays held until it is released."""
        with _table_lock:
            if _table_pid == os.getpid():
                self._left()

    def _left(self) -> None:
        shared = self._shared
        shared.users -= 1
        if shared.users == 0:
            for key, known in list(_table.items()):
                if known is shared:
                    del _table[key]
            os.close(shared.descriptor)


# ``struct flock`` as the C headers of each system give it, for a question the fcntl module has no
# function for.  https://man7.org/linux/man-pages/man2/fcntl.2.html and macOS's <sys/fcntl.h>.
_LINUX = struct.Struct("@hhqqi")
_BSD = struct.Struct("@qqihh")


def _held_elsewhere(descriptor: int, place: int) -> bool:
    if sys.platform.startswith("linux"):
        asked = _LINUX.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
        kind = _LINUX.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))[0]
    else:
        asked = _BSD.pack(place, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)
        kind = _BSD.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))[3]
    return bool(kind != fcntl.F_UNLCK)
