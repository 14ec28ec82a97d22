"""A load generator for outboxes: messages at a steady rate, in transactions of a steady size.

Each value begins with a running number: the number of the record within its key, from 1 on. So a consumer of
a topic that only one pump has written to can see whether records of a key are missing, or out of order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice

import psycopg

from pytube.errors import UsageError
from pytube.outbox.stash import Message, stash

_DEBT = 1.0
"""Seconds for which a delayed pump catches up: more would be an unwanted burst."""
_FILLER = "."
_TICK = 1.0
"""Seconds between two readings."""


@dataclass(frozen=True, slots=True)
class Load:
    """The messages to write."""

    topic: str
    keys: int
    """How many; 0: messages have none."""
    size: int
    """Characters of a value; a running number needs its own."""
    headers: int
    batch: int
    """Records of a transaction."""
    rate: float
    """Transactions per second; 0: as many as go."""

    def messages(self) -> Iterator[Message]:
        """All messages, one key after the other."""
        headers = {f"header-{number}": f"value {number}" for number in range(1, self.headers + 1)}
        for number in count():
            place, key = divmod(number, self.keys) if self.keys else (number, 0)
            value = f"{place + 1} ".ljust(self.size, _FILLER)
            yield Message(self.topic, f"key-{key}" if self.keys else None, value, headers)


def planned(rate: float | None, transactions: float | None, batch: int | None) -> tuple[int, float]:
    """Records of a transaction, and transactions per second (0: as many as go); `rate`: records per second.

    Raises:
        UsageError: the three do not go together.
    """
    if rate is not None and transactions is not None:
        if batch is not None:
            raise UsageError("--rate is --transactions times --batch: give two of the three")
        whole = round(rate / transactions)
        if whole < 1 or abs(whole * transactions - rate) > 1e-6 * rate:
            raise UsageError(
                f"{rate:g} records in {transactions:g} transactions make {rate / transactions:g} records "
                "each, not a whole number: change --rate or --transactions, or replace one by --batch"
            )
        return whole, transactions
    if transactions is not None:
        return batch or 1, transactions
    chosen = batch or 10
    return chosen, (1000.0 if rate is None else rate) / chosen


@dataclass(frozen=True, slots=True)
class PumpReading:
    """The messages written since the pump began, and since the reading before."""

    seconds: float
    """Since it began."""
    records: int
    transactions: int
    rate: float
    """Records per second since the reading before; of the last reading, over all."""
    transaction: float
    """Seconds that a transaction took, on average, in the same time."""


class Pump:
    """Writes one load into one outbox, over one connection."""

    def __init__(self, connection: psycopg.Connection, outbox: str, load: Load, schema: str = "tube") -> None:
        """Writes nothing. `connection` is autocommit."""
        self._connection, self._outbox, self._load, self._schema = connection, outbox, load, schema
        self._begun = time.monotonic()
        self._records = self._transactions = 0
        self._busy = 0.0
        """Seconds within transactions."""

    def run(
        self,
        seconds: float | None = None,
        stop: threading.Event | None = None,
        show: Callable[[PumpReading], None] = lambda _: None,
    ) -> PumpReading:
        """Write until the time is over, or `stop` is set: each transaction is written whole, or not at all.

        Args:
            seconds: how long; None: until `stop`.
            stop: ends it.
            show: receives a reading each second.

        Returns:
            The reading of all of it.
        """
        stop = stop or threading.Event()
        messages, load = self._load.messages(), self._load
        self._begun = due = shown = time.monotonic()
        end = float("inf") if seconds is None else self._begun + seconds
        last = self.total()
        while not stop.is_set() and (now := time.monotonic()) < end:
            if now - shown >= _TICK:
                shown, reading = now, self.total()
                show(_between(last, reading))
                last = reading
            if now < due:
                stop.wait(min(due, end, shown + _TICK) - now)
                continue
            self._write(list(islice(messages, load.batch)))
            due = max(due + 1 / load.rate, now - _DEBT) if load.rate else now
        return self.total()

    def total(self) -> PumpReading:
        """The messages written since the pump began."""
        seconds = time.monotonic() - self._begun
        rate = self._records / seconds if seconds else 0.0
        took = self._busy / self._transactions if self._transactions else 0.0
        return PumpReading(seconds, self._records, self._transactions, rate, took)

    def _write(self, messages: list[Message]) -> None:
        began = time.monotonic()
        stash(self._connection, messages, outbox=self._outbox, schema=self._schema)
        self._busy += time.monotonic() - began
        self._records += len(messages)
        self._transactions += 1


def _between(before: PumpReading, now: PumpReading) -> PumpReading:
    """The reading `now`, with the difference from an earlier one."""
    seconds, transactions = now.seconds - before.seconds, now.transactions - before.transactions
    busy = now.transaction * now.transactions - before.transaction * before.transactions
    return PumpReading(
        now.seconds,
        now.records,
        now.transactions,
        (now.records - before.records) / seconds if seconds else 0.0,
        busy / transactions if transactions else 0.0,
    )
