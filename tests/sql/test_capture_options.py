"""What an attachment may be told: by which column, which columns count, and replication's rows."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.helpers.capture import (
    TABLE,
    TUBE,
    Conn,
    Touch,
    attach,
    make_tube,
    open_session,
    ops,
    scalar,
    set_up,
    take,
    triggers,
)
from tests.helpers.database import preparing

ATTACH = "SELECT tube_table_ensure_attached(%s, %s, 0, id_col => %s, columns => %s, replica => %s)"


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        set_up(conn)
        conn.execute(f"INSERT INTO {TABLE} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        take(conn)


prepare = preparing(prepared)


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version, with `item` attached and three rows in it."""
    with open_session(any_dsn) as conn:
        conn.add_notice_handler(lambda notice: said.append(f"{notice.severity}: {notice.message_primary}"))
        said.clear()
        yield conn


said: list[str] = []


def options(
    conn: Conn, table: str, by: str | None = None, columns: list[str] | None = None, replica: bool = False
) -> None:
    conn.execute(ATTACH, (TUBE, table, by, columns, replica))


@pytest.fixture
def related(db: Conn) -> Conn:
    """`comment`, attached by the item that each is about."""
    db.execute(
        "CREATE TABLE public.comment (id int PRIMARY KEY,"
        " item int REFERENCES public.item ON DELETE SET NULL, words text)"
    )
    options(db, "public.comment", "item")
    return db


# --- related tables -------------------------------------------------------------------------------


def test_a_related_table_touches_the_documents(related: Conn) -> None:
    related.execute("INSERT INTO comment VALUES (10, 1, 'x'), (11, 1, 'y'), (12, NULL, 'z')")
    assert ops(related) == [("U", 1)]
    related.execute("UPDATE comment SET words = 'w' WHERE id = 11")
    assert ops(related) == [("U", 1)]
    related.execute("DELETE FROM comment WHERE id = 10")
    assert ops(related) == [("U", 1)]
    assert said == [], "no WARNING where id_col is given"


def test_a_change_of_id_col_touches_both(related: Conn) -> None:
    related.execute("INSERT INTO comment VALUES (10, 1), (11, 2), (12, NULL)")
    take(related)
    related.execute("UPDATE comment SET item = 3 WHERE id = 10")
    assert ops(related) == [("U", 1), ("U", 3)]
    related.execute("UPDATE comment SET item = coalesce(item, 0) + 1 WHERE id IN (11, 12)")
    assert ops(related) == [("U", 1), ("U", 2), ("U", 3)]


def test_a_null_is_no_document(related: Conn) -> None:
    related.execute("INSERT INTO comment VALUES (10, NULL)")
    related.execute("UPDATE comment SET words = 'x'")
    related.execute("UPDATE comment SET item = 2")
    related.execute("UPDATE comment SET item = NULL")
    related.execute("DELETE FROM comment")
    assert take(related) == [Touch("U", 0, 2)] * 2


def test_a_cascade_to_a_related_table(related: Conn) -> None:
    related.execute("INSERT INTO comment VALUES (10, 1), (11, 2)")
    take(related)
    related.execute(f"DELETE FROM {TABLE} WHERE id = 1")
    assert ops(related) == [("D", 1), ("U", 1)]


def test_without_id_col_it_warns(db: Conn) -> None:
    db.execute("CREATE TABLE public.more (id int PRIMARY KEY)")
    options(db, "public.more")
    assert said == [
        (
            "WARNING: public.more is related: "
            f"another table is attached to tube '{TUBE}' in the shard 0 before it"
        )
    ]
    db.execute("INSERT INTO more VALUES (5)")
    assert ops(db) == [("U", 5)]


def test_the_column_has_to_fit(db: Conn) -> None:
    for by, what in (("nope", "has no column nope"), ("value", "has the type text")):
        with pytest.raises(psycopg.Error, match=what) as refused:
            options(db, TABLE, by)
        assert refused.value.sqlstate == "TU104"


# --- columns ----------------------------------------------------------------------------------------


def test_only_the_columns_given_count(db: Conn) -> None:
    options(db, TABLE, columns=["value"])
    db.execute(f"UPDATE {TABLE} SET deleted = true WHERE id = 1")
    db.execute(f"UPDATE {TABLE} SET deleted = true")
    db.execute(f"UPDATE {TABLE} SET value = value")
    assert ops(db) == []
    db.execute(f"UPDATE {TABLE} SET value = 'z' WHERE id = 1")
    assert ops(db) == [("U", 1)]
    db.execute(f"UPDATE {TABLE} SET value = 'z', deleted = false WHERE id < 3")
    assert ops(db) == [("U", 2)]
    db.execute(f"UPDATE {TABLE} SET value = NULL WHERE id = 1")
    db.execute(f"UPDATE {TABLE} SET value = ''")
    assert ops(db) == [("U", 1), ("U", 1), ("U", 2), ("U", 3)]


def test_inserts_deletes_and_keys_count_anyway(db: Conn) -> None:
    options(db, TABLE, columns=["value"])
    db.execute(f"INSERT INTO {TABLE} VALUES (4), (5)")
    db.execute(f"DELETE FROM {TABLE} WHERE id = 5")
    assert ops(db) == [("D", 5), ("I", 4), ("I", 5)]
    db.execute(f"UPDATE {TABLE} SET id = 6 WHERE id = 4")
    db.execute(f"UPDATE {TABLE} SET id = id + 10 WHERE id < 3")
    assert ops(db) == [("D", 1), ("D", 2), ("D", 4), ("I", 6), ("I", 11), ("I", 12)]


def test_a_row_that_enters_or_leaves_counts_whatever_the_columns(db: Conn) -> None:
    make_tube(db, predicate="NOT deleted")
    options(db, TABLE, columns=["value"])
    db.execute(f"UPDATE {TABLE} SET deleted = true WHERE id = 1")
    db.execute(f"UPDATE {TABLE} SET deleted = (id < 3)")
    db.execute(f"UPDATE {TABLE} SET deleted = false WHERE id = 1")
    db.execute(f"UPDATE {TABLE} SET deleted = true, value = 'gone' WHERE id = 2")
    assert ops(db) == [("D", 1), ("D", 2), ("I", 1)]


def test_columns_are_compared_as_documents_show_them(db: Conn) -> None:
    db.execute("CREATE TABLE public.odd (id int PRIMARY KEY, n numeric, j json, a text[], f float, p point)")
    options(db, "public.odd", columns=["n", "j", "a", "f", "p"])
    db.execute("INSERT INTO odd VALUES (1, 1.0, '{}', '{x}', 0, '(1,2)'), (2, 1.0, '{}', '{x}', 0, '(1,2)')")
    take(db)
    for change in ("n = 1.00", "j = '{ }'", "a = '{x,NULL}'", "f = '-0'", "p = '(1,3)'", "j = NULL"):
        for some in ("id = 1", "true"):
            db.execute(f"UPDATE odd SET {change} WHERE {some}")
        assert ops(db) == [("U", 1), ("U", 2)], change
    db.execute("UPDATE odd SET n = n, j = j, a = a, f = f, p = p")
    assert ops(db) == []


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("float8", "100.1", "149.9"),
        ("float4", "100.1", "149.9"),
        ("float8[]", "'{100.1}'", "'{149.9}'"),
        ("point", "'(100.1,1)'", "'(149.9,1)'"),
        ("float8 CHECK (value <> 0)", "0.1", "0.1000001"),
    ],
)
def test_no_setting_of_a_writer_makes_columns_look_the_same(
    db: Conn, kind: str, before: str, after: str
) -> None:
    db.execute(f"CREATE TABLE public.odd (id bigint PRIMARY KEY, value {kind})".encode())
    options(db, "public.odd", columns=["value"])
    db.execute(f"INSERT INTO public.odd VALUES (1, {before})".encode())
    take(db)
    db.execute("SET extra_float_digits = -15")
    db.execute("UPDATE public.odd SET value = value")
    assert take(db) == []
    db.execute(f"UPDATE public.odd SET value = {after}".encode())
    assert take(db) == [("U", 0, 1)]
    db.execute("INSERT INTO public.odd VALUES (2, NULL)")
    take(db)
    db.execute(f"UPDATE public.odd SET value = {after}".encode())
    assert take(db) == [("U", 0, 2)], "and NULL is another value"


def test_virtual_columns_are_refused(db: Conn) -> None:
    """They have no value in the rows that a trigger sees; Postgres 18 makes them unless told otherwise."""
    kind = "VIRTUAL" if db.info.server_version >= 180000 else "STORED"
    db.execute(
        f"CREATE TABLE public.virtual (n bigint, w bigint GENERATED ALWAYS AS (n * 2) {kind},"
        f" id bigint GENERATED ALWAYS AS (n + 1) {kind})".encode()
    )
    if kind == "VIRTUAL":
        with pytest.raises(psycopg.Error, match="the column w of .*virtual is a virtual") as refused:
            options(db, "public.virtual", "n", columns=["w", "n"])
        assert refused.value.sqlstate == "0A000"
        for by in (None, "id"):
            with pytest.raises(psycopg.Error, match="the key id of .*virtual is a virtual") as refused:
                options(db, "public.virtual", by)
            assert refused.value.sqlstate == "TU104"
    options(db, "public.virtual", "n", columns=["n"])
    if kind == "VIRTUAL":
        with pytest.raises(psycopg.Error) as refused:
            make_tube(db, predicate="w > 3")
        assert refused.value.sqlstate == "TU105"
    db.execute("INSERT INTO public.virtual VALUES (1)")
    db.execute("UPDATE public.virtual SET n = 2")
    assert ops(db) == [("U", 1), ("U", 1), ("U", 2)]


def test_columns_of_a_related_table(related: Conn) -> None:
    options(related, "public.comment", "item", ["words"])
    related.execute("INSERT INTO comment VALUES (10, 1, 'x'), (11, 1, 'y'), (12, 2, 'x')")
    take(related)
    related.execute("UPDATE comment SET id = id + 100")
    assert ops(related) == []
    related.execute("UPDATE comment SET words = 'z' WHERE words = 'y'")
    related.execute("UPDATE comment SET words = 'z'")
    related.execute("UPDATE comment SET item = 3 WHERE item = 2")
    assert ops(related) == [("U", 1), ("U", 1), ("U", 2), ("U", 2), ("U", 3)]


def test_no_such_column(db: Conn) -> None:
    with pytest.raises(psycopg.errors.UndefinedColumn, match='no column "no such"'):
        options(db, TABLE, columns=["value", "no such"])


def test_options_are_listed_and_can_be_taken_back(db: Conn) -> None:
    listed = "SELECT id_col, columns, replica, key_type::text FROM tube_list()"
    options(db, TABLE, columns=["deleted", "value", "value"], replica=True)
    assert db.execute(listed).fetchall() == [("id", ["value", "deleted"], True, "bigint")]
    assert said[-1].endswith("is now attached by id with shards 0 to 0, columns value deleted, replica")
    attach(db)
    assert db.execute(listed).fetchall() == [("id", None, False, "bigint")]
    assert len(triggers(db)) == 4
    db.execute(f"UPDATE {TABLE} SET value = value WHERE id = 1")
    assert ops(db) == [("U", 1)]


# --- replica ----------------------------------------------------------------------------------------


def as_replication(conn: Conn, *statements: str) -> None:
    """Run as its apply does, but for statement triggers, which it never fires."""
    conn.execute("SET session_replication_role = replica")
    for statement in statements:
        conn.execute(statement)
    conn.execute("RESET session_replication_role")


def test_rows_of_replication_are_touched_where_asked_for(db: Conn) -> None:
    as_replication(db, f"INSERT INTO {TABLE} VALUES (4)")
    assert ops(db) == [], "not by default"
    make_tube(db, predicate="NOT deleted")
    options(db, TABLE, replica=True)
    as_replication(
        db,
        f"INSERT INTO {TABLE} VALUES (5), (6)",
        f"UPDATE {TABLE} SET deleted = (id = 5) WHERE id IN (1, 5)",
        f"UPDATE {TABLE} SET id = 7 WHERE id = 6",
        f"DELETE FROM {TABLE} WHERE id IN (5, 7)",
    )
    assert ops(db) == [("D", 5), ("D", 6), ("D", 7), ("I", 5), ("I", 6), ("I", 7), ("U", 1)]
    db.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = 1")
    assert ops(db) == [("U", 1)], "others are touched once, by their statement"
    as_replication(db, f"TRUNCATE {TABLE}")
    assert ops(db) == [("D", key) for key in (1, 2, 3, 4)]


def test_what_a_change_has_made_is_not_taken_for_former_by_its_own_statements(db: Conn) -> None:
    """The trigger for rows of replication takes an ALTER TABLE, which the event trigger sees."""
    make_tube(db, predicate="NOT deleted")
    db.execute("SELECT tube_table_ensure_attached(%s, %s, 5, 2, replica => true)", (TUBE, TABLE))
    db.execute(f"INSERT INTO {TABLE} VALUES (4), (5)")
    assert take(db) == [Touch("I", 5, 4), Touch("I", 6, 5)]


def test_columns_and_related_tables_of_replication(related: Conn) -> None:
    options(related, "public.comment", "item", ["words"], replica=True)
    as_replication(
        related,
        "INSERT INTO comment VALUES (10, 1, 'x'), (11, NULL, 'y')",
        "UPDATE comment SET id = 12 WHERE id = 10",
        "UPDATE comment SET words = 'z'",
        "UPDATE comment SET item = 2 WHERE id = 12",
    )
    assert ops(related) == [("U", 1), ("U", 1), ("U", 1), ("U", 2)]


def test_replication_itself(db: Conn) -> None:
    """What `session_replication_role` shows is what the server's own apply does: row triggers only."""
    options(db, TABLE, replica=True)
    kinds = "SELECT tgenabled FROM pg_trigger WHERE tgrelid = %s::regclass AND tgtype & 1 = 1"
    assert scalar(db, kinds, (TABLE,)) == "R"
