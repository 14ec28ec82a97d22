"""A sink that writes down how many documents came when: `count monotonic-nanoseconds`, a line a batch."""

from __future__ import annotations

import os
import time

from pytube.model import Batch

_file = os.open(os.environ.get("BENCH_STAMPS", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


async def tally(batch: Batch) -> None:
    """Take the batch."""
    os.write(_file, b"%d %d\n" % (len(batch), time.monotonic_ns()))
