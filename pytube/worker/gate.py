"""The gate of one line: shut while its sink takes nothing, or its source can't be read.

One send at a time probes a shut gate, after a back-off that grows; its success opens the gate for
all. Nothing is sent meanwhile, nothing parked, and no attempt used up.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pytube.pipeline.redelivery import delay

_JITTER = 0.25
_LOOK_AGAIN = 0.05
"""Seconds after which a waiter looks whether the probe is over."""


class Gate:
    """Shut with a reason, opened by the next success."""

    def __init__(self, on_shut: Callable[[str], None], on_open: Callable[[float], None]) -> None:
        """Args:
        on_shut: told the reason, once per outage.
        on_open: told how many seconds the outage was.
        """
        self._on_shut = on_shut
        self._on_open = on_open
        self._opened = asyncio.Event()
        self._tries = 0
        self._probing = False
        self._shut_at = 0.0
        self._next_probe = 0.0
        self.opened_at = float("-inf")
        """When something last came through, by `time.monotonic()`."""

    @property
    def is_open(self) -> bool:
        """Whether nothing is known to be wrong."""
        return self._tries == 0

    async def passage(self) -> None:
        """Wait until the gate is open, or until it is the caller's turn to probe.

        Whoever passed tells by `open`, `shut` or `left` how it went.
        """
        while not self.is_open:
            pause = self._next_probe - time.monotonic()
            if pause <= 0 and not self._probing:
                self._probing = True
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(max(pause, _LOOK_AGAIN)):
                    await self._opened.wait()

    def shut(self, reason: str) -> None:
        """Something is down; the back-off grows with each failed probe."""
        now = time.monotonic()
        if self.is_open:
            self._shut_at = self._next_probe = now  # what an earlier outage left does not count
            self._opened.clear()
            self._on_shut(reason)
        if now >= self._next_probe:  # sends that were under way together count as one failure
            self._tries += 1
            jitter = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 # spreads load, guards nothing
            self._next_probe = now + delay(self._tries) * jitter
        self._probing = False

    def open(self) -> None:
        """A send came through."""
        self.opened_at = time.monotonic()
        if not self.is_open:
            self._tries = 0
            self._opened.set()
            self._on_open(self.opened_at - self._shut_at)
        self._probing = False

    def left(self) -> None:
        """A send ended without telling anything of the sink."""
        self._probing = False


@dataclass(frozen=True, slots=True)
class Gates:
    """The two things that a line waits for."""

    sink: Gate
    source: Gate
