"""Follows a file of lines that grows, is rotated, or is cut: each line is read once, or more often."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

_CHUNK = 1 << 20
_SEAL = 256
"""Bytes before the place where the reading ended, by which a file is known again."""
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".lz4")

_File: TypeAlias = tuple[int, int]
"""A rotated file as it was seen: its inode, and when it was written last."""


@dataclass(slots=True)
class _Place:
    """How far a file was read."""

    inode: int
    offset: int = 0
    seal: bytes = b""
    """The bytes right before `offset`: others there mean that it is another file."""
    rest: bytes = b""
    """The beginning of a line whose end was not there yet."""


class Trail:
    """The lines of one path, and of the files that it named since the first read.

    Rotated files are looked for beside the path, under names that begin with the path's own: the one that
    was being read is read on, others that have come since are read as a whole. Those that are packed are
    passed over. All methods block.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._place: _Place | None = None
        self._before: set[_File] | None = None
        """What was rotated away before the first read, which is of no interest."""
        self._done: set[_File] = set()

    def pieces(self) -> Generator[list[bytes]]:
        """The lines that have come since, in pieces of about a megabyte; those of older files first.

        A piece whose user raises is given again by the next call.

        Raises:
            OSError: a file can't be read.
        """
        rotated = self._rotated()
        if self._before is None:
            self._before = set(rotated)
        self._done &= rotated.keys()
        for file, path in rotated.items():
            place = self._place
            if place is not None and place.inode == file[0]:
                yield from _rotated_lines(path, place)
                self._place = None
            elif file not in self._done and file not in self._before:
                yield from _rotated_lines(path, _Place(file[0]))
            self._done.add(file)
        yield from self._newest()

    def forget(self) -> None:
        """Begin anew: the next call gives all lines since the first read once more."""
        self._place = None
        self._done.clear()

    def _newest(self) -> Generator[list[bytes]]:
        """From the file that the path names now."""
        with suppress(FileNotFoundError), self._path.open("rb", buffering=0) as file:
            inode = os.fstat(file.fileno()).st_ino
            if self._place is None or self._place.inode != inode or not _is_known(file.fileno(), self._place):
                self._place = _Place(inode)
            yield from _lines(file.fileno(), self._place)

    def _rotated(self) -> dict[_File, Path]:
        """The rotated files beside the path, the oldest first."""
        own = self._path.name
        found: list[tuple[int, int, Path]] = []
        now: int | None = None
        with os.scandir(self._path.parent) as entries:
            for entry in entries:
                if not entry.name.startswith(own) or entry.name.endswith(_PACKED):
                    continue
                with suppress(FileNotFoundError):  # it went away just now
                    stat = entry.stat()
                    if entry.name == own:
                        now = stat.st_ino
                    elif entry.is_file():
                        found.append((stat.st_mtime_ns, stat.st_ino, Path(entry.path)))
        return {(inode, written): path for written, inode, path in sorted(found) if inode != now}


def _rotated_lines(path: Path, place: _Place) -> Generator[list[bytes]]:
    """What is left of a rotated file, its last line even without an end."""
    with suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
        if not _is_known(file.fileno(), place):
            place.offset, place.seal, place.rest = 0, b"", b""
        yield from _lines(file.fileno(), place)
        yield [place.rest]


def _is_known(fd: int, place: _Place) -> bool:
    """Whether it is still what was read, and was not cut and written anew."""
    return os.pread(fd, len(place.seal), place.offset - len(place.seal)) == place.seal


def _lines(fd: int, place: _Place) -> Generator[list[bytes]]:
    """From the place to the end. Read under the shared lock: a writer that fails takes its bytes back."""
    while True:
        fcntl.flock(fd, fcntl.LOCK_SH)
        try:
            chunk = os.pread(fd, _CHUNK, place.offset)
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)
        if not chunk:
            return
        *lines, rest = (place.rest + chunk).split(b"\n")
        yield lines
        place.offset += len(chunk)
        place.seal = (place.seal + chunk)[-_SEAL:]
        place.rest = rest
