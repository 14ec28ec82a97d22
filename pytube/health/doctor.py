"""All that the doctor looks at, in order of what depends on what."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from pytube.config import Config
from pytube.db.connect import connect_sync
from pytube.db.errors import describe, translated
from pytube.errors import PytubeError
from pytube.health import postgres
from pytube.health.broker import check_broker
from pytube.health.check import Check, Level, fail, ok
from pytube.health.queries import TUBES
from pytube.health.sink import check_sink
from pytube.tubes.queries import within


def examine(config: Config) -> Iterator[Check]:
    """Every finding, as it is made. Does not raise: what fails is a finding."""
    partitions: dict[str, int] = {}
    dsn, schema = config.postgres.dsn.get_secret_value(), config.postgres.schema_name
    try:
        with connect_sync(dsn, schema, application_name="pytube doctor") as connection, translated():
            yield ok("Postgres", "answers")
            yield from postgres.check_server(connection)
            installed = postgres.check_version(connection, schema)
            yield installed
            there = installed.level is Level.OK
            yield postgres.check_rights(connection, schema)
            if there:
                yield postgres.check_sequence(connection, schema)
                partitions = _partitions(connection, schema)
            yield postgres.check_connections(connection)
            yield from postgres.check_settings(connection)
            yield from postgres.check_transactions(connection)
            yield postgres.check_pooler(connection, dsn, schema)
    except PytubeError as error:
        yield fail("Postgres", str(error), "correct postgres.dsn, or start the server")
    except psycopg.Error as error:
        yield fail("Postgres", f"it refused: {describe(error)}", "see the server's log")
    yield from _check_tubes(config, partitions)
    if config.election_kind == "neli":
        yield from check_broker(config, partitions)
    else:
        yield ok("election", "by leases in Postgres, without a broker")
    for name, tube in config.tubes.items():
        yield check_sink(name, tube.sink)


def _partitions(connection: psycopg.Connection, schema: str) -> dict[str, int]:
    """The tubes that are there, with their numbers of partitions; none when we may not look."""
    try:
        return dict(connection.execute(within(TUBES, schema)).fetchall())
    except psycopg.errors.InsufficientPrivilege:
        return {}


def _check_tubes(config: Config, partitions: dict[str, int]) -> Iterator[Check]:
    for name in config.tubes:
        if name in partitions:
            yield ok(f"tube {name}", f"{partitions[name]} partitions")
        else:
            yield fail(f"tube {name}", "is not in the database", f"pytube tube create {name}")
