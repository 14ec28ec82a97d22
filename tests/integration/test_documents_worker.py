"""A declared document in a worker: whatever changes, however far away, the copy is right in the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import Config, DeclaredEnrich, EnrichConfig, load
from pytube.db.session import STEADY_PLANS, Session, SessionPool
from pytube.delivered import wait_async
from pytube.documents.model import Document, companions_of, read_tubes
from pytube.documents.resolve import with_documents
from pytube.enrich import Enricher
from pytube.errors import ConfigError
from pytube.events import Event
from pytube.model import Batch
from pytube.verify import explain
from pytube.verify.explanation import Relation
from pytube.worker import Worker
from tests.conftest import Connect
from tests.helpers import order_documents
from tests.helpers.cli import run
from tests.helpers.database import preparing
from tests.helpers.order_documents import ORDERS, apply, changed, documents_of
from tests.helpers.waiting import wait_until_async

Conn = psycopg.Connection[Any]

CONFIG = """
[postgres]
dsn = "{dsn}"
[worker]
election = "lease"
[tube.orders.sink]
type = "callable"
target = "{module}:deliver"
"""

held: dict[int, Any] = {}
"""The copy."""
sent: list[int] = []
"""The ids that were sent, in order."""


async def deliver(batch: Batch) -> None:
    """The sink of the orders."""
    for document in batch:
        sent.append(int(document.id))
        if document.is_delete:
            held.pop(int(document.id), None)
        else:
            held[int(document.id)] = document.value()


def _prepared(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as conn:
        conn.execute(order_documents.SCHEMA.encode())
        apply(conn, ORDERS)
        conn.execute("SELECT public.orders_touch(array_agg(id)) FROM public.orders")


prepare = preparing(_prepared, "conn")

WITHOUT_COMPANIONS = "; SELECT tube_resume(c) FROM tube_companions('orders') AS c"


@dataclass
class Shop:
    """A worker, and the database."""

    conn: Conn
    dsn: str
    worker: Worker
    events: list[Event]

    async def settle(self) -> None:
        """Wait until what was committed is delivered, and see that the copy is right."""
        await wait_async("orders", dsn=self.dsn)
        assert held == documents_of(self.conn)

    def sentences(self) -> list[str]:
        """What `pytube status` says of sinks and sources that are down."""
        rows = self.conn.execute(
            "SELECT DISTINCT d.tube, coalesce(l.sink_down, l.source_down) FROM tube_documents() AS d "
            "CROSS JOIN LATERAL tube_leaders(d.tube) AS l"
        ).fetchall()
        return [row[1] for row in rows if row[1] is not None]


def config_of(dsn: str, folder: Path, conn: Conn, document: Document = ORDERS) -> Config:
    """What `resolve` makes of the file."""
    file = folder / "pytube.toml"
    file.write_text(CONFIG.format(dsn=dsn, module=__name__))
    return with_documents(load(file), [document], read_tubes(conn, "tube"))


def with_options(config: Config, **options: object) -> Config:
    """The configuration with other options of the sinks of companions."""
    tubes = dict(config.tubes)
    for name, tube in config.tubes.items():
        if tube.sink.type == "relations":
            sink = tube.sink.model_copy(update={"options": {**tube.sink.options, **options}})
            tubes[name] = tube.model_copy(update={"sink": sink})
    return config.model_copy(update={"tubes": tubes})


@asynccontextmanager
async def working(conn: Conn, dsn: str, config: Config) -> AsyncIterator[Shop]:
    """A worker that serves the document."""
    events: list[Event] = []
    worker = Worker(config, on_event=events.append)
    await worker.start()
    try:
        yield Shop(conn, dsn, worker, events)
    finally:
        await worker.stop()


@pytest.fixture
async def shop(dsn: str, conn: Conn, tmp_path: Path) -> AsyncIterator[Shop]:
    held.clear()
    sent.clear()
    async with working(conn, dsn, config_of(dsn, tmp_path, conn)) as shop:
        await shop.settle()
        assert len(held) == 6
        yield shop


CHANGES = {
    "an item is given another product, and both change": "BEGIN;"
    "UPDATE public.products SET name = 'new' WHERE id IN (1, 2);"
    "UPDATE public.order_items SET product_id = 1 WHERE product_id = 2 AND id < 6; COMMIT",
    "both ends of a join deleted": "BEGIN; UPDATE public.categories SET name = 'new' WHERE id = 2;"
    "DELETE FROM public.product_categories WHERE category_id = 2 AND product_id = 1; COMMIT",
    "far change, then the middle row deleted": "UPDATE public.products SET name = 'newer' WHERE id = 2;"
    "DELETE FROM public.order_items WHERE product_id = 2 AND id < 10",
    "root": "UPDATE public.orders SET total = 100 WHERE id = 1",
    "root inserted": "INSERT INTO public.orders (id, customer_id) VALUES (7, 1)",
    "root deleted": "DELETE FROM public.orders WHERE id = 2",
    "own child": "UPDATE public.order_items SET amount = 9 WHERE id = 3",
    "own child moved": "UPDATE public.order_items SET order_id = 1 WHERE id = 3",
    "own child deleted": "DELETE FROM public.order_items WHERE id = 3",
    "to one": "UPDATE public.customers SET name = 'new' WHERE id = 2",
    "to one, by a text": "UPDATE public.couriers SET name = 'on foot' WHERE code = 'bike'",
    "to one, deleted": "DELETE FROM public.customers WHERE id = 2",
    "to one, renumbered": "UPDATE public.customers SET id = 20 WHERE id = 3",
    "far": "UPDATE public.products SET name = 'newest' WHERE id = 1",
    "farther": "UPDATE public.categories SET name = 'newer' WHERE id = 1",
    "join row inserted": "INSERT INTO public.product_categories VALUES (4, 1), (3, 2), (1, 3)",
    "join row moved": "UPDATE public.product_categories SET product_id = 4 "
    "WHERE product_id = 3 AND category_id = 3",
    "join row deleted": "DELETE FROM public.product_categories WHERE category_id = 3",
    "cascade": "DELETE FROM public.categories WHERE id = 1",
    "tree, the top": "UPDATE public.comments SET text = 'new' WHERE id = 1",
    "tree, a leaf": "UPDATE public.comments SET text = 'new' WHERE id = 3",
    "tree, a reply deleted": "DELETE FROM public.comments WHERE id = 3",
    "tree, a branch moved": "UPDATE public.comments SET parent_id = 4 WHERE id = 2",
    "tree, a branch cut": "DELETE FROM public.comments WHERE id = 2",
    "truncated join table": "TRUNCATE public.product_categories",
    "truncated far table": "TRUNCATE public.customers",
    "truncated own table": "TRUNCATE public.order_items",
    "everything truncated": "TRUNCATE public.orders, public.order_items, public.comments",
}


async def test_each_kind_of_change_arrives(shop: Shop) -> None:
    for what, statements in CHANGES.items():
        before = dict(held)
        shop.conn.execute(statements.encode())
        await wait_async("orders", dsn=shop.dsn)
        assert held == documents_of(shop.conn), what
        assert held != before, f"{what}: nothing changed, so nothing was tested"


async def test_what_no_document_shows_touches_none(shop: Shop) -> None:
    del sent[:]
    shop.conn.execute("UPDATE public.orders SET secret = 'new'")
    await shop.settle()
    assert sent == []


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
async def test_a_middle_row_that_nobody_sees_yet(shop: Shop, connect: Connect, isolation: str) -> None:
    """The far change is delivered while the row that leads to it is uncommitted: that row brings it along."""
    writer = connect()
    writer.execute(f"BEGIN ISOLATION LEVEL {isolation}".encode())
    writer.execute("INSERT INTO public.order_items VALUES (100, 1, 4)")
    shop.conn.execute("UPDATE public.products SET name = 'new' WHERE id = 4")
    await shop.settle()
    assert 100 not in [item["id"] for item in held[1]["items"]]
    writer.execute("COMMIT")
    await shop.settle()
    assert {"id": 100, "amount": 1, "product": "new", "categories": []} in held[1]["items"]


async def test_a_far_change_that_nobody_sees_yet(shop: Shop, connect: Connect) -> None:
    """The row that leads to it is delivered while it is uncommitted."""
    writer = connect()
    writer.execute("BEGIN")
    writer.execute("UPDATE public.products SET name = 'new' WHERE id = 4")
    shop.conn.execute("INSERT INTO public.order_items VALUES (100, 1, 4)")
    await shop.settle()
    writer.execute("COMMIT")
    await shop.settle()
    assert held[1]["items"][-1]["product"] == "new"


# --- another file -----------------------------------------------------------------------------------

ANOTHER = changed(ORDERS, ORDERS.query.replace("o.id, o.total,", "o.id, o.total AS sum,"))


async def test_a_worker_with_another_file_stops_and_goes_on(shop: Shop) -> None:
    apply(shop.conn, ANOTHER)
    del sent[:]
    shop.conn.execute("UPDATE public.orders SET total = 100 WHERE id = 1")
    shop.conn.execute("UPDATE public.products SET name = 'new' WHERE id = 2")
    said = (
        "document orders differs from the declaration applied last (the database has {}, the file {}: the "
        'file has changed, or a table has, as by a new column that "*" takes in); run `pytube apply`'
    )
    said = said.format(ANOTHER.digest, ORDERS.digest)
    await wait_until_async(lambda: len(shop.sentences()) == 2, what="both tubes say why they stand still")
    assert all(sentence.startswith(said) for sentence in shop.sentences())
    assert sent == []
    apply(shop.conn, ORDERS)
    await shop.settle()
    await wait_until_async(lambda: shop.sentences() == [], what="nothing is down")


async def test_a_worker_with_the_new_file_goes_on(shop: Shop, tmp_path: Path) -> None:
    await shop.worker.stop()
    shop.conn.execute("UPDATE public.products SET name = 'new' WHERE id = 2")
    apply(shop.conn, ANOTHER)
    with pytest.raises(ConfigError, match="differs from the declaration applied last"):
        config_of(shop.dsn, tmp_path, shop.conn)
    shop.conn.execute("SELECT public.orders_touch(array_agg(id)) FROM public.orders")
    async with working(shop.conn, shop.dsn, config_of(shop.dsn, tmp_path, shop.conn, ANOTHER)):
        await wait_async("orders", dsn=shop.dsn)
        assert held == documents_of(shop.conn, ANOTHER)


async def test_a_worker_without_the_document_sends_nothing(shop: Shop, tmp_path: Path) -> None:
    """It would send the rows as they are."""
    await shop.worker.stop()
    with pytest.raises(ConfigError, match=r"has no \[document.orders\]; give this worker the file"):
        async with working(shop.conn, shop.dsn, load(tmp_path / "pytube.toml")):
            pass


async def test_a_relation_that_is_followed_by_no_tube(shop: Shop, tmp_path: Path) -> None:
    shop.conn.execute("SELECT tube_table_ensure_detached('orders_relations', 'public.products')")
    said = r"\(public.products.id is followed by no tube of it\); run `pytube apply`"
    with pytest.raises(ConfigError, match=said):
        config_of(shop.dsn, tmp_path, shop.conn)


async def test_a_tube_that_has_the_name_of_a_companion(shop: Shop, tmp_path: Path) -> None:
    config = config_of(shop.dsn, tmp_path, shop.conn)
    with pytest.raises(ConfigError, match="key tube.orders_relations: the relations of document orders"):
        with_documents(config, [ORDERS], read_tubes(shop.conn, "tube"))


async def test_a_companion_without_a_relation_is_emptied(shop: Shop, tmp_path: Path) -> None:
    """Its last relation was taken out of the document; nobody is to wait for what is left.

    The query still shows the rows: a backfill makes good what waited.
    """
    await shop.worker.stop()
    shop.conn.execute("UPDATE public.couriers SET name = 'new'")
    fewer = changed(ORDERS, ORDERS.query, [one for one in ORDERS.links if one.table.table != "couriers"])
    apply(shop.conn, fewer)
    shop.conn.execute("SELECT tube_table_ensure_detached('orders_relations_2', 'public.couriers')")
    async with working(shop.conn, shop.dsn, config_of(shop.dsn, tmp_path, shop.conn, fewer)):
        await wait_async("orders", dsn=shop.dsn)
        await wait_until_async(lambda: held == documents_of(shop.conn, fewer), what="the copy is right")


async def test_companions_are_served_with_their_tube(shop: Shop, tmp_path: Path) -> None:
    await shop.worker.stop()
    worker = Worker(config_of(shop.dsn, tmp_path, shop.conn), ["orders"])
    await worker.start()
    try:
        shop.conn.execute("UPDATE public.couriers SET name = 'new'")
        await shop.settle()
    finally:
        await worker.stop()


# --- what fails -------------------------------------------------------------------------------------


async def test_a_used_column_is_renamed_while_it_runs(shop: Shop) -> None:
    shop.conn.execute("ALTER TABLE public.order_items RENAME product_id TO article_id")
    shop.conn.execute("UPDATE public.products SET name = 'new' WHERE id = 2")
    shop.conn.execute("UPDATE public.orders SET total = 100 WHERE id = 1")
    await wait_until_async(
        lambda: len([one for one in shop.sentences() if "i.product_id does not exist" in one]) == 2,
        what=lambda: f"both tubes say why: {shop.sentences()}",
    )
    shop.conn.execute("ALTER TABLE public.order_items RENAME article_id TO product_id")
    await shop.settle()
    assert shop.conn.execute("SELECT FROM tube_delivered_parked('orders_relations')").fetchall() == []


async def test_a_used_column_is_dropped_while_it_runs(shop: Shop, tmp_path: Path) -> None:
    """The document goes on by the changed file, without a restart."""
    shop.conn.execute("ALTER TABLE public.products DROP COLUMN name")
    shop.conn.execute("UPDATE public.orders SET total = 100 WHERE id = 1")
    await wait_until_async(
        lambda: any("p.name does not exist" in one for one in shop.sentences()),
        what=lambda: f"the tube says why: {shop.sentences()}",
    )
    links = [replace(one, columns=("id",)) if one.table.table == "products" else one for one in ORDERS.links]
    without = changed(ORDERS, ORDERS.query.replace("p.name", "p.id"), links)
    apply(shop.conn, without)
    await shop.worker.take_up(config_of(shop.dsn, tmp_path, shop.conn, without))
    shop.conn.execute("SELECT public.orders_touch(array_agg(id)) FROM public.orders")
    await wait_async("orders", dsn=shop.dsn)
    assert held == documents_of(shop.conn, without)
    await wait_until_async(lambda: shop.sentences() == [], what="nothing is down")


async def test_a_relation_that_fails_does_not_keep_others_waiting(shop: Shop) -> None:
    shop.conn.execute("ALTER TABLE public.orders RENAME customer_id TO buyer_id")
    shop.conn.execute("SELECT tube_pause('orders', reason => 'the query fails, too')" + WITHOUT_COMPANIONS)
    shop.conn.execute("UPDATE public.customers SET name = 'new'")
    shop.conn.execute("UPDATE public.categories SET name = 'new'")
    waiting = "SELECT count(*) FROM orders_relations WHERE shard <> %s"
    (shard,) = [
        shard
        for shard, link in companions_of(ORDERS, read_tubes(shop.conn, "tube"))[0].relations.items()
        if link.table.table == "customers"
    ]
    await wait_until_async(
        lambda: shop.conn.execute(waiting, (shard,)).fetchone() == (0,), what="the others are touched"
    )
    shop.conn.execute("ALTER TABLE public.orders RENAME buyer_id TO customer_id")
    shop.conn.execute("SELECT tube_resume('orders')")
    await shop.settle()


# --- many documents ---------------------------------------------------------------------------------


async def test_no_fan_out_begins_while_many_documents_wait(shop: Shop, tmp_path: Path) -> None:
    """Of a row that changes all the time, touches would come faster than any sink takes them."""
    await shop.worker.stop()
    config = with_options(config_of(shop.dsn, tmp_path, shop.conn), most_waiting=5)
    shop.conn.execute("SELECT tube_pause('orders', reason => 'the sink is slow')" + WITHOUT_COMPANIONS)
    waits = "SELECT coalesce(sum(cardinality(ids)), 0) FROM orders"
    left = "SELECT count(*) FROM orders_relations_2"
    async with working(shop.conn, shop.dsn, config) as served:
        shop.conn.execute("UPDATE public.couriers SET name = 'new'")
        await wait_until_async(lambda: shop.conn.execute(left).fetchone() == (0,), what="the first fan-out")
        assert shop.conn.execute(waits).fetchone() == (6,)
        shop.conn.execute("UPDATE public.couriers SET name = 'newer'")
        await wait_until_async(
            lambda: any("documents are queued in tube orders" in str(event) for event in served.events),
            what=lambda: f"it is told: {served.events}",
        )
        assert shop.conn.execute(waits).fetchone() == (6,)
        shop.conn.execute("SELECT tube_resume('orders')")
        await shop.settle()


# --- sessions ---------------------------------------------------------------------------------------

_SHOWN = """
    SELECT id, json_build_object('seqscan', current_setting('enable_seqscan'), 'jit', current_setting('jit'),
        'plans', current_setting('plan_cache_mode')) FROM public.orders WHERE id = ANY (%(ids)s)
"""


async def test_documents_are_read_with_steady_plans_and_other_queries_as_ever(dsn: str, conn: Conn) -> None:
    """In the same session, if there is only one. Of a few ids any other query keeps its plan, too."""
    by_hand = EnrichConfig(mode="query", query=_SHOWN)
    declared = DeclaredEnrich(mode="query", query=_SHOWN, digest=ORDERS.digest)
    conn.execute("SELECT tube_ensure_exists('hand')")
    conn.execute("SELECT tube_table_ensure_attached('hand', 'public.orders', 0)")
    pool = SessionPool(lambda: Session.open(dsn, "tube", "test"), size=1)
    enrichers = {
        "orders": Enricher(pool, "orders", declared, 60.0),
        "hand": Enricher(pool, "hand", by_hand, 60.0),
    }

    async def shown(tube: str) -> object:
        shard = 1 if tube == "orders" else 0
        return json.loads((await enrichers[tube].read({shard: [1]}))[shard].bodies[1])

    plain = {"seqscan": "on", "jit": await pool.value("SHOW jit"), "plans": "force_generic_plan"}
    steady = {"seqscan": "off", "jit": "off", "plans": "force_generic_plan"}
    try:
        assert [await shown(tube) for tube in ("hand", "orders", "orders", "hand")] == [
            plain,
            steady,
            steady,
            plain,
        ]
        pids = {await pool.value("SELECT pg_backend_pid()") for _ in range(2)}
        assert (pool.idle, len(pids)) == (1, 1)
        assert await pool.value("SHOW enable_seqscan") == "on", "for statements of our own, too"
        assert await pool.value("SHOW plan_cache_mode") == "auto"
    finally:
        await pool.close()


async def test_a_pool_prefers_sessions_that_need_not_be_switched(dsn: str) -> None:
    pool = SessionPool(lambda: Session.open(dsn, "tube", "test"), size=2)
    try:
        async with pool.session() as plain, pool.session(settings=STEADY_PLANS) as steady:
            pass
        for _ in range(3):
            async with pool.session(settings=STEADY_PLANS) as session:
                assert session is steady
            async with pool.session() as session:
                assert session is plain
    finally:
        await pool.close()


# --- pause -----------------------------------------------------------------------------------------


async def test_a_pause_holds_for_companions_too(shop: Shop) -> None:
    names = [row[0] for row in shop.conn.execute("SELECT tube FROM tube_registry ORDER BY tube")]
    assert len(names) > 2
    sent.clear()
    result = await asyncio.to_thread(run, "pause", "--tube", "orders", dsn=shop.dsn)
    assert result.stdout == "orders is paused\n"
    halted = shop.conn.execute("SELECT DISTINCT tube FROM tube_pause_list() WHERE halted_since IS NOT NULL")
    assert sorted(name for (name,) in halted) == names, "the command has waited for all of them"
    shop.conn.execute("UPDATE public.products SET name = 'new' WHERE id = 1")
    status = await asyncio.to_thread(run, "status", dsn=shop.dsn)
    for name in names:
        assert any(name in line.split() and "paused" in line.split() for line in status.stdout.splitlines())
    waiting = shop.conn.execute("SELECT leader_id FROM orders_relations").fetchall()
    assert (waiting, sent) == ([(None,)], [])
    await asyncio.to_thread(run, "resume", "--tube", "orders", dsn=shop.dsn)
    await shop.settle()
    assert sent


# --- explain ---------------------------------------------------------------------------------------


@pytest.fixture
def relations(dsn: str, conn: Conn, tmp_path: Path) -> Config:
    """What waits in a companion: two products, and two customers; order 1 has one of either."""
    conn.execute("TRUNCATE orders")
    conn.execute("UPDATE public.products SET name = 'new' WHERE id IN (1, 2)")
    conn.execute("UPDATE public.customers SET name = 'new' WHERE id IN (2, 3)")
    conn.execute("UPDATE public.order_items SET order_id = 1, product_id = CASE id WHEN 6 THEN 1 ELSE 3 END")
    conn.execute("TRUNCATE orders")
    return config_of(dsn, tmp_path, conn)


async def test_explain_tells_what_leads_to_the_key(relations: Config) -> None:
    found = await explain(relations, "orders", "1")
    (companion,) = found.relations
    assert companion.each == [
        Relation("public.customers.id", 2, 1),
        Relation("public.products.id", 2, 1),
    ]
    (said,) = [one for one in found.sentences if "changed link" in one]
    assert said.endswith(
        ": as rows are now, 1 of 2 of public.customers.id, 1 of 2 of public.products.id lead to this key."
    )
    assert found.as_json()["relations"][0]["each"][0] == {
        "name": "public.customers.id",
        "links": 2,
        "leading": 1,
    }


async def test_explain_tells_that_nothing_leads_to_the_key(relations: Config) -> None:
    found = await explain(relations, "orders", "3")
    assert found.sentences[1].endswith(": as rows are now, none of them leads to this key.")


async def test_explain_tells_why_it_is_not_known(relations: Config, conn: Conn) -> None:
    conn.execute("ALTER TABLE public.order_items RENAME COLUMN product_id TO product")
    found = await explain(relations, "orders", "1")
    assert found.relations[0].each is None
    assert "They could not be looked up now: " in found.sentences[1]


# --- backfills of what leads to documents --------------------------------------------------------


async def test_a_backfill_of_a_relation_resends_the_documents(shop: Shop) -> None:
    """Products lead to orders by a companion, comments by their own key and by that of the one above."""
    for table in ("public.products", "public.comments"):
        wanted = {
            order
            for (order,) in shop.conn.execute(
                "SELECT order_id FROM public.order_items WHERE product_id IS NOT NULL"
                if "products" in table
                else "SELECT order_id FROM public.comments WHERE order_id IS NOT NULL"
            ).fetchall()
        }
        sent.clear()
        arguments = ("backfill", "start", "orders", "--table", table, "--wait")
        await asyncio.to_thread(run, *arguments, dsn=shop.dsn)
        assert wanted <= set(sent), "all of them are sent when the command ends"
        status = await asyncio.to_thread(run, "backfill", "status", "orders", "--table", table, dsn=shop.dsn)
        assert "orders_relations" in status.stdout
        assert "finished" in status.stdout
    await shop.settle()
