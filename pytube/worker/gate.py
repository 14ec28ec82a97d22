"""The gate before the sink of one tube: limits that all partitions of this process share.

Each request to the sink passes it: at most `rate` documents a second, at most `requests` requests at a time,
and a slow start after an outage. A request that waits here holds the documents of one batch, and one of the
`sends` of its partition, so memory stays within its bound however long the wait is.

Live changes go before backfill. Backfill has its share of the documents all the same, as it has within each
partition: a batch of backfill that waited for ever would keep its partition's send from live changes, too.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from pytube.config import SinkConfig
from pytube.model import PodClass
from pytube.pipeline.batches import BackfillShare
from pytube.pipeline.limits import SlowStart, TokenBucket


@dataclass(eq=False, slots=True)
class Pass:
    """The right to one request, from `SinkGate.enter` until `SinkGate.leave`."""

    pod_class: PodClass
    documents: int
    came: float
    granted: asyncio.Future[None] = field(repr=False)


class SinkGate:
    """Grants passes, in the order of their coming within a class. To be used in one event loop."""

    def __init__(self, *, rate: float | None, requests: int | None, ramp: int, backfill_share: float) -> None:
        """Args:
        rate: documents a second; None: without a limit.
        requests: requests at a time; None: without a limit.
        ramp: requests in the first second after an outage.
        backfill_share: of the documents that backfill gets while both classes wait.
        """
        self._bucket = None if rate is None else TokenBucket(rate)
        self._most = requests
        self._slow_start = SlowStart(ramp)
        self._share = BackfillShare(backfill_share)
        self._waiting: tuple[deque[Pass], deque[Pass]] = (deque(), deque())
        self._timer: asyncio.TimerHandle | None = None
        self._answered_at = float("-inf")
        self.in_flight = 0
        """Requests under way."""
        self.waited = 0.0
        """Seconds that requests have waited here, all together."""

    @classmethod
    def of(cls, sink: SinkConfig, backfill_share: float) -> Self:
        """The gate of a configured sink; a document that is split counts as all its parts."""
        rate = None if sink.rate is None else sink.rate / sink.writes
        return cls(rate=rate, requests=sink.requests, ramp=sink.ramp, backfill_share=backfill_share)

    @property
    def waiting(self) -> int:
        """Requests that wait here."""
        return sum(map(len, self._waiting))

    async def enter(self, pod_class: PodClass, documents: int) -> Pass:
        """Wait until a request with so many documents may begin."""
        loop = asyncio.get_running_loop()
        wanted = Pass(pod_class, documents, time.monotonic(), loop.create_future())
        self._waiting[pod_class].append(wanted)
        self._grant()
        try:
            await wanted.granted
        except asyncio.CancelledError:
            if not wanted.granted.cancelled():  # granted and cancelled at the same time
                self.turn_back(wanted)
            with suppress(ValueError):  # `_next` has dropped it already, or it was granted
                self._waiting[pod_class].remove(wanted)
            self._grant()
            raise
        return wanted

    def leave(self) -> None:
        """A request has ended."""
        self.in_flight -= 1
        self._grant()

    def turn_back(self, granted: Pass) -> None:
        """A request that was granted does not begin."""
        if self._bucket is not None:
            self._bucket.give_back(granted.documents)
        self._slow_start.give_back()
        self.leave()

    def note_answer(self) -> None:
        """The sink took documents of some partition."""
        self._answered_at = time.monotonic()

    def note_outage_over(self, seconds: float) -> None:
        """The sink takes documents of a partition again, after so many seconds.

        It was not down if it took documents of other partitions lately. They are not slowed then. Lately, not
        at all: what was under way when the outage began may have been answered a moment after that.
        """
        now = time.monotonic()
        if self._answered_at <= now - seconds / 2:
            self._slow_start.begin(now)

    def _grant(self) -> None:
        """Let requests pass as far as the limits allow, and look again when the next one may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while (chosen := self._next()) is not None and (self._most is None or self.in_flight < self._most):
            now = time.monotonic()
            pause = self._pause(chosen, now)
            if pause > 0:
                self._timer = asyncio.get_running_loop().call_later(pause, self._grant)
                return
            self._let_pass(chosen, now)

    def _next(self) -> Pass | None:
        for queue in self._waiting:
            while queue and queue[0].granted.cancelled():
                queue.popleft()
        incremental, backfill = (len(queue) for queue in self._waiting)
        pod_class = self._share.choose(incremental=incremental, backfill=backfill)
        return None if pod_class is None else self._waiting[pod_class][0]

    def _pause(self, chosen: Pass, now: float) -> float:
        by_rate = 0.0 if self._bucket is None else self._bucket.wait(chosen.documents, now)
        return max(by_rate, self._slow_start.wait(now))

    def _let_pass(self, chosen: Pass, now: float) -> None:
        self._share.record(chosen.pod_class, chosen.documents, both_waited=all(self._waiting))
        self._waiting[chosen.pod_class].popleft()
        if self._bucket is not None:
            self._bucket.take(chosen.documents, now)
        self._slow_start.take()
        self.in_flight += 1
        self.waited += now - chosen.came
        chosen.granted.set_result(None)
