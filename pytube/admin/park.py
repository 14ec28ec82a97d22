"""Parked keys: listed, tried again, or dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, LiteralString

import psycopg

from pytube.errors import UsageError
from pytube.tubes.calls import AT_ONCE, check_tube, in_pieces, rows_of, value_of

_LIST = "SELECT * FROM {s}.tube_park_list(%(tube)s, %(limit)s, %(shard)s, %(key)s, %(error)s, %(older)s)"
_COUNT = """
    SELECT count, seen::text AS snapshot, before
    FROM {s}.tube_park_count(%(tube)s, %(shard)s, %(key)s, %(error)s, %(older)s)
"""
_RETRY = """
    SELECT {s}.tube_park_retry(
        %(tube)s, %(shard)s, %(key)s, %(error)s, %(before)s, %(snapshot)s::pg_catalog.pg_snapshot, %(limit)s)
"""
_DROP = """
    SELECT {s}.tube_park_drop(
        %(tube)s, %(shard)s, %(key)s, %(error)s, %(before)s, %(snapshot)s::pg_catalog.pg_snapshot, %(limit)s)
"""
_DOCUMENT = """
    SELECT (
        SELECT d.document FROM {s}.tube_parked AS k JOIN {s}.tube_parked_document AS d USING (park_id)
        WHERE k.park_id = %(park_id)s)
"""


@dataclass(frozen=True, slots=True)
class Parking:
    """Which parked keys are meant; None does not filter."""

    tube: str | None = None
    shard: int | None = None
    key: str | None = None
    """An id of the tube, in any form that its type reads: `042` is 42."""
    error: str | None = None
    """A text that the error holds, in any case."""
    older: timedelta | None = None
    """Parked longer ago than this."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The keys that some `Parking` meant at a moment: all pieces of a bulk retry or drop act on these."""

    count: int
    snapshot: str
    """Of Postgres: keys that were parked, parked again or retried after it have changed."""
    before: datetime | None
    """What `Parking.older` meant then."""


@dataclass(frozen=True, slots=True)
class Parked:
    """A key that was set aside, or a control pod, which has no id."""

    park_id: int
    tube: str
    shard: int
    id: str | None
    op: str
    seq: int
    payload: Mapping[str, Any] | None
    """Of a control pod."""
    error: str
    attempts: int
    epoch: int
    parked_at: datetime
    """When it failed last."""
    first_at: datetime
    """When it failed first since it was delivered."""
    retried_at: datetime | None
    """When an operator had it tried again; None: not since it was parked."""


def list_parked(
    connection: psycopg.Connection, parking: Parking, schema: str = "tube", limit: int = 100
) -> list[Parked]:
    """The parked keys, the latest first; `UsageError` if the key is none of the tube, or without a tube."""
    _check_tube(connection, parking, schema)
    return rows_of(Parked, connection, schema, _LIST, **asdict(parking), limit=limit)


def see_parked(connection: psycopg.Connection, parking: Parking, schema: str = "tube") -> Seen:
    """How many there are, for `retry_parked` and `drop_parked` of just these; raises as `list_parked`."""
    _check_tube(connection, parking, schema)
    return rows_of(Seen, connection, schema, _COUNT, **asdict(parking))[0]


def parked_document(connection: psycopg.Connection, park_id: int, schema: str = "tube") -> bytes | None:
    """The document sent for a parked key, if the tube's `park_documents` keeps it. Needs tube_admin."""
    found: bytes | None = value_of(connection, schema, _DOCUMENT, park_id=park_id)
    return found


def retry_parked(
    connection: psycopg.Connection, parking: Parking, schema: str = "tube", seen: Seen | None = None
) -> int:
    """Touch parked keys, so that they are delivered, or parked again.

    Keys that were retried and have not failed since are left alone, unless a key is given; so are keys that
    were parked, retried or dropped after they were `seen` by `see_parked` (None: now). Interrupted, some are
    done and the others untouched. Returns how many were touched.
    """
    return _act(connection, parking, schema, seen, _RETRY)


def drop_parked(
    connection: psycopg.Connection, parking: Parking, schema: str = "tube", seen: Seen | None = None
) -> int:
    """Forget parked keys; the sink stays as it is until they are touched. Arguments as of `retry_parked`.

    With a key: not when another operator retries or drops it at the same time. Returns how many there were.
    """
    return _act(connection, parking, schema, seen, _DROP)


def _act(
    connection: psycopg.Connection, parking: Parking, schema: str, seen: Seen | None, query: LiteralString
) -> int:
    if parking.tube is None:
        raise UsageError("name the tube whose parked keys are meant")
    bound = seen or see_parked(connection, parking, schema)
    arguments = {**asdict(parking), "before": bound.before, "snapshot": bound.snapshot, "limit": AT_ONCE}

    def work() -> int:
        return int(value_of(connection, schema, query, **arguments))

    # A given key is retried again although it was, so a second call would never find it done.
    return in_pieces(work) if parking.key is None else work()


def _check_tube(connection: psycopg.Connection, parking: Parking, schema: str) -> None:
    if parking.key is not None and parking.tube is None:
        raise UsageError("name the tube of the key: TUBE --key ID")
    if parking.tube is not None:
        check_tube(connection, schema, parking.tube)
