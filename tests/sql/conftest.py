"""What several files of tests of the SQL share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.database import TestServer, preparing
from tests.sql.attackers import World, attacked, end_worlds, make_world

prepare = preparing(make_world, "world")


@pytest.fixture(scope="module")
def attacked_servers() -> Iterator[set[TestServer]]:
    """Those that have a world, until the file is done."""
    servers: set[TestServer] = set()
    yield servers
    for server in servers:
        end_worlds(server)


@pytest.fixture
def world(any_server: TestServer, any_dsn: str, attacked_servers: set[TestServer]) -> Iterator[World]:
    """Attached: a table of mallory's, one of keeper's, and one of a superuser's."""
    attacked_servers.add(any_server)
    with attacked(any_dsn) as world:
        yield world
