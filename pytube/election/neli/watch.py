"""Whether the broker answers, told once when it changes; and librdkafka's own log, damped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import structlog
from confluent_kafka import KafkaError

from pytube import clock
from pytube.election.neli.codes import ALL_DOWN, UNUSABLE

_QUIET = 60.0
"""Seconds for which a kind of librdkafka's messages is not repeated."""


class BrokerWatch:
    """Remembers whether the broker is away, why, and since when. Any thread may use it."""

    def __init__(self, log: structlog.stdlib.BoundLogger, hide: Callable[[str], str]) -> None:
        """Args: hide: takes secrets out of a text of librdkafka."""
        self._log = log
        self._hide = hide
        self._lock = threading.Lock()
        self._down_at: float | None = None
        self._reason = ""

    @property
    def is_down(self) -> bool:
        """Whether the broker was last seen away."""
        return self._down_at is not None

    @property
    def reason(self) -> str:
        """What librdkafka last complained of; empty when it never did."""
        return self._reason

    def on_error(self, error: KafkaError) -> None:
        """Given to librdkafka as `error_cb`."""
        if error.code() != ALL_DOWN or not self._reason:
            self._reason = self._hide(error.str())
        if error.code() in UNUSABLE:
            self.down(self._reason)

    def down(self, reason: str) -> None:
        """The broker does not answer."""
        with self._lock:
            if self._down_at is not None:
                return
            self._down_at = clock.now()
        self._log.warning("kafka is not available; leadership is not proven until it is back", reason=reason)

    def up(self, sent_at: float) -> None:
        """The broker answered what was sent at `sent_at` (monotonic)."""
        with self._lock:
            if self._down_at is None or sent_at <= self._down_at:
                return
            seconds = clock.now() - self._down_at
            self._down_at = None
            self._reason = ""
        self._log.info("kafka is available again", seconds=round(seconds, 1))


class DampedLog:
    """What librdkafka logs, at debug level, and of each kind at most one line a minute.

    What an operator needs to know of it comes through `BrokerWatch`.
    """

    def __init__(self, log: structlog.stdlib.BoundLogger, hide: Callable[[str], str]) -> None:
        """Args: hide: takes secrets out of a text of librdkafka."""
        self._log = log
        self._hide = hide
        self._next: dict[str, float] = {}
        self._passed_over: dict[str, int] = {}

    def log(self, level: int, _template: str, kind: str, _name: str, text: str, **_: Any) -> None:
        """Called by confluent_kafka as a `logging.Logger` would be."""
        now = clock.now()
        if now < self._next.get(kind, 0.0):
            self._passed_over[kind] = self._passed_over.get(kind, 0) + 1
            return
        self._next[kind] = now + _QUIET
        self._log.debug(
            "librdkafka",
            kind=kind,
            level=level,
            text=self._hide(text),
            passed_over=self._passed_over.pop(kind, 0),
        )
