"""A sink that writes down when each document came: `id monotonic-nanoseconds`, a line each.

With `BENCH_STAMPS_FROM`, only those from that id on: the others are a load that nobody looks at.
"""

from __future__ import annotations

import os
import time

from pytube.model import Batch

_file = os.open(os.environ.get("BENCH_STAMPS", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

_first = int(os.environ.get("BENCH_STAMPS_FROM", "0"))


async def stamp(batch: Batch) -> None:
    """Take the batch. The clock is the same in all processes of a machine."""
    now = time.monotonic_ns()
    ids = [int(document.id) for document in batch]
    os.write(_file, b"".join(b"%d %d\n" % (key, now) for key in ids if key >= _first))
