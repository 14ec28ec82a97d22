"""One file declares a tube, an outbox and a document: from an empty database, again, changed, cut, pruned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.declarations.model import Step
from tests.helpers.cli import run, run_json
from tests.helpers.database import preparing
from tests.helpers.declarations import BASE, apply, backfills, plans, problem, session
from tests.helpers.declared import SCHEMA
from tests.helpers.roles import as_role, database_name, roles
from tests.helpers.terms import Conn

TUBE = """
[tube.stock]
partitions = 2
key_type = "bigint"
predicate = "id > 0"
[tube.stock.sink]
type = "jsonl"
path = "stock.jsonl"
[tube.stock.tables."shop.products"]
shards = 4
[tube.stock.tables."shop.order_items"]
key = "product_id"
shards = 4
columns = ["product_id", "quantity"]
"""
OUTBOX = """
[outbox.events]
partitions = 2
value_type = "bytea"
"""
DOCUMENT = """
[tube.orders.sink]
type = "jsonl"
path = "orders.jsonl"
[document.orders]
table = "shop.orders"
fields = ["id", "status"]
partitions = 1
"""
FILE = BASE + TUBE + OUTBOX + DOCUMENT
CHANGED = (
    FILE.replace('predicate = "id > 0"', 'predicate = "id > 1"')
    .replace("partitions = 2\nkey_type", "partitions = 3\nkey_type")
    .replace("partitions = 2\nvalue_type", "partitions = 4\nvalue_type")
    .replace('"product_id", "quantity"]', '"position"]')
    + '[tube.stock.tables."shop.notes"]\nshard = 9\nreplica = true\n'
)


def _prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SCHEMA.encode())


prepare = preparing(_prepare, "dsn")


@pytest.fixture
def file(tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTUBE_DSN", dsn)
    path = tmp_path / "pytube.toml"
    path.write_text(FILE)
    return path


def there(conn: Conn) -> dict[str, Any]:
    """Tubes and outboxes, and what is followed."""
    tubes = conn.execute(
        "SELECT tube, partitions, predicate, key_type::text, tbl::text, shard, shards, id_col::text, replica,"
        " coalesce(columns::text[], '{}') FROM tube.tube_list() WHERE companion_of IS NULL ORDER BY 1, "
        "shard, root DESC"
    ).fetchall()
    outboxes = conn.execute(
        "SELECT outbox, partitions, value_type::text, adopted, wakes FROM tube.outbox_list()"
    )
    return {"tubes": tubes, "outboxes": outboxes.fetchall()}


PRODUCTS: tuple[object, ...] = ("stock", 2, "id > 0", "bigint", "shop.products", 0, 4, "id", False, [])
ITEMS: tuple[object, ...] = (
    "stock",
    2,
    "id > 0",
    "bigint",
    "shop.order_items",
    0,
    4,
    "product_id",
    False,
    ["product_id", "quantity"],
)


# --- the whole way ---------------------------------------------------------------------------------


def test_the_whole_way(dsn: str, conn: Conn, file: Path) -> None:
    """As the roles of docs/security.md: a monitor plans, an admin who owns the tables applies."""
    name = database_name(dsn)
    monitor, admin, other = f"monitor_{name}", f"admin_{name}", f"other_{name}"
    grants = (f"{monitor} IN ROLE tube_monitor", f"{admin} IN ROLE tube_admin", f"{other} IN ROLE tube_admin")
    with roles(dsn, *grants):
        conn.execute(f"GRANT USAGE ON SCHEMA shop TO {monitor}, {other}".encode())
        conn.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA shop TO {monitor}, {other}".encode())
        conn.execute(f"ALTER SCHEMA shop OWNER TO {admin}".encode())
        for table in ("customers", "products", "orders", "order_items", "notes"):
            conn.execute(f"ALTER TABLE shop.{table} OWNER TO {admin}".encode())

        def command(*words: str, role: str = admin, code: int = 0) -> str:
            done = run(*words, dsn=as_role(dsn, role), folder=file.parent, code=code)
            return done.stdout + done.stderr

        shown = command("plan", role=monitor)
        assert "tube stock: new" in shown
        assert "  + make tube stock: bigint keys, partitions 2, predicate id > 0" in shown
        assert "  + attach shop.products to stock by id; each UPDATE counts; shards 0 to 3" in shown
        assert "  └─ shop.order_items  product_id" in shown
        assert "outbox events: new" in shown
        assert "  + make outbox events: values bytea, partitions 2" in shown
        assert "document orders: new" in shown
        assert f"shop.orders of {admin}" in command("apply", role=other, code=2)
        assert there(conn) == {"tubes": [], "outboxes": []}

        done = command("apply", "--backfill")
        assert "stock: applied; workers send all documents" in done
        assert backfills(conn) == [("orders", "shop.orders"), ("stock", "shop.products")]
        assert there(conn)["tubes"][1:] == [PRODUCTS, ITEMS]
        assert there(conn)["outboxes"] == [("events", 2, "bytea", False, True)]
        assert command("plan", role=monitor).splitlines()[-1] == "nothing to do"
        assert command("apply") == "orders: nothing to do\nstock: nothing to do\nevents: nothing to do\n"

        file.write_text(CHANGED)
        shown = command("plan", role=monitor)
        assert "tube stock: changed in the file" in shown
        for step in (
            "  ~ give tube stock partitions 3, not 2",
            "  ~ give tube stock the predicate id > 1, not id > 0",
            "  + attach shop.notes to stock by id; each UPDATE counts; shard 9; what replication writes, too",
            "  ~ change shop.order_items in stock: columns that count product_id, quantity -> position",
            "  ~ give outbox events partitions 4, not 2",
        ):
            assert step in shown
        command("apply", "--backfill")
        assert backfills(conn)[2:] == [("stock", "shop.products"), ("stock", "shop.notes")]
        assert there(conn)["outboxes"] == [("events", 4, "bytea", False, True)]
        assert [row[1:6] for row in there(conn)["tubes"] if row[0] == "stock"] == [
            (3, "id > 1", "bigint", "shop.products", 0),
            (3, "id > 1", "bigint", "shop.order_items", 0),
            (3, "id > 1", "bigint", "shop.notes", 9),
        ]
        assert command("plan", role=monitor).splitlines()[-1] == "nothing to do"

        file.write_text(BASE)
        kept = there(conn)
        for line in ("tube stock: no longer in the file", "  - drop tube stock", "  - drop outbox events"):
            assert line in command("plan", role=monitor)
        command("apply")
        assert there(conn) == kept
        command("apply", "--prune", "--yes")
        assert there(conn) == {"tubes": [], "outboxes": []}
        nothing = "the file declares no documents, tubes or outboxes, and none was applied"
        assert command("plan", role=monitor) == f"{nothing}\n"


def test_a_plan_as_json(dsn: str, file: Path) -> None:
    found = run_json("plan", dsn=dsn, folder=file.parent)
    (tube,), (outbox,) = found["tubes"], found["outboxes"]
    assert (tube["tube"], tube["state"], tube["problem"], tube["backfill"]) == ("stock", "new", None, True)
    assert [step["action"] for step in tube["steps"]] == ["make", "attach", "attach", "declare"]
    assert tube["tables"][1] == {
        "table": "shop.order_items", "column": "product_id", "shard": 0, "shards": 4,
        "columns": ["product_id", "quantity"], "replica": False, "root": False,
        "key": ["product_id"], "shard_by": None,
    }  # fmt: skip
    assert (outbox["outbox"], outbox["state"]) == ("events", "new")
    assert [step["action"] for step in outbox["steps"]] == ["make", "declare"]


class Cut(Exception):
    """In place of a kill: what was committed stays."""


@pytest.mark.parametrize("before", [None, FILE], ids=["new", "changed"])
def test_cut_after_each_step_it_goes_on(dsn: str, conn: Conn, before: str | None) -> None:
    """What `--backfill` asks for comes with the last table, wherever it was cut before."""
    if before is not None:
        apply(dsn, before)
    planned = {name: [step.text for step in one.steps] for name, one in plans(dsn, CHANGED).items()}
    for name, texts in planned.items():
        done: list[str] = []

        def cut(step: Step, done: list[str] = done) -> None:
            done.append(step.text)
            raise Cut

        while len(done) < len(texts):
            one = plans(dsn, CHANGED)[name]
            assert [step.text for step in one.steps] == texts[len(done) :]
            with session(dsn) as declarations, pytest.raises(Cut):
                declarations.apply(one, backfill=True, told=cut)
        assert done == texts
    assert sorted(backfills(conn)) == [("stock", "shop.notes"), ("stock", "shop.products")]
    assert apply(dsn, CHANGED) == []


def test_changes_that_were_missed_after_the_plan_are_made_good(dsn: str, conn: Conn) -> None:
    """Whoever agreed to a plan without steps did not agree to a copy that stays wrong."""
    apply(dsn, FILE)
    one = plans(dsn, FILE)["stock"]
    assert one.steps == ()
    conn.execute("SELECT tube.tube_table_ensure_detached('stock', 'shop.order_items')")
    with session(dsn) as declarations:
        declarations.apply(one)
    assert backfills(conn) == [("stock", "shop.products")]


# --- what is left alone ----------------------------------------------------------------------------


def test_a_section_that_declares_nothing_is_left_alone(dsn: str, conn: Conn) -> None:
    conn.execute("SELECT tube.tube_ensure_exists('stock', 5)")
    text = BASE + '[tube.stock.sink]\ntype = "jsonl"\npath = "x"\n[outbox.events]\nmode = "strict"\n'
    assert plans(dsn, text) == {}


def test_what_is_made_by_hand_is_never_pruned(dsn: str, conn: Conn) -> None:
    conn.execute("SELECT tube.tube_ensure_exists('stock', 1, 'id > 0')")
    conn.execute("SELECT tube.tube_table_ensure_attached('stock', 'shop.products', 0, 4, 'id')")
    conn.execute("SELECT tube.outbox_ensure_exists('events', 2, 'bytea')")
    found = plans(dsn, FILE)
    assert "the file takes over tube stock, created manually" in found["stock"].notes[0]
    assert [step.text for step in found["events"].steps] == ["note that the file declares it so"]
    apply(dsn, FILE)
    assert there(conn)["tubes"] == [PRODUCTS, ITEMS]
    gone = plans(dsn, BASE)
    for one in gone.values():
        with session(dsn) as declarations:
            declarations.apply(one)
    assert there(conn)["tubes"] == [PRODUCTS, ITEMS]
    assert len(there(conn)["outboxes"]) == 1
    assert plans(dsn, BASE) == {}


def test_a_cut_while_it_takes_over_what_was_made_by_hand(dsn: str, conn: Conn) -> None:
    """What apply has attached is the file's at once, and may be changed there."""
    conn.execute("SELECT tube.tube_ensure_exists('stock', 2, 'id > 0')")

    def cut(step: Step) -> None:
        if "order_items" in step.text:
            raise Cut

    with session(dsn) as declarations, pytest.raises(Cut):
        declarations.apply(plans(dsn, FILE)["stock"], told=cut)
    one = plans(dsn, FILE.replace('"product_id", "quantity"]', '"quantity"]'))["stock"]
    assert [step.action.value for step in one.steps] == ["change", "declare"]
    (step,) = plans(dsn, BASE)["stock"].steps
    assert step.text == "keep tube stock, no longer managed by the file"


def test_a_table_that_is_attached_by_hand_stays(dsn: str, conn: Conn) -> None:
    """Of a tube that the file declares, and of one that it does no longer."""
    apply(dsn, FILE)
    conn.execute("SELECT tube.tube_table_ensure_attached('stock', 'shop.notes', 7, 1, 'id')")
    one = plans(dsn, FILE)["stock"]
    assert (one.steps, one.notes) == ((), ("attached manually, so left alone: shop.notes",))
    (step,) = plans(dsn, BASE)["stock"].steps
    assert (step.text, step.loses) == ("keep tube stock, no longer managed by the file", False)


BY_HAND_IN_A_DECLARED_ONE = {
    "besides": ["SELECT tube.tube_table_ensure_attached('stock', 'shop.notes', 7, 1, 'id', '{body}')"],
    "anew": [
        "SELECT tube.tube_table_ensure_detached('stock', 'shop.order_items')",
        (
            "SELECT tube.tube_table_ensure_attached('stock', 'shop.order_items', 0, 4, 'product_id',"
            " '{product_id,position}')"
        ),
    ],
}


@pytest.mark.parametrize("how", BY_HAND_IN_A_DECLARED_ONE)
def test_what_was_attached_by_hand_is_not_changed(dsn: str, conn: Conn, how: str) -> None:
    """In a tube that the file has made, too: the columns that count there are somebody's."""
    apply(dsn, FILE)
    for statement in BY_HAND_IN_A_DECLARED_ONE[how]:
        conn.execute(statement.encode())
    before = there(conn)
    text = FILE + '[tube.stock.tables."shop.notes"]\nshard = 7\n' if how == "besides" else FILE
    columns = "''" if how == "besides" else "product_id,quantity"
    said = problem(dsn, text)
    assert "to tube stock manually, with other options (columns that count" in said
    assert said.endswith(f"--columns {columns}`")
    assert there(conn) == before


def test_what_was_attached_by_hand_meanwhile_is_not_dropped(dsn: str, conn: Conn) -> None:
    apply(dsn, FILE)
    one = plans(dsn, BASE)["stock"]
    assert one.losses
    conn.execute("SELECT tube.tube_table_ensure_attached('stock', 'shop.notes', 7, 1, 'id')")
    with session(dsn) as declarations:
        declarations.apply(one)
    assert len(there(conn)["tubes"]) == 3


def test_a_table_that_the_file_names_no_more_is_detached(dsn: str, conn: Conn, file: Path) -> None:
    apply(dsn, FILE)
    less = FILE.replace(TUBE[TUBE.index('[tube.stock.tables."shop.order_items"]') :], "")
    (detach,) = plans(dsn, less)["stock"].losses
    assert detach.text == "detach shop.order_items from stock"
    file.write_text(less)
    run("apply", "stock", "--yes", dsn=dsn, folder=file.parent)
    assert there(conn)["tubes"] == [PRODUCTS]


def test_a_section_that_stays_without_a_declaration(dsn: str, conn: Conn) -> None:
    apply(dsn, FILE)
    before = there(conn)
    text = BASE + '[tube.stock.sink]\ntype = "jsonl"\npath = "x"\n'
    one = plans(dsn, text)["stock"]
    assert "stays in the file" in one.notes[0]
    with session(dsn) as declarations:
        declarations.apply(one)
    assert there(conn) == before
    assert set(plans(dsn, text)) == {"events"}


def test_a_tube_that_becomes_a_document(dsn: str, conn: Conn, file: Path) -> None:
    """Its plan takes over what the tube's has made, and a prune of tubes has nothing to do with it."""
    text = BASE + '[tube.orders]\npartitions = 1\n[tube.orders.sink]\ntype = "jsonl"\npath = "x"\n'
    apply(dsn, text)
    file.write_text(BASE + DOCUMENT)
    run("apply", "--prune", "--yes", dsn=dsn, folder=file.parent)
    assert plans(dsn, BASE + DOCUMENT) == {}
    assert conn.execute("SELECT applied, made FROM tube.tube_applied() WHERE tube = 'orders'").fetchone() == (
        None,
        False,
    )


# --- drift -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("dead_broker")
def test_where_changes_were_missed_all_documents_are_sent(dsn: str, conn: Conn, file: Path) -> None:
    apply(dsn, FILE)
    assert backfills(conn) == []
    conn.execute("SELECT tube.tube_table_ensure_detached('stock', 'shop.order_items')")
    said = run("doctor", dsn=dsn, folder=file.parent, code=1).stdout
    assert "attach shop.order_items to stock by product_id" in said
    one = plans(dsn, FILE)["stock"]
    assert one.missed_changes
    with session(dsn) as declarations:
        declarations.apply(one)
    assert backfills(conn) == [("stock", "shop.products")]
    assert plans(dsn, FILE)["stock"].steps == ()


@pytest.mark.usefixtures("dead_broker")
def test_the_doctor_tells_of_each(dsn: str, conn: Conn, file: Path) -> None:
    def said(word: str) -> list[str]:
        checks = run_json("doctor", dsn=dsn, folder=file.parent, code=1)
        return [one["finding"] for one in checks if one["subject"].startswith(word)]

    assert said("declared tube stock") == ["the file declares it, but it was not applied"]
    apply(dsn, FILE)
    assert said("declared tube stock") == ["applied"]
    assert said("declared outbox events") == ["applied"]
    conn.execute("SELECT tube.outbox_ensure_exists('events', 7)")
    (finding,) = said("declared outbox events")
    assert "give outbox events partitions 2, not 7" in finding
    file.write_text(BASE + DOCUMENT)
    assert "the file no longer declares it" in said("declared tube stock")[0]


# --- refusals --------------------------------------------------------------------------------------

STOCK = BASE + '[tube.stock.sink]\ntype = "jsonl"\npath = "x"\n'
REFUSED = {
    "an empty name": (
        BASE + '[tube.""]\npartitions = 1\n[tube."".sink]\ntype = "jsonl"\n',
        'tube."": its name is empty; choose another one',
    ),
    "a comma": (
        BASE + '[tube."a,b"]\npartitions = 1\n[tube."a,b".sink]\ntype = "jsonl"\n',
        'tube."a,b": its name has a comma or a control character; choose another one',
    ),
    "a name of Postgres": (
        BASE + '[tube.pg_stock]\npartitions = 1\n[tube.pg_stock.sink]\ntype = "jsonl"\n',
        "tube.pg_stock: its name begins with pg_, as Postgres' own do; choose another one",
    ),
    "a name of pytube's": (
        BASE + '[tube.tube_registry]\npartitions = 1\n[tube.tube_registry.sink]\ntype = "jsonl"\n',
        "tube.tube_registry: its name is that of another relation in the schema tube; choose another one",
    ),
    "no such table": (STOCK + '[tube.stock.tables."shop.no"]\n', "there is no table shop.no"),
    "no such column": (
        STOCK + '[tube.stock.tables."shop.notes"]\nkey = "no"\n',
        "has no column no; it has id, order_id",
    ),
    "a partition": (STOCK + '[tube.stock.tables."shop.part"]\n', "is a partition of shop.whole; name that"),
    "no key": (STOCK + '[tube.stock.tables."shop.heap"]\n', "shop.heap has no column id, and no primary key"),
    "no proof": (STOCK + '[tube.stock.tables."shop.bag"]\n', 'name it by key, as key = "id" if no two rows'),
    "a view": (
        STOCK + '[tube.stock.tables."shop.seen"]\n',
        "shop.seen is a view, whose changes no trigger sees",
    ),
    "another type of key": (
        STOCK + '[tube.stock.tables."shop.notes"]\nkey = "code"\n',
        (
            'code of shop.notes is uuid, and the keys of the tube are bigint; set key_type = "uuid" in '
            "[tube.stock]"
        ),
    ),
}


def test_what_is_refused_in_an_empty_database(dsn: str, conn: Conn) -> None:
    conn.execute(
        "CREATE TABLE shop.whole (id bigint PRIMARY KEY) PARTITION BY RANGE (id);"
        "CREATE TABLE shop.part PARTITION OF shop.whole DEFAULT; CREATE TABLE shop.heap (a int);"
        "CREATE TABLE shop.bag (id bigint); CREATE VIEW shop.seen AS SELECT 1 AS id"
    )
    for what, (text, words) in REFUSED.items():
        assert words in problem(dsn, text), what
    assert there(conn)["tubes"] == []


UNFIT = {
    "a predicate": ('[tube.z]\npredicate = "id >"\n[tube.z.sink]\ntype = "jsonl"\npath = "x"\n', "tube.z: "),
    "a table": (
        '[outbox.z]\nadopt = "shop.orders"\n',
        "it has no column create_time of the type timestamptz",
    ),
}


def test_what_only_the_server_knows_is_refused_before_anything_is_changed(
    dsn: str, conn: Conn, file: Path
) -> None:
    for what, (text, words) in UNFIT.items():
        file.write_text(FILE + text)
        said = run("apply", dsn=dsn, folder=file.parent, code=2).stderr
        assert said.startswith("pytube: nothing was changed: "), what
        assert words in said, what
        assert there(conn) == {"tubes": [], "outboxes": []}, what


BY_HAND = {
    "an outbox of that name": ("SELECT tube.outbox_ensure_exists('stock')", "stock is an outbox"),
    "other keys": (
        "SELECT tube.tube_ensure_exists('stock', key_type => 'uuid')",
        "the keys of tube stock are uuid, for good",
    ),
    "another predicate": (
        "SELECT tube.tube_ensure_exists('stock', 1, 'id > 5')",
        "or run `pytube tube create stock --predicate 'id > 0'`",
    ),
    "other shards": (
        (
            "SELECT tube.tube_ensure_exists('stock', 1, 'id > 0'),"
            " tube.tube_table_ensure_attached('stock', 'shop.products', 0, 2, 'id')"
        ),
        "`pytube tube attach stock shop.products --shards 4 --force`",
    ),
    "other columns": (
        (
            "SELECT tube.tube_ensure_exists('stock', 1, 'id > 0'),"
            " tube.tube_table_ensure_attached('stock', 'shop.products', 0, 4, 'id', '{sku}')"
        ),
        "`pytube tube attach stock shop.products --columns ''`",
    ),
    "another table's shards": (
        (
            "SELECT tube.tube_ensure_exists('stock', 1, 'id > 0'),"
            " tube.tube_table_ensure_attached('stock', 'shop.notes', 2, 8, 'id')"
        ),
        "its shards 0 to 3 would overlap shards 2 to 9 of shop.notes",
    ),
    "another root table": (
        (
            "SELECT tube.tube_ensure_exists('stock', 1, 'id > 0'),"
            " tube.tube_table_ensure_attached('stock', 'shop.notes', 0, 4, 'id')"
        ),
        "shop.notes has shards 0 to 3 of tube stock, and its ids name the documents",
    ),
}


def test_what_is_made_otherwise_by_hand_is_refused(dsn: str, conn: Conn) -> None:
    for what, (statement, words) in BY_HAND.items():
        conn.execute(statement.encode())
        before = there(conn)
        assert words in problem(dsn, BASE + TUBE), what
        assert there(conn) == before, what
        drop = "outbox_drop" if "outbox" in what else "tube_drop"
        conn.execute(f"SELECT tube.{drop}('stock', true)".encode())


def test_the_commands_that_a_refusal_names_are_those_that_work(dsn: str, conn: Conn, file: Path) -> None:
    conn.execute("SELECT tube.tube_ensure_exists('stock', 1, 'id > 5')")
    conn.execute("SELECT tube.tube_table_ensure_attached('stock', 'shop.products', 0, 2, 'id', '{sku}')")
    file.write_text(BASE + TUBE)
    assert "pytube tube create stock --predicate" in problem(dsn, BASE + TUBE)
    run("tube", "create", "stock", "--predicate", "id > 0", dsn=dsn, folder=file.parent)
    words = "`pytube tube attach stock shop.products --shards 4 --columns '' --force`"
    assert words in problem(dsn, BASE + TUBE)
    command = ("tube", "attach", "stock", "shop.products", "--shards", "4", "--columns", "", "--force")
    run(*command, dsn=dsn, folder=file.parent)
    apply(dsn, BASE + TUBE)
    assert there(conn)["tubes"] == [PRODUCTS, ITEMS]


def test_keys_stay(dsn: str) -> None:
    apply(dsn, FILE)
    assert "each row of shop.products would have a document under another key" in problem(
        dsn, FILE.replace("shards = 4", "shards = 8")
    )
    root = TUBE[
        TUBE.index('[tube.stock.tables."shop.products"]') : TUBE.index('[tube.stock.tables."shop.order')
    ]
    assert "shop.products has shards 0 to 3 of tube stock, and its ids name the documents" in problem(
        dsn, FILE.replace(root, "")
    )


def test_a_root_table_stays_as_long_as_something_is_related_to_it(dsn: str, conn: Conn) -> None:
    text = BASE + TUBE[: TUBE.index('[tube.stock.tables."shop.order')]
    apply(dsn, text)
    related = "SELECT tube.tube_table_ensure_attached('stock', 'shop.order_items', 0, 4, 'product_id')"
    conn.execute(related.encode())
    said = problem(dsn, text[: text.index("[tube.stock.tables")])
    assert "the related table shop.order_items would become the root table" in said
    assert "`pytube tube detach stock shop.order_items`" in said


def test_a_tube_of_a_document_that_is_gone(dsn: str, file: Path) -> None:
    """It becomes a tube without one first, and is declared then."""
    file.write_text(BASE + DOCUMENT)
    run("apply", dsn=dsn, folder=file.parent)
    sink = BASE + '[tube.orders.sink]\ntype = "jsonl"\npath = "x"\n'
    text = sink + '[tube.orders]\npartitions = 1\n[tube.orders.tables."shop.orders"]\nshards = 16\n'
    assert "tube orders is that of a document which the file does not declare any more" in problem(dsn, text)
    file.write_text(sink)
    run("apply", "--prune", "--yes", dsn=dsn, folder=file.parent)
    assert "manually, with other options (columns that count id, status -> all)" in problem(dsn, text)
    assert apply(dsn, text + 'columns = ["status", "id"]\n') == ["note that the file declares it so"]


def test_an_outbox_with_records_is_not_dropped(dsn: str, conn: Conn, file: Path) -> None:
    apply(dsn, FILE)
    conn.execute("SELECT tube.outbox_stash('events', 't', 'k', '\\x00'::bytea)")
    file.write_text(BASE)
    before = there(conn)
    said = run("apply", "--prune", "--yes", dsn=dsn, folder=file.parent, code=2).stderr
    assert "nothing was changed: outbox.events would be dropped, but still holds records" in said
    assert there(conn) == before
