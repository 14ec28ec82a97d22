"""Tables that goharvest's writers made and go on writing, adopted in place."""

from __future__ import annotations

import psycopg
import pytest

from tests.helpers.capture import open_session
from tests.helpers.outbox_sql import (
    ADOPTED,
    GOHARVEST_TABLE,
    OUTBOX,
    adopt,
    lead,
    make_outbox,
    mark,
    park,
    purge,
    retry,
)
from tests.helpers.roles import as_role, roles
from tests.helpers.terms import Conn, scalar

STASH = """
    INSERT INTO {table}
        (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
    VALUES (NOW(), $1, $2, $3, $4, $5)
"""
"""As goharvest's stasher prepares it, but for the name of the table."""

TABLE = "public.candidate"
LIKE = f"CREATE TABLE {TABLE} (LIKE public.outbox INCLUDING ALL)"
FAULTS = {
    "CREATE VIEW {t} AS SELECT * FROM public.outbox": "it is a view",
    "CREATE TABLE {t} (LIKE public.outbox) PARTITION BY LIST (id)": "it is a partitioned table",
    "CREATE UNLOGGED TABLE {t} (LIKE public.outbox INCLUDING ALL)": (
        "it is an unlogged table, which a crash of the server empties"
    ),
    "{like}; ALTER TABLE {t} ENABLE ROW LEVEL SECURITY": (
        "row-level security could hide records from the worker"
    ),
    "{like}; CREATE RULE r AS ON DELETE TO {t} DO INSTEAD NOTHING": ("it has rules"),
    "CREATE TABLE {t} (LIKE public.outbox)": "its primary key is not the column id",
    "CREATE TABLE {t} (LIKE public.outbox, UNIQUE (id))": "its primary key is not the column id",
    "{like}; ALTER TABLE {t} DROP leader_id": ("it has no column leader_id of the type uuid"),
    "{like}; ALTER TABLE {t} ALTER kafka_value TYPE json USING NULL": (
        "its column kafka_value has another type than varchar, text or bytea"
    ),
    "{like}; ALTER TABLE {t} ALTER kafka_topic DROP NOT NULL": "its column kafka_topic may be NULL",
    "{like}; CREATE TABLE public.heir () INHERITS ({t})": ("other tables inherit from it"),
}
"""A relation that can't be adopted, and why."""


def test_records_of_goharvests_stasher_are_drained_while_it_goes_on(conn: Conn, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as app:
        app.execute(GOHARVEST_TABLE)
        app.execute(f"PREPARE stash AS {STASH.format(table=ADOPTED)}".encode())
        app.execute("EXECUTE stash('orders', 'key', 'value', '{h1,h2}', '{v1,v2}')")
        # left by a reaper that is no more
        app.execute(f"UPDATE {ADOPTED} SET leader_id = gen_random_uuid()")
        conn.execute("SELECT outbox_adopt('orders', 'public.outbox')")
        app.execute("EXECUTE stash('orders', 'key', NULL, '{}', '{}')")
        app.execute(
            f"INSERT INTO {ADOPTED} (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
            " kafka_header_values) VALUES (now(), 'a', 'k', 'v', '{}', '{}'),"
            " (now(), 'b', 'k', 'v', '{}', '{}')"
        )
    term = lead(conn)
    records = mark(conn, term)
    assert [(record.kafka_topic, record.kafka_value) for record in records] == [
        ("orders", b"value"),
        ("orders", None),
        ("a", b"v"),
        ("b", b"v"),
    ]
    assert (records[0].kafka_header_keys, records[0].kafka_header_values) == (["h1", "h2"], ["v1", "v2"])
    assert purge(conn, term, [record.id for record in records]) == 4


def test_goharvests_stasher_writes_to_a_table_of_ours(conn: Conn, dsn: str) -> None:
    make_outbox(conn)
    with roles(dsn, "app") as admin:
        admin.execute("GRANT tube_writer TO app")
        with psycopg.connect(as_role(dsn, "app"), autocommit=True) as app:
            app.execute(f"PREPARE stash AS {STASH.format(table='tube.orders')}".encode())
            app.execute("EXECUTE stash('orders', 'key', 'value', '{h}', '{v}')")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                app.execute("INSERT INTO tube.orders (id, kafka_topic) VALUES (1, 't')")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                app.execute("SELECT kafka_value FROM tube.orders")
    (record,) = mark(conn, lead(conn))
    assert (record.kafka_key, record.kafka_value, record.kafka_header_keys) == ("key", b"value", ["h"])


def test_what_can_not_be_adopted_is_left_alone(conn: Conn) -> None:
    conn.execute(GOHARVEST_TABLE)
    found = {}
    for make in FAULTS:
        with conn.transaction(force_rollback=True):
            conn.execute(make.format(t=TABLE, like=LIKE))
            with pytest.raises(psycopg.Error) as refused, conn.transaction():
                conn.execute(f"SELECT outbox_adopt('orders', '{TABLE}')")
            assert refused.value.sqlstate == "TU107"
            found[make] = (refused.value.diag.message_primary or "").partition("adopted: ")[2]
    assert found == FAULTS
    assert conn.execute("SELECT * FROM outbox_list()").fetchall() == []


def test_a_table_belongs_to_one_outbox_and_an_outbox_keeps_its_table(conn: Conn) -> None:
    adopt(conn)
    conn.execute(f"CREATE TABLE {TABLE} (LIKE {ADOPTED} INCLUDING ALL)")
    for call, message in (
        ("'other', 'public.outbox'", "public.outbox can't be adopted: outbox 'orders' has it"),
        ("'orders', 'public.candidate'", "outbox 'orders' has the table public.outbox"),
        ("'own', 'public.candidate'", "outbox 'own' has the table own"),
    ):
        make_outbox(conn, "own")
        with pytest.raises(psycopg.Error, match=message) as refused:
            conn.execute(f"SELECT outbox_adopt({call})")
        assert refused.value.sqlstate == "TU107"
    with pytest.raises(psycopg.Error) as refused:
        conn.execute("SELECT outbox_adopt('new', NULL)")
    assert refused.value.sqlstate == "TU108"


def test_the_wake_up_is_by_choice_and_can_be_changed(conn: Conn) -> None:
    adopt(conn)
    assert scalar(conn, "SELECT wakes FROM outbox_list()") is False
    adopt(conn, wake=True)
    assert scalar(conn, "SELECT wakes FROM outbox_list()") is True
    adopt(conn)
    assert scalar(conn, "SELECT wakes FROM outbox_list()") is False


def test_only_the_owner_adopts_and_only_the_worker_gets_rights(conn: Conn, dsn: str) -> None:
    with roles(dsn, "app", "keeper", "reaper") as admin:
        admin.execute("GRANT tube_admin TO app, keeper")
        admin.execute("GRANT tube_worker TO reaper")
        admin.execute("CREATE SCHEMA shop AUTHORIZATION app")
        with open_session(as_role(dsn, "app")) as app, open_session(as_role(dsn, "keeper")) as keeper:
            app.execute(GOHARVEST_TABLE.replace(ADOPTED, "shop.outbox"))
            admin.execute("GRANT USAGE ON SCHEMA shop TO keeper")
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="belongs to app"):
                keeper.execute("SELECT outbox_adopt('orders', 'shop.outbox')")
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not been opened to tube_worker"):
                keeper.execute("SELECT tube_private_adopt('orders', 'shop.outbox', 1, false)")
            app.execute("SELECT outbox_adopt('orders', 'shop.outbox', 1, true)")
            id_ = scalar(app, "SELECT outbox_stash('orders', 't', 'k', 'v')")
            with open_session(as_role(dsn, "reaper")) as worker:
                term = lead(conn)
                assert [record.id for record in mark(worker, term)] == [id_]
                assert park(worker, term, id_) == [id_]
                assert retry(app) == 1
                assert [record.id for record in mark(worker, term)] == [id_]
                assert purge(worker, term, [id_]) == 1
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    worker.execute("INSERT INTO shop.outbox (kafka_topic) VALUES ('t')")
            # Statistics of others say what they could not look at.
            (row,) = keeper.execute("SELECT count, problem FROM outbox_stats()").fetchall()
            assert row[0] is None
            assert "permission denied" in row[1]
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                keeper.execute("SELECT outbox_drop('orders')")
            assert scalar(keeper, "SELECT outbox FROM outbox_list()") == OUTBOX
            app.execute("SELECT outbox_drop('orders')")


def test_who_does_not_own_the_schema_is_told_what_to_grant(dsn: str) -> None:
    with roles(dsn, "app") as admin:
        admin.execute("GRANT tube_admin TO app")
        admin.execute("CREATE SCHEMA shop")
        admin.execute("GRANT USAGE, CREATE ON SCHEMA shop TO app")
        with open_session(as_role(dsn, "app")) as app:
            said: list[str | None] = []
            app.add_notice_handler(lambda notice: said.append(notice.message_hint))
            app.execute(GOHARVEST_TABLE.replace(ADOPTED, "shop.outbox"))
            app.execute("SELECT outbox_adopt('orders', 'shop.outbox')")
        assert "The owner of the schema has to run: GRANT USAGE ON SCHEMA shop TO tube_worker;" in said


def test_what_its_owner_put_on_a_table_runs_as_the_worker_and_never_as_ours(conn: Conn, dsn: str) -> None:
    adopt(conn)
    conn.execute(
        "CREATE TABLE public.seen (who text); GRANT INSERT ON public.seen TO PUBLIC;"
        " CREATE FUNCTION public.spy() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO public.seen VALUES (current_user); RETURN coalesce(NEW, OLD); END $$;"
        f" CREATE TRIGGER spy BEFORE UPDATE OR DELETE ON {ADOPTED} FOR EACH ROW EXECUTE FUNCTION public.spy()"
    )
    conn.execute("SELECT outbox_stash('orders', 't', 'k', 'v')")
    term = lead(conn)
    with roles(dsn, "reaper") as admin:
        admin.execute("GRANT tube_worker TO reaper")
        with open_session(as_role(dsn, "reaper")) as worker:
            (record,) = mark(worker, term)
            park(worker, term, record.id)
            retry(conn)
            mark(worker, term)
            purge(worker, term, [record.id])
    assert conn.execute("SELECT DISTINCT who FROM public.seen").fetchall() == [("reaper",)]
