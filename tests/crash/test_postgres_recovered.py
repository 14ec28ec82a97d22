"""Postgres loses its last commits in a crash while partitions are idle or asleep: the worker notices.

Marks and purges do not wait for the disk. What a crash takes back of them is done again only if the terms
end, also those of partitions that asked nothing while the server was down.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import load
from pytube.embedded.postgres import Postgres
from pytube.model import OK, Batch, Id, Result
from pytube.sources.queries import INCARNATION
from pytube.worker import Worker
from tests.conftest import VERSIONS
from tests.helpers.database import TestServer
from tests.helpers.waiting import wait_until, wait_until_async

PARTITIONS = 4
SETTINGS = {"max_prepared_transactions": "0", "wal_writer_delay": "10s"}
"""Writers wake workers; and what no commit waits for is on the disk late."""

taken: Counter[Id] = Counter()


def send(batch: Batch) -> Sequence[Result]:
    """Takes everything."""
    taken.update(document.id for document in batch)
    return [OK] * len(batch)


@pytest.fixture(params=VERSIONS, ids=str)
def server(request: pytest.FixtureRequest) -> Iterator[TestServer]:
    server = TestServer(request.param, SETTINGS)
    yield server
    server.close()


def ask(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def answers(dsn: str) -> bool:
    try:
        return bool(ask(dsn, "SELECT 1"))
    except psycopg.OperationalError:
        return False


def kill_a_backend(postgres: Postgres, dsn: str) -> None:
    """The postmaster ends all others, and recovers; it is not restarted itself."""
    with psycopg.connect(dsn) as victim, psycopg.connect(dsn) as witness:
        os.kill(victim.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            witness.execute("SELECT pg_sleep(60)")
    assert postgres.running
    wait_until(lambda: answers(dsn), what="the server has recovered")


def restart_at_once(postgres: Postgres, dsn: str) -> None:
    """An immediate shutdown skips the checkpoint, as a power cut would."""
    del dsn
    postgres.restart(signal.SIGQUIT)


Crash = Callable[[Postgres, str], None]
CRASHES = pytest.mark.parametrize("crash", [kill_a_backend, restart_at_once])


@CRASHES
def test_a_crash_changes_what_a_session_reads_of_the_server(server: TestServer, crash: Crash) -> None:
    with server.database(installed=True) as dsn:
        before = ask(dsn, INCARNATION)
        assert ask(dsn, INCARNATION) == before
        crash(server.postgres, dsn)
        assert ask(dsn, INCARNATION) != before


@CRASHES
async def test_what_a_crash_takes_back_of_idle_and_of_sleeping_partitions_is_done_again(
    server: TestServer, crash: Crash, tmp_path: Path
) -> None:
    taken.clear()
    with server.database(installed=True) as dsn:
        ask(dsn, "SELECT tube_ensure_exists('items', 4)")
        ask(dsn, "CREATE TABLE public.items (id bigint PRIMARY KEY)")
        ask(dsn, "SELECT tube_table_ensure_attached('items', 'public.items', 0, 4)")
        config = tmp_path / "pytube.toml"
        config.write_text(
            f'[postgres]\ndsn = "{dsn}"\n[worker]\nreceive_deadline = 5.0\n'
            f'[tube.items.sink]\ntype = "callable"\ntarget = "{__name__}:send"\n'
        )
        worker = Worker(load(config))
        await worker.start()
        try:
            await until_led(worker)
            for number, state in enumerate(("idle", "asleep", "idle", "idle")):
                keys = range(100 * number, 100 * number + 10)
                before = terms(dsn)
                ask(dsn, f"INSERT INTO public.items SELECT generate_series({keys[0]}, {keys[-1]})")
                await wait_until_async(lambda: is_empty(dsn), what="all is delivered and purged")
                if state == "asleep":
                    await wait_until_async(lambda: is_asleep(worker), what="all sleep")
                await asyncio.to_thread(crash, server.postgres, dsn)
                late = keys[-1] + 1
                ask(dsn, f"INSERT INTO public.items VALUES ({late})")
                await wait_until_async(
                    lambda: len(terms(dsn)) == PARTITIONS and not terms(dsn) & before,  # noqa: B023
                    what="all terms have ended, and others have begun",
                )
                await wait_until_async(lambda: is_empty(dsn), what="what the crash took back is done again")
                assert taken.keys() >= {*keys, late}
        finally:
            await worker.stop()
    assert max(taken.values()) > 1, "no crash took a purge back, so nothing was tested"


async def until_led(worker: Worker) -> None:
    await wait_until_async(lambda: len(worker.leads("items")) == PARTITIONS, what="all partitions are led")


def is_asleep(worker: Worker) -> bool:
    """Whether only notifications wake the partitions."""
    present = worker._hosts[0].database.terms.values()
    return len(present) == PARTITIONS and all(term.sleeps for term in present)


def terms(dsn: str) -> set[object]:
    """The present terms."""
    return {term for (term,) in ask(dsn, "SELECT leader_id FROM tube_leaders()")}


def is_empty(dsn: str) -> bool:
    """Whether no pod waits."""
    return ask(dsn, "SELECT count(*) FROM tube.items") == [(0,)]
