"""pytube in a Django project: put `pytube.contrib.django` into `INSTALLED_APPS`.

Migration operations are in `pytube.contrib.django.operations`, helpers for tests in `.testing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import psycopg
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.transaction import TransactionManagementError

from pytube.db.database import borrowed
from pytube.outbox import Message
from pytube.outbox import stash as stash_by

__all__ = ["Message", "session", "stash"]


@dataclass(frozen=True, slots=True)
class Options:
    """`PYTUBE = {…}` in the project's settings; none is required."""

    schema: str = "tube"
    """Where pytube's SQL is."""
    database: str = "default"
    """The alias of its database in `DATABASES`; migrations of other databases leave pytube out."""
    config: str | None = None
    """The path of `pytube.toml`, for documents of the file and for the system check."""


def options() -> Options:
    """The setting as it is now.

    Raises:
        ImproperlyConfigured: it has keys that are not known.
    """
    given = getattr(settings, "PYTUBE", {})
    known = {field.name for field in fields(Options)}
    if unknown := sorted(set(given) - known):
        raise ImproperlyConfigured(
            f"PYTUBE[{unknown[0]!r}] is not known; the keys are {', '.join(sorted(known))}"
        )
    config = given.get("config")
    return Options(**{**given, "config": None if config is None else str(config)})


def stash(
    messages: Iterable[Message], *, outbox: str, in_order: bool = False, using: str | None = None
) -> list[int]:
    """Put messages into an outbox: they are delivered if, and only if, the ORM's transaction commits.

    Args:
        messages: in their order.
        outbox: its name.
        in_order: as for `pytube.outbox.stash`.
        using: the alias of a database; None: the one of the setting.

    Returns:
        The ids of the records, in the order of the messages.

    Raises:
        TransactionManagementError: it is not called within `transaction.atomic()` of that database.
        UsageError: as for `pytube.outbox.stash`.
    """
    alias = options().database if using is None else using
    connection = connections[alias]
    if not connection.in_atomic_block:
        raise TransactionManagementError(
            f"stash messages for the outbox {outbox!r} within transaction.atomic(using={alias!r}), "
            "together with the rows that they are about"
        )
    connection.validate_no_broken_transaction()
    with connection.wrap_database_errors:
        return stash_by(_driver(alias), messages, outbox=outbox, in_order=in_order, schema=options().schema)


@contextmanager
def session(using: str | None = None) -> Iterator[psycopg.Connection]:
    """The ORM's connection for `Tubes`, `Outboxes` and the like: their changes are part of its transaction.

    `using`: as for `stash`.
    """
    alias = options().database if using is None else using
    connection = connections[alias]
    connection.validate_no_broken_transaction()
    with connection.wrap_database_errors, borrowed(_driver(alias), options().schema) as lent:
        yield lent


def _driver(alias: str) -> psycopg.Connection:
    """The connection of psycopg behind that of the ORM."""
    connection = connections[alias]
    if connection.vendor == "postgresql":
        connection.ensure_connection()
        if isinstance(connection.connection, psycopg.Connection):
            return connection.connection
    raise ImproperlyConfigured(
        f"the database {alias!r} is not Postgres by psycopg 3; name pytube's database in PYTUBE['database']"
    )
