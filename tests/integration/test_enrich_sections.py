"""Tubes of several root tables: each id is read by the section of its own table, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr

from pytube.config import DocumentConfig, EnrichConfig, PostgresConfig, parse
from pytube.db.session import Session
from pytube.enrich.check import SETTINGS, Fault, Report, check_enriching
from pytube.enrich.rows import Enricher
from pytube.errors import ConfigError, EnrichFailed
from pytube.model import Id
from pytube.worker import Worker
from pytube.worker.database import Database
from tests.conftest import Connect
from tests.helpers.capture import open_session
from tests.helpers.database import preparing
from tests.helpers.roles import as_role, roles

Conn = psycopg.Connection[tuple[object, ...]]

ORDERS = "SELECT o.id, to_json('order ' || o.id) FROM public.orders o WHERE o.id = ANY(%(ids)s)"
EVENTS = "SELECT e.id, to_json('event ' || e.id) FROM public.events e WHERE e.id = ANY(%(ids)s)"
EITHER = f"{ORDERS} AND %(shard)s = 0 UNION ALL {EVENTS} AND %(shard)s = 1"


def asked(query: str, **tables: str) -> EnrichConfig:
    """A query for the tube, and for tables in `public`."""
    sections = {
        f"public.{table}": DocumentConfig(mode="query", query=its_own) for table, its_own in tables.items()
    }
    return EnrichConfig(mode="query", query=query, tables=sections)


def attach(conn: Conn, table: str, shard: int) -> None:
    conn.execute("SELECT tube_table_ensure_attached('t', %s, %s)", (f"public.{table}", shard))


def _tables(dsn: str) -> None:
    """Two tables with the same ids, of which one is attached."""
    with open_session(dsn) as conn:
        for table in ("orders", "events"):
            named = sql.Identifier(table)
            conn.execute(sql.SQL("CREATE TABLE public.{} (id bigint PRIMARY KEY)").format(named))
            conn.execute(sql.SQL("INSERT INTO public.{} VALUES (1), (2)").format(named))
        conn.execute("SELECT tube_ensure_exists('t', 1)")
        attach(conn, "orders", 0)


prepare = preparing(_tables, "dsn")


@asynccontextmanager
async def enricher(dsn: str, config: EnrichConfig) -> AsyncIterator[Enricher]:
    postgres = PostgresConfig(dsn=SecretStr(dsn), pool_size=2)
    pool = Database(postgres, ["t"], receive_deadline=5.0, emit=lambda _: None).pool
    try:
        yield Enricher(pool, "t", config)
    finally:
        await pool.close()


async def read(enricher: Enricher, shard: int, *ids: Id) -> dict[Id, bytes]:
    return dict((await enricher.read({shard: ids}))[shard].bodies)


class TestReading:
    async def test_each_table_by_its_own_query(self, dsn: str, conn: Conn) -> None:
        attach(conn, "events", 1)
        async with enricher(dsn, asked(ORDERS, events=EVENTS)) as reader:
            assert await read(reader, 0, 1) == {1: b'"order 1"'}
            assert await read(reader, 1, 1, 2, 9) == {1: b'"event 1"', 2: b'"event 2"'}

    async def test_each_table_in_its_own_mode(self, dsn: str, conn: Conn) -> None:
        attach(conn, "events", 1)
        config = EnrichConfig(mode="none", tables={"public.Events": DocumentConfig(mode="row")})
        async with enricher(dsn, config) as reader:
            assert await read(reader, 0, 1, 9) == {1: b"null", 9: b"null"}
            assert await read(reader, 1, 1, 9) == {1: b'{"id":1}'}

    async def test_a_query_that_is_told_the_shard(self, dsn: str, conn: Conn) -> None:
        attach(conn, "events", 1)
        async with enricher(dsn, asked(EITHER)) as reader:
            assert await read(reader, 0, 1) == {1: b'"order 1"'}
            assert await read(reader, 1, 1) == {1: b'"event 1"'}

    async def test_a_table_that_is_attached_later(self, dsn: str, conn: Conn) -> None:
        """Nobody can tell which of them the query reads."""
        async with enricher(dsn, asked(ORDERS)) as reader:
            assert await read(reader, 0, 1) == {1: b'"order 1"'}
            attach(conn, "events", 1)
            for shard in (1, 0, 1):
                with pytest.raises(EnrichFailed, match=r"public\.orders and public\.events.*%\(shard\)s"):
                    await read(reader, shard, 1)
            conn.execute("SELECT tube_table_ensure_detached('t', 'public.events')")
            assert await read(reader, 0, 1) == {1: b'"order 1"'}

    async def test_columns_of_each_table(self, dsn: str, conn: Conn) -> None:
        """Their names may be the predicate's, have capitals, or a sign of psycopg's."""
        conn.execute('ALTER TABLE public.orders ADD total int DEFAULT 7, ADD "To%tal" int DEFAULT 9')
        conn.execute("ALTER TABLE public.events ADD total int DEFAULT 8")
        conn.execute("SELECT tube_table_ensure_detached('t', 'public.orders')")
        conn.execute("SELECT tube_ensure_exists('t', 1, predicate => 'total > 5')")
        attach(conn, "orders", 0)
        attach(conn, "events", 1)
        config = EnrichConfig(
            columns=["To%tal", "total"], tables={"public.events": DocumentConfig(columns=["id"])}
        )
        conn.execute("UPDATE public.orders SET total = 1 WHERE id = 2")
        assert not (await report(dsn, config)).faults
        async with enricher(dsn, config) as reader:
            assert await read(reader, 0, 1, 2) == {1: b'{"To%tal":9,"total":7}'}
            assert await read(reader, 1, 1) == {1: b'{"id":1}'}

    async def test_it_says_which_table_was_read(self, dsn: str) -> None:
        async with enricher(dsn, EnrichConfig()) as reader:
            found = await reader.read({0: [1], 5: [1]})
            assert {shard: read.table for shard, read in found.items()} == {0: "public.orders", 5: None}

    async def test_a_related_table_needs_no_query(self, dsn: str, conn: Conn) -> None:
        attach(conn, "events", 0)
        async with enricher(dsn, asked(ORDERS)) as reader:
            assert await read(reader, 0, 1) == {1: b'"order 1"'}

    async def test_a_table_that_is_renamed_is_not_read_as_the_others_are(self, dsn: str, conn: Conn) -> None:
        attach(conn, "events", 1)
        async with enricher(dsn, asked(EVENTS, orders=ORDERS)) as reader:
            assert await read(reader, 0, 1) == {1: b'"order 1"'}
            conn.execute("ALTER TABLE public.orders RENAME TO purchases")
            with pytest.raises(EnrichFailed, match="does not exist"):
                await read(reader, 0, 1)
            with pytest.raises(EnrichFailed, match=r"names a table that is not attached .*purchases"):
                await read(reader, 0, 1)


async def report(dsn: str, config: EnrichConfig) -> Report:
    session = await Session.open(dsn, "tube", "test", settings=SETTINGS)
    try:
        return await check_enriching(session.connection, "t", config)
    finally:
        await session.close()


async def fault(dsn: str, config: EnrichConfig) -> Fault:
    (one,) = (await report(dsn, config)).faults
    return one


class TestCheck:
    async def test_all_is_well(self, dsn: str, conn: Conn) -> None:
        attach(conn, "events", 1)
        for config in (EnrichConfig(), asked(EITHER), asked(ORDERS, events=EVENTS)):
            assert await report(dsn, config) == Report("postgres", ("public.orders", "public.events"))

    async def test_nothing_is_read(self, dsn: str, conn: Conn) -> None:
        conn.execute("CREATE FUNCTION public.boom() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1/0; END'")
        query = "SELECT id, public.boom() FROM public.orders WHERE id = ANY(%(ids)s)"
        assert not (await report(dsn, asked(query))).faults

    @pytest.mark.parametrize(
        ("query", "finding", "remedy"),
        [
            (
                ORDERS.replace("FROM", "FORM"),
                'syntax error at or near "public"',
                "one SELECT without a ;",
            ),
            (ORDERS + ";", 'syntax error at or near ";"', "one SELECT without a ;"),
            (ORDERS.replace("public.orders", "public.none"), 'relation "public.none"', "correct it"),
            (
                "SELECT id FROM public.orders WHERE id = ANY(%(ids)s)",
                "1 columns",
                "the id, of type bigint, and",
            ),
            ("SELECT now(), 1 FROM public.orders WHERE id = ANY(%(ids)s)", "cannot cast", "of type bigint"),
            (ORDERS + " AND 'a' LIKE 'a%'", "a % that starts no placeholder, in", "write %%"),
            (ORDERS + " AND %s = 1", "a % that starts no placeholder, in", "write %%"),
            (ORDERS + " AND %(id)s = 1", "asks for %(id)s", "%(ids)s and %(shard)s only"),
            ("SELECT id, 1 FROM public.orders", "has no %(ids)s", "WHERE id = ANY(%(ids)s)"),
        ],
    )
    async def test_a_query_that_can_not_work(self, dsn: str, query: str, finding: str, remedy: str) -> None:
        found = await fault(dsn, asked(query))
        assert found.finding.startswith("the query of [tube.t.enrich]")
        assert finding in found.finding
        assert remedy in found.remedy
        theirs = await fault(dsn, asked(ORDERS, orders=query))
        assert theirs.finding.startswith('the query of [tube.t.enrich."public.orders"]')
        assert theirs.remedy == found.remedy

    @pytest.mark.parametrize(
        "written", ["orders", "ONLY Orders", '"orders" AS orders', "events e JOIN orders ON true"]
    )
    async def test_a_table_that_has_the_name_of_a_tube(self, dsn: str, conn: Conn, written: str) -> None:
        """Names without a schema are looked up in ours."""
        conn.execute("SELECT tube_ensure_exists('orders'), tube_ensure_exists('events')")
        conn.execute("CREATE SCHEMA another CREATE TABLE orders (id bigint)")
        query = f"SELECT orders.id, 1 FROM {written} WHERE orders.id = ANY(%(ids)s)"
        found = await fault(dsn, asked(query))
        assert "column orders.id does not exist" in found.finding
        table = "events" if "events" in written else "orders"
        assert f"write the schema of the table: public.{table} in place of " in found.remedy
        assert found.remedy.endswith(" is found in the schema of pytube")

    async def test_a_table_without_its_schema(self, dsn: str, conn: Conn) -> None:
        conn.execute("CREATE SCHEMA shop CREATE TABLE goods (id bigint)")
        query = "SELECT id, extract(day FROM now()) FROM goods WHERE id = ANY(%(ids)s)"
        found = await fault(dsn, asked(query))
        assert 'relation "goods" does not exist' in found.finding
        assert found.remedy == (
            "write the schema of the table: shop.goods in place of goods; "
            "names without one are looked up in tube, public"
        )
        made = await fault(
            dsn,
            asked(
                "WITH goods (a) AS MATERIALIZED (SELECT 1) SELECT id, 1 FROM goods WHERE id = ANY(%(ids)s)"
            ),
        )
        assert made.remedy.startswith("correct it"), "the name is the query's own"
        conn.execute("SELECT tube_ensure_exists('nowhere')")
        lost = await fault(dsn, asked(query.replace("goods", "nowhere")))
        assert "SCHEMA.nowhere in place of nowhere" in lost.remedy

    async def test_two_root_tables_and_one_query(self, dsn: str, conn: Conn) -> None:
        attach(conn, "events", 1)
        found = await fault(dsn, asked(ORDERS))
        assert "public.orders and public.events, which are all root tables of tube 't'" in found.finding
        assert found.remedy == (
            'give each table its query in [tube.t.enrich."public.events"], or use %(shard)s'
        )

    async def test_columns_that_a_table_does_not_have(self, dsn: str, conn: Conn) -> None:
        """`row_to_json` is a function, which Postgres would call on the row."""
        attach(conn, "events", 1)
        own = EnrichConfig(tables={"public.events": DocumentConfig(columns=["ID", "id", "row_to_json"])})
        found = await fault(dsn, own)
        assert found.finding == (
            'columns of [tube.t.enrich."public.events"] names ID, row_to_json, which public.events does not '
            "have (it has: id)"
        )
        assert "write the names as the catalog has them" in found.remedy

    async def test_columns_need_no_right_to_the_others(self, dsn: str, conn: Conn) -> None:
        conn.execute("ALTER TABLE public.orders ADD secret text")
        with roles(dsn, "a_part_reader") as admin:
            admin.execute("GRANT tube_worker TO a_part_reader")
            admin.execute("GRANT SELECT (id) ON public.orders TO a_part_reader")
            reader = as_role(dsn, "a_part_reader")
            assert not (await report(reader, EnrichConfig(columns=["id"]))).faults
            assert (await report(reader, EnrichConfig())).faults

    async def test_a_section_of_no_table(self, dsn: str) -> None:
        found = await fault(dsn, asked(ORDERS, order=ORDERS))
        assert 'public.order"] names a table that is not attached' in found.finding
        assert "(attached: public.orders)" in found.finding

    async def test_a_section_of_a_related_table(self, dsn: str, conn: Conn) -> None:
        attach(conn, "events", 0)
        found = await fault(dsn, asked(ORDERS, events=EVENTS))
        assert 'public.events"] is for a table that is related to public.orders' in found.finding
        assert found.remedy.startswith("give public.orders the section")

    async def test_rights(self, dsn: str, conn: Conn) -> None:
        conn.execute("CREATE SCHEMA shop")
        conn.execute("ALTER TABLE public.orders SET SCHEMA shop")
        conn.execute("SELECT tube_sync()")
        query = ORDERS.replace("public.orders", "shop.orders")
        with roles(dsn, "a_reader") as admin:
            admin.execute("GRANT tube_worker TO a_reader")
            reader = as_role(dsn, "a_reader")
            grants = ["GRANT USAGE ON SCHEMA shop TO a_reader", "GRANT SELECT ON shop.orders TO a_reader"]
            for lacking in ("schema shop", "table orders"):
                asking = await fault(reader, asked(query))
                assert f"permission denied for {lacking}" in asking.finding
                row = await fault(reader, EnrichConfig())
                assert (
                    f"the root table shop.orders can't be read: permission denied for {lacking}"
                    in row.finding
                )
                assert asking.remedy == row.remedy
                assert row.remedy == f"as the owner, run: {'; '.join(grants)}"
                admin.execute(grants.pop(0).encode())
            assert not (await report(reader, asked(query))).faults
            assert not (await report(reader, EnrichConfig())).faults
            admin.execute("ALTER TABLE shop.orders ENABLE ROW LEVEL SECURITY")
            assert "BYPASSRLS" in (await fault(reader, EnrichConfig())).remedy

    async def test_a_predicate_that_does_not_fit(self, dsn: str, conn: Conn) -> None:
        conn.execute("UPDATE tube_registry SET predicate = 'color = 1'")
        found = await fault(dsn, EnrichConfig())
        assert "the predicate of tube 't'" in found.remedy

    async def test_a_locked_table_is_not_called_well(
        self, dsn: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(SETTINGS, "lock_timeout", "50ms")
        holder = connect(autocommit=False)
        holder.execute("SET application_name = 'migration'; LOCK public.orders")
        pid = holder.info.backend_pid
        found = await fault(dsn, EnrichConfig())
        assert not found.is_certain
        assert "was not checked" in found.finding
        locked = f"; public.orders is locked by pid {pid} (migration, idle in transaction) for "
        assert locked in found.finding
        assert found.remedy == "try again when that transaction has ended"


async def test_a_worker_refuses_to_start(dsn: str, conn: Conn, tmp_path: Path) -> None:
    attach(conn, "events", 1)
    text = f"""
        [postgres]
        dsn = "{dsn}"
        [tube.t.sink]
        type = "jsonl"
        path = "{tmp_path}/out"
        [tube.t.enrich]
        mode = "query"
        query = "{ORDERS}"
    """
    worker = Worker(parse(text, environment={}))
    with pytest.raises(ConfigError, match=r"tube 't' can't be served: .* no %\(shard\)s.*; give each table"):
        await worker.start()
    own = f"""
        [tube.t.enrich."public.events"]
        mode = "query"
        query = "{EVENTS}"
    """
    worker = Worker(parse(text + own, environment={}))
    await worker.start()
    await worker.stop()
