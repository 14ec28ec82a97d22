"""Plans of declared documents, done on real servers: from nothing, again, after changes, and cut anywhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import LiteralString

import psycopg
import pytest
from pydantic import SecretStr

from pytube.db.database import Database
from pytube.declarations.apply import Applied, Declarations
from pytube.declarations.model import UNFINISHED, Kind, Plan, State, Step, farewell
from pytube.declarations.survey import plan
from pytube.documents.model import Document
from pytube.errors import KeysWouldChange, UsageError
from pytube.tubes.tables import LockBusy
from tests.conftest import Connect
from tests.helpers.capture import unfollow
from tests.helpers.database import preparing
from tests.helpers.declared import CUSTOMERS, ITEMS, PRODUCTS, ROOT, SCHEMA, document, link
from tests.helpers.roles import as_role, database_name, roles
from tests.helpers.terms import Conn

NEW = document(
    ROOT,
    link("notes", "order_id", "body"),
    replace(ITEMS, by=("product_id",), path="SELECT 1"),
    replace(CUSTOMERS, columns=("id", "tier")),
    replace(PRODUCTS, columns=("id", "sku")),
)


def _prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SCHEMA.encode())


prepare = preparing(_prepare, "dsn")


@contextmanager
def session(dsn: str) -> Iterator[Declarations]:
    with Database(SecretStr(dsn)).connect() as connection:
        yield Declarations(connection, "tube")


def planned(documents: Declarations, declared: Document) -> Plan:
    return plan(declared, documents.there())


def apply(dsn: str, declared: Document, *, backfill: bool = False) -> Applied:
    with session(dsn) as documents:
        return documents.apply(planned(documents, declared), backfill=backfill)


def followed(conn: Conn) -> set[tuple[str, str, str, tuple[str, ...]]]:
    """Tube, table, column, and the columns that count."""
    rows = conn.execute("SELECT tube, tbl::text, id_col::text, columns::text[] FROM tube.tube_documents()")
    return {(tube, table, column, tuple(sorted(columns))) for tube, table, column, columns in rows if table}


def wanted(declared: Document) -> set[tuple[str, str, str, tuple[str, ...]]]:
    return {
        (
            declared.name if one.path is None else f"{declared.name}_relations",
            str(one.table),
            one.column,
            one.columns,
        )
        for one in declared.links
    }


def digest(conn: Conn, name: str = "orders") -> str | None:
    row = conn.execute(
        "SELECT declared FROM tube.tube_documents() WHERE tube = %s LIMIT 1", [name]
    ).fetchone()
    return None if row is None else row[0]


def waiting(conn: Conn, tube: str) -> int:
    """How many ids wait."""
    row = conn.execute(
        f"SELECT coalesce(sum(cardinality(ids)), 0) FROM tube.{tube} WHERE ids <> '{{}}'".encode()
    )
    found = row.fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.every_server
def test_from_nothing_and_again(any_dsn: str) -> None:
    _prepare(any_dsn)
    with psycopg.connect(any_dsn, autocommit=True) as conn:
        first = apply(any_dsn, document())
        assert [str(step.action) for step in first.steps] == [
            "make", "companion", "attach", "attach", "attach", "attach", "declare",
        ]  # fmt: skip
        assert followed(conn) == wanted(document())
        assert digest(conn) == document().digest
        assert apply(any_dsn, document()).steps == []
        with session(any_dsn) as documents:
            assert planned(documents, document()).state is State.APPLIED
        conn.execute("UPDATE shop.products SET name = 'other' WHERE id = 3")
        conn.execute("UPDATE shop.products SET sku = 'other' WHERE id = 3")
        conn.execute("UPDATE shop.order_items SET order_id = 2 WHERE id = 20")
        assert (waiting(conn, "orders_relations"), waiting(conn, "orders")) == (1, 2)


def test_a_changed_document(dsn: str, conn: Conn) -> None:
    apply(dsn, document())
    applied = apply(dsn, NEW)
    assert followed(conn) == wanted(NEW)
    assert digest(conn) == NEW.digest
    assert [step.text for step in applied.steps if step.loses] == ["detach shop.order_items from orders"]
    assert apply(dsn, NEW).steps == []


def test_a_link_that_changes_with_the_declaration(dsn: str, conn: Conn) -> None:
    conn.execute("ALTER TABLE shop.order_items ADD parent_order bigint")
    apply(dsn, document())
    other = document(ROOT, link("order_items", "parent_order", "order_id"), CUSTOMERS, PRODUCTS)
    (step,) = apply(dsn, other).steps
    assert "shop.order_items is followed by parent_order" in step.text
    assert followed(conn) == wanted(other)


def asked_for(conn: Conn) -> int:
    """How many backfills the database has asked for itself."""
    row = conn.execute(
        "SELECT count(*) FROM tube.orders WHERE payload ->> 'type' = 'backfill_schedule'"
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("waits", [True, False])
def test_changes_that_wait_in_a_relation_that_goes_are_made_good(dsn: str, conn: Conn, waits: bool) -> None:
    """The documents are the same, and what the new link touches came later."""
    conn.execute("ALTER TABLE shop.customers ADD tenant bigint")
    apply(dsn, document())
    if waits:
        conn.execute("UPDATE shop.customers SET name = 'other'")
    other = document(ROOT, ITEMS, PRODUCTS, replace(CUSTOMERS, by=("tenant",)))
    steps = apply(dsn, other).steps
    assert "detach shop.customers from orders_relations" in [step.text for step in steps]
    assert asked_for(conn) == (1 if waits else 0)


def test_one_that_is_released_asks_for_nothing(dsn: str, conn: Conn) -> None:
    apply(dsn, document())
    conn.execute("UPDATE shop.customers SET name = 'other'")
    with session(dsn) as documents:
        documents.apply(farewell(Kind.DOCUMENT, "orders", documents.there(), stays=True))
        assert set(documents.there().tubes) == {"orders"}
    assert asked_for(conn) == 0


class Cut(Exception):
    """In place of a kill: what was committed stays."""


def test_cut_after_each_step_it_goes_on(dsn: str, conn: Conn) -> None:
    apply(dsn, document())
    with session(dsn) as documents:
        expected = [step.text for step in planned(documents, NEW).steps]
    done: list[str] = []

    def cut(step: Step) -> None:
        done.append(step.text)
        raise Cut

    while len(done) < len(expected):
        with session(dsn) as documents:
            found = planned(documents, NEW)
            assert [step.text for step in found.steps] == expected[len(done) :]
            with pytest.raises(Cut):
                documents.apply(found, told=cut)
    assert done == expected
    assert (followed(conn), digest(conn)) == (wanted(NEW), NEW.digest)
    assert apply(dsn, NEW).steps == []


def test_each_change_is_captured_between_all_steps(dsn: str, conn: Conn) -> None:
    """A column of the document that is declared at the moment, in each of its tables."""
    old = {"orders": "status", "order_items": "quantity", "customers": "name", "products": "name"}
    new = {
        "orders": "status",
        "order_items": "quantity",
        "customers": "tier",
        "products": "sku",
        "notes": "body",
    }
    used = {document().digest: old, NEW.digest: new}
    conn.execute("INSERT INTO shop.notes (id, order_id, body) VALUES (1, 1, '1')")
    checked: list[str] = []

    def told(step: Step) -> None:
        declared = digest(conn)
        assert declared is not None
        for number, (table, column) in enumerate(used[declared].items()):
            before = waiting(conn, "orders") + waiting(conn, "orders_relations")
            value = f"9{len(checked)}{number}"
            conn.execute(f"UPDATE shop.{table} SET {column} = '{value}' WHERE id = 1".encode())
            after = waiting(conn, "orders") + waiting(conn, "orders_relations")
            assert after > before, f"{table}.{column} after: {step.text}"
        checked.append(declared)

    apply(dsn, document())
    with session(dsn) as documents:
        documents.apply(planned(documents, NEW), told=told)
    assert set(checked) == set(used)
    assert len(checked) > 5


def test_two_at_once(dsn: str, conn: Conn) -> None:
    apply(dsn, document())
    errors: list[Exception] = []

    def run() -> None:
        try:
            apply(dsn, NEW)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test fails
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert (followed(conn), digest(conn)) == (wanted(NEW), NEW.digest)


def test_one_waits_while_another_is_in_a_step(dsn: str, conn: Conn) -> None:
    lock = "SELECT pg_advisory_xact_lock(hashtextextended('tube document orders', 0))"
    with session(dsn) as documents, conn.transaction():
        conn.execute(lock)
        with pytest.raises(LockBusy, match="orders could not be locked"):
            documents.apply(planned(documents, document()), limit=0.1)
    assert apply(dsn, document()).steps


def test_a_table_that_stays_locked(dsn: str, conn: Conn, connect: Connect) -> None:
    holder = connect()
    with session(dsn) as documents:
        with holder.transaction():
            holder.execute("LOCK TABLE shop.products IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(
                LockBusy, match=r"shop.products could not be locked .* the next apply continues from there"
            ):
                documents.apply(planned(documents, document()), limit=0.1)
        assert digest(conn) == UNFINISHED
        left = documents.apply(planned(documents, document()))
    assert [str(step.action) for step in left.steps] == ["attach", "declare"]


def test_another_file_between_the_plan_and_the_yes(dsn: str, conn: Conn) -> None:
    apply(dsn, document())
    with session(dsn) as documents:
        found = planned(documents, NEW)
        apply(dsn, document(ROOT, ITEMS))
        with pytest.raises(UsageError, match="another declaration"):
            documents.apply(found)
    assert digest(conn) == document(ROOT, ITEMS).digest


def test_another_file_meanwhile(dsn: str, conn: Conn) -> None:
    """Who comes second is told, and takes nothing away from the first."""
    apply(dsn, document())

    def told(step: Step) -> None:
        if str(step.action) == "change":
            apply(dsn, document(ROOT, ITEMS))

    with session(dsn) as documents, pytest.raises(UsageError, match="another declaration"):
        documents.apply(planned(documents, NEW), told=told)
    assert wanted(document(ROOT, ITEMS)) <= followed(conn)
    apply(dsn, document(ROOT, ITEMS))
    assert followed(conn) == wanted(document(ROOT, ITEMS))


def test_what_was_not_agreed_to_is_not_taken_away(dsn: str, conn: Conn) -> None:
    apply(dsn, document())
    with session(dsn) as documents:
        found = planned(documents, document())
        conn.execute(
            "SELECT tube.tube_table_ensure_attached('orders', 'shop.notes', 0, id_col => 'order_id')"
        )
        with pytest.raises(UsageError, match=r"would now detach shop\.notes"):
            documents.apply(found)
    assert apply(dsn, document()).steps[0].text == "detach shop.notes from orders"


def test_a_backfill_is_asked_for_when_the_document_changes(dsn: str, conn: Conn) -> None:
    def backfills() -> list[tuple[str, str, bool]]:
        return conn.execute(
            "SELECT table_name, state, by_worker FROM tube.tube_backfill ORDER BY backfill_id"
        ).fetchall()

    apply(dsn, document())
    assert backfills() == []
    assert apply(dsn, document(), backfill=True).backfills, "there was none before"
    assert apply(dsn, document(), backfill=True).backfills == []
    assert backfills() == [("shop.orders", "waiting", True)]
    assert apply(dsn, NEW, backfill=True).backfills
    assert backfills() == [("shop.orders", "superseded", True), ("shop.orders", "waiting", True)]


LOST: dict[str, LiteralString] = {
    "a table was detached": "SELECT tube.tube_table_ensure_detached('orders', 'shop.order_items')",
    "a relation was detached": "SELECT tube.tube_table_ensure_detached(NULL, 'shop.customers')",
    "a companion was dropped": "SELECT tube.tube_drop('orders_relations', true)",
    "a table was dropped and made again": (
        "DROP TABLE shop.order_items; CREATE TABLE shop.order_items (id bigint PRIMARY KEY, order_id bigint"
        " REFERENCES shop.orders, product_id bigint REFERENCES shop.products, quantity integer)"
    ),
    "fewer columns counted": (
        "SELECT tube.tube_table_ensure_attached('orders', 'shop.order_items', 0, id_col => 'order_id',"
        " columns => '{id}')"
    ),
}


@pytest.mark.each_value
@pytest.mark.parametrize("backfill", [True, False])
@pytest.mark.parametrize("what", LOST)
def test_where_changes_were_missed_all_documents_are_sent(
    dsn: str, conn: Conn, what: str, backfill: bool
) -> None:
    def backfills() -> list[tuple[int, str]]:
        return conn.execute(
            "SELECT backfill_id, table_name FROM tube.tube_backfill WHERE state = 'waiting'"
        ).fetchall()

    apply(dsn, document(), backfill=True)
    conn.execute("SELECT tube.tube_backfill_command(backfill_id, 'cancel') FROM tube.tube_backfill")
    assert backfills() == []
    conn.execute(LOST[what])
    seen: list[tuple[int, bool]] = []
    with session(dsn) as documents:
        found = planned(documents, document())
        assert (found.state, found.wants_backfill) == (State.DRIFTED, True)
        applied = documents.apply(
            found, backfill=backfill, told=lambda step: seen.append((len(backfills()), bool(step.roots)))
        )
        assert backfills() == [(applied.backfills[0], "shop.orders")]
        assert seen[-1] == (1, True), "in the transaction of the last table"
        assert all(number == 0 for number, _ in seen[:-1])
        assert planned(documents, document()).state is State.APPLIED
        assert documents.apply(planned(documents, document()), backfill=backfill).backfills == []


def test_drift_that_missed_nothing_sends_nothing(dsn: str, conn: Conn) -> None:
    apply(dsn, document())
    conn.execute("SELECT tube.tube_table_ensure_attached('orders', 'shop.order_items', 0, 1, 'order_id')")
    conn.execute("SELECT tube.tube_table_ensure_attached('orders', 'shop.notes', 0, 1, 'order_id')")
    applied = apply(dsn, document())
    assert [str(step.action) for step in applied.steps] == ["change", "detach"]
    assert applied.backfills == []
    assert conn.execute("SELECT count(*) FROM tube.tube_backfill").fetchone() == (0,)


def test_a_root_table_that_was_made_again_is_the_root_again(dsn: str, conn: Conn) -> None:
    apply(dsn, document())
    conn.execute("DROP TABLE shop.orders CASCADE")
    conn.execute("CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer_id bigint, status text)")
    with pytest.raises(UsageError, match="pytube tube detach orders shop.order_items"):
        apply(dsn, document())
    conn.execute("SELECT tube.tube_table_ensure_detached('orders', 'shop.order_items')")
    assert apply(dsn, document()).backfills
    roots = conn.execute("SELECT tbl::text FROM tube.tube_list() WHERE tube = 'orders' AND root").fetchall()
    assert roots == [("shop.orders",)]


def test_one_that_is_not_declared_any_more(dsn: str) -> None:
    apply(dsn, document())
    apply(dsn, document(name="others"))
    with session(dsn) as documents:
        applied = documents.apply(farewell(Kind.DOCUMENT, "orders", documents.there(), stays=False))
        assert [step.text for step in applied.steps] == ["drop tube orders and its queued changes"]
        assert set(documents.there().tubes) == {"others", "others_relations"}
        documents.apply(farewell(Kind.DOCUMENT, "others", documents.there(), stays=True))
        left = documents.there().tubes
        assert set(left) == {"others"}
        assert left["others"].document is None
        assert {one.table.table for one in left["others"].tables} == {"orders", "order_items"}


def test_more_partitions(dsn: str, conn: Conn) -> None:
    apply(dsn, document())
    apply(dsn, document(partitions=4))
    assert conn.execute("SELECT partitions FROM tube.tube_list() WHERE tube = 'orders'").fetchone() == (4,)


def test_what_replication_writes_stays_followed(dsn: str, conn: Conn) -> None:
    apply(dsn, document())
    conn.execute(
        "SELECT tube.tube_table_ensure_attached("
        "'orders', 'shop.orders', 0, id_col => 'id', columns => '{id,status,customer_id}', replica => true)"
    )
    apply(dsn, document(replace(ROOT, columns=("id", "total")), ITEMS))
    assert conn.execute("SELECT replica FROM tube.tube_list('shop.orders')").fetchone() == (True,)


def test_shards_stay(dsn: str) -> None:
    apply(dsn, document())
    with pytest.raises(KeysWouldChange, match="set shards = 1"):
        apply(dsn, document(shards=4))


def test_a_renamed_table_and_key(dsn: str, conn: Conn) -> None:
    apply(dsn, document())
    conn.execute("ALTER TABLE shop.products RENAME COLUMN id TO number")
    renamed = replace(PRODUCTS, by=("number",), columns=("name", "number"))
    applied = apply(dsn, document(ROOT, ITEMS, CUSTOMERS, renamed))
    assert followed(conn) == wanted(document(ROOT, ITEMS, CUSTOMERS, renamed))
    assert [step for step in applied.steps if step.loses] == []


def test_a_plan_tells_where_nothing_has_followed_a_renaming(dsn: str, conn: Conn) -> None:
    """It changes nothing itself, and shows steps that apply will not do."""
    apply(dsn, document())
    conn.execute("SET search_path = tube, public")
    unfollow(conn)
    conn.execute("ALTER TABLE shop.products RENAME COLUMN id TO number")
    renamed = document(ROOT, ITEMS, CUSTOMERS, replace(PRODUCTS, by=("number",), columns=("name", "number")))
    with session(dsn) as documents:
        found = planned(documents, renamed)
        (note, _) = sorted(found.notes)
        assert note.startswith("columns of shop.products were renamed or dropped, and nothing has followed")
        assert found.losses, "the old name is none of the document's"
    with session(dsn) as documents:
        conn.execute("SELECT tube.tube_sync()")
        found = planned(documents, renamed)
        assert (found.losses, found.notes) == ([], ())


def test_an_admin_who_owns_the_tables(dsn: str, conn: Conn) -> None:
    name = database_name(dsn)
    owner, other = f"owner_{name}", f"other_{name}"
    with roles(dsn, f"{owner} IN ROLE tube_admin", f"{other} IN ROLE tube_admin"):
        conn.execute(f"ALTER SCHEMA shop OWNER TO {owner}".encode())
        for table in ("customers", "products", "orders", "order_items", "notes"):
            conn.execute(f"ALTER TABLE shop.{table} OWNER TO {owner}".encode())
        with session(as_role(dsn, other)) as documents:
            found = planned(documents, document())
            with pytest.raises(
                UsageError, match=f"{other} does not own shop.customers of {owner}, .*member of"
            ):
                documents.check([found])
        with session(as_role(dsn, owner)) as documents:
            documents.check([found])
        apply(as_role(dsn, owner), document(), backfill=True)
        apply(as_role(dsn, owner), NEW, backfill=True)
        assert followed(conn) == wanted(NEW)
        with session(as_role(dsn, owner)) as documents:
            documents.apply(farewell(Kind.DOCUMENT, "orders", documents.there(), stays=False))
            assert documents.there().tubes == {}
