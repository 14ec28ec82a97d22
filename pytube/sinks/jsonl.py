"""The sink `jsonl`: one JSON line per document, appended to a file or the standard output."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson
from pydantic import Field

from pytube.errors import ConfigError, SinkUnavailable
from pytube.model import OK, Batch, Document, Documents, Key, KeyType, Result, Token
from pytube.sinks.append_file import STDOUT, AppendFile
from pytube.sinks.base import Abandoned, Stored, ThreadCall, Trial, refuse_lapsed
from pytube.sinks.registry import SinkOptions
from pytube.threads import in_thread

# --- lines, and what each key holds in the end ----------------------------------------------------

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

    def poll(self) -> int:
        """Apply the lines that have come; how many they were. A file not yet there has none."""
        before = self.applied
        for file in self._files:
            for raw in file.lines():
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
        """The part of a line whose end has not arrived yet."""

    def lines(self) -> Iterator[bytes]:
        """The lines that have come since the last call; none while the file is not there.

        Exhaust the iterator: the next call does not repeat a line that this one left out.
        """
        for chunk in iter(self._read, b""):
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


# --- the sink -------------------------------------------------------------------------------------


class JsonlOptions(SinkOptions):
    """What `[tube.NAME.sink]` may hold for `type = "jsonl"`."""

    path: str = Field(
        min_length=1, pattern=r"^[^\x00]+$", description='the path of a file, or "-" for stdout'
    )
    fsync: bool = Field(default=True, description="true or false")
    client: str | None = Field(default=None, description="a text that labels this process's lines")


class JsonlSink:
    """Appends lines under a lock, so that any number of processes can share the file.

    The file is a log: the sink compares no tokens, and can't be scanned. The lines have the tokens, and their
    reader (`Replay`) compares. With `fsync` off, a crash of the machine (not of a process) can lose
    lines that were answered.
    """

    compares = False

    def __init__(self, path: str, *, fsync: bool = True, client: str | None = None) -> None:
        self.path = path
        self._fsync = fsync
        self._client = client
        self._file: AppendFile | None = None
        self._calls: set[ThreadCall[None]] = set()
        self._abandoned = Abandoned()
        self._replay: Replay | None = None
        self._reading = asyncio.Lock()

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """The sink for these options; `ConfigError` names a bad one."""
        given = JsonlOptions.parse("jsonl", options)
        return cls(given.path, fsync=given.fsync, client=given.client)

    async def open(self) -> None:
        """Open or create the file."""
        if self._file is not None:
            return
        file = AppendFile(self.path, fsync=self._fsync)
        try:
            await in_thread(file.open)
        except BaseException:
            file.close()
            raise
        self._file = file

    async def open_existing(self) -> str | None:
        """Open the file, if there is one; a folder that is missing is found by `open`."""
        if self.path != STDOUT and await in_thread(self._is_to_come):
            return f'sink "jsonl": there is no file "{self.path}"'
        await self.open()
        return None

    def _is_to_come(self) -> bool:
        """Whether there is no file, and one could be created."""
        path = Path(self.path)
        return not os.path.lexists(path) and os.access(path.parent, os.W_OK | os.X_OK)

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Append the batch in one write; all of it or, on an error, nothing."""
        file = self._file
        if file is None:
            raise SinkUnavailable('sink "jsonl" is not open')
        if not batch.documents:
            return []
        call = ThreadCall(lambda begin: self._append(file, batch, begin), "jsonl-write")
        self._calls.add(call)
        try:
            left = None if batch.send_before == float("inf") else batch.send_before - time.monotonic()
            if not (await asyncio.wait([call.over], timeout=left))[0]:
                why = "nothing was written, the right to send had lapsed while it waited for the lock"
                call.call_off(SinkUnavailable(f'sink "jsonl": {why}'))
            await asyncio.wait([call.over])
        except asyncio.CancelledError:
            if not call.call_off(SinkUnavailable("called off")):
                self._abandoned.add(batch, call.over)
            raise
        finally:
            self._calls.discard(call)
        call.over.result()
        return [OK] * len(batch)

    async def abandon(self, batch: Batch) -> None:
        """Wait for a write of the batch that has begun; if it had not begun, it was called off."""
        await self._abandoned.over(batch)

    async def close(self) -> None:
        """Call off the writes that wait for the lock, and close the file."""
        for call in list(self._calls):
            call.call_off(SinkUnavailable('sink "jsonl" is closed'))
        self._replay = None
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def trial(self, name: str, keys: KeyType) -> Trial:
        """A separate file beside the file."""
        del keys  # a line takes both
        if (reason := self.cannot_read()) is not None:
            raise ConfigError(
                f'sink "jsonl": {reason}, and there is no place beside "{self.path}" for a trial'
            )
        path = f"{self.path}.{name}"

        async def erase(_: str, __: Collection[Key]) -> None:
            await asyncio.to_thread(Path(path).unlink, missing_ok=True)

        return Trial(lambda: type(self)(path, fsync=self._fsync), f"file {path}", erase)

    def cannot_read(self) -> str | None:
        """Lines that went to a pipe or the standard output are gone."""
        if self.path == STDOUT or (Path(self.path).exists() and not Path(self.path).is_file()):
            return "only a file can be read back"
        return None

    async def read(self, tube: str, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        """Replay the lines that have come since the last call. Memory grows with the number of keys.

        Lines that a rotation moved to another file are not read.
        """
        if self._file is None:
            raise SinkUnavailable('sink "jsonl" is not open')
        async with self._reading:
            reader = self._replay = self._replay or Replay([self.path])
            await in_thread(reader.poll)
        return {key: _stored(reader.lines.get((tube, *key))) for key in keys}

    def _append(self, file: AppendFile, batch: Batch, begin: Callable[[], bool]) -> None:
        """Runs in a thread."""
        pieces = encode(batch, self._client)

        def block() -> bytes:
            if not begin():
                raise SinkUnavailable("called off")
            refuse_lapsed('sink "jsonl"', batch)
            # The time is the same for the whole batch, and is that of the write, not of the wait.
            return (b"%.6f" % time.time()).join(pieces)

        file.append(block)


def _stored(line: Line | None) -> Stored:
    if line is None:
        return Stored()
    return Stored(None if line.is_delete else json.dumps(line.doc).encode(), line.token, line.seq)


def encode(batch: Batch, client: str | None) -> list[bytes]:
    """The lines of the batch, split where the time of the write belongs."""
    tail = b"" if client is None else b',"client":' + orjson.dumps(client)
    pieces = [b""]
    for envelope, doc in envelopes(batch.tube, batch.documents):
        pieces[-1] += envelope + b',"at":'
        pieces.append(tail + b',"doc":' + doc + b"}\n")
    return pieces


def envelopes(tube: str, documents: Sequence[Document]) -> Iterator[tuple[bytes, bytes]]:
    """The begin of each document's line, up to its seq, and the document on one line.

    In a worker's documents, equal parts are written once: to write each line separately would take
    as long as to send it.
    """
    if isinstance(documents, Documents):
        token, seq = documents.token, documents.seq
        runs = [(shard, token, seq, ids, bodies) for shard, ids, bodies in documents.runs()]
    else:
        runs = [(one.shard, one.token, one.seq, [one.id], [one.body]) for one in documents]
    quoted = orjson.dumps(tube)
    for shard, token, seq, ids, found in runs:
        head = b'{"tube":%b,"shard":%d,"id":' % (quoted, shard)
        rest = b'"token":"%d","epoch":%d,"counter":%d,"seq":%d' % (int(token), *token, seq)
        upsert, delete = b',"op":"upsert",' + rest, b',"op":"delete",' + rest
        text = b"".join(filter(None, found))  # one look at all of them: there hardly ever is a line break
        has_breaks = b"\n" in text or b"\r" in text
        bodies = [body and on_one_line(body) for body in found] if has_breaks else found
        for key, body in zip(ids, bodies, strict=True):
            name = b"%d" % key if isinstance(key, int) else orjson.dumps(key)
            if body is None:
                yield head + name + delete, b"null"
            else:
                yield head + name + upsert, body


def on_one_line(body: bytes) -> bytes:
    """The body on one line.

    In JSON a raw line break can only stand between values, where a blank will do. So the body
    need not be decoded, which would round its numbers.
    """
    return body.replace(b"\n", b" ").replace(b"\r", b" ")
