"""The folder that the demo's agent reads: text files only, few and small, and nothing outside it.

What is read may go to a model, so hidden files are left out: that is where keys are kept.
Symbolic links are not followed, neither to files nor to folders.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

MAX_FILES = 40
"""Files that are listed."""

MAX_BYTES = 64 * 1024
"""Bytes above which a file is left out."""

MAX_LOOKED_AT = 2_000
"""Entries of folders that are looked at, and at most `MAX_DEPTH` folders deep."""

MAX_DEPTH = 3

_LEFT_OUT = {"__pycache__", "node_modules", "venv", "build", "dist"}


class Folder:
    """A folder to be read; `without` is another one that is left out where it lies within."""

    def __init__(self, path: Path, *, without: Path) -> None:
        self.path = path.resolve()
        self._without = without.resolve()

    def files(self) -> list[tuple[str, int]]:
        """The text files by their path within the folder, each with its size in bytes: those of
        the folder itself first, then those of its folders."""
        found = []
        for path in self._candidates():
            text = self._text(path)
            if text:
                found.append((path.relative_to(self.path).as_posix(), len(text.encode())))
            if len(found) == MAX_FILES:
                break
        return found

    def read(self, name: str) -> str:
        """The text of a file, by its path within the folder.

        Raises:
            ValueError: it is not there, or not one of those that may be read.
        """
        path = self.path / name
        inside = "\0" not in name and path.resolve().is_relative_to(self.path)
        parts = path.relative_to(self.path).parts if path.is_relative_to(self.path) else ("..",)
        hidden = any(part.startswith(".") or part in _LEFT_OUT for part in parts)
        text = None if hidden or not inside or path.resolve() != path else self._text(path)
        if text is None:
            raise ValueError(f"{name!r} is no text file of the folder; list_folder says which are")
        return text

    def _candidates(self) -> Iterator[Path]:
        """Paths of files, breadth first, sorted within each folder."""
        folders, looked_at = [self.path], 0
        for folder in folders:
            try:
                with os.scandir(folder) as entries:
                    found = sorted(entries, key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in found:
                looked_at += 1
                if looked_at > MAX_LOOKED_AT:
                    return
                if entry.name.startswith(".") or entry.name in _LEFT_OUT:
                    continue
                path = Path(entry.path)
                if not entry.is_dir(follow_symlinks=False):
                    yield path
                elif path != self._without and len(path.relative_to(self.path).parts) < MAX_DEPTH:
                    folders.append(path)

    def _text(self, path: Path) -> str | None:
        """The file's text; ``None`` where it is no small, readable, regular text file."""
        try:
            # Neither a link nor a pipe without a writer may hold this up or lead out of the folder.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (OSError, ValueError):
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
                return None
            text = os.read(descriptor, MAX_BYTES).decode()
        except (OSError, UnicodeDecodeError):
            return None
        finally:
            os.close(descriptor)
        return None if "\0" in text else text
