"""Declared documents: what they cost to read, and how far a change that many of them show takes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.frame.page import Section, Target
from bench.frame.readings import Reading
from bench.frame.rounds import interleave
from bench.frame.server import Server, connect
from bench.frame.statistics import percentile, ratios, spread
from bench.frame.workers import ROOT, Process, process, wait_for
from pytube.config import Config, parse
from pytube.db.session import STEADY_PLANS
from pytube.documents.resolve import resolve
from pytube.model import Batch, Documents, Id, Token
from pytube.sinks.relations import RelationsSink

DATABASE = "bench_documents"
ORDERS, CUSTOMERS, PRODUCTS = 200_000, 10_000, 20_000
ITEMS = 3 * ORDERS
SIZES = {1: 1500, 50: 60, 500: 12}
"""Keys of a statement, and how many statements a round has."""
ROUNDS = 5
TO_HAND = 0.9
TO_RIGHT_STATISTICS = 2.0
CHANGED = 10_000
"""Products that one statement changes."""
RESOLVING_TO_HAND = 0.5
PROBES, PROBE_PAUSE = 200, 0.02
LIVE_TO_IDLE = 2.0
HOT_SECONDS = 10.0
MOST_WAITING = 100_000 + ORDERS
"""The bound, and what one fan-out adds that began below it."""

_TABLES = """
    CREATE SCHEMA shop;
    CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text NOT NULL, tier text NOT NULL);
    CREATE TABLE shop.products (id bigint PRIMARY KEY, sku text NOT NULL, name text NOT NULL);
    CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer_id bigint REFERENCES shop.customers,
        status text NOT NULL, total numeric NOT NULL) WITH (fillfactor = 80);
    CREATE TABLE shop.order_items (id bigint PRIMARY KEY, order_id bigint NOT NULL REFERENCES shop.orders,
        product_id bigint REFERENCES shop.products, position int NOT NULL, quantity int NOT NULL);
    CREATE INDEX ON shop.orders (customer_id);
    CREATE INDEX ON shop.order_items (order_id);
    CREATE INDEX ON shop.order_items (product_id);
"""
# The first product is in every order.
_ROWS = f"""
    INSERT INTO shop.customers SELECT n, 'customer ' || n, 'gold' FROM generate_series(1, {CUSTOMERS}) AS n;
    INSERT INTO shop.products SELECT n, 'sku-' || n, 'product ' || n FROM generate_series(1, {PRODUCTS}) AS n;
    INSERT INTO shop.orders SELECT n, 1 + n % {CUSTOMERS}, 'new', n FROM generate_series(1, {ORDERS}) AS n;
    INSERT INTO shop.order_items
    SELECT n, 1 + n % {ORDERS},
        CASE WHEN n <= {ORDERS} THEN 1 ELSE 2 + (n::bigint * 7919) % {PRODUCTS - 1} END, n % 3, 1
    FROM generate_series(1, {ITEMS}) AS n;
"""
_DOCUMENT = """
[document.orders]
table = "shop.orders"
fields = ["id", "status", "total"]
[document.orders.customer]
one = "shop.customers"
fields = ["name", "tier"]
[document.orders.items]
many = "shop.order_items"
fields = ["quantity"]
order_by = "position"
[document.orders.items.product]
one = "shop.products"
fields = ["sku", "name"]
[tube.orders.sink]
type = "callable"
target = "bench.sinks.stamping:stamp"
"""
_BY_HAND = """
    SELECT o.id, (SELECT row_to_json(d) FROM (SELECT o.id, o.status, o.total,
        (SELECT row_to_json(c) FROM (
            SELECT k.name, k.tier FROM shop.customers k WHERE k.id = o.customer_id) c) AS customer,
        array_to_json(ARRAY(SELECT row_to_json(x) FROM (SELECT i.quantity,
            (SELECT row_to_json(y) FROM (
                SELECT p.sku, p.name FROM shop.products p WHERE p.id = i.product_id) y) AS product
            FROM shop.order_items i WHERE i.order_id = o.id ORDER BY i.position, i.id) x)) AS items) d)
    FROM shop.orders o WHERE o.id = ANY (%(ids)s::bigint[])
"""
_TOUCH_BY_HAND = """
    INSERT INTO tube.orders (op, shard, ids)
    SELECT 'U', x.shard, array_agg(x.order_id)
    FROM (
        SELECT d.order_id, d.shard, (row_number() OVER (PARTITION BY d.shard) - 1) / 250 AS part
        FROM (SELECT DISTINCT i.order_id, tube.tube_shard_of(i.order_id, 0, 16) AS shard
            FROM shop.order_items i WHERE i.product_id = ANY (%(ids)s::bigint[])) AS d
    ) AS x GROUP BY x.shard, x.part
"""


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Declared documents",
        f"Orders with their customer and their items, each with its product: {ORDERS:,} orders, {ITEMS:,} "
        f"items, {PRODUCTS:,} products, {CUSTOMERS:,} customers; one product is in every order. By hand: the "
        "same document by the fastest form of query that was found, under the same settings of the session. "
        "CPU is the server's.",
    )
    dsn = server.database(DATABASE)
    with connect(dsn) as admin, tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as name:
        folder = Path(name)
        admin.execute(_TABLES.encode())
        text = f'[postgres]\ndsn = "{dsn}"\n{_DOCUMENT}'
        (folder / "pytube.toml").write_text(text)
        _apply(folder)
        config = resolve(parse(text))
        wrong = _early_plan(dsn, config)
        admin.execute(_ROWS.encode())
        _statistics(section, server, dsn, config, wrong)
        admin.execute("VACUUM ANALYZE")
        admin.execute("TRUNCATE tube.orders, tube.orders_relations")
        _reads(section, server, dsn, config)
        _resolving(section, server, dsn, config)
        admin.execute("TRUNCATE tube.orders, tube.orders_relations")
        with process(folder, text, "one") as running:
            try:
                worker = Process(running, folder / "one.stamps")
                _fan_out(section, admin, worker)
                _hot_row(section, admin)
            finally:
                running.kill()
    server.drop(DATABASE)
    return section


def _apply(folder: Path) -> None:
    command = [sys.executable, "-m", "pytube", "--config", str(folder / "pytube.toml"), "apply", "--yes"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)


# --- reading ------------------------------------------------------------------------------------------------


@contextmanager
def _reader(dsn: str) -> Iterator[psycopg.Connection]:
    """A session with the settings under which a worker reads declared documents."""
    with connect(dsn) as reader:
        for name, value in STEADY_PLANS.items():
            reader.execute("SELECT set_config(%s, %s, false)", [name, value])
        reader.prepare_threshold = 0
        yield reader


def _query(config: Config) -> str:
    query = config.tube("orders").enrich.query
    assert query is not None
    return query


def _ask(reader: psycopg.Connection, query: str, size: int, statements: int) -> float:
    for number in range(statements):
        first = 1 + number * 131 % (ORDERS - size * 37)
        reader.execute(query.encode(), {"ids": list(range(first, first + size * 37, 37))}, binary=True)
    return size * statements


def _reads(section: Section, server: Server, dsn: str, config: Config) -> None:
    readings = server.readings(dsn)
    rows = []
    with _reader(dsn) as one, _reader(dsn) as other:
        for size, statements in SIZES.items():
            cases = {
                "generated": lambda s=size, n=statements: _ask(one, _query(config), s, n),
                "by hand": lambda s=size, n=statements: _ask(other, _BY_HAND, s, n),
            }
            taken = interleave(readings, cases, ROUNDS)
            generated, hand = _cpu(taken["generated"]), _cpu(taken["by hand"])
            ratio = ratios(hand, generated)
            rows.append([f"{size:,}", spread(generated).text(0), spread(hand).text(0), ratio.text()])
            section.targets.append(
                Target(f"reading {size} declared documents, to a query by hand", TO_HAND, ratio.middle)
            )
    section.table(
        ["keys of a statement", "generated, µs of CPU each", "by hand", "speed, generated to by hand"], rows
    )


def _cpu(readings: list[Reading]) -> list[float]:
    return [reading.cpu_each for reading in readings]


def _early_plan(dsn: str, config: Config) -> psycopg.Connection:
    """A session that has planned the query while each table had one row, as its statistics say, too."""
    with connect(dsn) as admin:
        admin.execute(
            "INSERT INTO shop.customers VALUES (-1, 'a', 'b');"
            "INSERT INTO shop.products VALUES (-1, 'a', 'b');"
            "INSERT INTO shop.orders VALUES (-1, -1, 'a', 1);"
            "INSERT INTO shop.order_items VALUES (-1, -1, -1, 1, 1)"
        )
        admin.execute("ALTER SYSTEM SET autovacuum = off; ")
        admin.execute("SELECT pg_reload_conf()")
        admin.execute("ANALYZE")
    reader = connect(dsn)
    for name, value in STEADY_PLANS.items():
        reader.execute("SELECT set_config(%s, %s, false)", [name, value])
    reader.prepare_threshold = 0
    reader.execute(_query(config).encode(), {"ids": [1]}, binary=True)
    return reader


def _statistics(
    section: Section, server: Server, dsn: str, config: Config, early: psycopg.Connection
) -> None:
    """The plan of before the tables were filled, to one of after ANALYZE."""
    readings = server.readings(dsn)
    wrong = [readings.of(lambda: _ask(early, _query(config), 50, 20)).cpu_each for _ in range(ROUNDS)]
    early.close()
    with connect(dsn) as admin:
        admin.execute("ALTER SYSTEM RESET autovacuum")
        admin.execute("SELECT pg_reload_conf()")
        admin.execute("ANALYZE")
    with _reader(dsn) as reader:
        right = [readings.of(lambda: _ask(reader, _query(config), 50, 20)).cpu_each for _ in range(ROUNDS)]
    ratio = ratios(wrong, right)
    section.say(
        f"Planned while each table had one row, and run once they were full, before any ANALYZE: "
        f"{spread(wrong).text(0)} µs each for 50 keys, {ratio.text(1)} times what the right statistics give."
    )
    section.targets.append(
        Target(
            "a plan by wrong statistics, to one by right ones", TO_RIGHT_STATISTICS, ratio.middle, "at most"
        )
    )


# --- from a change to the documents that show it ------------------------------------------------------------


def _resolving(section: Section, server: Server, dsn: str, config: Config) -> None:
    """From changed products to touched orders: the sink of the companion, and a statement by hand."""
    shard = _shard_of(dsn, "products")
    readings = server.readings(dsn)
    ids = list(range(2, 2 + CHANGED))
    with asyncio.Runner() as runner, connect(dsn) as hand:
        sink = RelationsSink.of_one(config.tube("orders_relations").sink.options | {"most_waiting": 10**9})
        runner.run(sink.open())
        cases = {
            "sink": lambda: _send(runner, sink, shard, ids),
            "by hand": lambda: _insert(hand, ids),
        }
        taken = interleave(
            readings, cases, ROUNDS, before=lambda _: hand.execute("TRUNCATE tube.orders").rowcount
        )
        runner.run(sink.close())
    ratio = ratios(_cpu(taken["by hand"]), _cpu(taken["sink"]))
    section.say(
        f"{CHANGED:,} changed products of one batch, resolved to the orders that show them, and these "
        f"touched: {spread(_cpu(taken['sink'])).text(1)} µs of CPU for each product by the worker's "
        f"statement, {spread(_cpu(taken['by hand'])).text(1)} by a join and an INSERT by hand: "
        f"{ratio.text()} of its speed."
    )
    section.targets.append(
        Target("resolving changed rows, to a join by hand", RESOLVING_TO_HAND, ratio.middle)
    )


def _shard_of(dsn: str, table: str) -> int:
    with connect(dsn) as admin:
        row = admin.execute(
            "SELECT shard FROM tube_list() WHERE tube = 'orders_relations' AND tbl = %s::regclass",
            [f"shop.{table}"],
        ).fetchone()
    assert row is not None
    return int(row[0])


def _send(runner: asyncio.Runner, sink: RelationsSink, shard: int, ids: list[int]) -> float:
    token = Token(0, 1)  # no term has begun
    documents = Documents(token, 1)
    keys: list[Id] = list(ids)
    documents.add(shard, keys, [b"null"] * len(ids))
    runner.run(sink.send(Batch("orders_relations", 0, token, documents)))
    return len(ids)


def _insert(hand: psycopg.Connection, ids: list[int]) -> float:
    hand.execute(_TOUCH_BY_HAND, {"ids": ids})
    return len(ids)


def _fan_out(section: Section, admin: psycopg.Connection, worker: Process) -> None:
    """A product of all orders is changed; what do other changes wait meanwhile?"""
    probe = _Probing(admin, worker)
    probe.ready()
    idle = probe.run(PROBES)
    began = time.monotonic_ns()
    busy: list[float] = []
    live = threading.Event()
    with connect(admin.info.dsn) as other:
        prober = threading.Thread(target=lambda: busy.extend(_Probing(other, worker).until(live)))
        prober.start()
        admin.execute("UPDATE shop.products SET name = name || '.' WHERE id = 1")
        wait_for(
            lambda: len({key for key, _ in worker.read(began)}) >= ORDERS, "all orders are sent", 300.0, 1.0
        )
        live.set()
        prober.join()
    first: dict[int, int] = {}
    for key, at in worker.read(began):
        first.setdefault(key, at)
    took = (max(first.values()) - began) / 1e9
    ratio = percentile(busy, 0.99) / percentile(idle, 0.99)
    figures = {"fan_out": f"{ORDERS:,}", "seconds": f"{took:.1f}"}
    for name, probes in {"beside": busy, "idle": idle}.items():
        figures |= {f"{name}_p{share}": f"{percentile(probes, share / 100):.1f}" for share in (50, 99)}
    section.say(
        f"A product that {ORDERS:,} orders show is changed: all are sent within {took:.1f} s. Meanwhile "
        f"single orders are changed: p50 {figures['beside_p50']} ms and p99 {figures['beside_p99']} ms from "
        f"COMMIT to the sink, in place of {figures['idle_p50']} and {figures['idle_p99']} when idle "
        f"({ratio:.1f} times).",
        **figures,
    )
    section.targets.append(
        Target("p99 of a change beside a fan-out, to idle", LIVE_TO_IDLE, ratio, "at most")
    )


class _Probing:
    """Changes single orders, and sees when they are at the sink."""

    def __init__(self, admin: psycopg.Connection, worker: Process) -> None:
        self._admin = admin
        self._worker = worker
        self._next = 1

    def ready(self) -> None:
        """Until the worker delivers."""
        began = time.monotonic_ns()
        self._admin.execute("UPDATE shop.orders SET status = status || '.' WHERE id = 1")
        wait_for(lambda: bool(self._worker.read(began)), "the worker delivers", 60.0)

    def run(self, count: int) -> list[float]:
        """Milliseconds of so many changes."""
        commits = [self._change() for _ in range(count)]
        return self._latencies(commits)

    def until(self, over: threading.Event) -> list[float]:
        """Of changes until then."""
        commits = []
        while not over.is_set():
            commits.append(self._change())
        return self._latencies(commits)

    def _change(self) -> tuple[int, int]:
        self._next = self._next % ORDERS + 7
        self._admin.execute("UPDATE shop.orders SET status = status || '.' WHERE id = %s", [self._next])
        at = time.monotonic_ns()
        time.sleep(PROBE_PAUSE)
        return self._next, at

    def _latencies(self, commits: list[tuple[int, int]]) -> list[float]:
        since = commits[0][1]
        wait_for(
            lambda: {key for key, _ in commits} <= {key for key, _ in self._worker.read(since)},
            "all",
            60.0,
            0.5,
        )
        found: dict[int, list[int]] = {}
        for key, at in self._worker.read(since):
            found.setdefault(key, []).append(at)
        return [
            (min(at for at in found[key] if at >= commit) - commit) / 1e6
            for key, commit in commits
            if any(at >= commit for at in found[key])
        ]


def _hot_row(section: Section, admin: psycopg.Connection) -> None:
    """The same product, all the time: touches must not pile up faster than they are sent."""
    most, ends, changes = 0, time.monotonic() + HOT_SECONDS, 0
    while time.monotonic() < ends:
        for _ in range(20):
            admin.execute("UPDATE shop.products SET name = md5(name) WHERE id = 1")
            changes += 1
        row = admin.execute("SELECT coalesce(sum(cardinality(ids)), 0) FROM tube.orders").fetchone()
        assert row is not None
        most = max(most, int(row[0]))
    section.say(
        f"The same product changed {changes / HOT_SECONDS:,.0f} times a second for {HOT_SECONDS:.0f} s: at "
        f"most {most:,} orders waited at a time."
    )
    section.targets.append(
        Target("orders that wait while a row of all of them changes", MOST_WAITING, most, "at most")
    )
