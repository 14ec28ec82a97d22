"""The sink `relations`: whatever goes wrong, no touch is missing, and nothing is parked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import psycopg
import pytest

from pytube.documents.model import companions_of, read_tubes
from pytube.errors import ConfigError, SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Document, Id, Retry, Token
from pytube.sinks import build_sink
from pytube.sinks.relations import RelationsSink
from tests.conftest import Connect
from tests.helpers import order_documents
from tests.helpers.database import preparing
from tests.helpers.order_documents import ORDERS, apply
from tests.helpers.waiting import wait_until_async

Conn = psycopg.Connection[Any]
SLOW = "SELECT o.id FROM public.orders AS o, pg_sleep(600) WHERE o.id = ANY (%(keys)s)"
RUNNING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'pytube relations' AND state = 'active' AND query LIKE '%pg_sleep%'
"""


def _prepared(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as conn:
        conn.execute(order_documents.SCHEMA.encode())
        apply(conn, ORDERS)


prepare = preparing(_prepared, "conn")


def shards(conn: Conn) -> dict[str, int]:
    """The numbers of the relations by table and column."""
    return {
        f"{link.table.table}.{link.column}": shard
        for companion in companions_of(ORDERS, read_tubes(conn, "tube"))
        for shard, link in companion.relations.items()
    }


def options(dsn: str, conn: Conn, more: Mapping[str, object] | None = None) -> dict[str, object]:
    """As `resolve` gives them to the companion with keys of bigint."""
    companion = next(iter(companions_of(ORDERS, read_tubes(conn, "tube"))))
    return {
        "dsn": dsn,
        "tube": "orders",
        "digest": ORDERS.digest,
        "key_type": "bigint",
        "document_key_type": "bigint",
        "paths": {shard: link.path for shard, link in companion.relations.items()},
        **(more or {}),
    }


TERM = Token(0, 1)
"""That of a companion that nobody has led."""


def batch(keys: Mapping[int, list[Id]], token: Token = TERM, **more: Any) -> Batch:
    """Links by relation."""
    documents = [Document(shard, id_, b"null", TERM, 1) for shard, ids in keys.items() for id_ in ids]
    return Batch("orders_relations", 0, token, documents, **more)


def touched(conn: Conn) -> dict[str, set[int]]:
    """The ids that wait, by op."""
    rows = conn.execute("SELECT op::text, array_agg(id) FROM orders, unnest(ids) AS id GROUP BY op")
    return {op: set(ids) for op, ids in rows}


@pytest.fixture
async def make(dsn: str, conn: Conn) -> AsyncIterator[Any]:
    """Makes sinks that are open."""
    sinks: list[RelationsSink] = []

    async def make(**more: object) -> RelationsSink:
        sink = RelationsSink.of_one(options(dsn, conn, more))
        sinks.append(sink)
        await sink.open()
        return sink

    yield make
    for sink in sinks:
        await sink.close()


def with_slow(conn: Conn) -> dict[int, str]:
    """Paths of which that of customers never ends, and needs no document."""
    paths = options("", conn)["paths"]
    assert isinstance(paths, dict)
    return {**paths, shards(conn)["customers.id"]: SLOW}


async def test_it_touches_what_links_lead_to(conn: Conn, make: Any) -> None:
    number = shards(conn)
    sink = await make()
    sent = batch({number["customers.id"]: [1, 77], number["categories.id"]: [3]})
    assert await sink.send(sent) == [OK, OK, OK]
    by_hand = (
        "SELECT id FROM public.orders WHERE customer_id = 1 "
        "UNION SELECT order_id FROM public.order_items WHERE product_id = 3"
    )
    assert touched(conn) == {"U": {row[0] for row in conn.execute(by_hand)}}
    again = touched(conn)
    assert await sink.send(sent) == [OK, OK, OK], "twice harms nobody"
    assert touched(conn) == again
    assert await sink.send(batch({})) == []


async def test_shards_are_those_of_the_root_table(conn: Conn, make: Any) -> None:
    number = shards(conn)
    sink = await make()
    for partitions in (2, 3):
        conn.execute("SELECT tube_ensure_exists('orders', %s)", (partitions,))
        conn.execute("DELETE FROM orders")
        assert await sink.send(batch({number["customers.id"]: [1, 2, 3]})) == [OK] * 3
        rows = conn.execute("SELECT shard, unnest(ids) FROM orders").fetchall()
        assert {(shard, id_) for shard, id_ in rows} == {(id_ % 4, id_) for id_ in range(1, 7)}


async def test_a_large_fan_out_comes_after_all_else(conn: Conn, make: Any) -> None:
    number = shards(conn)
    sink = await make(backfill_above=1)
    await sink.send(batch({number["customers.id"]: [1]}))
    assert list(touched(conn)) == ["B"]


async def test_what_waits_already_puts_it_off(conn: Conn, make: Any) -> None:
    number = shards(conn)
    sink = await make(most_waiting=5)
    all_customers = batch({number["customers.id"]: [1, 2, 3]})
    assert await sink.send(all_customers) == [OK] * 3
    answers = await sink.send(all_customers)
    assert {type(answer) for answer in answers} == {Retry}
    assert 0.2 <= answers[0].after <= 1.0
    assert answers[0].reason.startswith("at least 6 documents are queued in tube orders")
    conn.execute("UPDATE orders SET op = 'B'")
    assert isinstance((await sink.send(all_customers))[0], Retry), "of a large fan-out, too"


@pytest.mark.parametrize("op", ["U", "B"])
async def test_fan_outs_are_counted_beside_a_backfill_and_its_pods_are_not(
    conn: Conn, make: Any, op: str
) -> None:
    all_customers = batch({shards(conn)["customers.id"]: [1, 2, 3]})
    sink = await make(most_waiting=5, backfill_above=0 if op == "B" else 1000)
    conn.execute("SELECT tube_backfill_create('orders', 'public.orders', 'id')")
    # As sql/backfill/chunks.sql puts them, more than are looked at.
    conn.execute(
        "INSERT INTO orders (op, shard, ids, payload) "
        "SELECT 'B', n % 4, ARRAY[n, n], '{\"backfill\": 1}' FROM generate_series(1, 1100) AS n"
    )
    assert await sink.send(all_customers) == [OK] * 3, "a backfill is not waited for"
    conn.execute(
        "INSERT INTO orders (op, shard, ids, payload) "
        "SELECT 'B', n % 4, ARRAY[n, n], '{\"backfill\": 1}' FROM generate_series(1, 1100) AS n"
    )
    answers = await sink.send(all_customers)
    assert {type(answer) for answer in answers} == {Retry}
    assert answers[0].reason.startswith("at least 6 documents are queued in tube orders")


async def test_a_relation_that_the_document_does_not_have(conn: Conn, make: Any) -> None:
    number = shards(conn)
    paths = {k: v for k, v in with_slow(conn).items() if k != number["products.id"]}
    sink = await make(paths=paths)
    sent = batch({number["products.id"]: [1]})
    with pytest.raises(SinkUnavailable, match=r"does not know relation public\.products\.id: restart it"):
        await sink.send(sent)
    conn.execute("SELECT tube_table_ensure_detached('orders_relations', 'public.products')")
    assert await sink.send(sent) == [OK]


async def test_links_of_a_relation_that_is_gone_are_passed_over_by_the_newest_alone(
    conn: Conn, make: Any
) -> None:
    """By the server that the pods are purged at, and for the document that was applied."""
    sink = await make()
    gone = shards(conn)["products.id"]
    conn.execute("SELECT tube_table_ensure_detached('orders_relations', 'public.products')")
    sink._options.paths.pop(gone)
    assert await sink.send(batch({gone: [1]})) == [OK]
    with pytest.raises(SinkUnavailable, match="knows term 0 of orders_relations, not 5"):
        await sink.send(batch({gone: [1]}, Token(5, 1)))
    assert await sink.send(batch({gone: [1]})) == [OK], "by another session"
    conn.execute("SELECT tube_document_declare('orders', 'another')")
    with pytest.raises(SinkUnavailable, match="document orders differs from the declaration applied last"):
        await sink.send(batch({gone: [1]}))


async def test_another_document_is_applied(conn: Conn, make: Any) -> None:
    sink = await make()
    sent = batch({shards(conn)["customers.id"]: [1]})
    assert await sink.send(sent) == [OK]
    conn.execute("DELETE FROM orders")
    conn.execute("SELECT tube_document_declare('orders', 'another')")
    with pytest.raises(SinkUnavailable, match="document orders differs from the declaration applied last"):
        await sink.send(sent)
    assert touched(conn) == {}
    conn.execute("SELECT tube_ensure_absent('orders')")
    with pytest.raises(SinkUnavailable, match='relation "tube.orders" does not exist'):
        await sink.send(sent)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("ALTER TABLE public.orders RENAME customer_id TO buyer_id", "column o.customer_id does not exist"),
        ("DROP TABLE public.orders CASCADE", 'relation "public.orders" does not exist'),
    ],
)
async def test_it_says_what_postgres_refuses(conn: Conn, make: Any, broken: str, said: str) -> None:
    sink = await make()
    number = shards(conn)
    conn.execute(broken.encode())
    with pytest.raises(SinkUnavailable, match=said):
        await sink.send(batch({number["customers.id"]: [1]}))


async def test_others_are_answered_beside_one_that_fails(conn: Conn, make: Any) -> None:
    sink = await make()
    number = shards(conn)
    conn.execute("ALTER TABLE public.orders RENAME customer_id TO buyer_id")
    failed, done = await sink.send(batch({number["customers.id"]: [1], number["products.id"]: [1]}))
    assert isinstance(failed, Retry)
    assert "o.customer_id does not exist" in failed.reason
    assert done is OK


async def test_a_locked_table(conn: Conn, connect: Connect, make: Any) -> None:
    sink = await make(lock_timeout=0.05)
    other = connect()
    other.execute("BEGIN; LOCK TABLE public.orders")
    sent = batch({shards(conn)["customers.id"]: [1]})
    with pytest.raises(SinkUnavailable, match="lock timeout"):
        await sink.send(sent)
    other.execute("ROLLBACK")
    assert await sink.send(sent) == [OK]


async def test_a_fan_out_that_takes_too_long(conn: Conn, make: Any) -> None:
    """Fewer at a time may not take as long. One is never given up, or its documents would stay wrong."""
    number = shards(conn)["customers.id"]
    sink = await make(paths=with_slow(conn), timeout=0.2)
    with pytest.raises(SinkTimeout):
        await sink.send(batch({number: [1, 2]}))
    with pytest.raises(SinkUnavailable, match=r"takes longer than 0\.18 s.*raise worker\.session_timeout"):
        await sink.send(batch({number: [1]}))


async def test_the_statement_of_a_send_that_was_cancelled_is_ended(conn: Conn, make: Any) -> None:
    sink = await make(paths=with_slow(conn), timeout=1000.0)
    number = shards(conn)
    sent = batch({number["customers.id"]: [1], number["products.id"]: [1]})
    sending = asyncio.create_task(sink.send(sent))
    await wait_until_async(lambda: conn.execute(RUNNING).fetchone() == (1,), what="the statement runs")
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await sink.abandon(sent)
    assert conn.execute(RUNNING).fetchone() == (0,)
    assert touched(conn) == {}, "the other relation was not begun"
    await sink.abandon(sent)
    assert await sink.send(batch({number["products.id"]: [1]})) == [OK]


async def test_a_lost_session(conn: Conn, make: Any) -> None:
    sink = await make(paths=with_slow(conn), timeout=1000.0)
    number = shards(conn)
    sending = asyncio.create_task(sink.send(batch({number["customers.id"]: [1]})))
    await wait_until_async(lambda: conn.execute(RUNNING).fetchone() == (1,), what="the statement runs")
    conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pytube relations'"
    )
    with pytest.raises(SinkTimeout):
        await sending
    assert await sink.send(batch({number["products.id"]: [1]})) == [OK], "by another session"


async def test_a_session_with_another_server(conn: Conn, make: Any) -> None:
    """After a failover that left it open, what it touches is lost, and the pods would be purged."""
    sink = await make()
    ask = "SELECT pid FROM pg_stat_activity WHERE application_name = 'pytube relations'"
    before = conn.execute(ask).fetchall()
    number = shards(conn)["customers.id"]
    assert await sink.send(batch({number: [1]})) == [OK]
    conn.execute("DELETE FROM orders")
    sent = batch({number: [1]}, Token(5, 1))
    with pytest.raises(
        SinkUnavailable, match="knows term 0 of orders_relations, not 5; another one is opened"
    ):
        await sink.send(sent)
    assert touched(conn) == {}
    conn.execute("UPDATE tube_leader SET epoch = 5 WHERE tube = 'orders_relations'")
    assert await sink.send(sent) == [OK]
    assert not set(before) & set(conn.execute(ask).fetchall())


async def test_policies_do_not_hide_rows_in_silence(conn: Conn, dsn: str, make: Any) -> None:
    conn.execute("CREATE ROLE pytube_watched LOGIN IN ROLE tube_worker")
    conn.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO pytube_watched")
    conn.execute("ALTER TABLE public.orders ENABLE ROW LEVEL SECURITY")
    try:
        sink = await make(dsn=dsn.replace("postgres@", "pytube_watched@"))
        with pytest.raises(SinkUnavailable, match="row-level security"):
            await sink.send(batch({shards(conn)["customers.id"]: [1]}))
        conn.execute("ALTER TABLE public.orders DISABLE ROW LEVEL SECURITY")
        assert await sink.send(batch({shards(conn)["customers.id"]: [1]})) == [OK], "a worker's role will do"
    finally:
        conn.execute("DROP OWNED BY pytube_watched; DROP ROLE pytube_watched")


async def test_it_has_to_be_open(dsn: str, conn: Conn) -> None:
    sink = RelationsSink.of_one(options(dsn, conn))
    sent = batch({shards(conn)["customers.id"]: [1]})
    for _ in range(2):
        with pytest.raises(SinkUnavailable, match="not open"):
            await sink.send(sent)
        await sink.open()
        await sink.open()
        assert await sink.send(sent) == [OK]
        await sink.close()
        await sink.close()
    down = RelationsSink.of_one(options("host=127.0.0.1 port=1 dbname=none", conn))
    with pytest.raises(SinkUnavailable, match="Postgres is not available"):
        await down.open()
    await down.close()


async def test_of_several_hosts_a_dead_one_keeps_back_no_other(dsn: str, conn: Conn) -> None:
    there, dead = options(dsn, conn), options("host=127.0.0.1 port=1 dbname=none", conn)
    sink = build_sink("relations", {"tube": "orders", "hosts": {"dead": dead, "there": there}})
    keys: dict[int, list[Id]] = {shards(conn)["customers.id"]: [1]}
    for _ in range(2):
        with pytest.raises(SinkUnavailable, match="not open"):
            await sink.send(batch(keys, host="there"))
        await sink.open()
        with pytest.raises(SinkUnavailable, match="Postgres is not available"):
            await sink.send(batch(keys, host="dead"))
        answers = await asyncio.gather(*(sink.send(batch(keys, host="there")) for _ in range(2)))
        assert answers == [[OK], [OK]]
        await sink.close()


async def test_nothing_is_sent_once_the_right_to_send_has_lapsed(conn: Conn, make: Any) -> None:
    sink = await make()
    with pytest.raises(SinkUnavailable, match="had lapsed"):
        await sink.send(batch({shards(conn)["customers.id"]: [1]}, send_before=time.monotonic()))
    assert touched(conn) == {}


def test_an_option_that_is_wrong(dsn: str, conn: Conn) -> None:
    with pytest.raises(ConfigError, match='option "digest" is missing'):
        build_sink("relations", {k: v for k, v in options(dsn, conn).items() if k != "digest"})
