"""The reader of the files that the sink `jsonl` writes: their lines, and what each key holds in the end."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pytube.model import Token

LineKey = tuple[str, int, Any]
"""Tube, shard and id, an int or a str."""

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the file; `doc` is None for a delete."""

    tube: str
    shard: int
    id: Any
    """An int or a str."""
    op: str
    token: Token
    seq: int
    at: float
    """Unix time of the write, in seconds."""
    client: str | None
    doc: Any

    @property
    def key(self) -> LineKey:
        """Names the document over all tubes."""
        return self.tube, self.shard, self.id

    @property
    def is_delete(self) -> bool:
        """Whether the line is a tombstone."""
        return self.op == "delete"


class Replay:
    """What each key holds by the lines of one or more files. Memory grows with the number of keys.

    Give the files of a rotation oldest first. With `compare` the highest token of a key wins, as
    at a sink that compares; without, the last line wins. `poll` applies the lines that have come
    since the last call.
    """

    def __init__(
        self,
        paths: Iterable[str | Path],
        *,
        compare: bool = True,
        on_line: Callable[[Line], None] | None = None,
    ) -> None:
        """`on_line` is called with every whole line, stale ones too, in order of arrival."""
        self.lines: dict[LineKey, Line] = {}
        """What each key holds; deletes leave tombstones."""
        self.applied = 0
        """Whole lines read."""
        self.torn = 0
        """Lines that are not whole: their writer was killed, and another one sent the batch again."""
        self.stale = 0
        """Lines that came after one of the same key with a higher token."""
        self._compare = compare
        self._on_line = on_line
        self._files = [Tail(path) for path in paths]

    def poll(self, pieces: int | None = None) -> int:
        """Apply the lines that have come; how many they were. A file not yet there has none.

        `pieces` is how many megabytes of each file are read at most; by default all there are.
        """
        before = self.applied
        for file in self._files:
            for raw in file.lines(pieces):
                self._take(raw)
        return self.applied - before

    def finish(self) -> None:
        """Read to the end, and count lines without an end as torn, unless they are whole."""
        self.poll()
        for file in self._files:
            rest, file.rest = file.rest, b""
            self._take(rest)

    def _take(self, raw: bytes) -> None:
        if not raw.strip():
            return
        line = parse(raw)
        if line is None:
            self.torn += 1
            return
        self.applied += 1
        if self._on_line is not None:
            self._on_line(line)
        held = self.lines.get(line.key)
        late = held is not None and line.token < held.token
        self.stale += late
        if not (late and self._compare):
            self.lines[line.key] = line


def replay(paths: Sequence[str | Path], *, compare: bool = True) -> dict[LineKey, Line]:
    """What each key holds after all lines of the files, oldest file first; see `Replay`.

    Raises `FileNotFoundError` when one of the files is not there.
    """
    for path in paths:
        Path(path).stat()
    reader = Replay(paths, compare=compare)
    reader.finish()
    return reader.lines


def parse(raw: bytes) -> Line | None:
    """The line, or None when it is not a whole one."""
    try:
        value = json.loads(raw)
        return Line(
            tube=value["tube"],
            shard=value["shard"],
            id=value["id"],
            op=value["op"],
            token=Token.parse(value["token"]),
            seq=value["seq"],
            at=value["at"],
            client=value.get("client"),
            doc=value["doc"],
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


class Tail:
    """The lines of one file, read on as it grows. It does not follow a rotation."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._offset = 0
        self.rest = b""
        """What has come of a line whose end is not there yet."""

    def lines(self, pieces: int | None = None) -> Iterator[bytes]:
        """The lines that have come since the last call; none while the file is not there.

        Exhaust the iterator: the next call does not repeat a line that this one left out. `pieces`
        is how many megabytes are read at most; by default all there are.
        """
        for chunk in islice(iter(self._read, b""), pieces):
            *lines, self.rest = (self.rest + chunk).split(b"\n")
            yield from lines

    def _read(self) -> bytes:
        """The next piece, at most a megabyte; empty at the end.

        It takes the shared lock, because a writer that fails takes its bytes back: no reader
        should have seen them.
        """
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
            chunk = os.pread(fd, _CHUNK, self._offset)
        finally:
            os.close(fd)
        self._offset += len(chunk)
        return chunk
