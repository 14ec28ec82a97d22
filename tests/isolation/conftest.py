"""Interleaved sessions, closed at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from pytube.db.session import Session as WorkerSession
from tests.conftest import Connect
from tests.isolation.sessions import Session

NewSession = Callable[[], Session]


@pytest.fixture
def session(connect: Connect) -> Iterator[NewSession]:
    """Opens sessions to `dsn` whose statements may be left waiting."""
    monitor = connect()
    opened: list[Session] = []

    def open_session() -> Session:
        opened.append(Session(connect(), monitor))
        return opened[-1]

    yield open_session
    for one in opened:
        one.close()


@pytest.fixture
async def worker_session(dsn: str) -> AsyncIterator[WorkerSession]:
    """A session with `dsn` as a worker opens it."""
    opened = await WorkerSession.open(dsn, "tube", "worker")
    yield opened
    await opened.close()
