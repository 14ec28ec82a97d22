"""The sweep of one shard: what the sink holds and the backfill has not written is touched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from pytube.errors import SinkError, SinkTimeout
from pytube.faults import Point, fault
from pytube.model import Id
from pytube.sinks.base import Scanning, Sink, why_no_scan
from pytube.sources.pods import TubeSource

_SILENCE = 300.0
"""Seconds that a scan may take for one page."""
_CLOSING = 5.0
"""Seconds that it may take to end."""
_POLL_INTERVAL = 0.25
"""Seconds between checks how many backfill pods wait."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What came of it."""

    keys: int
    seconds: float
    skipped: str | None


async def sweep(sink: Sink, source: TubeSource, tube: str, shard: int, start_seq: int, backlog: int) -> Swept:
    """Touch all of the shard that the sink says is older than `start_seq`, page by page.

    Args:
        sink: is looked through.
        source: of the shard's partition.
        tube: its name.
        shard: which one.
        start_seq: documents with a stamp below it are touched.
        backlog: nothing is touched while more backfill pods than this wait in the tube.

    Raises:
        SinkError: to be begun anew later; keys touched twice do no harm.
        Fenced, WrongPartitions: the term is over.
    """
    began = time.monotonic()
    skipped = why_no_scan(sink)
    keys = 0
    if skipped is None and isinstance(sink, Scanning):
        async with aclosing(_pages(sink, tube, shard, start_seq)) as pages:
            async for page in pages:
                # What can't be of this tube (an earlier one of that name had other keys) is not ours.
                ids = list(filter(source.keys.has, page))
                if ids:
                    while await source.count_backfill(backlog + 1) > backlog:  # noqa: ASYNC110 # a table
                        await asyncio.sleep(_POLL_INTERVAL)
                    await source.touch(shard, ids)
                    await fault(Point.DURING_SWEEP)
                keys += len(ids)
    return Swept(keys, time.monotonic() - began, skipped)


async def _pages(sink: Scanning, tube: str, shard: int, start_seq: int) -> AsyncGenerator[Sequence[Id]]:
    """What the scan gives; whatever else it raises is a `SinkError`."""
    scan = sink.scan(tube, shard, start_seq)
    try:
        while (page := await _next(scan)) is not None:
            if page:
                yield page
    except SinkError:
        raise
    except Exception as error:
        raise SinkError(f"the scan failed: {type(error).__name__}: {error}") from error
    finally:
        if isinstance(scan, AsyncGenerator):  # what it holds at the sink is to be given back now
            with suppress(Exception):
                async with asyncio.timeout(_CLOSING):
                    await scan.aclose()


async def _next(scan: AsyncIterator[Sequence[Id]]) -> Sequence[Id] | None:
    """The next page, or None at the end; `SinkTimeout` when it does not come."""
    limit = asyncio.timeout(_SILENCE)
    try:
        async with limit:
            return await anext(scan, None)
    except TimeoutError:
        if not limit.expired():
            raise
        raise SinkTimeout(f"the sink was looked through for {_SILENCE:g} s without a result") from None
