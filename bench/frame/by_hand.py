"""What a worker is compared with: the fewest statements that do the same by hand, in the same run."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import psycopg

from bench.frame.server import connect
from bench.frame.tubes import array

_DELETE = """
    DELETE FROM tube.{tube} WHERE seq = ANY (%s::bigint[])
        AND (shard %% 1) = 0 AND (CASE WHEN op = 'B' THEN 1 ELSE 0 END) = 0
"""
_TABLE = "by_hand"
_CHANNEL = "by_hand"
_WRITE = (
    f"WITH written AS (UPDATE public.{_TABLE} SET v = v + 1 WHERE id = %s RETURNING id) "
    f"SELECT pg_notify('{_CHANNEL}', id::text) FROM written"
)
_READ = f"SELECT row_to_json(r.*)::text FROM public.{_TABLE} AS r WHERE r.id = %s"
_ANSWER_LIMIT = 30.0


def session(dsn: str) -> psycopg.Connection:
    """A session that commits as a worker does; it plans anew: a queue's statistics are never right."""
    return connect(dsn, synchronous_commit="off", plan_cache_mode="force_custom_plan")


def read_and_delete(connection: psycopg.Connection, tube: str, count: int) -> float:
    """Read 1000 pods with their ids, delete them, and again, until `count` ids are done; how many were.

    No worker can do with less, and pg-tube's own sends no more: it neither marks pods nor fences.
    """
    row = connection.execute("SELECT tube_pods_sql(%s, 1, 0)", [tube]).fetchone()
    assert row
    read, delete = f"{row[0]} LIMIT 1000", _DELETE.format(tube=tube)
    done = 0
    while done < count:
        pods = connection.execute(read).fetchall()
        ids = [list(map(int, pod[3][1:-1].split(","))) for pod in pods]  # which come as text
        connection.execute(delete, [array([pod[0] for pod in pods])])
        done += sum(map(len, ids))
    return done


class RoundTrip:
    """One session writes a row and notifies; another one listens, and a third one reads the row."""

    def __init__(self, dsn: str, rows: int) -> None:
        """`rows`: of the table that is made for it."""
        self._rows = rows
        self._writer = connect(dsn, synchronous_commit="off")
        self._writer.execute(
            f"CREATE TABLE public.{_TABLE} AS "
            f"SELECT g::bigint AS id, 0 AS v FROM generate_series(1, {rows}) AS g"
        )
        self._writer.execute(f"ALTER TABLE public.{_TABLE} ADD PRIMARY KEY (id)")
        self._writer.execute(f"VACUUM ANALYZE public.{_TABLE}")
        self._listener = connect(dsn)
        self._listener.execute(f"LISTEN {_CHANNEL}")
        self._reader = connect(dsn)
        self._next = 0
        self._came: dict[int, int] = {}
        self._arrived = threading.Condition()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def probe(self, pause: float, count: int, until: threading.Event | None = None) -> list[float]:
        """Milliseconds of the whole round trip of so many rows, `pause` seconds apart.

        From the sending of the write, since the row may be there before the writer hears of its commit.
        It ends early when `until` is set.
        """
        sent: dict[int, int] = {}
        while len(sent) < count and not (until is not None and until.is_set()):
            self._next = self._next % self._rows + 1
            self._came.pop(self._next, None)
            sent[self._next] = time.monotonic_ns()
            self._writer.execute(_WRITE, [self._next])
            time.sleep(pause)
        with self._arrived:
            if not self._arrived.wait_for(lambda: sent.keys() <= self._came.keys(), _ANSWER_LIMIT):
                raise TimeoutError(f"not within {_ANSWER_LIMIT:g} s: all rows that were written by hand")
        return [(self._came[key] - at) / 1e6 for key, at in sent.items()]

    def _listen(self) -> None:
        while not self._over.is_set():
            for notification in self._listener.notifies(timeout=0.2):
                key = int(notification.payload)
                self._reader.execute(_READ, [key]).fetchall()
                with self._arrived:
                    self._came[key] = time.monotonic_ns()
                    self._arrived.notify_all()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        for connection in (self._writer, self._listener, self._reader):
            connection.close()
