"""What is written by constraints and triggers, some of them not before the commit, is touched, too."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.helpers.capture import Conn, attach, make_item, make_tube, open_session, ops, set_up
from tests.helpers.database import preparing

OTHER = "other"


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        set_up(conn)
        make_item(conn, "public.log")
        make_tube(conn, OTHER)
        attach(conn, "public.log", tube=OTHER)
        conn.execute("INSERT INTO item VALUES (1), (2), (3)")
        ops(conn)


prepare = preparing(prepared)


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version: `item` is in one tube, `log` in another."""
    with open_session(any_dsn) as conn:
        yield conn


def has_trigger(conn: Conn, when: str, body: str, table: str = "item", each: str = "ROW") -> None:
    """A trigger of the application, `body` in PL/pgSQL."""
    kind = "CONSTRAINT TRIGGER" if "DEFERRED" in when else "TRIGGER"
    event, _, deferred = when.partition(" DEFERRED")
    conn.execute(
        f"CREATE FUNCTION public.mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$".encode()
    )
    conn.execute(
        f"CREATE {kind} mine {event} ON public.{table}"
        f" {'DEFERRABLE INITIALLY DEFERRED' if kind != 'TRIGGER' else ''}{deferred}"
        f" FOR EACH {each} EXECUTE FUNCTION public.mine()".encode()
    )


# --- constraints that wait for the commit ----------------------------------------------------------


def test_keys_that_change_places_until_the_commit(db: Conn) -> None:
    db.execute("UPDATE item SET value = 'second' WHERE id = 2")
    ops(db)
    db.execute("ALTER TABLE item DROP CONSTRAINT item_pkey")
    db.execute("ALTER TABLE item ADD PRIMARY KEY (id) DEFERRABLE INITIALLY DEFERRED")
    with db.transaction():
        db.execute("UPDATE item SET id = 2 WHERE id = 1")
        db.execute("UPDATE item SET id = 1 WHERE id = 2 AND value = 'second'")
    assert {key for _, key in ops(db)} == {1, 2}


def test_a_constraint_that_fails_at_the_commit_leaves_no_touch(db: Conn) -> None:
    db.execute("CREATE TABLE part (item bigint REFERENCES item DEFERRABLE INITIALLY DEFERRED)")
    db.execute("INSERT INTO part VALUES (1)")
    with pytest.raises(psycopg.errors.ForeignKeyViolation), db.transaction():
        db.execute("DELETE FROM item WHERE id = 1")
    assert ops(db) == []
    with db.transaction():
        db.execute("DELETE FROM item WHERE id = 1")
        db.execute("INSERT INTO item VALUES (1, 'again')")
    assert ops(db) == [("D", 1), ("I", 1)]


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "SET DEFAULT"])
def test_an_action_of_a_deferred_key(db: Conn, action: str) -> None:
    db.execute(
        "ALTER TABLE log ADD item bigint DEFAULT 3"
        f" REFERENCES item ON DELETE {action} ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED"
    )
    db.execute("INSERT INTO log (id, item) VALUES (7, 1), (8, 2)")
    ops(db, OTHER)
    with db.transaction():
        db.execute("DELETE FROM item WHERE id = 1")
        db.execute("UPDATE item SET id = 9 WHERE id = 2")
    assert ops(db) == [("D", 1), ("D", 2), ("I", 9)]
    assert ops(db, OTHER) == [("D" if action == "CASCADE" else "U", 7), ("U", 8)]


def test_a_deferred_trigger_writes_at_the_commit(db: Conn) -> None:
    has_trigger(db, "AFTER INSERT DEFERRED", "INSERT INTO public.log (id) VALUES (NEW.id); RETURN NULL;")
    with db.transaction():
        db.execute("INSERT INTO item VALUES (4), (5)")
        assert ops(db, OTHER) == []
        db.execute("SET CONSTRAINTS ALL IMMEDIATE")
        assert ops(db, OTHER) == [("I", 4), ("I", 5)]
        db.execute("SET CONSTRAINTS ALL DEFERRED")
        db.execute("INSERT INTO item VALUES (6)")
    assert ops(db, OTHER) == [("I", 6)]
    assert ops(db) == [("I", 4), ("I", 5), ("I", 6)]


def test_a_deferred_trigger_that_fails_leaves_no_touch(db: Conn) -> None:
    has_trigger(db, "AFTER UPDATE DEFERRED", "DELETE FROM public.item; RAISE 'no'; RETURN NULL;")
    with pytest.raises(psycopg.errors.RaiseException), db.transaction():
        db.execute("UPDATE item SET value = 'x'")
    assert ops(db) == []


# --- triggers that write attached tables ------------------------------------------------------------


@pytest.mark.parametrize("each", ["ROW", "STATEMENT"])
def test_a_trigger_writes_another_attached_table(db: Conn, each: str) -> None:
    has_trigger(
        db,
        "AFTER UPDATE",
        "INSERT INTO public.log (id) SELECT coalesce(max(id), 0) + 1 FROM public.log; RETURN NULL;",
        each=each,
    )
    db.execute("UPDATE item SET value = 'x' WHERE id < 3")
    assert ops(db) == [("U", 1), ("U", 2)]
    assert ops(db, OTHER) == [("I", 1), ("I", 2)][: 2 if each == "ROW" else 1]


def test_a_trigger_writes_the_same_table_again(db: Conn) -> None:
    has_trigger(
        db,
        "AFTER UPDATE",
        "UPDATE public.item SET value = 'y' WHERE id = OLD.id + 1 AND value IS NULL; RETURN NULL;",
    )
    db.execute("UPDATE item SET value = 'x' WHERE id = 1")
    assert ops(db) == [("U", 1), ("U", 2), ("U", 3)]


def test_what_a_trigger_before_a_row_makes_of_it(db: Conn) -> None:
    has_trigger(
        db,
        "BEFORE INSERT OR UPDATE OR DELETE",
        "IF TG_OP = 'DELETE' THEN RETURN CASE WHEN OLD.id = 2 THEN OLD END; END IF;"
        " IF NEW.value = 'no' THEN RETURN NULL; END IF; NEW.id := NEW.id + 100; RETURN NEW;",
    )
    db.execute("INSERT INTO item VALUES (4, 'yes'), (5, 'no')")
    assert ops(db) == [("I", 104)]
    db.execute("UPDATE item SET value = 'x' WHERE id = 1")
    assert ops(db) == [("D", 1), ("I", 101)]
    db.execute("DELETE FROM item WHERE id IN (2, 3)")
    assert ops(db) == [("D", 2)]


def test_what_a_trigger_takes_back_is_not_touched(db: Conn) -> None:
    has_trigger(
        db,
        "AFTER UPDATE",
        "BEGIN INSERT INTO public.log (id) VALUES (NEW.id), (NEW.id); EXCEPTION WHEN unique_violation THEN"
        " INSERT INTO public.log (id) VALUES (NEW.id + 100); END; RETURN NULL;",
    )
    db.execute("UPDATE item SET value = 'x' WHERE id = 1")
    assert ops(db, OTHER) == [("I", 101)]
    assert ops(db) == [("U", 1)]


def test_a_view_with_triggers_and_a_rule(db: Conn) -> None:
    db.execute("CREATE VIEW public.seen AS SELECT id, value FROM item")
    db.execute("UPDATE seen SET value = 'x' WHERE id = 1")
    has_trigger(
        db,
        "INSTEAD OF INSERT",
        "INSERT INTO public.item (id, value) VALUES (NEW.id, NEW.value); RETURN NEW;",
        table="seen",
    )
    db.execute("INSERT INTO seen VALUES (4, 'x')")
    db.execute("CREATE RULE also AS ON DELETE TO item DO ALSO INSERT INTO public.log (id) VALUES (OLD.id)")
    db.execute("DELETE FROM item WHERE id = 2")
    assert ops(db) == [("D", 2), ("I", 4), ("U", 1)]
    assert ops(db, OTHER) == [("I", 2)]
