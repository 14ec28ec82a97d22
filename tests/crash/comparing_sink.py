"""A sink that compares tokens, over all processes: what it takes is a line of the file.

So the file holds no line that is older than one before it of the same key, whoever wrote it.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

from pytube.model import OK, Batch, Result, Stale
from pytube.sinks.append_file import AppendFile
from pytube.sinks.jsonl import Replay, encode

COMPARING_SINK_PATH = "COMPARING_SINK_PATH"
"""The environment variable that names the file."""

_turn = threading.Lock()
_state: list[tuple[AppendFile, Replay]] = []


def send(batch: Batch) -> list[Result]:
    """Take the documents whose key has no newer token here; the others are stale."""
    path = os.environ[COMPARING_SINK_PATH]
    # The file's own lock would not do: the replay takes it too.
    with _turn, Path(f"{path}.turn").open("ab") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        file, replay = _opened(path)
        replay.poll()
        results: list[Result] = []
        taken = []
        for document in batch.documents:
            held = replay.lines.get((batch.tube, document.shard, document.id))
            if held is not None and held.token > document.token:
                results.append(Stale(int(held.token)))
            else:
                results.append(OK)
                taken.append(document)
        if taken:
            pieces = encode(replace(batch, documents=taken), os.environ["CLIENT_ID"])
            file.append(lambda: (b"%.6f" % time.time()).join(pieces))
        return results


def _opened(path: str) -> tuple[AppendFile, Replay]:
    if not _state:
        file = AppendFile(path, fsync=False)
        file.open()
        _state.append((file, Replay([path])))
    return _state[0]
