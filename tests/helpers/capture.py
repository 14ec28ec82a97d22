"""What tests of capture share: a table, a tube that follows it, and what is in the tube."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

Conn = psycopg.Connection[Any]
TUBE = "es-live"
TABLE = "public.item"


class Refusal:
    """The error, once there is one."""

    value: psycopg.Error


class Touch(NamedTuple):
    """One id of one pod."""

    op: str
    shard: int
    id: int


def open_session(dsn: str, **options: Any) -> Conn:
    """An autocommit session with our schema in its search_path."""
    return psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public", **options)


def let_writers_notify(conn: Conn) -> None:
    """Have writers wake workers in this database, and in this session.

    They do not where transactions may be prepared, as on most servers of tests.
    """
    conn.execute(sql.SQL("ALTER DATABASE {} SET pytube.wake = on").format(sql.Identifier(conn.info.dbname)))
    conn.execute("SET pytube.wake = on")


def make_item(conn: Conn, table: str = TABLE) -> None:
    """A table with a key, a value and a column that predicates like."""
    conn.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, value text, deleted boolean DEFAULT false)")


def make_tube(conn: Conn, tube: str = TUBE, partitions: int = 4, predicate: str | None = None) -> None:
    conn.execute("SELECT tube_ensure_exists(%s, %s, %s)", (tube, partitions, predicate))


def attach(conn: Conn, table: str = TABLE, shard: int | None = 0, shards: int = 1, tube: str = TUBE) -> None:
    conn.execute("SELECT tube_table_ensure_attached(%s, %s, %s, %s)", (tube, table, shard, shards))


def detach(conn: Conn, table: str = TABLE, tube: str | None = TUBE) -> None:
    conn.execute("SELECT tube_table_ensure_detached(%s, %s)", (tube, table))


def set_up(
    conn: Conn, predicate: str | None = None, shard: int = 0, shards: int = 1, partitions: int = 4
) -> None:
    """The table, the tube, and the one attached to the other."""
    make_item(conn)
    make_tube(conn, partitions=partitions, predicate=predicate)
    attach(conn, shard=shard, shards=shards)


def set_up_database(dsn: str) -> None:
    """`set_up`, for databases to begin with."""
    with open_session(dsn) as conn:
        set_up(conn)


def take(conn: Conn, tube: str = TUBE) -> list[Touch]:
    """All touches in the tube, sorted; the tube is empty afterwards."""
    statement = sql.SQL("WITH gone AS (DELETE FROM tube.{} RETURNING op, shard, ids) SELECT * FROM gone")
    rows = conn.execute(statement.format(sql.Identifier(tube))).fetchall()
    return sorted(Touch(op, shard, key) for op, shard, ids in rows for key in ids)


def ops(conn: Conn, tube: str = TUBE) -> list[tuple[str, int]]:
    """`take` without the shards."""
    return sorted((touch.op, touch.id) for touch in take(conn, tube))


def pods(conn: Conn, tube: str = TUBE) -> list[tuple[str, int, list[int], Any]]:
    """`(op, shard, ids, payload)` of all pods by seq; the tube is left as it is."""
    statement = sql.SQL("SELECT op, shard, ids, payload FROM tube.{} ORDER BY seq")
    return conn.execute(statement.format(sql.Identifier(tube))).fetchall()


def asked(conn: Conn, tube: str = TUBE) -> list[str]:
    """The types of the control pods that wait, by seq."""
    return [payload["type"] for _, _, ids, payload in pods(conn, tube) if payload and not ids]


def scalar(conn: Conn, statement: str, params: Any = None) -> Any:
    """The one value that a statement gives."""
    row = conn.execute(statement, params).fetchone()
    assert row is not None
    return row[0]


def state_of(error: BaseException) -> str | None:
    """The SQLSTATE of an error."""
    assert isinstance(error, psycopg.Error)
    return error.sqlstate


@contextmanager
def refusal(state: str, case: object) -> Iterator[Refusal]:
    """Expects an error with this SQLSTATE; what fails names the case.

    All cases of a refusal are one test: what is refused changes nothing, so they need one database.
    """
    found = Refusal()
    try:
        yield found
    except psycopg.Error as error:
        found.value = error
    else:
        raise AssertionError(f"{case} is not refused")
    assert found.value.sqlstate == state, f"{case}: {found.value.sqlstate}: {found.value}"


def triggers(conn: Conn, table: str = TABLE) -> list[str]:
    """The names of the triggers on a table."""
    rows = conn.execute(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass AND NOT tgisinternal ORDER BY 1", (table,)
    )
    return [row[0] for row in rows]


def unfollow(conn: Conn) -> None:
    """Take our event triggers away, as on a server where none may be made."""
    found = conn.execute("SELECT evtname FROM pg_event_trigger").fetchall()
    for (name,) in found:
        conn.execute(sql.SQL("DROP EVENT TRIGGER {}").format(sql.Identifier(name)))
    conn.execute("SELECT tube_sync()")
