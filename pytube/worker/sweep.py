"""The sweep of one shard: what the sink holds and the backfill has not written is touched."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from pytube.errors import SinkError
from pytube.faults import Point, fault
from pytube.model import Id, Pod
from pytube.sinks.base import Sink
from pytube.sinks.scan import Scanning, why_no_scan
from pytube.sources.control import ControlSource

_RELATED = "only the backfill of a root table sweeps"


@dataclass(frozen=True, slots=True)
class Swept:
    """What came of it."""

    keys: int
    seconds: float
    skipped: str | None


async def sweep(sink: Sink, source: ControlSource, tube: str, pod: Pod, start_seq: int) -> Swept:
    """Touch all that the sink says is older than `start_seq`, page by page.

    Raises:
        SinkError: to be begun anew later; keys touched twice do no harm.
        Fenced, WrongPartitions: the term is over.
    """
    began = time.monotonic()
    payload = pod.payload or {}
    skipped = why_no_scan(sink) if payload.get("sweep", True) else _RELATED
    keys = 0
    if skipped is None and isinstance(sink, Scanning):
        async for page in _pages(sink, tube, pod.shard, start_seq):
            # What can't be of this tube (an earlier one of that name had other keys) is not ours to delete.
            ids = list(filter(source.keys.has, page))
            if not ids:
                continue
            await source.touch(pod.shard, ids)
            await fault(Point.DURING_SWEEP)
            keys += len(ids)
    return Swept(keys, time.monotonic() - began, skipped)


async def _pages(sink: Scanning, tube: str, shard: int, start_seq: int) -> AsyncIterator[Sequence[Id]]:
    """What the scan gives; whatever else it raises is a `SinkError`."""
    try:
        async for ids in sink.scan(tube, shard, start_seq):
            if ids:
                yield ids
    except SinkError:
        raise
    except Exception as error:
        raise SinkError(f"the scan failed: {type(error).__name__}: {error}") from error
