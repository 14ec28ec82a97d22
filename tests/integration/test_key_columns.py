"""A table whose key has several columns: attached, changed, delivered, backfilled, compared, explained."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from pydantic import SecretStr

from pytube.config import Config, EnrichConfig, PostgresConfig, load
from pytube.enrich.check import check_enriching
from pytube.enrich.rows import Enricher
from pytube.errors import EnrichFailed, UsageError
from pytube.health.findings import Look
from pytube.health.queues import check_ids
from pytube.verify import explain, verify
from pytube.worker import Worker
from pytube.worker.database import Database
from tests.conftest import Servers
from tests.helpers import cli
from tests.helpers.capture import Conn, open_session
from tests.helpers.waiting import wait_until_async

TABLE = """
CREATE TYPE public.kind AS ENUM ('new', 'old');
CREATE TABLE public.docs (
    id bigint, n int, part_0 text, tenant text, day date, "odd %s" kind, flag boolean, off boolean,
    PRIMARY KEY (tenant, id, day, "odd %s", flag))
"""
FILL = """
INSERT INTO public.docs
SELECT g, g, 'p', 'tenant "' || g % 5 || '"', date '2026-01-01' + g % 3,
    (ARRAY['new', 'old'])[1 + g % 2]::kind, g % 2 = 1
FROM generate_series({}, {}) AS g
"""
ID = """json_build_array(tenant, id, day, concat("odd %s"), flag)::text"""
QUERY = """
    SELECT {id}, row_to_json(o)
    FROM unnest(%(tenant)s, %(id)s, %(day)s, %(flag)s) AS k (t, i, d, f)
    JOIN public.docs AS o ON (o.tenant, o.id, o.day, o.flag) = (k.t, k.i, k.d, k.f)
""".format(id=ID.replace("%", "%%"))
OF_IDS = "SELECT {id}, row_to_json(o) FROM public.docs AS o WHERE {id} = ANY(%(ids)s)".format(
    id=ID.replace("%", "%%")
)
CONFIG = """
[postgres]
dsn = "{dsn}"
[worker]
election = "lease"
[tube.docs.enrich]
{enrich}
[tube.docs.sink]
type = "postgres"
dsn = "{dsn}"
table = "copy"
id_type = "text"
create = true
"""
KEY = ["--key", "tenant,id,day,odd %s,flag", "--shards", "8", "--shard-by", "tenant"]


@pytest.fixture(params=[18, "system"])
def dsn(request: pytest.FixtureRequest, servers: Servers) -> Iterator[str]:
    with servers.get(request.param).database(installed=True) as dsn:
        yield dsn


@pytest.fixture
def conn(dsn: str) -> Iterator[Conn]:
    with open_session(dsn, client_encoding="utf8") as conn:
        conn.execute(TABLE)
        yield conn


@pytest.fixture(params=["rows", "query", "ids"])
def enrich(request: pytest.FixtureRequest) -> str:
    queries = {"query": QUERY, "ids": OF_IDS}
    if request.param not in queries:
        return 'mode = "row"'
    return f"mode = \"query\"\nquery = '''{queries[request.param]}'''"


@pytest.fixture
def folder(dsn: str, tmp_path: Path, enrich: str) -> Path:
    (tmp_path / "pytube.toml").write_text(CONFIG.format(dsn=dsn, enrich=enrich))
    return tmp_path


@asynccontextmanager
async def working(folder: Path) -> AsyncIterator[None]:
    worker = Worker(load(folder / "pytube.toml"))
    await worker.start()
    try:
        yield
    finally:
        await worker.stop()


async def command(folder: Path, *words: str) -> Any:
    return await asyncio.to_thread(cli.run, *words, folder=folder)


def copied(conn: Conn) -> dict[str, Any]:
    rows = conn.execute("SELECT id, doc FROM public.copy WHERE doc IS NOT NULL").fetchall()
    return dict(rows)


def wanted(conn: Conn) -> dict[str, Any]:
    return dict(conn.execute(f"SELECT {ID}, row_to_json(d)::jsonb FROM public.docs AS d".encode()).fetchall())


async def drained(conn: Conn) -> None:
    def is_empty() -> bool:
        return conn.execute("SELECT count(*) FROM tube.docs").fetchone() == (0,)

    await wait_until_async(is_empty, what="the tube is empty")


async def test_the_whole_way(conn: Conn, folder: Path) -> None:
    await command(folder, "tube", "create", "docs", "--keys", "text", "--partitions", "2")
    done = await command(folder, "tube", "attach", "docs", "public.docs", *KEY)
    assert done.stdout == (
        "public.docs is attached to docs by (tenant, id, day, odd %s, flag): it is the primary key\n"
    )
    assert "tenant, id, day, odd %s, flag" in (await command(folder, "tube", "list")).stdout
    async with working(folder):
        conn.execute(FILL.format(1, 300).encode())
        await drained(conn)
        assert copied(conn) == wanted(conn)
        conn.execute("UPDATE public.docs SET n = n + 1 WHERE id % 2 = 0")
        conn.execute(b"""UPDATE public.docs SET "odd %s" = 'new', tenant = 'x' WHERE id = 7""")
        conn.execute("DELETE FROM public.docs WHERE id % 7 = 3")
        # As somebody may touch them by hand; all are gone.
        conn.execute(
            "SELECT public.docs_touch(%s)",
            (
                [
                    '["x", 1, "2026-02-30", "new", true]',
                    '["x", 7, "2026-01-02", "none", true]',
                    "7",
                    "[",
                    '["x"]',
                ],
            ),
        )
        await drained(conn)
        assert copied(conn) == wanted(conn)
        rows = conn.execute(
            "SELECT id::json ->> 0, count(DISTINCT shard), count(*) FROM copy GROUP BY 1"
        ).fetchall()
        assert all(shards == 1 for tenant, shards, _ in rows if tenant.startswith("tenant"))
        conn.execute("UPDATE copy SET doc = '{}' WHERE (id::json ->> 1)::int = 20")
        conn.execute("DELETE FROM copy WHERE (id::json ->> 1)::int = 21")
        conn.execute(
            "INSERT INTO copy SELECT r.* FROM copy AS c, jsonb_populate_record(c,"
            " jsonb_build_object('id', replace(id, ', 30, ', ', 3000, '))) AS r"
            " WHERE (c.id::json ->> 1)::int = 30"
        )
        report = await verify(load(folder / "pytube.toml"), "docs")
        assert (report.different, report.missing, report.extra) == (1, 1, 1), report
        await command(folder, "backfill", "start", "--tube", "docs", "--wait")
        await drained(conn)
        assert copied(conn) == wanted(conn)
        report = await verify(load(folder / "pytube.toml"), "docs")
        assert report.is_equal, report
        assert report.compared == len(wanted(conn))
    (key,) = [key for key in wanted(conn) if ", 20, " in key]
    found = await explain(load(folder / "pytube.toml"), "docs", key)
    assert (found.id, found.source.exists, found.sink.exists, found.difference) == (key, True, True, None)
    with pytest.raises(
        UsageError, match=r"not a key of public.docs; expected the JSON array of tenant \(text\), id"
    ):
        await explain(load(folder / "pytube.toml"), "docs", "20")


def attached(conn: Conn) -> None:
    conn.execute("SELECT tube_ensure_exists('docs', 2, key_type => 'text'::regtype)")
    conn.execute(
        "SELECT tube_table_ensure_attached('docs', 'public.docs', 0, key_cols => %s)",
        (["tenant", "id", "day", "odd %s", "flag"],),
    )


async def faults(dsn: str, query: str) -> list[str]:
    section = EnrichConfig(mode="query", query=query)
    async with await psycopg.AsyncConnection.connect(dsn, options="-c search_path=tube") as session:
        return [fault.finding for fault in (await check_enriching(session, "docs", section)).faults]


@pytest.mark.parametrize("dsn", [18], indirect=True)
async def test_what_a_query_may_ask_for(conn: Conn, dsn: str) -> None:
    attached(conn)
    assert await faults(dsn, QUERY) == await faults(dsn, OF_IDS) == []
    (fault,) = await faults(dsn, QUERY.replace("%(flag)s", "%(flags)s"))
    assert fault == "the query of [tube.docs.enrich] asks for %(flags)s"
    (fault,) = await faults(dsn, "SELECT '', '{}' WHERE %(shard)s = 1")
    assert fault == "the query of [tube.docs.enrich] has no %(ids)s, so each batch would read all rows"


@pytest.mark.parametrize("dsn", [18], indirect=True)
@pytest.mark.parametrize("first", ["o.id", "'[1, 2]'", "json_build_array(o.id, o.tenant)"])
async def test_a_query_that_gives_no_key_first_deletes_nothing(conn: Conn, dsn: str, first: str) -> None:
    attached(conn)
    conn.execute(FILL.format(1, 10).encode())
    query = f"SELECT {first}, '{{}}' FROM public.docs AS o WHERE %(ids)s IS NOT NULL"
    pool = Database(
        PostgresConfig(dsn=SecretStr(dsn)), ["docs"], receive_deadline=5.0, emit=lambda _: None
    ).pool
    enricher = Enricher(pool, "docs", EnrichConfig(mode="query", query=query))
    with pytest.raises(EnrichFailed, match=r"has to be json_build_array\(tenant, id, day, "):
        await enricher.read({0: list(wanted(conn))})
    await pool.close()


@pytest.mark.parametrize("dsn", [18], indirect=True)
def test_the_doctor_looks_at_keys_that_no_index_proves_unique(conn: Conn) -> None:
    attached(conn)
    conn.execute("CREATE TABLE public.loose (a int, b text, n int, UNIQUE (b, a, n))")
    conn.execute("SELECT tube_table_ensure_attached('docs', 'public.loose', 1, key_cols => '{a,b}')")
    conn.execute("INSERT INTO loose VALUES (1, 'x', 1), (1, 'y', 1), (NULL, 'x', 1), (NULL, 'x', 2)")
    (check,) = check_ids(Look(conn, "tube", cast("Config", None)))
    assert check.finding.startswith("no index proves a, b unique; no value stands twice in the 2 rows")
    conn.execute("INSERT INTO loose VALUES (1, 'x', 2)")
    (check,) = check_ids(Look(conn, "tube", cast("Config", None)))
    assert check.finding.startswith("values of a, b that stand more than once: 1 ((1,x)), in the 3 rows")
    conn.execute("TRUNCATE loose")
    conn.execute("CREATE UNIQUE INDEX ON loose (b, a)")
    (check,) = check_ids(Look(conn, "tube", cast("Config", None)))
    assert check.finding == "an index proves them unique in each attached table"


@pytest.mark.parametrize("dsn", [18], indirect=True)
def test_the_command_says_which_columns_there_are(conn: Conn, dsn: str) -> None:
    conn.execute(
        "CREATE TABLE public.nameless (tenant int, nr int, at timestamptz, PRIMARY KEY (tenant, nr))"
    )
    cli.run("tube", "create", "docs", "--keys", "text", dsn=dsn)
    words = ("tube", "attach", "docs")
    said = cli.run(*words, "public.nameless", dsn=dsn, code=2).stderr
    assert "its primary key has several columns; name them: --key-cols tenant,nr" in said
    said = cli.run(*words, "public.docs", dsn=dsn, code=2).stderr
    assert "or all columns of the primary key: --key-cols 'tenant,id,day,odd %s,flag'" in said
    said = cli.run(*words, "public.nameless", "--key-cols", "tenant,at", dsn=dsn, code=2).stderr
    assert "the column at of public.nameless has the type timestamp with time zone" in said
    said = cli.run(
        *words, "public.nameless", "--key-cols", "tenant,nr", "--id-col", "nr", dsn=dsn, code=2
    ).stderr
    assert "can't be attached by id_col and by key_cols" in said
    options = ("--key", "tenant,nr", "--shards", "4")
    said = cli.run(*words, "public.nameless", *options, "--shard-by", "tenant", dsn=dsn).stdout
    assert said == "public.nameless is attached to docs by (tenant, nr): it is the primary key\n"
    assert "unchanged" in cli.run(*words, "public.nameless", dsn=dsn).stdout
    said = cli.run(*words, "public.nameless", "--shard-by", "", dsn=dsn, code=2).stderr
    assert "spread by tenant -> none" in said
    said = cli.run(*words, "public.nameless", "--shard-by", "", "--force", dsn=dsn).stdout
    assert "spread by tenant -> none" in said
    (row,) = cli.run_json("tube", "list", dsn=dsn)
    assert (row["id_col"], row["key_cols"], row["shard_by"]) == ("tenant", ["tenant", "nr"], None)
