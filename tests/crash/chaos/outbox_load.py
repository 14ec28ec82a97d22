"""Writers of the outboxes: short ones every few milliseconds, and long ones that stash again at their end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg

from tests.crash.chaos.outboxes import OUTBOXES

SHORT, LONG = 2, 3
"""Sessions of each kind; one more stays open for a minute."""
PAUSE = 0.005
"""Seconds between two transactions of a short one."""
_KEYS = 8
"""That each writer has for itself, and that all share."""
_SIZES = (1, 1, 2, 4)
"""Records of a short transaction."""
_OPEN = (0.5, 5.0)
_MINUTE = (40.0, 60.0)
"""Seconds for which a long one stays open."""
_REST = 40.0
"""Seconds between two transactions of a minute: while one is open, no outbox is repartitioned."""
_TICK = 0.02

Connect = Callable[[], psycopg.Connection[Any]]


class OutboxWriters:
    """What each writer does, for as long as the load goes on.

    Each has keys of its own, whose transactions follow each other: of these, the order of all records is
    known. The other keys are shared by all: so transactions that stash a key overlap, and others stash what a
    long writer has just committed.
    """

    def __init__(self, connect: Connect, go: threading.Event) -> None:
        self._connect = connect
        self._go = go
        self._lock = threading.Lock()
        self.committed = 0
        """Long transactions that were committed."""
        self.rolled_back = 0
        """Long transactions that were rolled back."""
        self.longest = 0.0
        """Seconds."""
        self.writers: list[Callable[[], None]] = [
            *(partial(self._short, random.Random(f"short-{n}"), f"short-{n}") for n in range(SHORT)),
            *(partial(self._long, random.Random(f"long-{n}"), f"long-{n}", _OPEN) for n in range(LONG)),
            partial(self._long, random.Random("minute"), "minute", _MINUTE, _REST),
        ]

    def _short(self, draw: random.Random, name: str) -> None:
        with self._connect() as connection:
            while self._go.is_set():
                outbox = draw.choice(OUTBOXES)
                keys = [_key(draw, name) for _ in range(draw.choice(_SIZES))]
                with connection.transaction(force_rollback=draw.random() < 0.03):
                    outbox.stash(connection, keys)
                time.sleep(PAUSE)

    def _long(self, draw: random.Random, name: str, seconds: tuple[float, float], rest: float = 0.0) -> None:
        with self._connect() as connection:
            while self._go.is_set():
                keys = [_key(draw, name), f"shared-{draw.randrange(_KEYS)}"]
                rolls_back = draw.random() < 0.2
                began = time.monotonic()
                with connection.transaction(force_rollback=rolls_back):
                    for outbox in OUTBOXES:
                        outbox.stash(connection, keys)
                    with connection.transaction(force_rollback=draw.random() < 0.2):
                        OUTBOXES[draw.randrange(len(OUTBOXES))].stash(connection, keys)
                    self._stay(began + draw.uniform(*seconds))
                for outbox in OUTBOXES:
                    outbox.stash(connection, keys)
                self._count(time.monotonic() - began, committed=not rolls_back)
                self._stay(time.monotonic() + rest)

    def _stay(self, until: float) -> None:
        while self._go.is_set() and time.monotonic() < until:
            time.sleep(_TICK)

    def _count(self, seconds: float, *, committed: bool) -> None:
        with self._lock:
            self.committed += committed
            self.rolled_back += not committed
            self.longest = max(self.longest, seconds)


def _key(draw: random.Random, name: str) -> str:
    """One of the writer's own, or one that all share."""
    return f"{name if draw.random() < 0.7 else 'shared'}-{draw.randrange(_KEYS)}"
