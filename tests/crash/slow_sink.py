"""A sink that dawdles between taking a batch and writing it: there a worker is stopped at its worst.

It runs in a thread, which goes on when the process does, whatever the event loop thinks of it. So
nothing but a look at `batch.send_before`, right before the write, keeps an old leader's writes out.
"""

from __future__ import annotations

import os
import threading
import time

from pytube.errors import SinkUnavailable
from pytube.model import Batch
from pytube.sinks.append_file import AppendFile
from pytube.sinks.jsonl import encode

DAWDLE = 0.2

_opening = threading.Lock()
_files: list[AppendFile] = []


def _file() -> AppendFile:
    with _opening:
        if not _files:
            file = AppendFile(os.environ["SLOW_SINK_PATH"], fsync=False)
            file.open()
            _files.append(file)
        return _files[0]


def send(batch: Batch) -> None:
    """Dawdle, look whether the batch may still be written, and write it."""
    pieces = encode(batch, os.environ["CLIENT_ID"])
    time.sleep(DAWDLE)

    def block() -> bytes:
        if batch.has_lapsed():
            raise SinkUnavailable("not written: the right to send had lapsed")
        return (b"%.6f" % time.time()).join(pieces)

    _file().append(block)
