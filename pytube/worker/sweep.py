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
from pytube.sources.control import ControlSource
from pytube.sources.terms import Term

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


class Sweep:
    """What sweeps under one term need."""

    def __init__(self, sink: Sink, source: ControlSource, term: Term, backlog: int) -> None:
        """`backlog`: nothing is touched while more backfill pods wait in the tube."""
        self._sink = sink
        self._source = source
        self._tube = term.tube
        self._backlog = backlog

    async def run(self, shard: int, start_seq: int) -> Swept:
        """Touch all of the shard that the sink says is older than `start_seq`, page by page.

        Raises:
            SinkError: to be begun anew later; keys touched twice do no harm.
            Fenced, WrongPartitions: the term is over.
        """
        began = time.monotonic()
        skipped = why_no_scan(self._sink)
        keys = 0
        if skipped is None and isinstance(self._sink, Scanning):
            async with aclosing(_pages(self._sink, self._tube, shard, start_seq)) as pages:
                async for page in pages:
                    keys += await self._touch(shard, page)
        return Swept(keys, time.monotonic() - began, skipped)

    async def _touch(self, shard: int, page: Sequence[Id]) -> int:
        # What can't be of this tube (an earlier one of that name had other keys) is not ours to delete.
        ids = list(filter(self._source.keys.has, page))
        if ids:
            await self._wait_for_room()
            await self._source.touch(shard, ids)
            await fault(Point.DURING_SWEEP)
        return len(ids)

    async def _wait_for_room(self) -> None:
        while True:
            if await self._source.backlog(self._backlog + 1) <= self._backlog:
                return
            await asyncio.sleep(_POLL_INTERVAL)


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
