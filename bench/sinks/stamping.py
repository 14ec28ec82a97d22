"""A sink that writes down when each document came: `id monotonic-nanoseconds`, a line each.

With `BENCH_STAMPS_FROM`, only those from that id on whose `v` was raised: the others are a load that nobody
looks at, and a backfill brings rows that were not written yet, too.
"""

from __future__ import annotations

import os
import time

from pytube.model import Batch, Document

_file = os.open(os.environ.get("BENCH_STAMPS", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

_first = int(os.environ.get("BENCH_STAMPS_FROM", "0"))


def _is_probe(document: Document) -> bool:
    return not _first or (int(document.id) >= _first and bool(document.value()["v"]))


async def stamp(batch: Batch) -> None:
    """Take the batch. The clock is the same in all processes of a machine."""
    now = time.monotonic_ns()
    ids = [int(document.id) for document in batch if _is_probe(document)]
    os.write(_file, b"".join(b"%d %d\n" % (key, now) for key in ids))
