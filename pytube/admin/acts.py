"""Touches of ids of a table or of a query, acceptance of an emptied sink, and the audit of all acts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from pytube.db.errors import translated
from pytube.errors import UnknownTable, UnknownTube, UsageError
from pytube.model import TOUCHED_AT_ONCE, KeyType, touch_op
from pytube.tubes.calls import explained, rows_of, unknown_tube, value_of
from pytube.tubes.tables import find_table
from pytube.verify.explain import parsed

# With `table` NULL, of all tables.
_ATTACHED = """
    SELECT l.tbl::text, l.shard, l.key_type::text FROM {s}.tube_list(%(table)s) AS l WHERE l.tube = %(tube)s
"""
_PUT = "SELECT {s}.tube_keys_put(%(tube)s, %(shard)s, %(op)s, %(keys)s)"
_INSERT = "SELECT {s}.tube_pods_insert(%(tube)s, %(ids_query)s, %(shard)s, %(op)s)"
_AUDIT = "SELECT {s}.tube_audit_add('touch', %(tube)s, %(details)s)"
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class _Attached:
    tbl: str | None
    shard: int | None
    key_type: str


def touch(
    connection: psycopg.Connection, tube: str, table: str, ids: Sequence[str], schema: str = "tube"
) -> int:
    """Touch documents by their ids; an id without a row is deleted at the sink.

    More than `TOUCHED_AT_ONCE` ids are delivered behind live changes, like a backfill.

    Args:
        connection: autocommit.
        tube: its name.
        table: `schema.table`, attached to the tube; of a related one, ids of its root table are meant.
        ids: as texts. Repeated ids are touched once.
        schema: of pytube's SQL.

    Returns:
        How many were touched.
    """
    attached = _attached(connection, tube, table, schema)
    keys = list(dict.fromkeys(str(parsed(KeyType(attached.key_type), key)) for key in ids))
    if not keys:
        raise UsageError("no id is given; name one at least, or give a query")
    details = {"table": table, "count": len(keys), "keys": [key[:100] for key in keys[:_SHOWN]]}
    with explained(), translated(), connection.transaction():
        value_of(connection, schema, _PUT, tube=tube, shard=attached.shard, op=touch_op(len(keys)), keys=keys)
        value_of(connection, schema, _AUDIT, tube=tube, details=Jsonb(details))
    return len(keys)


def touch_query(
    connection: psycopg.Connection, tube: str, table: str, query: str, schema: str = "tube"
) -> int:
    """Touch the ids that a query of one column gives. It runs with the rights of the session's role.

    More than `TOUCHED_AT_ONCE` ids are delivered behind live changes, like a backfill. To find out, a first
    run of the query ends after one more; if there are so many, it is rolled back.

    The audit holds a digest of the query in place of its text, which may contain confidential data.

    Returns:
        How many ids it gave.
    """
    attached = _attached(connection, tube, table, schema)
    body = query.strip().rstrip(";")
    if not body:
        raise UsageError("the query is empty; give a SELECT of one column, the ids")
    # With the caller's rights, as psql would.
    numbered = "SELECT q.id, pg_catalog.row_number() OVER () FROM (\n{}\n) AS q (id)"
    first = f"SELECT * FROM (\n{body}\n) AS first LIMIT {TOUCHED_AT_ONCE + 1}"  # noqa: S608
    digest = hashlib.sha256(body.encode()).hexdigest()[:16]
    with explained(), translated(), connection.transaction():

        def insert(text: str, op: str) -> int:
            with _notices(connection) as notices:
                query = numbered.format(text)
                value_of(connection, schema, _INSERT, tube=tube, ids_query=query, shard=attached.shard, op=op)
            return int(re.findall(r"insert_ids=(\d+) insert_finished=t", "\n".join(notices))[-1])

        with connection.transaction() as attempt:
            count = insert(first, touch_op(1))
            if count > TOUCHED_AT_ONCE:
                raise psycopg.Rollback(attempt)
        if count > TOUCHED_AT_ONCE:
            count = insert(body, touch_op(count))
        details = Jsonb({"table": table, "query_sha256": digest})
        value_of(connection, schema, _AUDIT, tube=tube, details=details)
    return count


@contextmanager
def _notices(connection: psycopg.Connection) -> Iterator[list[str]]:
    """The notices of the statements in the block, which is within a transaction."""
    notices: list[str] = []
    handler = lambda notice: notices.append(notice.message_primary or "")  # noqa: E731 # to be removed
    connection.add_notice_handler(handler)
    try:
        connection.execute("SET LOCAL client_min_messages = notice")
        yield notices
    finally:
        connection.remove_notice_handler(handler)


def _attached(connection: psycopg.Connection, tube: str, table: str, schema: str) -> _Attached:
    there = rows_of(_Attached, connection, schema, _ATTACHED, tube=tube, table=None)
    if not there:
        raise unknown_tube(tube)
    with translated():
        oid = find_table(connection, table)
    found = rows_of(_Attached, connection, schema, _ATTACHED, tube=tube, table=oid)
    if not found:
        names = ", ".join(str(one.tbl) for one in there if one.tbl is not None) or "none"
        raise UnknownTable(f"{table} is not attached to tube {tube!r} (attached: {names})")
    return found[0]


# --- sinks that were found emptied ------------------------------------------------------------

_ACCEPT = "SELECT {s}.tube_sink_accept(%(tube)s, NULL)"


def accept_sink(connection: psycopg.Connection, tube: str, schema: str = "tube") -> bool:
    """Count the present documents at the sink of a tube as complete; False: it was not found emptied.

    Args:
        connection: autocommit.
        tube: its name.
        schema: of pytube's SQL.
    """
    return bool(value_of(connection, schema, _ACCEPT, tube=tube))


# --- the audit --------------------------------------------------------------------------------

_LIST = "SELECT * FROM {s}.tube_audit_list(%(tube)s, %(limit)s)"
_EXISTS = """
    SELECT EXISTS (SELECT FROM {s}.tube_list() AS l WHERE l.tube = %(tube)s)
        OR EXISTS (SELECT FROM {s}.outbox_list() AS l WHERE l.outbox = %(tube)s)
"""


@dataclass(frozen=True, slots=True)
class Action:
    """One row of the audit."""

    audit_id: int
    done_at: datetime
    done_by: str
    """The role that logged in."""
    client: str | None
    """The `application_name` of its session."""
    action: str
    tube: str | None
    details: Mapping[str, Any]


def audit(
    connection: psycopg.Connection, schema: str = "tube", tube: str | None = None, limit: int = 100
) -> list[Action]:
    """Operators' actions, the latest first: on `tube`, or on any, also on dropped ones.

    Raises:
        UnknownTube: there is no tube or outbox `tube`, and the audit knows of none.
    """
    rows = rows_of(Action, connection, schema, _LIST, tube=tube, limit=limit)
    if tube is not None and not rows and not value_of(connection, schema, _EXISTS, tube=tube):
        raise UnknownTube(
            f"there is no tube or outbox {tube!r}, and the audit has no entries for it; "
            "`pytube tube list` and `pytube outbox list` list the names"
        )
    return rows
