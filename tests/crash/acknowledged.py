"""Writers that keep a journal of what Postgres acknowledged as committed, over crashes of the server."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from pytube.sinks.jsonl import replay

FIRST = 1_000_000
"""Ids of these writers begin here: nobody else writes them."""
KEYS = 200
"""Of each writer."""


class Acknowledged:
    """Each writer has keys of its own, and tries a change until it is acknowledged."""

    def __init__(self, dsn: str, writers: int = 3, synchronous_commit: str = "on") -> None:
        self._dsn = dsn
        self._setting = f"-c synchronous_commit={synchronous_commit}"
        self._stop = threading.Event()
        self._journals: list[dict[int, int | None]] = [{} for _ in range(writers)]
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(writers)]
        self.count = 0
        """Changes acknowledged so far."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def journal(self) -> dict[int, int | None]:
        """What each key holds by what was acknowledged last; None: it was deleted. Read it at the end."""
        return {key: n for journal in self._journals for key, n in journal.items()}

    def _run(self, number: int) -> None:
        draw = random.Random(number)
        connection: psycopg.Connection[Any] | None = None
        n = 0
        while not self._stop.is_set():
            n += 1
            key = FIRST + number * KEYS + draw.randrange(KEYS)
            change = n if draw.random() < 0.9 else None
            while not self._acknowledged(connection, key, change):
                # The server may be down for good when a test has failed.
                if self._stop.wait(0.02) and self._gave_up():
                    return
                connection = self._connected()
            self._journals[number][key] = change
            self.count += 1
            self._stop.wait(0.001)

    def _gave_up(self) -> bool:
        try:
            psycopg.connect(self._dsn).close()
        except psycopg.OperationalError:
            return True
        return False

    def _connected(self) -> psycopg.Connection[Any] | None:
        try:
            return psycopg.connect(self._dsn, autocommit=True, options=self._setting)
        except psycopg.OperationalError:
            return None

    def _acknowledged(self, connection: psycopg.Connection[Any] | None, key: int, change: int | None) -> bool:
        if connection is None:
            return False
        try:
            if change is None:
                connection.execute("DELETE FROM public.items WHERE id = %s", (key,))
            else:
                connection.execute(
                    "INSERT INTO public.items VALUES (%s, %s, 'acknowledged') "
                    "ON CONFLICT (id) DO UPDATE SET n = excluded.n",
                    (key, change),
                )
        except psycopg.OperationalError:
            connection.close()
            return False
        return True


def held(sink: Path) -> dict[int, int]:
    """What the sink holds of the keys of these writers: `n` by id."""
    return {
        line.id: line.doc["n"] for line in replay([sink]).values() if line.id >= FIRST and not line.is_delete
    }


def differences(journal: dict[int, int | None], sink: Path) -> list[str]:
    """Where the sink does not hold what was acknowledged."""
    wanted = {key: n for key, n in journal.items() if n is not None}
    found = held(sink)
    return [
        f"id {key}: acknowledged {wanted.get(key)}, sink {found.get(key)}"
        for key in sorted(wanted.keys() | found.keys())
        if wanted.get(key) != found.get(key)
    ]
