"""A file declares tubes whose tables have keys of several columns; and what is attached so stays so."""

from __future__ import annotations

import shlex
from pathlib import Path

import psycopg
import pytest

from pytube.declarations.model import State
from tests.helpers.cli import run, run_json
from tests.helpers.database import preparing
from tests.helpers.declarations import BASE, apply, backfills, plans, problem
from tests.helpers.documents_tenants import DECLARATION
from tests.helpers.documents_tenants import SCHEMA as TENANTS
from tests.helpers.terms import Conn

SCHEMA = """
CREATE SCHEMA plant;
CREATE TABLE plant.sites (tenant_id int, id text, name text, area numeric, PRIMARY KEY (tenant_id, id));
CREATE TABLE plant.visits (
    id bigint PRIMARY KEY, tenant_id bigint, site_id text, other_id text, place int, note text);
CREATE TABLE plant.elder (id bigint PRIMARY KEY);
CREATE TABLE plant.heir (PRIMARY KEY (id)) INHERITS (plant.elder);
INSERT INTO plant.sites SELECT n % 3, n::text, 'site ' || n FROM generate_series(1, 12) AS n;
"""
SITES = """
[tube.sites]
key_type = "text"
[tube.sites.sink]
type = "jsonl"
path = "sites.jsonl"
[tube.sites.tables."plant.sites"]
key = ["tenant_id", "id"]
shard_by = "tenant_id"
shards = 4
"""
VISITS = """
[tube.sites.tables."plant.visits"]
key = ["tenant_id", "site_id"]
columns = ["tenant_id", "site_id", "note"]
"""
FILE = BASE + SITES + VISITS
MADE = "SELECT tube.tube_ensure_exists('sites', 1, NULL, 'text')"
ROOT = (
    "SELECT tube.tube_table_ensure_attached('sites', 'plant.sites', 0, 4, key_cols => '{tenant_id,id}', "
    "shard_by => 'tenant_id')"
)
RELATED = (
    "SELECT tube.tube_table_ensure_attached('sites', 'plant.visits', 0, 4, "
    "columns => '{note,site_id,tenant_id}', key_cols => '{tenant_id,site_id}', shard_by => 'tenant_id')"
)
BOTH = [
    ("plant.sites", 0, 4, "tenant_id", ["tenant_id", "id"], "tenant_id", None),
    (
        "plant.visits",
        0,
        4,
        "tenant_id",
        ["tenant_id", "site_id"],
        "tenant_id",
        ["tenant_id", "site_id", "note"],
    ),
]


def _prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"{SCHEMA}; {TENANTS}".encode())


prepare = preparing(_prepare, "dsn")


@pytest.fixture
def file(tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTUBE_DSN", dsn)
    path = tmp_path / "pytube.toml"
    path.write_text(FILE)
    return path


def there(conn: Conn, tube: str = "sites") -> list[tuple[object, ...]]:
    """How the tables of a tube are attached."""
    return conn.execute(
        "SELECT tbl::text, shard, shards, id_col::text, key_cols::text[], shard_by::text, columns::text[] "
        "FROM tube.tube_list() WHERE tube = %s AND tbl IS NOT NULL ORDER BY root DESC, 1",
        [tube],
    ).fetchall()


def by_hand(conn: Conn, *statements: str) -> None:
    for statement in statements:
        conn.execute(statement.encode())


def touched(conn: Conn) -> set[tuple[int, str]]:
    rows = conn.execute("SELECT shard, unnest(ids) FROM tube.sites WHERE op <> 'B'").fetchall()
    conn.execute("DELETE FROM tube.sites")
    return {(shard, id_) for shard, id_ in rows}


# --- from empty, and again -------------------------------------------------------------------------


def test_from_an_empty_database(dsn: str, conn: Conn, file: Path) -> None:
    shown = run("plan", dsn=dsn, folder=file.parent).stdout
    for line in (
        "  + attach plant.sites to sites by tenant_id, id; each UPDATE counts; shards 0 to 3 by tenant_id",
        "  plant.sites      tenant_id, id       0 to 3 by tenant_id  anything",
        "  └─ plant.visits  tenant_id, site_id ",
    ):
        assert line in shown
    (tube,) = run_json("plan", dsn=dsn, folder=file.parent)["tubes"]
    assert [(one["key"], one["shard_by"]) for one in tube["tables"]] == [
        (["tenant_id", "id"], "tenant_id"),
        (["tenant_id", "site_id"], "tenant_id"),
    ]
    run("apply", "--backfill", dsn=dsn, folder=file.parent)
    assert there(conn) == BOTH
    assert backfills(conn) == [("sites", "plant.sites")]
    assert plans(dsn, FILE)["sites"].state is State.APPLIED
    assert run("apply", dsn=dsn, folder=file.parent).stdout == "sites: nothing to do\n"


def test_a_tenant_stays_together(dsn: str, conn: Conn) -> None:
    apply(dsn, FILE)
    conn.execute("UPDATE plant.sites SET name = 'new'")
    sites = touched(conn)
    assert {id_ for _, id_ in sites} == {f'[{n % 3}, "{n}"]' for n in range(1, 13)}
    of_tenant = {id_.partition(",")[0]: shard for shard, id_ in sites}
    assert len({(id_.partition(",")[0], shard) for shard, id_ in sites}) == len(of_tenant) == 3
    conn.execute("INSERT INTO plant.visits VALUES (1, 2, '5', 'x')")
    assert touched(conn) == {(of_tenant["[2"], '[2, "5"]')}


# --- what is attached so ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "named", [FILE, FILE.replace('key = ["tenant_id", "id"]\nshard_by = "tenant_id"\n', "")]
)
def test_what_was_attached_by_hand_the_same_is_adopted(dsn: str, conn: Conn, named: str) -> None:
    """Also where the file leaves out by which columns."""
    by_hand(conn, MADE, ROOT, RELATED)
    text = named.replace('"note"]', '"note"]\nshard_by = "tenant_id"')
    assert apply(dsn, text) == ["note that the file declares it so"]
    assert there(conn) == BOTH
    assert plans(dsn, text)["sites"].state is State.APPLIED


def test_another_change_keeps_the_columns_of_the_key(dsn: str, conn: Conn) -> None:
    apply(dsn, FILE)
    less = FILE.replace(', "note"]', "]") + "replica = true\n"
    less = less.replace("shards = 4\n", 'shards = 4\ncolumns = ["name"]\n')
    assert [step.split(": ")[0] for step in apply(dsn, less)] == [
        "change plant.sites in sites",
        "change plant.visits in sites",
        "note that the file declares it so",
    ]
    assert [row[:6] for row in there(conn)] == [row[:6] for row in BOTH]
    conn.execute("UPDATE plant.sites SET name = 'new' WHERE id = '4'")
    assert {id_ for _, id_ in touched(conn)} == {'[1, "4"]'}


def test_a_related_table_gets_other_columns(dsn: str, conn: Conn) -> None:
    """Which lead to other documents, that have to be sent."""
    apply(dsn, FILE, backfill=True)
    other = FILE.replace('key = ["tenant_id", "site_id"]', 'key = ["tenant_id", "other_id"]')
    one = plans(dsn, other)["sites"]
    assert [step.text for step in one.steps][:1] == [
        "change plant.visits in sites: key tenant_id, site_id -> tenant_id, other_id"
    ]
    assert one.wants_backfill
    apply(dsn, other, backfill=True)
    assert there(conn)[1][4:6] == (["tenant_id", "other_id"], "tenant_id")
    assert len(backfills(conn)) == 2


def test_somebody_has_attached_it_by_one_column_since(dsn: str, conn: Conn) -> None:
    apply(dsn, FILE)
    by_hand(
        conn,
        "SELECT tube.tube_table_ensure_detached('sites', 'plant.visits')",
        "SELECT tube.tube_table_ensure_attached('sites', 'plant.sites', 0, 4, 'id')",
    )
    said = problem(dsn, FILE)
    assert "each row of plant.sites would have a document under another key" in said
    assert "--key-cols tenant_id,id --shard-by tenant_id --force`" in said


def test_a_column_of_the_key_is_renamed(dsn: str, conn: Conn) -> None:
    apply(dsn, FILE)
    conn.execute("ALTER TABLE plant.visits RENAME COLUMN site_id TO of_site")
    text = FILE.replace('"site_id"', '"of_site"')
    assert "columns of plant.visits were renamed" in plans(dsn, text)["sites"].notes[-1]
    apply(dsn, text)
    assert there(conn)[1][4] == ["tenant_id", "of_site"]
    assert plans(dsn, text)["sites"].state is State.APPLIED


BY_HAND = {
    "another order": (
        (MADE, ROOT.replace("{tenant_id,id}", "{id,tenant_id}")),
        "each row of plant.sites would have a document under another key",
        "pytube tube attach sites plant.sites --key-cols tenant_id,id --force",
    ),
    "the whole key": (
        (MADE, ROOT.replace("shard_by => 'tenant_id'", "shard_by => NULL")),
        "(spread by none -> tenant_id)",
        "pytube tube attach sites plant.sites --shard-by tenant_id --force",
    ),
    "one column": (
        (MADE, "SELECT tube.tube_table_ensure_attached('sites', 'plant.sites', 0, 4, 'id')"),
        "(id column id -> tenant_id, key one column -> tenant_id, id, spread by none -> tenant_id)",
        "pytube tube attach sites plant.sites --key-cols tenant_id,id --shard-by tenant_id --force",
    ),
    "a related table": (
        (MADE, ROOT, RELATED.replace("{tenant_id,site_id}", "{tenant_id,other_id}")),
        "manually, with other options (key tenant_id, other_id -> tenant_id, site_id)",
        "pytube tube attach sites plant.visits --key-cols tenant_id,site_id",
    ),
    "a related table, and what spreads it": (
        (
            MADE,
            ROOT,
            RELATED.replace("{tenant_id,site_id}", "{place,site_id}").replace("=> 'tenant_id'", "=> 'place'"),
        ),
        "manually, with other options",
        "pytube tube attach sites plant.visits --key-cols tenant_id,site_id --shard-by tenant_id",
    ),
}


@pytest.mark.parametrize("what", BY_HAND)
def test_what_was_attached_otherwise_is_refused(dsn: str, conn: Conn, file: Path, what: str) -> None:
    """With the command that works."""
    statements, words, command = BY_HAND[what]
    by_hand(conn, *statements)
    before = there(conn)
    said = problem(dsn, FILE)
    assert words in said
    assert f"`{command}`" in said
    assert there(conn) == before
    run(*shlex.split(command)[1:], dsn=dsn, folder=file.parent)
    apply(dsn, FILE)
    assert there(conn) == BOTH


# --- refusals --------------------------------------------------------------------------------------

AT = 'tube.sites.tables."plant.visits"'
REFUSED = {
    "keys that are no texts": (
        FILE.replace('key_type = "text"', "partitions = 1"),
        'the keys of the tube are bigint; set key_type = "text" in [tube.sites]',
    ),
    "no such column": (
        FILE.replace('"tenant_id", "id"', '"tenant_id", "no"'),
        "plant.sites has no column no",
    ),
    "a type of many texts": (
        FILE.replace('"tenant_id", "id"', '"tenant_id", "area"'),
        "area of plant.sites is numeric, and a key of several columns has integers, text, varchar, uuid",
    ),
    "fewer columns": (
        FILE.replace('key = ["tenant_id", "site_id"]', 'key = "site_id"'),
        f"{AT}.key: ids of plant.sites have 2 of its columns in them (tenant_id, id), and this key has 1",
    ),
    "another kind": (
        FILE.replace('key = ["tenant_id", "site_id"]', 'key = ["tenant_id", "place"]'),
        "place is integer, and can't hold id of plant.sites, which is text",
    ),
    "spread by another": (
        FILE.replace('"note"]', '"note"]\nshard_by = "site_id"'),
        f"{AT}.shard_by: the shards of plant.sites are decided by tenant_id, not site_id; say shard_by = ",
    ),
    "spread by one": (
        FILE.replace('shard_by = "tenant_id"\n', "").replace('"note"]', '"note"]\nshard_by = "site_id"'),
        "are decided by its whole key, not site_id; take it out",
    ),
    "left out": (
        FILE.replace('key = ["tenant_id", "id"]\nshard_by = "tenant_id"\n', "").replace(VISITS, ""),
        'key_type = "text", as key = ["tenant_id", "id"], or a unique column',
    ),
    "an heir": (
        BASE + '[tube.h.sink]\ntype = "jsonl"\npath = "x"\n[tube.h.tables."plant.heir"]\n',
        'tube.h.tables."plant.heir": plant.heir inherits from another table, and',
    ),
}


def test_what_is_refused_in_an_empty_database(dsn: str, conn: Conn) -> None:
    for what, (text, words) in REFUSED.items():
        assert words in problem(dsn, text), what
    assert conn.execute("SELECT count(*) FROM tube.tube_list()").fetchone() == (0,)


def test_another_key_for_a_table_that_is_attached(dsn: str, conn: Conn) -> None:
    apply(dsn, FILE)
    alone = FILE.replace('shard_by = "tenant_id"\n', "")
    assert "--shard-by '' --force`" in problem(dsn, alone)
    other = FILE.replace('["tenant_id", "id"]', '["tenant_id", "name"]')
    said = problem(dsn, other)
    assert "(key tenant_id, id -> tenant_id, name); put it back in the file" in said
    assert "`pytube backfill start sites --table plant.sites`" in said
    assert there(conn) == BOTH


# --- beside documents ------------------------------------------------------------------------------

DOCUMENT = DECLARATION + '[tube.orders.sink]\ntype = "jsonl"\npath = "orders.jsonl"\n'
COPIES = """
[tube.copies]
key_type = "text"
[tube.copies.sink]
type = "jsonl"
path = "copies.jsonl"
[tube.copies.tables."shop.orders"]
key = ["tenant_id", "id"]
shard_by = "tenant_id"
shards = 8
[tube.copies.tables."shop.payments"]
key = ["tenant_id", "order_id"]
"""


@pytest.mark.usefixtures("dead_broker")
def test_a_document_of_the_same_tables_is_another_matter(dsn: str, conn: Conn, file: Path) -> None:
    """Each is planned, applied and looked at as if the other were not there."""
    file.write_text(BASE + COPIES + DOCUMENT)
    run("apply", dsn=dsn, folder=file.parent)
    assert run("plan", dsn=dsn, folder=file.parent).stdout.splitlines()[-1] == "nothing to do"

    def found(subject: str, code: int = 1) -> str:
        checks = run_json("doctor", dsn=dsn, folder=file.parent, code=code)
        (finding,) = [one["finding"] for one in checks if one["subject"] == subject]
        return str(finding)

    assert found("declared tube copies", 0) == "applied"
    assert found("document orders", 0) == "applied; it follows 9 links"
    before = there(conn, "orders")
    by_hand(conn, "SELECT tube.tube_table_ensure_detached('copies', 'shop.payments')")
    assert "attach shop.payments to copies by tenant_id, order_id" in found("declared tube copies")
    assert found("document orders") == "applied; it follows 9 links"
    run("apply", dsn=dsn, folder=file.parent)
    assert there(conn, "orders") == before
    by_hand(conn, "SELECT tube.tube_table_ensure_detached('orders', 'shop.payments')")
    assert found("declared tube copies") == "applied"
    assert "missing: " in found("document orders")
    run("apply", dsn=dsn, folder=file.parent)
    assert there(conn, "orders") == before
    file.write_text(BASE + DOCUMENT)
    run("apply", "--prune", "--yes", dsn=dsn, folder=file.parent)
    assert (there(conn, "copies"), there(conn, "orders")) == ([], before)


def test_a_tube_whose_document_is_gone_and_comes_again(dsn: str, conn: Conn, file: Path) -> None:
    """Each takes over what the other has attached by several columns."""
    file.write_text(BASE + DOCUMENT)
    run("apply", dsn=dsn, folder=file.parent)
    before = there(conn, "orders")
    assert [row[4] for row in before] == [["tenant_id", "id"], *[["tenant_id", "order_id"]] * 3]
    sink = '[tube.orders.sink]\ntype = "jsonl"\npath = "orders.jsonl"\n'
    file.write_text(BASE + sink)
    run("apply", "--prune", "--yes", dsn=dsn, folder=file.parent)
    columns = ", ".join(f'"{name}"' for name in before[0][6] or ())  # type: ignore[attr-defined]
    text = BASE + sink + '[tube.orders]\npartitions = 4\n[tube.orders.tables."shop.orders"]\nshards = 8\n'
    assert apply(dsn, f"{text}columns = [{columns}]\n") == ["note that the file declares it so"]
    assert there(conn, "orders") == before
    file.write_text(BASE + DOCUMENT)
    run("apply", dsn=dsn, folder=file.parent)
    assert there(conn, "orders") == before
    assert run("plan", dsn=dsn, folder=file.parent).stdout.splitlines()[-1] == "nothing to do"
