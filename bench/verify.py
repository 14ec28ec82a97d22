"""What `verify` costs beside reading both sides, how long `explain` takes, what `wait` adds to a delivery."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
from opensearchpy import AsyncOpenSearch

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.statistics import percentile, ratios, spread
from pytube.config import Config, parse
from pytube.delivered import Waiter
from pytube.embedded.search_server import OpenSearch
from pytube.errors import SinkUnavailable
from pytube.model import Batch, Documents, Token
from pytube.sinks.opensearch import OpenSearchSink
from pytube.verify import explain, verify

ROWS = 1_000_000
ROUNDS = 3
PAGE = 1000
SEARCH_PAGE = 10_000
TO_READING = 2.0
EXPLAINS = 100
EXPLAIN_GOAL = 100.0
"""Milliseconds: a promise, as the next one."""
WAITS = 200
WAIT_GOAL = 5.0

CONFIG = """
[postgres]
dsn = "{dsn}"
[tube.t.sink]
type = "opensearch"
url = "{url}"
index = "bench"
create = "index"
[tube.t.sink.settings]
number_of_shards = 1
number_of_replicas = 0
refresh_interval = "5s"
"""
_SOURCE = """
    SELECT id, convert_to(row_to_json(i.*)::text, 'UTF8') FROM public.item i
    WHERE id > %s ORDER BY id LIMIT %s
"""


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Verify, explain, wait",
        f"{ROWS:,} rows of 100 bytes and an index of OpenSearch of one shard that is equal to them, all on "
        f"this machine, one process. Reading: the source in pages of {PAGE} by its primary key, as JSON; "
        f"then the index in searches of {SEARCH_PAGE:,} documents, decoded; nothing is compared. `explain` "
        "and `wait` are called within a program: starting Python is not among it.",
    )
    dsn = server.database("bench_verify")
    with (
        tempfile.TemporaryDirectory() as folder,
        OpenSearch(folder) as search,
        connect(dsn) as admin,
        asyncio.Runner() as runner,
    ):
        config = parse(CONFIG.format(dsn=dsn, url=search.url), environment={})
        _make(admin)
        runner.run(_fill(config, admin))
        _verify(section, runner, config, dsn, search.url)
        _explain(section, runner, config)
        _wait(section, runner, admin, dsn)
    server.drop("bench_verify")
    return section


def _make(admin: psycopg.Connection) -> None:
    admin.execute("SELECT tube_ensure_exists('t', 2)")
    admin.execute(
        "CREATE TABLE public.item AS SELECT g AS id, g % 1000 AS a, g * 3 AS b, md5(g::text) AS note "
        f"FROM generate_series(1::bigint, {ROWS}) AS g"
    )
    admin.execute("ALTER TABLE public.item ADD PRIMARY KEY (id)")
    admin.execute("VACUUM ANALYZE public.item")
    admin.execute("SELECT tube_table_ensure_attached('t', 'public.item', 0)")


async def _fill(config: Config, admin: psycopg.Connection) -> None:
    sink = OpenSearchSink.from_options(config.tube("t").sink.options)
    await sink.open()
    after = 0
    while rows := admin.execute(_SOURCE, [after, 5 * PAGE], binary=True).fetchall():
        documents = Documents(Token(1, after), 1)
        documents.add(0, [row[0] for row in rows], [row[1] for row in rows])
        while True:
            try:
                await sink.send(Batch("t", 0, Token(1, after), documents))
            except SinkUnavailable:  # its heap is small, and it asks for a pause
                await asyncio.sleep(1)
            else:
                break
        after = rows[-1][0]
    await sink.close()


# --- verify -------------------------------------------------------------------------------------


def _verify(section: Section, runner: asyncio.Runner, config: Config, dsn: str, url: str) -> None:
    cases: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "source": lambda: _read_source(dsn),
        "sink": lambda: _read_sink(url),
        "verify": lambda: verify(config, "t"),
    }
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, case in cases.items():
            began = time.monotonic()
            found = runner.run(case())
            taken[name].append(time.monotonic() - began)
            assert name != "verify" or (found.is_equal and found.compared == ROWS and not found.not_checked)
    reading = [one + other for one, other in zip(taken["source"], taken["sink"], strict=True)]
    section.table(
        ["", "seconds", "keys/s"],
        [
            [name, spread(times).text(1), spread([ROWS / seconds for seconds in times]).text(0)]
            for name, times in (
                ("reading the source", taken["source"]),
                ("reading the index", taken["sink"]),
                ("reading both", reading),
                ("`verify`", taken["verify"]),
            )
        ],
    )
    cost = ratios(taken["verify"], reading)
    section.say(f"`verify` to reading both sides: {cost.text()} times the time.")
    section.targets.append(Target("Verify: to reading both sides", TO_READING, cost.middle, "at most"))


async def _read_source(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        after, count = 0, 0
        while True:
            cursor = await connection.execute(_SOURCE, [after, PAGE], binary=True)
            rows = await cursor.fetchall()
            if not rows:
                break
            after, count = rows[-1][0], count + len(rows)
    assert count == ROWS


async def _read_sink(url: str) -> None:
    client = AsyncOpenSearch(url, timeout=60)
    await client.indices.refresh(index="bench")
    search: dict[str, Any] = {"size": SEARCH_PAGE, "sort": [{"_pytube.id": "asc"}], "track_total_hits": False}
    count = 0
    while hits := (await client.search(index="bench", body=search))["hits"]["hits"]:
        search["search_after"] = hits[-1]["sort"]
        count += len(hits)
    await client.close()
    assert count == ROWS


# --- explain and wait ---------------------------------------------------------------------------


def _explain(section: Section, runner: asyncio.Runner, config: Config) -> None:
    taken = []
    for number in range(EXPLAINS):
        began = time.monotonic()
        found = runner.run(explain(config, "t", str(1 + number * (ROWS // EXPLAINS))))
        taken.append(1000 * (time.monotonic() - began))
        assert found.is_settled
    p50, p99 = percentile(taken, 0.5), percentile(taken, 0.99)
    section.say(
        f"`explain`, {EXPLAINS} keys, with new sessions for each: p50 {p50:.1f} ms, p99 {p99:.1f} ms."
    )
    section.targets.append(Target("Explain: p50", EXPLAIN_GOAL, p50, "at most", " ms"))


def _wait(section: Section, runner: asyncio.Runner, admin: psycopg.Connection, dsn: str) -> None:
    """From the commit of the purge that a wait is for to its return."""
    taken = [1000 * runner.run(_one_wait(admin, dsn)) for _ in range(WAITS)]
    p50, p99 = percentile(taken, 0.5), percentile(taken, 0.99)
    section.say(
        f"`wait`, {WAITS} times, from the end of the purge that it waits for to its return: p50 {p50:.1f} "
        f"ms, p99 {p99:.1f} ms."
    )
    section.targets.append(Target("Wait: added to the delivery, p50", WAIT_GOAL, p50, "at most", " ms"))


async def _one_wait(admin: psycopg.Connection, dsn: str) -> float:
    admin.execute("SELECT t_touch(0, ARRAY[1], 'U')")
    (term,) = admin.execute(
        "SELECT gen_random_uuid() FROM (SELECT tube_leader_epoch('t', 2, 0)) AS e"
    ).fetchone() or (None,)
    admin.execute(
        "SELECT tube_leader_acquire('t', 2, 0, %s, gen_random_uuid(), 'bench', tube_leader_epoch('t', 2, 0))",
        [term],
    )
    seqs = [row[0] for row in admin.execute("SELECT seq FROM tube_pods_mark('t', 2, 0, %s)", [term])]
    async with await psycopg.AsyncConnection.connect(
        dsn, autocommit=True, options="-c search_path=tube,public"
    ) as connection:
        waiter = Waiter(connection, ["t"])
        target = await waiter.begin()
        task = asyncio.create_task(waiter.wait_for(target, float("inf")))
        await asyncio.sleep(0.05)  # it has asked, and waits to be told
        assert not task.done()
        await asyncio.to_thread(
            admin.execute, "SELECT tube_pods_purge('t', 2, 0, %s, %s::bigint[])", [term, seqs]
        )
        began = time.monotonic()
        await task
        return time.monotonic() - began
