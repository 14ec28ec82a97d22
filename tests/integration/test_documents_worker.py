"""A declared document in a worker: whatever changes, however far away, the copy equals the query in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube import faults
from pytube.config import Config, load
from pytube.documents.companions import read_tubes
from pytube.documents.model import Document
from pytube.documents.resolve import with_documents
from pytube.errors import ConfigError
from pytube.events import Event
from pytube.faults import Point
from pytube.model import Batch
from pytube.worker import Worker
from tests.conftest import Connect
from tests.helpers import order_documents
from tests.helpers.database import Prepare, preparing
from tests.helpers.order_documents import ORDERS, apply, documents_of
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


async def wait_async(name, *, dsn):
    from pytube.delivered import wait_async as w
    await w([name + "_relations", name + "_relations_2"], dsn=dsn)
    return await w(name, dsn=dsn)


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
            "SELECT coalesce(l.sink_down, l.source_down) FROM tube_documents() AS d "
            "CROSS JOIN LATERAL tube_leaders(d.tube) AS l"
        ).fetchall()
        return [row[0] for row in rows if row[0] is not None]


def config_of(dsn: str, folder: Path, conn: Conn, document: Document = ORDERS) -> Config:
    """What `resolve` makes of the file."""
    file = folder / "pytube.toml"
    file.write_text(CONFIG.format(dsn=dsn, module=__name__))
    return with_documents(load(file), [document], read_tubes(conn, "tube"))


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
    "root": "UPDATE public.orders SET total = 100 WHERE id = 1",
    "root inserted": "INSERT INTO public.orders (id, customer_id) VALUES (7, 1)",
    "root deleted": "DELETE FROM public.orders WHERE id = 2",
    "own child": "UPDATE public.order_items SET amount = 9 WHERE id = 3",
    "own child moved": "UPDATE public.order_items SET order_id = 1 WHERE id = 3",
    "own child deleted": "DELETE FROM public.order_items WHERE id = 3",
    "to one": "UPDATE public.customers SET name = 'new' WHERE id = 2",
    "to one, by a text": "UPDATE public.couriers SET name = 'on foot' WHERE code = 'bike'",
    "to one, deleted": "DELETE FROM public.customers WHERE id = 2",
    "to one, renumbered": "UPDATE public.customers SET id = 20 WHERE id = 2",
    "far": "UPDATE public.products SET name = 'new' WHERE id = 2",
    "farther": "UPDATE public.categories SET name = 'new' WHERE id = 2",
    "join row inserted": "INSERT INTO public.product_categories VALUES (4, 1)",
    "join row moved": "UPDATE public.product_categories SET product_id = 4 WHERE category_id = 3",
    "join row deleted": "DELETE FROM public.product_categories WHERE category_id = 2",
    "cascade": "DELETE FROM public.categories WHERE id = 2",
    "tree, the top": "UPDATE public.comments SET text = 'new' WHERE id = 1",
    "tree, a leaf": "UPDATE public.comments SET text = 'new' WHERE id = 3",
    "tree, a reply deleted": "DELETE FROM public.comments WHERE id = 3",
    "tree, a branch moved": "UPDATE public.comments SET parent_id = 4 WHERE id = 2",
    "tree, a branch cut": "DELETE FROM public.comments WHERE id = 2",
    "truncated join table": "TRUNCATE public.product_categories",
    "truncated far table": "TRUNCATE public.customers",
    "truncated own table": "TRUNCATE public.order_items",
    "everything truncated": "TRUNCATE public.orders, public.order_items, public.comments",
    "far change, then the middle row deleted": "UPDATE public.products SET name = 'new' WHERE id = 2;"
    "DELETE FROM public.order_items WHERE product_id = 2",
    "both ends of a join deleted": "BEGIN; UPDATE public.categories SET name = 'new' WHERE id = 2;"
    "DELETE FROM public.product_categories WHERE category_id = 2; COMMIT",
    "an item is given another product, which changes": "BEGIN;"
    "UPDATE public.products SET name = 'new' WHERE id IN (1, 2);"
    "UPDATE public.order_items SET product_id = 1 WHERE product_id = 2; COMMIT",
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
