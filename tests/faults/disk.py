"""What a disk may hold after the power went: the durable part, and what was on its way.  (pure)

A file's operations are durable once it was synced.  A name's creation or deletion is durable once
its directory was, which SQLite does with the first sync of a new rollback journal or write-ahead
file, and with a deletion that says so.  https://www.sqlite.org/atomiccommit.html

A sync that failed is the worst of both: the system may have dropped what it could not write and
calls it clean, so that a later sync that succeeds says nothing about it (PostgreSQL's developers
found that of Linux in 2018).  Those operations stay undecided for ever.
"""

from __future__ import annotations

from collections.abc import Iterator

from .vfs import Entry

SECTOR = 512
"""Bytes that a disk writes whole or not at all."""

Image = dict[str, bytes]
"""A directory: bytes by file name."""


class _Pending:
    """An operation that is not durable: a write or truncation of a file, or a name's new file."""

    __slots__ = ("at", "data", "doomed", "file", "kind", "name", "sure")

    def __init__(
        self, kind: str, file: int, name: str = "", at: int = 0, data: bytes = b""
    ) -> None:
        self.kind = kind
        self.file = file
        self.name = name
        self.at = at
        self.data = data
        self.doomed = False
        self.sure = False


class Disk:
    """The state after the entries that were `take`n."""

    def __init__(self) -> None:
        self._files: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        self._now: dict[str, int] = {}
        self._unsynced_directory: set[int] = set()
        self._pending: list[_Pending] = []

    def take(self, entry: Entry) -> bool:
        """Take in what happened next; whether it was anything to the disk."""
        name = entry.name
        match entry.kind:
            case "create":
                file = self._now[name] = len(self._files)
                self._files[file] = b""
                if name.endswith(("-journal", "-wal")):
                    self._unsynced_directory.add(file)
                self._pending.append(_Pending("link", file, name))
            case "delete":
                self._now.pop(name, None)
                self._pending.append(_Pending("unlink", -1, name))
                if entry.at:
                    self._sync_directory()
            case "write" | "truncate":
                pending = _Pending(entry.kind, self._now[name], "", entry.at, entry.data)
                self._pending.append(pending)
            case "sync":
                self._sync(self._now[name])
            case "failed_sync":
                for pending in self._pending:
                    if pending.file == self._now[name] and pending.kind != "link":
                        pending.doomed = not pending.sure
            case _:
                return False
        return True

    def _sync(self, file: int) -> None:
        mine = [p for p in self._pending if p.file == file and p.kind != "link"]
        if any(pending.doomed for pending in mine):
            # What a failed sync left undecided lies under these, so they cannot be put together.
            for pending in mine:
                pending.sure = not pending.doomed
        else:
            content = bytearray(self._files[file])
            for pending in mine:
                _apply(content, pending, None)
            self._files[file] = bytes(content)
            self._pending = [p for p in self._pending if p not in mine]
        if file in self._unsynced_directory:
            self._unsynced_directory.discard(file)
            self._sync_directory()

    def _sync_directory(self) -> None:
        for pending in self._pending:
            _rename(self._names, pending)
        self._pending = [p for p in self._pending if p.kind not in ("link", "unlink")]

    def images(self) -> Iterator[tuple[str, Image]]:
        """Every state that the sweep stands for, each with what became of the operations."""
        pending = {place: p for place, p in enumerate(self._pending) if not p.sure}
        yield "all arrived", self._image({})
        if not pending:
            return
        yield "none arrived", self._image(dict.fromkeys(pending))
        for place, operation in pending.items():
            if len(pending) > 1:
                yield f"{operation.kind} {place} lost", self._image({place: None})
            middle = _tear(operation)
            if middle:
                size = len(operation.data)
                yield f"write {place} torn, first half", self._image({place: (0, middle)})
                yield f"write {place} torn, second half", self._image({place: (middle, size)})

    def _image(self, arrived: dict[int, tuple[int, int] | None]) -> Image:
        """The directory where the named operations arrived not at all, or only that part."""
        contents: dict[int, bytearray] = {}
        names = dict(self._names)
        for place, pending in enumerate(self._pending):
            part = arrived.get(place, (0, len(pending.data)))
            if part is None:
                continue
            if pending.kind in ("link", "unlink"):
                _rename(names, pending)
                continue
            content = contents.get(pending.file)
            if content is None:
                content = contents[pending.file] = bytearray(self._files[pending.file])
            _apply(content, pending, part)
        return {name: bytes(contents.get(f, self._files[f])) for name, f in names.items()}


def _tear(operation: _Pending) -> int:
    """The sector's edge nearest to the middle of a write, from its start; 0 where it has none."""
    middle = operation.at + len(operation.data) // 2
    edge = middle // SECTOR * SECTOR
    if edge <= operation.at:
        edge += SECTOR
    return edge - operation.at if edge < operation.at + len(operation.data) else 0


def _apply(content: bytearray, pending: _Pending, part: tuple[int, int] | None) -> None:
    if pending.kind == "truncate":
        del content[pending.at :]
        content.extend(bytes(pending.at - len(content)))
        return
    first, end = part or (0, len(pending.data))
    start = pending.at + first
    content.extend(bytes(max(0, start - len(content))))
    content[start : pending.at + end] = pending.data[first:end]


def _rename(names: dict[str, int], pending: _Pending) -> None:
    if pending.kind == "link":
        names[pending.name] = pending.file
    elif pending.kind == "unlink":
        names.pop(pending.name, None)
