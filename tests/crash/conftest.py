"""Fleets for crash tests: each with a database, a load and a sink file of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytube.embedded.postgres import Postgres
from tests.crash.fleet import Fleet
from tests.crash.load import make_table
from tests.helpers.database import TestServer

MakeFleet = Callable[..., Fleet]

NELI_IN_SOAK = ["lease", pytest.param("neli", marks=pytest.mark.soak)]
LEASE_IN_SOAK = [pytest.param("lease", marks=pytest.mark.soak), "neli"]
"""`make test` runs the test under one election, and `make soak` under the other: it is the same for both."""


@pytest.fixture(scope="session")
def crash_server() -> Iterator[TestServer]:
    """A server as most are: nobody can prepare transactions on it, so writers wake workers."""
    server = TestServer(18, {"max_prepared_transactions": "0"})
    yield server
    server.close()


@pytest.fixture
def dsn(crash_server: TestServer) -> Iterator[str]:
    """A fresh database on it, with our SQL."""
    with crash_server.database(installed=True) as dsn:
        yield dsn


@pytest.fixture
def postgres(crash_server: TestServer) -> Postgres:
    """The server, to be killed and restarted."""
    return crash_server.postgres


@pytest.fixture
def make_fleet(dsn: str, tmp_path: Path) -> Iterator[MakeFleet]:
    """Makes the fleet of a test; its processes are ended with the test."""
    with ExitStack() as stack:

        def make(**options: object) -> Fleet:
            make_table(dsn, "items", 4)
            return stack.enter_context(Fleet(dsn, tmp_path, **options))  # type: ignore[arg-type] # as Fleet's

        yield make


@pytest.fixture(params=["lease", "neli"])
def slow_fleet(request: pytest.FixtureRequest, make_fleet: MakeFleet) -> Fleet:
    """A fleet under each election whose sink dawdles."""
    kafka = request.getfixturevalue("kafka_real").bootstrap if request.param == "neli" else None
    return make_fleet(kafka=kafka, slow=True)


@pytest.fixture(params=["lease", "neli"])
def fleet(request: pytest.FixtureRequest, make_fleet: MakeFleet) -> Fleet:
    """A fleet under each election; neli with a real broker, whose groups settle sooner than the mock's."""
    kafka = request.getfixturevalue("kafka_real").bootstrap if request.param == "neli" else None
    return make_fleet(kafka=kafka)
