"""A sink of pytube's own, whose documents are written down once it has answered for them.

`BENCH_SINK` holds its type and options as JSON; see `stamping` for the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from bench.sinks.stamping import stamp
from pytube.model import Batch, Result
from pytube.sinks import Sink
from pytube.sinks.registry import build_sink

_opened: list[Sink] = []


async def send(batch: Batch) -> Sequence[Result]:
    """Have the sink take the batch."""
    if not _opened:
        options = json.loads(os.environ["BENCH_SINK"])
        sink = build_sink(options.pop("type"), options)
        await sink.open()
        _opened.append(sink)
    results = await _opened[0].send(batch)
    await stamp(batch)
    return results
