"""A sink of a third party: documents in a file of SQLite, compared by token, with tombstones, scannable.

[tube."es-live".sink]
type = "sqlite"
path = "/var/lib/shop/copy.sqlite"
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Self

from pydantic import Field

from pytube.errors import SinkUnavailable
from pytube.model import OK, Batch, Id, Result, Stale
from pytube.sinks import SinkOptions
from pytube.sinks.base import PAGE

# A column without a type keeps an id as it is, a number or a text. A tombstone is a row without a body.
SCHEMA = """
    CREATE TABLE IF NOT EXISTS documents (
        tube TEXT, shard INTEGER, id, token INTEGER, seq INTEGER, body BLOB, deleted_at REAL,
        PRIMARY KEY (tube, shard, id)) WITHOUT ROWID
"""
WRITE = """
    INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET token = excluded.token, seq = excluded.seq, body = excluded.body,
        deleted_at = excluded.deleted_at WHERE token <= excluded.token
"""
HELD = "SELECT token FROM documents WHERE tube = ? AND shard = ? AND id = ?"
CLEAN = "DELETE FROM documents WHERE deleted_at < ?"
SCAN = """
    SELECT id FROM documents WHERE tube = ? AND shard = ? AND seq < ? AND body IS NOT NULL
        AND (? OR id > ?) ORDER BY id LIMIT ?
"""


class SqliteOptions(SinkOptions):
    """What `[tube.NAME.sink]` may hold."""

    path: str = Field(min_length=1, description="the path of a file")
    tombstone_seconds: float = Field(default=3600.0, gt=0, description="a number of seconds above 0")


class SqliteSink:
    """One transaction per batch. A write that was given up goes on in its thread, and may lose."""

    compares = True

    def __init__(self, options: SqliteOptions) -> None:
        self._options = options
        self._is_open = False

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """The sink for these options; `ConfigError` names a bad one."""
        return cls(SqliteOptions.parse("sqlite", options))

    async def open(self) -> None:
        """Create the table."""
        try:
            await asyncio.to_thread(self._query, SCHEMA)
        except sqlite3.Error as error:
            raise SinkUnavailable(f'sink "sqlite": {error}') from error
        self._is_open = True

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Write the batch in one transaction."""
        if not self._is_open:
            raise SinkUnavailable('sink "sqlite" is not open')
        try:
            return await asyncio.to_thread(self._write, batch)
        except sqlite3.OperationalError as error:  # locked, or a full disk: rolled back
            raise SinkUnavailable(f'sink "sqlite": {error}') from error

    async def abandon(self, batch: Batch) -> None:
        """Return at once: a late write has a lower token."""

    async def close(self) -> None:
        """Begin no more writes."""
        self._is_open = False

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        """Page by page in the order of ids."""
        last: Id | None = None
        while True:
            place = (tube, shard, below_seq, last is None, last, PAGE)
            rows = await asyncio.to_thread(self._query, SCAN, place)
            if not rows:
                return
            last = rows[-1][0]
            yield [row[0] for row in rows]

    def _query(self, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._options.path)) as connection, connection:
            return connection.execute(statement, arguments).fetchall()

    def _write(self, batch: Batch) -> list[Result]:
        now = time.time()
        token = int(batch.token)
        results: list[Result] = []
        with closing(sqlite3.connect(self._options.path, isolation_level=None)) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")  # waits for the other writers of the file
            if batch.has_lapsed() or not self._is_open:
                raise SinkUnavailable('sink "sqlite": closed, or the right to send had lapsed')
            for document in batch:
                key = (batch.tube, document.shard, document.id)
                gone = now if document.is_delete else None
                connection.execute(WRITE, (*key, token, document.seq, document.body, gone))
                (held,) = connection.execute(HELD, key).fetchone()
                results.append(OK if held == token else Stale(held))
            connection.execute(CLEAN, (now - self._options.tombstone_seconds,))
        return results
