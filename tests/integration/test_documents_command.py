"""`pytube plan`, `pytube apply`, `pytube document show` and what `pytube doctor` says of documents."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import psycopg
import pytest
from click.testing import CliRunner

from pytube.cli.program import cli
from tests.helpers.cli import run, run_json, start
from tests.helpers.database import preparing
from tests.helpers.declared import SCHEMA
from tests.helpers.roles import as_role, database_name, roles
from tests.helpers.terms import Conn

TUBE = """
[postgres]
dsn = "${PYTUBE_DSN}"
[worker]
election = "lease"
[tube.orders.sink]
type = "jsonl"
path = "orders.jsonl"
"""
ORDERS = """
[document.orders]
table = "shop.orders"
fields = ["id", "status", "total AS amount"]
"""
CUSTOMER = """
[document.orders.customer]
one = "shop.customers"
fields = ["name"]
"""
NOTES = """
[document.orders.notes]
many = "shop.notes"
by = "order_id"
fields = ["body"]
tree = { by = "parent_id", as = "replies", depth = 2 }
"""
ITEMS = """
[document.orders.items]
many = "shop.order_items"
fields = ["quantity"]
order_by = "position"
[document.orders.items.product]
one = "shop.products"
fields = ["sku"]
"""
DOCUMENT = ORDERS + CUSTOMER + ITEMS


def prepare_shop(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SCHEMA.encode())
        connection.execute("ANALYZE")


prepare = preparing(prepare_shop, "dsn")


@pytest.fixture
def file(tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration, with the document."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTUBE_DSN", dsn)
    path = tmp_path / "pytube.toml"
    path.write_text(TUBE + DOCUMENT)
    return path


def all_that_is_there(conn: Conn) -> list[tuple[object, ...]]:
    """Relations, functions and triggers; and what is followed."""
    return conn.execute(
        "SELECT 'r', oid::text, relname::text FROM pg_class"
        " UNION ALL SELECT 'p', oid::text, proname FROM pg_proc"
        " UNION ALL SELECT 't', oid::text, tgname FROM pg_trigger"
        " UNION ALL SELECT 'd', d::text, NULL FROM tube.tube_documents() AS d ORDER BY 1, 2"
    ).fetchall()


def call(dsn: str, file: Path, *words: str, code: int = 0, said: str | None = None) -> str:
    """Run a command that may ask; what it printed. `said`: by people."""
    environment = {"PYTUBE_DSN": dsn, "PYTUBE_CONFIG": str(file)}
    with patch("pytube.cli.context.has_people", lambda: said is not None):
        result = CliRunner().invoke(cli, words, input=said, env=environment)
    assert result.exit_code == code, result.output
    return result.output


# --- plan --------------------------------------------------------------------------------------------


def test_plan_tells_what_a_star_takes_in(file: Path, dsn: str, conn: Conn) -> None:
    every = '\n[document.orders.customer]\none = "shop.customers"\nfields = ["*"]\n'
    file.write_text(TUBE + ORDERS + every + ITEMS)
    run("apply", dsn=dsn, folder=file.parent)
    conn.execute("ALTER TABLE shop.customers ADD since date, ADD blocked boolean")
    conn.execute("ALTER TABLE shop.products ADD since date")
    (note,) = notes(file, dsn)
    assert note.startswith(
        '"*" of document.orders.customer also means blocked, since of shop.customers, which'
    )
    run("apply", dsn=dsn, folder=file.parent)
    assert notes(file, dsn) == []


def test_plan_tells_of_row_security_that_hides_nothing_from_it(file: Path, dsn: str, conn: Conn) -> None:
    conn.execute("ALTER TABLE shop.customers ENABLE ROW LEVEL SECURITY")
    (note,) = notes(file, dsn)
    assert note.startswith("row security of shop.customers hides no rows from postgres, but may do so from")
    conn.execute("ALTER TABLE shop.customers DISABLE ROW LEVEL SECURITY")
    assert notes(file, dsn) == []


def notes(file: Path, dsn: str) -> list[str]:
    """What plan remarks on the document."""
    (plan,) = run_json("plan", dsn=dsn, folder=file.parent)["documents"]
    return list(plan["notes"])


def test_a_plan_changes_nothing(dsn: str, conn: Conn, file: Path) -> None:
    before = all_that_is_there(conn)
    shown = run("plan", dsn=dsn, folder=file.parent).stdout.splitlines()
    assert all_that_is_there(conn) == before
    assert shown[:2] == ["document orders: new", "  + make tube orders: bigint keys, partitions 4"]
    start = shown.index("  field          table             followed by  a changed row touches")
    assert shown[start + 1 : start + 5] == [
        "  orders         shop.orders       id           1 document",
        "  ├─ customer    shop.customers    id           about 6.7 documents",
        "  └─ items       shop.order_items  order_id     1 document",
        "     └─ product  shop.products     id           about 12 documents",
    ]
    text = "\n".join(shown)
    assert 'CREATE INDEX CONCURRENTLY ON "shop"."order_items" ("product_id")' in text
    assert "pytube apply --backfill has workers send all of them" in text
    assert shown[-1] == "pytube apply does these steps"


def test_a_plan_as_json(dsn: str, file: Path) -> None:
    (found,) = run_json("plan", dsn=dsn, folder=file.parent)["documents"]
    assert (found["document"], found["state"], found["problem"]) == ("orders", "new", None)
    assert [step["action"] for step in found["steps"]] == [
        "make", "companion", "attach", "attach", "attach", "attach", "declare",
    ]  # fmt: skip
    assert all(step["loses"] is False for step in found["steps"])
    tables = {one["table"]: one for one in found["tables"]}
    assert tables["shop.products"]["tube"] == "orders_relations"
    assert tables["shop.products"]["sections"] == ["document.orders.items.product"]
    assert tables["shop.products"]["documents"] == {"mean": pytest.approx(12), "worst": pytest.approx(12)}
    assert len(found["missing_indexes"]) == 3
    assert found["backfill"] is True
    run("apply", dsn=dsn, folder=file.parent)
    (found,) = run_json("plan", dsn=dsn, folder=file.parent)["documents"]
    assert (found["state"], found["steps"], found["backfill"]) == ("applied", [], False)


def test_a_monitor_plans_and_an_admin_who_is_no_owner_is_told(dsn: str, conn: Conn, file: Path) -> None:
    name = database_name(dsn)
    monitor, admin = f"monitor_{name}", f"admin_{name}"
    with roles(dsn, f"{monitor} IN ROLE tube_monitor", f"{admin} IN ROLE tube_admin"):
        conn.execute(f"GRANT USAGE ON SCHEMA shop TO {monitor}, {admin}".encode())
        conn.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA shop TO {monitor}, {admin}".encode())
        assert "make tube orders" in run("plan", dsn=as_role(dsn, monitor), folder=file.parent).stdout
        shown = run("document", "show", "orders", "--key", "3", dsn=as_role(dsn, monitor), folder=file.parent)
        assert json.loads(shown.stdout)["customer"] == {"name": "customer 1"}
        refused = run("apply", dsn=as_role(dsn, monitor), folder=file.parent, code=2).stderr
        assert "nothing was changed" in refused
        before = all_that_is_there(conn)
        refused = run("apply", dsn=as_role(dsn, admin), folder=file.parent, code=2).stderr
        assert f"{admin} does not own shop.customers of postgres" in refused
        assert all_that_is_there(conn) == before


# --- apply -------------------------------------------------------------------------------------------


def test_a_tree_is_followed_without_a_word_of_postgres(dsn: str, conn: Conn, file: Path) -> None:
    conn.execute("ALTER TABLE shop.notes ADD parent_id bigint REFERENCES shop.notes")
    file.write_text(TUBE + ORDERS + NOTES)
    done = run("apply", dsn=dsn, folder=file.parent)
    assert "attach shop.notes to orders_relations by parent_id" in done.stdout
    assert done.stderr == ""
    assert "ids of " not in run("doctor", dsn=dsn, folder=file.parent).stdout, "links are not unique"


def test_apply_again_and_with_a_backfill(dsn: str, conn: Conn, file: Path) -> None:
    first = run("apply", dsn=dsn, folder=file.parent).stdout
    assert first.splitlines()[-1].startswith("orders: applied; documents at the sink stay as they are until")
    assert run("apply", dsn=dsn, folder=file.parent).stdout == "orders: nothing to do\n"
    file.write_text(TUBE + DOCUMENT.replace('["sku"]', '["sku", "name"]'))
    shown = run("plan", dsn=dsn, folder=file.parent).stdout
    assert "~ change shop.products in orders_relations: name now counts, too" in shown
    assert "its documents change" in shown
    again = run("apply", "--backfill", dsn=dsn, folder=file.parent).stdout
    assert "orders: applied; workers send all documents" in again
    again = run("apply", "--backfill", dsn=dsn, folder=file.parent).stdout
    assert "nothing to do; it has not changed, so no backfill was asked for" in again
    assert conn.execute("SELECT count(*) FROM tube.tube_backfill").fetchone() == (1,)


def test_where_changes_were_missed_all_documents_are_sent(dsn: str, conn: Conn, file: Path) -> None:
    """In words: `plan`, `doctor` and `apply` say the same, with --backfill and without."""
    run("apply", "--backfill", dsn=dsn, folder=file.parent)
    for flags in ([], ["--backfill"]):
        conn.execute("SELECT tube.tube_table_ensure_detached('orders', 'shop.order_items')")
        shown = run("plan", dsn=dsn, folder=file.parent).stdout
        assert "changes were missed where it was not followed: pytube apply has workers send all" in shown
        (found,) = run_json("plan", dsn=dsn, folder=file.parent)["documents"]
        assert (found["state"], found["backfill"]) == ("drifted", True)
        said = run("doctor", dsn=dsn, folder=file.parent, code=1).stdout
        assert "then `pytube apply`, which makes workers resend all documents, as changes were missed" in said
        done = run("apply", *flags, dsn=dsn, folder=file.parent).stdout
        assert "orders: applied; workers send all documents, as changes were missed; see" in done
    assert conn.execute("SELECT count(*) FROM tube.tube_backfill").fetchone() == (3,)


def test_changes_that_wait_in_what_goes_are_told_of(dsn: str, conn: Conn, file: Path) -> None:
    run("apply", dsn=dsn, folder=file.parent)
    conn.execute("UPDATE shop.customers SET name = 'other'")
    file.write_text(TUBE + ORDERS + ITEMS)
    note = (
        "if changes of removed relations are queued in orders_relations, apply requests a backfill of all doc"
    )
    assert note in run("plan", dsn=dsn, folder=file.parent).stdout
    done = run("apply", "--yes", dsn=dsn, folder=file.parent)
    assert (
        "a backfill of all documents of tube 'orders' is asked for: shop.customers is detached" in done.stderr
    )


def test_killed_in_the_middle_it_goes_on(dsn: str, file: Path) -> None:
    process = start("apply", config=file, PYTUBE_DSN=dsn)
    assert process.stdout is not None
    while "attach shop.orders" not in (line := process.stdout.readline()):
        assert line, "it ended before"
    process.kill()
    process.communicate()
    left = run("apply", dsn=dsn, folder=file.parent).stdout
    assert "make tube orders:" not in left
    assert run("apply", dsn=dsn, folder=file.parent).stdout == "orders: nothing to do\n"
    assert "document orders: applied, nothing to do" in run("plan", dsn=dsn, folder=file.parent).stdout


def test_it_asks_before_it_detaches(dsn: str, conn: Conn, file: Path) -> None:
    run("apply", dsn=dsn, folder=file.parent)
    file.write_text(TUBE + ORDERS + ITEMS)
    before = all_that_is_there(conn)
    shown = call(dsn, file, "plan")
    assert "- detach shop.customers from orders_relations" in shown
    assert "pytube apply does these steps, and asks before it takes anything away" in shown
    asked = call(dsn, file, "apply", code=130, said="n\n")
    assert "detach shop.customers from orders_relations: continue? [y/N]" in asked
    assert all_that_is_there(conn) == before
    call(dsn, file, "apply", said="y\n")
    assert call(dsn, file, "apply") == "orders: nothing to do\n"
    file.write_text(TUBE + ORDERS)
    assert "drop tube orders_relations" in call(dsn, file, "apply", "--yes")


def test_prune(dsn: str, conn: Conn, file: Path) -> None:
    other = DOCUMENT.replace("document.orders", "document.others")
    sink = TUBE.partition("[tube")[0] + '[tube.others.sink]\ntype = "jsonl"\npath = "o.jsonl"\n'
    run("apply", dsn=dsn, folder=file.parent)
    file.write_text(sink + other)
    assert "document orders: no longer in the file" in run("plan", dsn=dsn, folder=file.parent).stdout
    assert "orders: the file no longer declares it" in run("apply", dsn=dsn, folder=file.parent).stdout
    tubes = "SELECT DISTINCT tube FROM tube.tube_documents() ORDER BY tube"
    names = [name for (name,) in conn.execute(tubes)]
    assert names == ["orders", "orders_relations", "others", "others_relations"]
    assert "others: nothing to do" in run("apply", "others", "--prune", dsn=dsn, folder=file.parent).stdout
    run("apply", "--prune", "--yes", dsn=dsn, folder=file.parent)
    assert [name for (name,) in conn.execute(tubes)] == ["others", "others_relations"]


def test_a_name_that_no_document_has(dsn: str, file: Path) -> None:
    assert "no document 'x'" in run("plan", "x", dsn=dsn, folder=file.parent, code=2).stderr
    assert "[document.x]" in run("document", "show", "x", dsn=dsn, folder=file.parent, code=2).stderr


# --- bad input ---------------------------------------------------------------------------------------

BAD = {
    "a table that is not there": (
        ORDERS.replace("shop.orders", "shop.order"),
        "there is no table shop.order",
    ),
    "a column that is not there": (ORDERS.replace('"status"', '"state"'), "state"),
    "a child table that is not there": (
        ORDERS + CUSTOMER.replace("shop.customers", "shop.buyers"),
        "shop.buyers",
    ),
    "a path without foreign key": (
        ORDERS + CUSTOMER.replace("shop.customers", "shop.products"),
        "foreign key",
    ),
    "two paths": (ORDERS + ITEMS.replace("shop.order_items", "shop.twice"), "foreign key"),
    "a view": (ORDERS.replace("shop.orders", "shop.seen"), "is a view"),
    "a root without key": (ORDERS.replace("shop.orders", "shop.keyless"), "key"),
    "a volatile expression": (ORDERS.replace("total AS amount", "random() AS amount"), "random"),
    "a field twice": (ORDERS.replace("total AS amount", "total AS status"), "status"),
    "an expression that is none": (ORDERS.replace("total AS amount", "total + AS amount"), "syntax"),
    "a misspelled option": (ORDERS + CUSTOMER.replace("fields", "feilds"), "feilds"),
    "a child that names no table": (ORDERS + CUSTOMER.replace("one =", "of ="), "one or many"),
    "no fields": (ORDERS.replace("fields", "#"), "fields"),
}
OTHERS = """
    CREATE VIEW shop.seen AS SELECT * FROM shop.orders;
    CREATE TABLE shop.keyless (id bigint, status text, total numeric);
    CREATE TABLE shop.twice (
        id bigint PRIMARY KEY, order_id bigint REFERENCES shop.orders, replaces bigint REFERENCES shop.orders,
        product_id bigint REFERENCES shop.products, quantity integer, position integer);
"""


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_before_anything_is_changed(dsn: str, conn: Conn, file: Path, what: str) -> None:
    conn.execute(OTHERS.encode())
    text, words = BAD[what]
    file.write_text(TUBE + text)
    before = all_that_is_there(conn)
    for command in ("plan", "apply"):
        said = run(command, dsn=dsn, folder=file.parent, code=2).output
        assert words in said
        assert "document.orders" in said
        assert "fault of pytube" not in said
    assert all_that_is_there(conn) == before


def test_a_tube_that_somebody_made_by_hand(dsn: str, conn: Conn, file: Path) -> None:
    conn.execute("SELECT tube.tube_ensure_exists('orders')")
    conn.execute("SELECT tube.tube_table_ensure_attached('orders', 'shop.notes', 0)")
    said = run("plan", dsn=dsn, folder=file.parent, code=2)
    assert "document orders: can't be applied" in said.stdout
    assert "shop.notes attached by id" in said.stdout
    assert "1 document can't be applied" in said.stderr
    found = json.loads(run("plan", "--json", dsn=dsn, folder=file.parent, code=2).stdout)
    assert found["documents"][0]["state"] == "refused"
    conn.execute("SELECT tube.tube_table_ensure_detached('orders', 'shop.notes')")
    conn.execute("SELECT tube.tube_ensure_exists('orders', 1, 'status IS NULL')")
    assert "--predicate ''" in run("plan", dsn=dsn, folder=file.parent, code=2).stdout


def test_a_name_that_an_outbox_has(dsn: str, conn: Conn, file: Path) -> None:
    conn.execute("SELECT tube.outbox_ensure_exists('orders')")
    assert "orders is an outbox" in run("plan", dsn=dsn, folder=file.parent, code=2).stdout


def test_one_bad_document_keeps_the_others_from_being_applied(dsn: str, conn: Conn, file: Path) -> None:
    bad = '[document.bad]\ntable = "shop.nothing"\nfields = ["id"]\n'
    bad += '[tube.bad.sink]\ntype = "jsonl"\npath = "x"\n'
    file.write_text(TUBE + DOCUMENT + bad)
    shown = run("plan", dsn=dsn, folder=file.parent, code=2).stdout
    assert "document orders: new" in shown
    assert "document bad: can't be applied" in shown
    assert "nothing was changed: " in run("apply", dsn=dsn, folder=file.parent, code=2).stderr
    assert conn.execute("SELECT count(*) FROM tube.tube_documents()").fetchone() == (0,)
    assert "orders: applied" in run("apply", "orders", dsn=dsn, folder=file.parent).stdout


# --- document show -----------------------------------------------------------------------------------


def test_show(dsn: str, file: Path) -> None:
    shown = run("document", "show", "orders", dsn=dsn, folder=file.parent).stdout
    assert shown.startswith("-- document orders: ")
    assert "-- shop.products by id: " in shown
    query = run("document", "show", "orders", "--query", dsn=dsn, folder=file.parent).stdout
    assert query.startswith("SELECT")
    assert "--" not in query
    assert query.strip() in shown
    document = json.loads(run("document", "show", "orders", "--key", "3", dsn=dsn, folder=file.parent).stdout)
    assert set(document) == {"id", "status", "amount", "customer", "items"}
    assert document["items"][0] == {"quantity": 1, "product": {"sku": "sku 3"}}
    missing = run("document", "show", "orders", "--key", "99", dsn=dsn, folder=file.parent, code=2).stderr
    assert "shop.orders has no such row" in missing
    assert (
        "not a valid id of this tube"
        in run("document", "show", "orders", "--key", "x", dsn=dsn, folder=file.parent, code=2).stderr
    )


# --- doctor ------------------------------------------------------------------------------------------


def findings(dsn: str, file: Path) -> dict[str, tuple[str, str]]:
    """What the doctor says of documents: level and finding, by subject."""
    result = CliRunner().invoke(
        cli, ["doctor", "--json"], env={"PYTUBE_DSN": dsn, "PYTUBE_CONFIG": str(file)}
    )
    found = json.loads(result.stdout)
    checks = found["checks"] if isinstance(found, dict) else found
    return {
        one["subject"]: (one["level"], one["finding"])
        for one in checks
        if one["subject"].startswith(("document ", "indexes of"))
    }


def test_the_doctor_tells_of_drift(dsn: str, conn: Conn, file: Path) -> None:
    level, finding = findings(dsn, file)["document orders"]
    assert (level, "was not applied" in finding) == ("fail", True)
    run("apply", dsn=dsn, folder=file.parent)
    found = findings(dsn, file)
    assert found["document orders"][0] == "ok"
    assert found["indexes of orders"][0] == "warn"
    conn.execute("CREATE INDEX ON shop.orders (customer_id)")
    conn.execute("CREATE INDEX ON shop.order_items (order_id)")
    conn.execute("CREATE INDEX ON shop.order_items (product_id)")
    assert set(findings(dsn, file)) == {"document orders"}
    conn.execute("SELECT tube.tube_table_ensure_detached('orders_relations', 'shop.products')")
    level, finding = findings(dsn, file)["document orders"]
    assert (level, "missing: attach shop.products to orders_relations" in finding) == ("fail", True)
    file.write_text(TUBE + ORDERS)
    level, finding = findings(dsn, file)["document orders"]
    assert (level, "differs from the applied one" in finding) == ("fail", True)
    file.write_text(TUBE)
    assert findings(dsn, file)["document orders"][0] == "warn"
    file.write_text(TUBE + ORDERS.replace("status", "state"))
    level, finding = findings(dsn, file)["document orders"]
    assert (level, "state" in finding) == ("fail", True)
