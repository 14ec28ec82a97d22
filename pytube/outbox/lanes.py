"""Producers without transactions, with the chunks that were handed to each, and how their reports come.

The event loop asks a `PolledLane` for them now and then: much comes with each look where much is under way,
and no thread competes with the event loop for the interpreter. In strict order each key waits for its
report, and with few keys the worker waits for it, too. So threads of a `WatchedLane` wait within librdkafka,
and have the event loop woken when a chunk is decided. A timer of the event loop would wake it for each look,
and a millisecond late.

A `WatchedLane` has two producers: each has one request in flight (`pytube.kafka.clients.IDEMPOTENT`), and a
request has records of one partition, so with one producer the records of a step would wait for each other's
partitions. A key has always the same one, so that no attempt that was given up comes after the next.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from confluent_kafka import KafkaException, Producer

from pytube.kafka.clients import destroy, purge
from pytube.outbox.messages import Handed

_WATCH = 1.0
"""Seconds for which a thread waits within librdkafka at most; then it looks whether the lane is closed."""


class Lane:
    """Producers, and the chunks that were handed to them. Its methods are called in the event loop."""

    def __init__(self, *producers: Producer) -> None:
        """Begins nothing."""
        self.producers: Sequence[Producer] = producers
        self.is_hurried = False
        """Whether its first chunk was handed over."""
        self.handed: dict[Handed, None] = {}
        self.is_broken = False

    def give_up(self) -> None:
        """Drop all that is under way; its reports come later."""
        self.is_broken = True
        for producer in self.producers:
            purge(producer)

    def close(self) -> None:
        """Nothing is handed over any more, and no caller asks for reports: the producers end."""
        destroy(self.producers)
        self.producers = ()

    def decided(self) -> list[Handed]:
        """The chunks of which all reports have come since the last call."""
        over = [handed for handed in self.handed if handed.is_over]
        for handed in over:
            del self.handed[handed]
            if handed.is_broken and not self.is_broken:
                self.give_up()
        return over


class PolledLane(Lane):
    """Reports come when the event loop asks for them."""

    def decided(self) -> list[Handed]:
        """See `Lane`."""
        try:
            for producer in self.producers:
                producer.poll(0)
        except KafkaException:  # raised for a fatal error; the reports of the chunks come anyway
            if not self.is_broken:
                self.give_up()
        return super().decided()


class WatchedLane(Lane):
    """Threads receive reports as they come, and wake the event loop for the ones that decide a chunk."""

    def __init__(self, *producers: Producer, on_decided: Callable[[], None]) -> None:
        """Begins a thread for each producer, until `close`. `on_decided` is called in the event loop."""
        super().__init__(*producers)
        self._on_decided = on_decided
        self._loop = asyncio.get_running_loop()
        self._has_failed = False
        self._closed = threading.Event()
        for producer in producers:
            threading.Thread(target=self._watch, args=(producer,), name="outbox-reports", daemon=True).start()

    def close(self) -> None:
        """See `Lane`."""
        super().close()
        self._closed.set()

    def decided(self) -> list[Handed]:
        """See `Lane`."""
        if self._has_failed and not self.is_broken:
            self.give_up()
        return super().decided()

    def _watch(self, producer: Producer) -> None:
        while not self._closed.is_set():
            pause = 0.0
            try:
                producer.poll(_WATCH)
            except KafkaException:  # as in `PolledLane`
                self._has_failed = True
            except Exception:  # noqa: BLE001 - without the thread a chunk would never be decided
                self._has_failed = True
                pause = _WATCH  # the next call may do the same
            if self._has_failed or any(handed.is_over for handed in tuple(self.handed)):
                with suppress(RuntimeError):  # the loop may be closed by now
                    self._loop.call_soon_threadsafe(self._on_decided)
            self._closed.wait(pause)
