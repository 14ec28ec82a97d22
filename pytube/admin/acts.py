"""Touches of ids of a table or of a query, acceptance of an emptied sink, and the audit of all acts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from pytube.db.errors import translated
from pytube.errors import UnknownTable, UnknownTube, UsageError
from pytube.model import TOUCHED_AT_ONCE, KeyType, touch_op
from pytube.tubes.calls import explained, inserted, notices, rows_of, unknown_tube, value_of
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


def touch(
    connection: psycopg.Connection, tube: str, table: str, ids: Sequence[str], schema: str = "tube"
) -> int:
    """Touch documents by their ids; an id without a row is deleted at the sink.

    More than `TOUCHED_AT_ONCE` ids are delivered behind live changes, like a backfill.

    `table` is attached to the tube; of a related one, ids of its root table are meant. Repeated ids are
    touched once. Returns how many were touched.
    """
    shard, key_type = _attached(connection, tube, table, schema)
    keys = list(dict.fromkeys(str(parsed(key_type, key)) for key in ids))
    if not keys:
        raise UsageError("no id is given; name one at least, or give a query")
    details = {"table": table, "count": len(keys), "keys": [key[:100] for key in keys[:_SHOWN]]}
    with explained(), translated(), connection.transaction():
        value_of(connection, schema, _PUT, tube=tube, shard=shard, op=touch_op(len(keys)), keys=keys)
        value_of(connection, schema, _AUDIT, tube=tube, details=Jsonb(details))
    return len(keys)


def touch_query(
    connection: psycopg.Connection, tube: str, table: str, query: str, schema: str = "tube"
) -> int:
    """Touch the ids that a query of one column gives. It runs with the rights of the session's role.

    More than `TOUCHED_AT_ONCE` ids are delivered behind live changes, like a backfill. To find out, a first
    run of the query ends after one more; if there are so many, it is rolled back.

    The audit holds a digest of the query in place of its text, which may contain confidential data. Returns
    how many ids it gave.
    """
    shard, _ = _attached(connection, tube, table, schema)
    body = query.strip().rstrip(";")
    if not body:
        raise UsageError("the query is empty; give a SELECT of one column, the ids")
    # With the caller's rights, as psql would.
    numbered = "SELECT q.id, pg_catalog.row_number() OVER () FROM (\n{}\n) AS q (id)"
    first = f"SELECT * FROM (\n{body}\n) AS first LIMIT {TOUCHED_AT_ONCE + 1}"  # noqa: S608
    digest = hashlib.sha256(body.encode()).hexdigest()[:16]
    with explained(), translated(), connection.transaction():

        def insert(text: str, op: str) -> int:
            with notices(connection) as heard:
                query = numbered.format(text)
                value_of(connection, schema, _INSERT, tube=tube, ids_query=query, shard=shard, op=op)
            return inserted(heard)[0]

        with connection.transaction() as attempt:
            count = insert(first, touch_op(1))
            if count > TOUCHED_AT_ONCE:
                raise psycopg.Rollback(attempt)
        if count > TOUCHED_AT_ONCE:
            count = insert(body, touch_op(count))
        details = Jsonb({"table": table, "query_sha256": digest})
        value_of(connection, schema, _AUDIT, tube=tube, details=details)
    return count


def _attached(connection: psycopg.Connection, tube: str, table: str, schema: str) -> tuple[int, KeyType]:
    """The shard of an attached table, and the type of the tube's keys."""
    there = rows_of(dict, connection, schema, _ATTACHED, tube=tube, table=None)
    if not there:
        raise unknown_tube(tube)
    with translated():
        oid = find_table(connection, table)
    found = rows_of(dict, connection, schema, _ATTACHED, tube=tube, table=oid)
    if not found:
        names = ", ".join(one["tbl"] for one in there if one["tbl"] is not None) or "none"
        raise UnknownTable(f"{table} is not attached to tube {tube!r} (attached: {names})")
    return found[0]["shard"], KeyType(found[0]["key_type"])


# --- sinks that were found emptied ------------------------------------------------------------

_ACCEPT = "SELECT {s}.tube_sink_accept(%(tube)s, NULL)"


def accept_sink(connection: psycopg.Connection, tube: str, schema: str = "tube") -> bool:
    """Count the present documents at the sink of a tube as complete; False: it was not found emptied."""
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
