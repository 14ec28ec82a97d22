"""What an outbox's worker is compared with: goharvest's way, one row at a time, rebuilt.

A marker takes 100 records by one query, and gives them to 8 senders by their keys, each with room for 10. A
sender waits until nothing of its next record's key is in flight, and until fewer than 1000 records are, and
hands the record to the producer. Each confirmed record is deleted by a statement of its own, over one of two
connections; then its key is free.

goharvest is written in Go, with a goroutine for each of these; here the senders are queues of one loop, which
costs less in Python than eight threads would.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import NamedTuple
from uuid import uuid4
from zlib import crc32

import psycopg
from confluent_kafka import Message, Producer

from bench.frame.outboxes import IDEMPOTENT
from bench.frame.server import connect

MARKED = 100
SENDERS = 8
SENDER_ROOM = 10
IN_FLIGHT = 1000
CONNECTIONS = 2

TABLE = """
    CREATE TABLE {table} (
        id BIGSERIAL PRIMARY KEY, create_time TIMESTAMPTZ NOT NULL, kafka_topic VARCHAR(249) NOT NULL,
        kafka_key VARCHAR(100) NOT NULL, kafka_value VARCHAR(10000), kafka_header_keys TEXT[] NOT NULL,
        kafka_header_values TEXT[] NOT NULL, leader_id UUID)
"""
"""As goharvest's documentation makes it."""
_MARK = """
    UPDATE {table} SET leader_id = %s
    WHERE id IN (SELECT id FROM {table} WHERE leader_id IS NULL OR leader_id <> %s ORDER BY id LIMIT {marked})
    RETURNING id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values
"""
_PURGE = "DELETE FROM {table} WHERE id = %s"


class _Record(NamedTuple):
    id: int
    topic: str
    key: str
    value: str | None
    header_keys: list[str]
    header_values: list[str]


class OneByOne:
    """One drain of a table."""

    def __init__(self, dsn: str, table: str, bootstrap: str) -> None:
        self._dsn, self._table = dsn, table
        self._producer = Producer({"bootstrap.servers": bootstrap, **IDEMPOTENT})
        self._marked: queue.Queue[_Record] = queue.Queue(MARKED)
        self._confirmed: queue.SimpleQueue[_Record | None] = queue.SimpleQueue()
        self._events: queue.SimpleQueue[_Record | None] = queue.SimpleQueue()
        """Records that are deleted, and None for each that was marked."""
        self._over = threading.Event()
        self._waiting: _Record | None = None
        """Is marked, and its sender has no room for it."""

    def drain(self, count: int) -> int:
        """Deliver and delete about `count` records, and what is in flight then; how many."""
        others = [threading.Thread(target=self._mark), threading.Thread(target=self._poll)]
        purgers = [threading.Thread(target=self._purge) for _ in range(CONNECTIONS)]
        for thread in others + purgers:
            thread.start()
        try:
            return self._send(count)
        finally:
            self._over.set()
            for _ in purgers:
                self._confirmed.put(None)
            for thread in others + purgers:
                thread.join()

    def _send(self, count: int) -> int:
        senders: list[deque[_Record]] = [deque() for _ in range(SENDERS)]
        keys: set[str] = set()
        """Of the records in flight."""
        done = 0
        while done < count or keys:
            if done < count:
                self._spread(senders)
                for sender in senders:
                    while sender and sender[0].key not in keys and len(keys) < IN_FLIGHT:
                        keys.add(sender[0].key)
                        self._produce(sender.popleft())
            for record in self._wait():
                keys.discard(record.key)
                done += 1
        return done

    def _spread(self, senders: list[deque[_Record]]) -> None:
        """Give the senders what is marked; one that is full keeps all that follows waiting."""
        while self._waiting is not None or not self._marked.empty():
            record = self._waiting or self._marked.get()
            sender = senders[crc32(record.key.encode()) % SENDERS]
            self._waiting = record if len(sender) == SENDER_ROOM else None
            if self._waiting is not None:
                return
            sender.append(record)

    def _wait(self) -> list[_Record]:
        """Wait until something was deleted or marked; what was deleted."""
        events = [self._events.get()]
        while not self._events.empty():
            events.append(self._events.get())
        return [record for record in events if record is not None]

    def _produce(self, record: _Record) -> None:
        def report(error: object, _: Message) -> None:
            assert error is None
            self._confirmed.put(record)

        headers: list[tuple[str, str | bytes | None]] = [
            *zip(record.header_keys, record.header_values, strict=True)
        ]
        self._producer.produce(record.topic, record.value, record.key, headers=headers, on_delivery=report)

    def _mark(self) -> None:
        statement = _MARK.format(table=self._table, marked=MARKED)
        leader = uuid4()
        with connect(self._dsn) as connection:
            while not self._over.is_set():
                rows = connection.execute(statement, [leader, leader]).fetchall()
                for row in sorted(rows):
                    self._put(_Record(*row))

    def _put(self, record: _Record) -> None:
        while not self._over.is_set():
            try:
                self._marked.put(record, timeout=0.1)
            except queue.Full:
                continue
            self._events.put(None)
            return

    def _purge(self) -> None:
        statement = _PURGE.format(table=self._table)
        with connect(self._dsn) as connection:
            while (record := self._confirmed.get()) is not None:
                connection.execute(statement, [record.id])
                self._events.put(record)

    def _poll(self) -> None:
        while not self._over.is_set():
            self._producer.poll(0.05)


def refill(connection: psycopg.Connection, table: str) -> None:
    """An empty table, as goharvest's documentation makes it."""
    connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute(TABLE.format(table=table))
