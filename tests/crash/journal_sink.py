"""A sink that writes down all it is given: a file per tube, and beside it what it rejected.

It rejects a document now and then, by what the row holds; so it takes the same document always or
never, and takes the key again when its row has changed.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from pytube.errors import SinkUnavailable
from pytube.model import OK, Batch, Document, Reject, Result
from pytube.sinks.append_file import AppendFile
from pytube.sinks.jsonl import encode

FOLDER = "JOURNAL_FOLDER"
CLIENT = "CLIENT_ID"
REASON = "n is odd"
_EVERY = 40

_opening = threading.Lock()
_files: dict[str, AppendFile] = {}


def accepted(tube: str, folder: Path) -> Path:
    """Where the documents that a tube delivered are."""
    return folder / f"{tube}.jsonl"


def rejected(tube: str, folder: Path) -> Path:
    """Where those that were refused are."""
    return folder / f"{tube}.rejected"


def is_rejected(key: Any, row: dict[str, int] | None) -> bool:
    """Whether the sink refuses such a row."""
    return row is not None and key % _EVERY == 7 and row["n"] % 2 == 1


def send(batch: Batch) -> list[Result]:
    """Write the batch, but for what is refused."""
    folder = Path(os.environ[FOLDER])
    refused = [d for d in batch if d.id % _EVERY == 7 and is_rejected(d.id, d.value())]
    keys = {document.key for document in refused}
    taken = Batch(batch.tube, batch.partition, batch.token, [d for d in batch if d.key not in keys])
    pieces = encode(taken, os.environ[CLIENT])

    def block() -> bytes:
        if batch.has_lapsed():
            raise SinkUnavailable("not written: the right to send had lapsed")
        _refuse(rejected(batch.tube, folder), refused)
        return (b"%.6f" % time.time()).join(pieces)

    _file(batch.tube, folder).append(block)
    return [Reject(REASON) if document.key in keys else OK for document in batch]


def _refuse(path: Path, documents: list[Document]) -> None:
    if documents:
        with path.open("a") as file:
            file.write("".join(json.dumps([*d.key, int(d.token)]) + "\n" for d in documents))


def _file(tube: str, folder: Path) -> AppendFile:
    with _opening:
        if tube not in _files:
            file = AppendFile(str(accepted(tube, folder)), fsync=False)
            file.open()
            _files[tube] = file
        return _files[tube]
