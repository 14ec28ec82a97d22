"""What several files of tests of the SQL share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sql.attackers import World, attacked


@pytest.fixture
def world(any_dsn: str) -> Iterator[World]:
    """Attached: a table of mallory's, one of keeper's, and one of a superuser's."""
    with attacked(any_dsn) as world:
        yield world
