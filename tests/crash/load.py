"""The load: sessions that change the table `items` without pause, in all the ways that there are."""

from __future__ import annotations

import random
import threading
from types import TracebackType
from typing import Any, Self

import psycopg

KEYS = 1000


def make_table(dsn: str, tube: str, partitions: int) -> None:
    """The table `items`, with its first rows, spread over 16 shards of the tube."""
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as connection:
        connection.execute("CREATE TABLE public.items (id bigint PRIMARY KEY, n bigint NOT NULL, note text)")
        connection.execute("SELECT tube_ensure_exists(%s, %s)", (tube, partitions))
        connection.execute(
            "SELECT tube_table_ensure_attached(%s, 'public.items', shard => 0, shards => 16)", (tube,)
        )
        connection.execute(
            "INSERT INTO public.items SELECT g, 0, 'first' FROM generate_series(1, %s) g", (KEYS,)
        )


class Load:
    """Writers in threads. A lost connection is made anew: the server may be restarted under them."""

    def __init__(self, dsn: str, writers: int = 3, pause: float = 0.05) -> None:
        self._dsn = dsn
        self._pause = pause
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(seed,)) for seed in range(writers)]
        self.committed = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the writers; returns when the last has committed or given up."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, seed: int) -> None:
        draw = random.Random(seed)
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True) as connection:
                    while not self._stop.is_set():
                        self._one(connection, draw)
                        self._stop.wait(self._pause)
            except psycopg.OperationalError:
                self._stop.wait(0.05)

    def _one(self, connection: psycopg.Connection[Any], draw: random.Random) -> None:
        key = draw.randint(1, KEYS)
        kind = draw.random()
        try:
            with connection.transaction(force_rollback=kind < 0.05):
                if kind < 0.75:
                    connection.execute("UPDATE items SET n = n + 1 WHERE id = %s", (key,))
                elif kind < 0.85:
                    connection.execute(
                        "INSERT INTO items VALUES (%s, 1, 'again') "
                        "ON CONFLICT (id) DO UPDATE SET n = items.n + 1",
                        (key,),
                    )
                elif kind < 0.93:
                    connection.execute("DELETE FROM items WHERE id = %s", (key,))
                else:
                    connection.execute(
                        "UPDATE items SET n = n + 1, note = 'many' WHERE id BETWEEN %s AND %s",
                        (key, key + 40),
                    )
        except psycopg.errors.DeadlockDetected:
            return
        self.committed += 1
