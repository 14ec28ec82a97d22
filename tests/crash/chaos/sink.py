"""The sink of the long run: writes down every call, and is slow, mute or down now and then.

Beside a file of lines for each tube, whose order is that of arrival, each process has a file of
its calls: one record when a batch comes, one when it is answered. It does not compare tokens. The
module is what a worker's configuration names; it runs within the worker.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from pytube.errors import SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Document, Key, Reject, Result, Retry
from pytube.sinks.append_file import AppendFile
from pytube.sinks.jsonl import encode

FOLDER = "CHAOS_FOLDER"
CLIENT = "CLIENT_ID"
REQUEST_TIMEOUT = 3.0
REASON = "n is odd"
_EVERY = 40

MOODS = {
    "slow": 0.01,
    "late": 0.005,
    "too late": 0.001,
    "down": 0.003,
    "mute": 0.005,
    "mute and deaf": 0.003,
    "busy": 0.005,
}
"""How often a call goes otherwise than well."""

_opening = threading.Lock()
_files: dict[str, AppendFile] = {}
_process = uuid4().hex[:8]
_draw = random.Random(_process)


def lines_of(tube: str, folder: Path) -> Path:
    """Where the documents that a tube delivered are."""
    return folder / f"{tube}.jsonl"


def calls_of(tube: str, folder: Path) -> list[Path]:
    """Where the calls of all processes are."""
    return sorted(folder.glob(f"{tube}.calls.*"))


def downed(folder: Path) -> Path:
    """While this is there, the sink takes nothing."""
    return folder / "sink.down"


def is_refused(key: Any, n: int | None) -> bool:
    """Whether the sink refuses such a row: always or never, until it has changed."""
    return n is not None and key % _EVERY == 7 and n % 2 == 1


def send(batch: Batch) -> list[Result]:
    """Write the batch, as the mood is; answer for each document."""
    folder = Path(os.environ[FOLDER])
    began = time.time()
    if batch.has_lapsed():
        raise SinkUnavailable("not begun: the right to send had lapsed")
    versions = {document.key: _version(document) for document in batch}
    call = _Call(folder / f"{batch.tube}.calls.{os.getpid()}")
    call.began(batch, began, versions)
    mood = _mood(folder)
    delayed = {d.key for d in batch if _draw.random() < 0.5} if mood == "busy" else set()
    refused = {key for key, n in versions.items() if is_refused(key[1], n)} - delayed
    try:
        _act(batch, folder, mood, refused | delayed)
    except (SinkUnavailable, SinkTimeout):
        call.ended(failed=True)
        raise
    call.ended(refused=refused, delayed=delayed)
    return [
        Reject(REASON) if d.key in refused else Retry(0.1, "busy") if d.key in delayed else OK for d in batch
    ]


def _mood(folder: Path) -> str:
    if downed(folder).exists():
        return "down"
    chance = _draw.random()
    for mood, share in MOODS.items():
        chance -= share
        if chance < 0:
            return mood
    return "well"


def _act(batch: Batch, folder: Path, mood: str, left_out: set[Key]) -> None:
    time.sleep(_draw.uniform(0.2, 1.0) if mood == "slow" else _draw.uniform(0.0, 0.01))
    if mood == "down":
        raise SinkUnavailable("down")
    if mood == "mute and deaf":
        raise SinkTimeout("neither taken nor answered")
    _write(batch, folder, left_out)
    if mood == "mute":
        raise SinkTimeout("taken, and not answered")
    if mood == "late":
        time.sleep(_draw.uniform(0.2, 1.0))
    if mood == "too late":
        time.sleep(REQUEST_TIMEOUT + 0.5)


def _write(batch: Batch, folder: Path, left_out: set[Key]) -> None:
    taken = Batch(batch.tube, batch.partition, batch.token, [d for d in batch if d.key not in left_out])
    pieces = encode(taken, os.environ[CLIENT])

    def block() -> bytes:
        if batch.has_lapsed():
            raise SinkUnavailable("not written: the right to send had lapsed")
        return (b"%.6f" % time.time()).join(pieces)

    _file(batch.tube, folder).append(block)


def _version(document: Document) -> int | None:
    row = document.value()
    return None if row is None else int(row["n"])


def _file(tube: str, folder: Path) -> AppendFile:
    with _opening:
        if tube not in _files:
            file = AppendFile(str(lines_of(tube, folder)), fsync=False)
            file.open()
            _files[tube] = file
        return _files[tube]


class _Call:
    """The records of one call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = uuid4().hex[:12]

    def began(self, batch: Batch, at: float, versions: dict[Key, int | None]) -> None:
        keys = [[*key, n] for key, n in versions.items()]
        self._append({"call": self._name, "began": at, "token": int(batch.token), "keys": keys})

    def ended(
        self,
        *,
        failed: bool = False,
        refused: set[Key] | None = None,
        delayed: set[Key] | None = None,
    ) -> None:
        record = {"failed": failed, "refused": sorted(refused or ()), "delayed": sorted(delayed or ())}
        self._append({"call": self._name, "ended": time.time(), **record})

    def _append(self, record: dict[str, Any]) -> None:
        """One write, so that a process that is killed leaves it whole or not at all."""
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(fd, json.dumps(record).encode() + b"\n")
        finally:
            os.close(fd)
