"""A declared document whose key has several columns, the whole way: plan, apply, backfill, changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from pytube.config import Config, load
from pytube.db.database import Database
from pytube.declarations.apply import Applied, Declarations
from pytube.declarations.model import Kind, Plan, State
from pytube.declarations.survey import survey
from pytube.delivered import wait_async
from pytube.documents.resolve import resolve
from pytube.keys import CompositeKey, KeyColumn, PartType
from pytube.model import Batch
from pytube.verify import explain, verify
from pytube.worker import Worker
from tests.helpers.cli import run
from tests.helpers.database import preparing
from tests.helpers.documents_tenants import CUSTOMERS, DECLARATION, ORDERS, SCHEMA, by_hand, fill
from tests.helpers.waiting import wait_until_async

Conn = psycopg.Connection[Any]

CONFIG = f"""
[postgres]
dsn = "${{PYTUBE_DSN}}"
[worker]
election = "lease"
[tube.orders.sink]
type = "callable"
target = "{__name__}:deliver"
{DECLARATION}
"""
KEY = CompositeKey((KeyColumn("tenant_id", PartType.BIGINT), KeyColumn("id", PartType.TEXT)), 0)

held: dict[str, Any] = {}
"""The copy."""
sent: list[tuple[str, int]] = []
"""The keys that were sent, with their shards."""


async def deliver(batch: Batch) -> None:
    """The sink."""
    for document in batch:
        key = str(document.id)
        sent.append((key, document.shard))
        if document.is_delete:
            held.pop(key, None)
        else:
            held[key] = document.value()


def _prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SCHEMA.encode())
        fill(connection)
        connection.execute("ANALYZE")


prepare = preparing(_prepare, "dsn")


def configuration(dsn: str, folder: Path, text: str = CONFIG) -> Config:
    file = folder / "pytube.toml"
    file.write_text(text.replace("${PYTUBE_DSN}", dsn))
    return load(file)


def planned(dsn: str, config: Config) -> Plan:
    with Database(SecretStr(dsn)).connect() as connection:
        (found,) = survey(config, connection, kinds=(Kind.DOCUMENT,))
        assert found.problem is None
        return found


def applied(dsn: str, config: Config, *, backfill: bool = False) -> Applied:
    with Database(SecretStr(dsn)).connect() as connection:
        return Declarations(connection).apply(planned(dsn, config), backfill=backfill)


@pytest.fixture
async def worker(dsn: str, tmp_path: Path) -> AsyncIterator[Worker]:
    """One that has sent all documents by a backfill."""
    held.clear()
    sent.clear()
    config = configuration(dsn, tmp_path)
    assert applied(dsn, config, backfill=True).backfills
    worker = Worker(resolve(config))
    await worker.start()
    try:
        await wait_until_async(lambda: len(held) == 10, what="the backfill is done")
        yield worker
    finally:
        await worker.stop()


def test_plan_apply_and_apply_again(dsn: str, conn: Conn, tmp_path: Path) -> None:
    config = configuration(dsn, tmp_path)
    found = planned(dsn, config)
    assert [step.text.partition(";")[0] for step in found.steps][:7] == [
        "make tube orders: text keys, partitions 4",
        "make tube orders_relations, its companion: uuid links",
        "make tube orders_relations_2, its companion: bigint links",
        "make tube orders_relations_3, its companion: text links",
        "attach shop.orders to orders by tenant_id, id",
        "attach shop.items to orders by tenant_id, order_id",
        "attach shop.payments to orders by tenant_id, order_id",
    ]
    assert len(applied(dsn, config).steps) == len(found.steps)
    assert applied(dsn, config).steps == []
    assert planned(dsn, config).state is State.APPLIED
    rows = conn.execute(
        "SELECT tbl::text, key_cols::text[], shard_by::text FROM tube_documents() WHERE tube = 'orders'"
    )
    assert rows.fetchall() == [
        ("shop.orders", ["tenant_id", "id"], "tenant_id"),
        ("shop.items", ["tenant_id", "order_id"], "tenant_id"),
        ("shop.payments", ["tenant_id", "order_id"], "tenant_id"),
        ("shop.order_tags", ["tenant_id", "order_id"], "tenant_id"),
    ]


def test_a_table_that_holds_the_key_by_other_columns(dsn: str, conn: Conn, tmp_path: Path) -> None:
    applied(dsn, configuration(dsn, tmp_path))
    conn.execute("ALTER TABLE shop.items ADD other text")
    joined, otherwise = '{ id = "order_id", tenant_id', '{ id = "other", tenant_id'
    assert joined in CONFIG
    config = configuration(dsn, tmp_path, CONFIG.replace(joined, otherwise))
    (switch,) = (one for step in applied(dsn, config).steps for one in step.switches)
    assert switch.key == ("tenant_id", "other")
    conn.execute(
        "INSERT INTO shop.items VALUES (100, 'a', 1, 1, NULL, 'other'), (101, 'a', 1, 1, NULL, NULL)"
    )
    assert conn.execute("SELECT ids FROM orders").fetchall() == [(['[1, "other"]'],)]


def test_another_shard_by_is_refused(dsn: str, tmp_path: Path) -> None:
    applied(dsn, configuration(dsn, tmp_path))
    configuration(dsn, tmp_path, CONFIG.replace('shard_by = "tenant_id"', 'shard_by = "id"'))
    shown = run("plan", dsn=dsn, folder=tmp_path, code=2).stdout
    assert 'would be from id, which gives each document another key; set shard_by = "tenant_id", or' in shown


A, B = CUSTOMERS
CHANGES = {
    "root": "UPDATE shop.orders SET status = 'paid' WHERE (tenant_id, id) = (1, 'a')",
    "root, an odd key": "UPDATE shop.orders SET status = 'paid' WHERE id = '\n'",
    "root inserted": "INSERT INTO shop.orders VALUES (3, 'new', 'new')",
    "root deleted": "DELETE FROM shop.orders WHERE (tenant_id, id) = (3, 'new')",
    "root renamed": "UPDATE shop.orders SET id = 'z' WHERE tenant_id = 2 AND id LIKE 'ü%'",
    "root left": "UPDATE shop.orders SET deleted = true WHERE (tenant_id, id) = (1, 'b\"')",
    "own child": "UPDATE shop.items SET quantity = 70 WHERE id = 1",
    "own child moved to the same order of another tenant": "UPDATE shop.items SET tenant_id = 3 - tenant_id "
    "WHERE id = 2",
    "own child moved to another order": "UPDATE shop.items SET order_id = 'a' WHERE id < 9",
    "own child cut off": "UPDATE shop.items SET tenant_id = NULL WHERE id = 1",
    "own child deleted": "DELETE FROM shop.items WHERE id = 2",
    "to one, of two columns": f"UPDATE shop.customers SET name = 'new' WHERE (tenant_id, id) = (1, '{A}')",
    "to another one": f"UPDATE shop.orders SET customer_id = '{B}' WHERE customer_id = '{A}'",
    "far": "UPDATE shop.products SET name = 'newest' WHERE id = 3",
    "farther": "UPDATE shop.item_notes SET body = 'newer'",
    "join row inserted": "INSERT INTO shop.order_tags VALUES (1, 'a', 1)",
    "join row moved": "UPDATE shop.order_tags SET tenant_id = 2 WHERE order_id = 'a' AND tag_id = 2",
    "join row deleted": "DELETE FROM shop.order_tags WHERE tag_id = 1",
    "behind a join table": "UPDATE shop.tags SET name = 'new' WHERE id = 3",
    "the first way to the key": "UPDATE shop.payments SET order_id = 'a' WHERE order_id = '[1, 2]'",
    "the second way to the key": "UPDATE shop.payments SET instead_of = '\n' WHERE instead_of = 'a'",
    "many": "INSERT INTO shop.orders SELECT 1 + n % 9, 'many ' || n, 'new' FROM generate_series(1, 600) AS n",
    "truncated join table": "TRUNCATE shop.order_tags",
    "truncated far table": "TRUNCATE shop.item_notes",
    "truncated own table": "TRUNCATE shop.items CASCADE",
    "everything truncated": "TRUNCATE shop.orders CASCADE",
}


async def test_each_kind_of_change_arrives(dsn: str, conn: Conn, worker: Worker) -> None:
    assert worker.leads("orders")
    assert held == by_hand(conn)
    for what, statement in CHANGES.items():
        await wait_async("orders", dsn=dsn)
        before = dict(held)
        conn.execute(statement.encode())
        await wait_async("orders", dsn=dsn)
        assert held == by_hand(conn), what
        assert held != before, f"{what}: nothing changed, so nothing was tested"
    tenants = {KEY.values(key): shard for key, shard in sent}
    assert {values: KEY.shard(KEY.text(values), 0, 8) for values in tenants if values} == tenants
    shards = {(values[0], shard) for values, shard in tenants.items() if values}
    assert len(shards) == len({tenant for tenant, _ in shards}), "a tenant has one shard"


COPY = """type = "postgres"
dsn = "${PYTUBE_DSN}"
table = "copy"
create = true
id_type = "text"
"""


async def test_verify_compares_and_explain_finds(dsn: str, conn: Conn, tmp_path: Path) -> None:
    text = CONFIG.replace(f'type = "callable"\ntarget = "{__name__}:deliver"\n', COPY)
    config = configuration(dsn, tmp_path, text)
    applied(dsn, config, backfill=True)
    config = resolve(config)
    worker = Worker(config)
    await worker.start()
    try:
        await wait_until_async(lambda: _count(conn) == 10, what="the backfill is done")
        conn.execute("UPDATE shop.products SET name = 'new' WHERE id = 1")
        conn.execute("INSERT INTO shop.orders VALUES (7, '12', 'new')")
        await wait_async("orders", dsn=dsn)
        report = await verify(config, "orders")
        assert (report.is_equal, report.compared) == (True, 13), report  # two have no document
        found = await explain(config, "orders", '[7, "12"]')
        assert found.is_settled
        assert (found.shard, found.id) == (KEY.shard('[7, "12"]', 0, 8), '[7, "12"]')
    finally:
        await worker.stop()
    conn.execute("DELETE FROM public.copy WHERE id = %s", ['[7, "12"]'])
    conn.execute("UPDATE public.copy SET id = '[9, 1]' WHERE id = %s", ['[1, "a"]'])
    report = await verify(config, "orders")
    assert (report.missing, report.extra) == (2, 1), report


def _count(conn: Conn) -> int:
    if conn.execute("SELECT to_regclass('public.copy')").fetchone() == (None,):
        return 0
    row = conn.execute("SELECT count(*) FROM public.copy").fetchone()
    assert row is not None
    return int(row[0])


def test_show(dsn: str, tmp_path: Path) -> None:
    configuration(dsn, tmp_path)

    def show(*key: str, code: int = 0) -> str:
        shown = run("document", "show", "orders", *key, dsn=dsn, folder=tmp_path, code=code)
        return shown.stdout if code == 0 else shown.stderr

    assert json.loads(show('[2,"a"]'))["tenant_id"] == 2
    assert json.loads(show(KEY.text((1, ORDERS[1]))))["id"] == ORDERS[1]
    assert show("2", "a") == show("--key", '[2,"a"]') == show('[2,"a"]')
    assert "has no key" in show('[2, "no such"]', code=2)
    for key in ("7", "[1]", "[true, 1]", '["1", "a"]', "a", "[99999999999999999999, 'a']"):
        assert "is not a key of document orders; give its columns tenant_id (bigint), id (text)" in show(
            key, code=2
        )
    assert "'x a' is not a key" in show("x", "a", code=2)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "{shard}-{tenant_id}",
            (
                "key tube.orders.sink.key: {shard}-{tenant_id} names tenant_id, and keys of shop.orders are "
                "of tenant_id, id; name all of these, or give {id} alone, which is the whole key as one text"
            ),
        ),
        ("{tenant_id}:{number}", "{tenant_id}:{number} names number, tenant_id, and keys of shop.orders are"),
        ("{id}", None),
        ("{id}/{tenant_id}", None),
    ],
)
def test_a_name_at_the_sink_that_leaves_out_a_column(
    dsn: str, tmp_path: Path, template: str, message: str | None
) -> None:
    sink = f'type = "redis"\nurl = "redis://localhost"\nkey = "{template}"\n'
    text = CONFIG.replace(f'type = "callable"\ntarget = "{__name__}:deliver"\n', sink)
    configuration(dsn, tmp_path, text)
    shown = run("plan", dsn=dsn, folder=tmp_path, code=0 if message is None else 2)
    assert (message or "document orders: new") in shown.stdout
