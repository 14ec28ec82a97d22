"""The load: writers of both tables, in all the ways that there are, and of outboxes; it can be paused."""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg

from tests.crash.chaos.arena import Arena
from tests.crash.chaos.outbox_load import OutboxWriters
from tests.crash.chaos.source import EXTRAS, ITEMS

WRITERS = 2
PAUSE = 0.02
"""Seconds between two transactions of a writer."""

PGBENCH_RATE = 30
PGBENCH = f"""
\\set id random(1, {ITEMS})
UPDATE public.items SET n = n + 1 WHERE id = :id;
"""
_FRESH = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
"""More than any `n` that a deleted row can have had."""

_SINGLE = "UPDATE items SET n = n + 1 WHERE id = %(key)s"
_UPSERT = (
    f"INSERT INTO {{0}} VALUES ({{1}}, {_FRESH}, 'again') ON CONFLICT (id) DO UPDATE SET n = {{0}}.n + 1"
)
_KINDS = (
    (0.50, _SINGLE),
    (0.12, "UPDATE extras SET n = n + 1 WHERE id = %(extra)s"),
    (0.10, _UPSERT.format("items", "%(key)s")),
    (0.06, _UPSERT.format("extras", "%(extra)s")),
    (0.08, "DELETE FROM items WHERE id = %(key)s"),
    (0.02, "DELETE FROM extras WHERE id = %(extra)s"),
    (0.08, "UPDATE items SET n = n + 1, hidden = NOT hidden WHERE id = %(key)s"),
    (0.03, "UPDATE items SET n = n + 1, note = 'many' WHERE id BETWEEN %(key)s AND %(key)s + 40"),
    (0.01, "UPDATE extras SET n = n + 1 WHERE id BETWEEN %(extra)s AND %(extra)s + 199"),
)
"""Shares and statements."""


class Load:
    """Writers in threads, and pgbench. A lost connection is made anew."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._go = threading.Event()
        self._over = threading.Event()
        self._script = arena.folder / "pgbench.sql"
        self._script.write_text(PGBENCH)
        self.committed = 0
        self.outboxes = OutboxWriters(arena.connect, self._go)
        writers = [
            *(partial(self._write, random.Random(seed)) for seed in range(WRITERS)),
            self._run_pgbench,
            *self.outboxes.writers,
        ]
        self._threads = [threading.Thread(target=self._keep, args=(writer,)) for writer in writers]
        self._busy = threading.Lock()
        self._at_work = 0
        self._changed = threading.Condition(self._busy)
        for thread in self._threads:
            thread.start()

    def go(self) -> None:
        """Write."""
        self._go.set()

    def pause(self) -> None:
        """Stop writing; returns when the last transaction is over."""
        self._go.clear()
        with self._changed:
            self._changed.wait_for(lambda: self._at_work == 0)

    def close(self) -> None:
        """End the writers."""
        self._over.set()
        self._go.clear()
        for thread in self._threads:
            thread.join()

    def _begin(self) -> bool:
        """Wait until there is something to do; False when it is over."""
        while not self._over.is_set():
            with self._changed:
                if self._go.is_set():
                    self._at_work += 1
                    return True
            self._go.wait(0.1)
        return False

    def _end(self) -> None:
        with self._changed:
            self._at_work -= 1
            self._changed.notify_all()

    def _keep(self, write: Callable[[], None]) -> None:
        """Have a writer write, anew when its connection is lost."""
        while self._begin():
            try:
                with suppress(psycopg.OperationalError):
                    write()
            finally:
                self._end()
            self._over.wait(0.05)

    def _write(self, draw: random.Random) -> None:
        with self._arena.connect() as connection:
            while self._go.is_set():
                self._one(connection, draw)
                self._over.wait(PAUSE)

    def _one(self, connection: psycopg.Connection[Any], draw: random.Random) -> None:
        (statement,) = draw.choices([kind for _, kind in _KINDS], [share for share, _ in _KINDS])
        values = {"key": draw.randint(1, ITEMS), "extra": draw.randint(1, EXTRAS)}
        end = draw.random()
        with suppress(psycopg.errors.DeadlockDetected), connection.transaction(force_rollback=end < 0.03):
            if end > 0.95:
                with connection.transaction(force_rollback=end > 0.97):
                    connection.execute(_SINGLE, {"key": draw.randint(1, ITEMS)})
            connection.execute(statement, values)
            self.committed += 1

    def _run_pgbench(self) -> None:
        """Run pgbench until it ends, be it because its server does, or until the pause."""
        process = subprocess.Popen(
            [
                *(str(self._arena.postgres.bin("pgbench")), "-n", "-c", "2", "-R", str(PGBENCH_RATE)),
                *("-T", "100000", "-f", str(self._script), self._arena.dsn),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and self._go.is_set():
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        process.terminate()
        process.wait()
        self._over.wait(0.4)
