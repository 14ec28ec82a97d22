"""What the tests of all distributions begin with: Postgres, a table with a tube, and a worker on it."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pytube.config import parse
from pytube.db.install import install
from pytube.embedded.postgres import Postgres
from pytube.worker import Worker

RunWorker = Callable[[str], AbstractAsyncContextManager[None]]


async def eventually(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(120):
        while not await condition():  # noqa: ASYNC110 # of other processes
            await asyncio.sleep(0.05)


def freeze(pid: int) -> None:
    """Stop a process; returns when none of its threads runs any more."""
    os.kill(pid, signal.SIGSTOP)
    threads = list(Path(f"/proc/{pid}/task").iterdir())
    while any((one / "stat").read_text().rpartition(")")[2].split()[0] != "T" for one in threads):
        time.sleep(0.001)


def thaw(pid: int) -> None:
    """Let it continue."""
    os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # for root, the server runs as another user
        with Postgres(folder) as server:
            yield server


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[psycopg.Connection[Any]]:
    """A session to a fresh database with pytube, and the empty table `goods` in the tube `items`."""
    name = uuid4().hex
    with psycopg.connect(postgres.dsn(), autocommit=True) as session:
        session.execute(f'CREATE DATABASE "{name}"')
    install(postgres.dsn(name))
    with psycopg.connect(
        postgres.dsn(name), autocommit=True, options="-c search_path=tube,public"
    ) as session:
        session.execute("SELECT tube_ensure_exists('items')")
        session.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY, v bigint, note text)")
        session.execute("SELECT tube_table_ensure_attached('items', 'public.goods', 0)")
        yield session


@pytest.fixture
def run_worker(shop: psycopg.Connection[Any], postgres: Postgres) -> RunWorker:
    """Runs a worker that delivers `items` to the sink of these TOML lines."""

    @asynccontextmanager
    async def run(sink: str) -> AsyncIterator[None]:
        dsn = postgres.dsn(shop.info.dbname)
        worker = Worker(parse(f'[postgres]\ndsn = "{dsn}"\n[tube.items.sink]\n{sink}'))
        await worker.start()
        try:
            yield
        finally:
            await worker.stop()

    return run
