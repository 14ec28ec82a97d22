"""The sink `jsonl`: one JSON line per document, appended to a file or the standard output."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Self

import orjson
from pydantic import Field

from pytube.errors import ConfigError, SinkUnavailable
from pytube.model import OK, Batch, Document, Key, KeyType, Result
from pytube.sinks.append_file import STDOUT, AppendFile
from pytube.sinks.base import Stored
from pytube.sinks.calls import Abandoned, ThreadCall
from pytube.sinks.jsonl_replay import Line, Replay
from pytube.sinks.registry import SinkOptions
from pytube.sinks.trial import Trial

_STAMPS = b',"op":"%b","token":"%d","epoch":%d,"counter":%d,"seq":%d,"at":'
_NUMBERED = b',"shard":%d,"id":%d' + _STAMPS
_NAMED = b',"shard":%d,"id":%b' + _STAMPS


class JsonlOptions(SinkOptions):
    """What `[tube.NAME.sink]` may hold for `type = "jsonl"`."""

    path: str = Field(
        min_length=1, pattern=r"^[^\x00]+$", description='the path of a file, or "-" for stdout'
    )
    fsync: bool = Field(default=True, description="true or false")
    create_parents: bool = Field(default=False, description="true or false")
    client: str | None = Field(default=None, description="a text that labels this process's lines")


class JsonlSink:
    """Appends lines under a lock, so that any number of processes can share the file.

    The file is a log: the sink compares no tokens, and can't be scanned. The lines have the tokens, and their
    reader (`jsonl_replay`) compares. With `fsync` off, a crash of the machine (not of a process) can lose
    lines that were answered.
    """

    compares = False

    def __init__(
        self,
        path: str,
        *,
        fsync: bool = True,
        create_parents: bool = False,
        client: str | None = None,
    ) -> None:
        self.path = path
        self._fsync = fsync
        self._create_parents = create_parents
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
        return cls(
            given.path,
            fsync=given.fsync,
            create_parents=given.create_parents,
            client=given.client,
        )

    async def open(self) -> None:
        """Open or create the file."""
        if self._file is not None:
            return
        file = AppendFile(self.path, fsync=self._fsync, create_parents=self._create_parents)

        def work(begin: Callable[[], bool]) -> None:
            file.open()
            if not begin():
                file.close()

        call = ThreadCall(work, "jsonl-open")
        try:
            await call.over()
        except asyncio.CancelledError:
            if not call.call_off(SinkUnavailable('sink "jsonl": open was cancelled')):
                file.close()
            raise
        call.result()
        self._keep(file)

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Append the batch in one write; all of it or, on an error, nothing."""
        file = self._file
        if file is None:
            raise SinkUnavailable('sink "jsonl" is not open')
        if not batch.documents:
            return []
        call = ThreadCall(lambda begin: self._append(file, batch, begin), "jsonl-write")
        self._calls.add(call)
        call.on_over(lambda: self._calls.discard(call))
        try:
            if not await call.over_by(batch.send_before):
                call.call_off(_lapsed("while it waited for the lock of the file"))
                await call.over()
        except asyncio.CancelledError:
            if not call.call_off(SinkUnavailable("called off")):
                self._abandoned.add(batch, call)
            raise
        call.result()
        return [OK] * len(batch)

    async def abandon(self, batch: Batch) -> None:
        """Wait for a write of the batch that has begun; one that had not begun was called off."""
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
        """A file of its own beside the file."""
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
            call = ThreadCall(lambda _: reader.poll(), "jsonl-read")
            await call.over()
            call.result()
        return {key: _stored(reader.lines.get((tube, *key))) for key in keys}

    async def as_held(self, bodies: Sequence[bytes]) -> Sequence[bytes | None]:
        """The same."""
        return bodies

    def _keep(self, file: AppendFile) -> None:
        if self._file is None:
            self._file = file
        else:  # another call of `open` was faster
            file.close()

    def _append(self, file: AppendFile, batch: Batch, begin: Callable[[], bool]) -> None:
        """Runs in a thread."""
        pieces = encode(batch, self._client)

        def may_write() -> None:
            if not begin():
                raise SinkUnavailable("called off")
            if batch.has_lapsed():
                raise _lapsed("before the write")

        # The time is the same for the whole batch, and is that of the write, not of the wait.
        file.append(may_write, lambda: (b"%.6f" % time.time()).join(pieces))


def _stored(line: Line | None) -> Stored:
    if line is None:
        return Stored()
    return Stored(None if line.is_delete else json.dumps(line.doc).encode(), line.token, line.seq)


def encode(batch: Batch, client: str | None) -> list[bytes]:
    """The lines of the batch, split where the time of the write belongs."""
    head = b'{"tube":' + orjson.dumps(batch.tube)
    tail = b"" if client is None else b',"client":' + orjson.dumps(client)
    pieces = [b""]
    for document in batch:
        pieces[-1] += head + _envelope(document)
        pieces.append(tail + b',"doc":' + on_one_line(document.body) + b"}\n")
    return pieces


def _envelope(document: Document) -> bytes:
    op = b"delete" if document.body is None else b"upsert"
    token = document.token
    key = document.id
    rest = (op, int(token), token.epoch, token.counter, document.seq)
    if isinstance(key, int):
        return _NUMBERED % (document.shard, key, *rest)
    return _NAMED % (document.shard, orjson.dumps(key), *rest)


def on_one_line(body: bytes | None) -> bytes:
    """The body on one line; `null` for a delete.

    In JSON a raw line break can only stand between values, where a blank will do. So the body
    need not be decoded, which would round its numbers.
    """
    if body is None:
        return b"null"
    if b"\n" in body or b"\r" in body:
        return body.replace(b"\n", b" ").replace(b"\r", b" ")
    return body


def _lapsed(when: str) -> SinkUnavailable:
    return SinkUnavailable(f'sink "jsonl": not written, the right to send had lapsed {when}')
