"""Circuit breakers of one partition: open while its sink accepts nothing, or its source can't be read.

One request at a time probes an open circuit, after a back-off that grows; its success closes the circuit
for all. Meanwhile nothing is sent, nothing is parked, and no attempt is used up.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress

from pytube.pipeline.retry_queue import backoff

_JITTER = 0.25
_POLL_INTERVAL = 0.05
"""Seconds after which a waiter checks again whether the probe is over."""


class CircuitBreaker:
    """Opens at a failure, with the reason; the next success closes it."""

    def __init__(self, on_open: Callable[[str], None], on_close: Callable[[float], None]) -> None:
        """Args:
        on_open: receives the reason, once per outage.
        on_close: receives the length of the outage in seconds.
        """
        self._on_open = on_open
        self._on_close = on_close
        self._closed = asyncio.Event()
        self._failures = 0
        self._probing = False
        self._opened_at = 0.0
        self._next_probe = 0.0
        self.succeeded_at = float("-inf")
        """When the last request succeeded, by `time.monotonic()`."""

    @property
    def is_closed(self) -> bool:
        """Whether requests may pass: no failure since the last success."""
        return self._failures == 0

    async def acquire(self) -> None:
        """Wait until the circuit is closed, or until it is the caller's turn to probe.

        The caller then reports how its request went: `succeed`, `fail` or `release`.
        """
        while not self.is_closed:
            pause = self._next_probe - time.monotonic()
            if pause <= 0 and not self._probing:
                self._probing = True
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(max(pause, _POLL_INTERVAL)):
                    await self._closed.wait()

    def fail(self, reason: str) -> None:
        """A request failed: open the circuit; the back-off grows with each failed probe."""
        now = time.monotonic()
        if self.is_closed:
            self._opened_at = self._next_probe = now  # the back-off of an earlier outage does not count
            self._closed.clear()
            self._on_open(reason)
        if now >= self._next_probe:  # requests that were under way together count as one failure
            self._failures += 1
            jitter = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 # spreads load, guards nothing
            self._next_probe = now + backoff(self._failures) * jitter
        self._probing = False

    def succeed(self) -> None:
        """A request succeeded: close the circuit."""
        self.succeeded_at = time.monotonic()
        if not self.is_closed:
            self._failures = 0
            self._closed.set()
            self._on_close(self.succeeded_at - self._opened_at)
        self._probing = False

    def release(self) -> None:
        """A request ended without a sign of whether its target is up."""
        self._probing = False
