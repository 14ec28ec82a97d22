"""The bookkeeping of proofs: which heartbeat was sent when, and what its return proves. Pure.

A proof counts from the moment when it was *sent*: what was true at the broker was true then or
later. A heartbeat that comes back shows that this process reaches the broker and still reads its
partition. It does not show that the group still counts this process among its members: a process
that was stopped for long reads on for a moment before it hears that it was removed. So heartbeats
only prolong a proof that holds. Once it has lapsed the coordinator must be asked first: a commit,
whose generation it checks, is the one proof that starts the worker again.

All moments are of `pytube.clock`. Two threads use a book: it has a lock.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict

_KEPT = 1024
"""Heartbeats that are remembered; far more than are sent within any deadline."""


class ProofBook:
    """The proofs of one claim."""

    def __init__(self, deadline: float) -> None:
        """Args: deadline: seconds for which a proof holds."""
        self._deadline = deadline
        self._lock = threading.Lock()
        self._sent: OrderedDict[int, float] = OrderedDict()
        self._last_number = 0
        self._proven_at = -math.inf
        self._closed = False

    @property
    def proven_at(self) -> float:
        """When the newest proof was sent; minus infinity when there is none, or none any more."""
        return -math.inf if self._closed else self._proven_at

    def sent(self, at: float) -> int:
        """A heartbeat is about to be sent; its number."""
        with self._lock:
            self._last_number += 1
            self._sent[self._last_number] = at
            if len(self._sent) > _KEPT:
                self._sent.popitem(last=False)
            return self._last_number

    def observe(self, number: int, now: float) -> bool:
        """Heartbeat `number` came back; whether it proved anything."""
        with self._lock:
            sent_at = self._sent.pop(number, None)
            if sent_at is None or self._lapsed(now) or sent_at <= self._proven_at:
                return False
            self._proven_at = sent_at
            return True

    def confirmed(self, sent_at: float) -> None:
        """The coordinator confirmed the membership; it was asked at `sent_at`."""
        with self._lock:
            self._proven_at = max(self._proven_at, sent_at)

    def lapsed(self, now: float) -> bool:
        """Whether the coordinator must be asked before heartbeats prove anything."""
        with self._lock:
            return self._lapsed(now)

    def close(self) -> None:
        """Nothing is proven any more."""
        self._closed = True

    def _lapsed(self, now: float) -> bool:
        return now - self._proven_at >= self._deadline
