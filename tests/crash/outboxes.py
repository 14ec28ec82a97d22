"""Three outboxes, one for each mode of delivery, under load; their workers, and the judge at the consumer.

A fault strikes all modes at once, so that each test has the cost of one.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import psycopg
from psycopg import sql

from pytube.config import load
from pytube.events import Event
from pytube.outbox.messages import OVERDUE
from pytube.worker import Worker
from tests.crash.outbox_judge import (
    JOURNAL,
    MODES,
    READ,
    STRICT,
    TRANSACTIONS,
    WINDOW,
    WINDOWED,
    Judge,
    Stashed,
    stash,
)
from tests.helpers.armed import Action, module
from tests.helpers.database import ROOT
from tests.helpers.forked import Program, start
from tests.helpers.observer import Observer
from tests.helpers.outbox import Seen, create_topic, read, topics
from tests.helpers.waiting import LIMIT, wait_until

_SETTINGS = {
    STRICT: 'mode = "strict"',
    WINDOWED: f"window = {WINDOW}",
    TRANSACTIONS: "transactions = true\nwindow = {window}",
}
_KEYS = 12
_SIZES = (1, 2, 4, 25)
"""Records of a transaction of the load."""
_LONG = 1.5
"""Seconds for which the other writer stays open."""
_PAUSE = 0.05
"""Seconds between them: what is stashed is read as a whole in the end."""

_CONFIG = """
[postgres]
dsn = "{dsn}"
answer_timeout = 3.0
[worker]
installation = "{installation}"
client_id = "${{CLIENT_ID}}"
election = "{election}"
session_timeout = 5.0
receive_deadline = 2.0
drain_limit = 5.0
[kafka]
bootstrap_servers = "${{KAFKA}}"
"""
_OUTBOX = """
[outbox.{outbox}]
message_timeout = 2.0
topic_cooldown = 0.05
topic_cooldown_limit = 0.5
attempts = 2
{settings}
[outbox.{outbox}.kafka_options]
"allow.auto.create.topics" = false
"topic.metadata.propagation.max.ms" = 200
"batch.size" = 15000
"""

MOST_BYTES: Final = "20000"
"""Of a message, as the topics take it: more than a batch of the workers."""


def settings_of(outbox: str, mode: str, window: int = WINDOW) -> str:
    """The section of an outbox; `window`: of the transactions."""
    return _OUTBOX.format(outbox=outbox, settings=_SETTINGS[mode].format(window=window))


class Outboxes:
    """The outboxes `strict`, `windowed`, `transactions`, each with a topic of its own, and their workers."""

    def __init__(
        self,
        dsn: str,
        folder: Path,
        bootstrap: str,
        *,
        election: str = "lease",
        partitions: int = 2,
        topic_partitions: int = 3,
        window: int = 1000,
    ) -> None:
        """Makes outboxes and topics.

        Args:
            dsn: of a database with our SQL.
            folder: for the configuration and the logs.
            bootstrap: of a real broker.
            election: of the workers.
            partitions: of each outbox.
            topic_partitions: of each topic.
            window: of the transactions.
        """
        self.dsn = dsn
        self._observer = Observer(dsn)
        self.topics = {mode: next(topics) for mode in MODES}
        self.processes: dict[int, Program] = {}
        self.config = folder / "outboxes.toml"
        self._folder = folder
        self._bootstrap = bootstrap
        self.config.write_text(
            _CONFIG.format(dsn=dsn, installation=f"test-{uuid4().hex[:8]}", election=election)
            + "".join(settings_of(mode, mode, window) for mode in MODES)
        )
        with self.connect() as connection:
            connection.execute(JOURNAL)
            for mode in MODES:
                create_topic(bootstrap, self.topics[mode], topic_partitions, max_message_bytes=MOST_BYTES)
                connection.execute("SELECT outbox_ensure_exists(%s, %s)", (mode, partitions))

    def connect(self) -> psycopg.Connection[Any]:
        """A session of the caller's."""
        return psycopg.connect(self.dsn, autocommit=True, options="-c search_path=tube,public")

    # --- the table ------------------------------------------------------------------------

    def stash(
        self,
        connection: psycopg.Connection[Any],
        mode: str,
        keys: Sequence[str | None],
        *,
        topic: str | None = None,
        size: int = 10,
    ) -> list[int]:
        """Commit a record of each key, in this order; their ids.

        Those for the outbox's own topic are written down in the same transaction, and judged.
        """
        judged = topic is None
        return stash(connection, mode, keys, topic=topic or self.topics[mode], size=size, judged=judged)

    def waiting(self, mode: str) -> list[int]:
        """The ids that are in an outbox."""
        statement = sql.SQL("SELECT id FROM {} ORDER BY id").format(sql.Identifier("tube", mode))
        return [number for (number,) in self._observer.rows(statement)]

    def delivered(self, mode: str) -> int:
        """Records that were stashed for its topic, and are gone from the outbox."""
        query = sql.SQL(
            "SELECT count(*) FROM public.stashed AS s WHERE outbox = {} AND NOT EXISTS"
            " (SELECT FROM {} AS r WHERE r.id = s.id)"
        ).format(mode, sql.Identifier("tube", mode))
        ((count,),) = self._observer.rows(query)
        return int(count)

    def counts(self, mode: str, key: str) -> tuple[int, int]:
        """Records of a key in an outbox, and how many of them are marked."""
        query = sql.SQL("SELECT count(*), count(leader_id) FROM {} WHERE kafka_key = {}").format(
            sql.Identifier("tube", mode), key
        )
        ((records, marked),) = self._observer.rows(query)
        return records, marked

    def go_on(self, what: str) -> None:
        """Until each outbox has delivered more records than before."""
        before = {mode: self.delivered(mode) for mode in MODES}
        self.wait_until(
            lambda: all(self.delivered(mode) >= before[mode] + 20 for mode in MODES),
            f"deliveries after {what}",
        )

    def wait_until_drained(self, left: Mapping[str, Sequence[int]] | None = None) -> None:
        """Until the outboxes have no records but these."""
        for mode in MODES:
            expected = list((left or {}).get(mode, ()))
            self.wait_until(
                lambda: self.waiting(mode) == expected,  # noqa: B023 # called at once
                f"{mode} has delivered all",
            )

    # --- workers --------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self, bootstrap: str | None = None) -> AsyncIterator[list[Event]]:
        """A worker in this process runs within; what it tells of."""
        events: list[Event] = []
        worker = self.worker(events, bootstrap)
        await worker.start()
        try:
            yield events
        finally:
            await worker.stop()

    def worker(self, events: list[Event], bootstrap: str | None = None) -> Worker:
        """A worker for this process, not started yet."""
        environment = {"CLIENT_ID": f"inside-{uuid4().hex[:4]}", "KAFKA": bootstrap or self._bootstrap}
        return Worker(load(self.config, environment), on_event=events.append)

    def start(
        self, number: int, bootstrap: str | None = None, only: Sequence[str] = MODES, **environment: str
    ) -> None:
        """Start a worker process; `only`: the outboxes that it serves."""
        variables = {
            **os.environ,
            "CLIENT_ID": f"worker-{number}",
            "KAFKA": bootstrap or self._bootstrap,
            "PYTHONPATH": str(ROOT),
            "PYTHONFAULTHANDLER": "1",
            **environment,
        }
        with (self._folder / f"worker-{number}.log").open("ab") as log:
            self.processes[number] = start(
                module(variables),
                ["--config", str(self.config), "--log-format", "json", "worker"]
                + [word for mode in only for word in ("--outbox", mode)],
                environment=variables,
                output=log,
            )

    def signal_all(self, which: signal.Signals) -> None:
        """Send a signal to each worker process."""
        for number in self.processes:
            self.signal(number, which)

    def signal(self, number: int, which: signal.Signals) -> None:
        """Send a signal to a worker process."""
        self.processes[number].send_signal(which)

    def kill(self, number: int) -> None:
        """SIGKILL, and wait until it is gone."""
        self.processes[number].kill()
        self.processes[number].wait()

    def wait_until_struck(self, number: int, action: Action) -> None:
        """Until the fault of a worker process has happened: it is gone, or stopped.

        Stashes more while an outbox has few: one transaction may take all records, and passes each point
        only once. They have keys of their own: of one key, transactions of two sessions may commit in another
        order than that of their ids.
        """
        process = self.processes[number]

        def is_struck() -> bool:
            code = process.poll()
            if action is Action.KILL:
                assert code in (None, -signal.SIGKILL), f"it ended by itself\n{self.last_words(number)}"
                return code is not None
            assert code is None, f"it ended by itself\n{self.last_words(number)}"
            # The state follows the name of the program, which is in parentheses.
            return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

        with self.connect() as connection:

            def look() -> bool:
                if is_struck():
                    return True
                for mode in MODES:
                    if len(self.waiting(mode)) < 20:
                        self.stash(connection, mode, [f"struck-{number}" for number in range(4)])
                return False

            self.wait_until(look, "the fault")

    def terminate(self) -> None:
        """SIGTERM to all worker processes that live; each has to end in order."""
        living = {number: one for number, one in self.processes.items() if one.poll() is None}
        for process in living.values():
            process.terminate()
        for number, process in living.items():
            assert process.wait(timeout=60) == 0, self.last_words(number)

    def leaders(self) -> dict[tuple[str, int], str]:
        """The worker of each outbox and partition that is led."""
        query = "SELECT tube, partition, client_id FROM tube_leaders() WHERE leader_id IS NOT NULL"
        return {(tube, partition): client for tube, partition, client in self._observer.rows(query)}

    def wait_until(self, predicate: Any, what: str) -> None:
        """Until it is true; else, or when a worker crashes, fail with what the workers said last."""

        def look() -> bool:
            for number, process in self.processes.items():
                code = process.poll()
                crashed = code is not None and code not in (0, -signal.SIGKILL)
                assert not crashed, f"it ended by itself with {code}\n{self.log(number)}"
            return bool(predicate())

        wait_until(look, LIMIT, lambda: "\n".join([what, *map(self.last_words, self.processes)]))

    def log(self, number: int) -> str:
        """What a worker process said."""
        return (self._folder / f"worker-{number}.log").read_text()

    def last_words(self, number: int) -> str:
        """The end of a worker's log."""
        return f"--- worker {number}:\n" + "\n".join(self.log(number).splitlines()[-15:])

    # --- the judge ------------------------------------------------------------------------

    def read(self, mode: str) -> list[Seen]:
        """What a consumer of an outbox finds; of transactions only what is committed."""
        return read(self._bootstrap, self.topics[mode], committed=mode == TRANSACTIONS)

    def judge(self, events: Sequence[Event] = ()) -> dict[str, int]:
        """Check what the consumer finds; of each mode, how many records came late: see `Judge`.

        Args:
            events: what a worker in this process has told of.
        """
        late: dict[str, int] = {}
        for mode in MODES:
            stashed = [Stashed(*row) for row in self._observer.rows(READ, (mode,))]
            overdue = self._was_overdue(mode) or was_overdue(mode, events)
            late[mode] = Judge(mode).take(self.read(mode), stashed, overdue=overdue)
        return late

    def _was_overdue(self, mode: str) -> bool:
        """Whether a worker process has told that the broker did not acknowledge in time."""
        return any(
            OVERDUE.reason in line and f'"{mode}"' in line
            for number in self.processes
            for line in self.log(number).splitlines()
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self._observer.close()


def was_overdue(mode: str, events: Iterable[Event]) -> bool:
    """Whether a worker in this process has told that the broker did not acknowledge in time."""
    return any(OVERDUE.reason in text and f"tube='{mode}'" in text for text in map(repr, events))


class Load:
    """Writers that stash records in all outboxes.

    One stashes those of a few keys, in transactions of different sizes. Another one stays open for longer
    than a worker waits for it, and stashes the same key again right after its commit.
    """

    def __init__(self, outboxes: Outboxes, pause: float = _PAUSE) -> None:
        """Writes from `with` on.

        Args:
            outboxes: all of them get the same records.
            pause: seconds between two transactions. A test that waits for terms to time out needs few.
        """
        self._outboxes = outboxes
        self._pause = pause
        self._draw = random.Random(1)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=one) for one in (self._run, self._stay_open)]

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

    def _stay_open(self) -> None:
        while not self._stop.is_set():
            with suppress(psycopg.OperationalError), self._outboxes.connect() as connection:
                while not self._stop.wait(self._pause):
                    with connection.transaction():
                        for mode in MODES:
                            self._outboxes.stash(connection, mode, ["long"])
                        self._stop.wait(_LONG)
                    for mode in MODES:
                        self._outboxes.stash(connection, mode, ["long"])

    def _run(self) -> None:
        while not self._stop.is_set():
            # A lost session is made anew: the server may be restarted.
            with suppress(psycopg.OperationalError), self._outboxes.connect() as connection:
                while not self._stop.wait(self._pause):
                    keys = [f"key-{self._draw.randrange(_KEYS)}" for _ in range(self._draw.choice(_SIZES))]
                    for mode in MODES:
                        self._outboxes.stash(connection, mode, keys)
