"""A document, and tables of a tube, declared once for several Postgres hosts that have the same tables."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import load
from pytube.documents.resolve import resolve_each
from pytube.embedded.search_server import SearchServer
from pytube.model import OK, Batch, Result
from pytube.worker import Worker
from tests.conftest import Servers
from tests.helpers.cli import run, run_json, start
from tests.helpers.database import TestServer
from tests.helpers.declared import SCHEMA
from tests.helpers.waiting import wait_until, wait_until_async

Conn = psycopg.Connection[tuple[Any, ...]]
held: dict[str, Any] = {}
"""The copy, by what a sink with the default template for keys calls a document."""
FIRST = 1_000_000
"""Where the shards of the second host begin."""

FILE = """
[postgres.hosts.eu]
dsn = "{eu}"
[postgres.hosts.us]
dsn = "{us}"
[worker]
election = "lease"
[tube.orders.sink]
type = "callable"
target = "{module}:deliver"
"""
DOCUMENT = """
[document.orders]
table = "shop.orders"
partitions = 2
fields = ["id", "status"]
[document.orders.customer]
one = "shop.customers"
fields = ["name"]
[document.orders.items]
many = "shop.order_items"
fields = ["quantity"]
"""
TABLES = """
[tube.orders.tables."shop.orders"]
shard = 4
shards = 4
[tube.orders.tables."shop.order_items"]
key = "order_id"
shard = 4
shards = 4
"""


def deliver(batch: Batch) -> Sequence[Result]:
    """The sink of all hosts."""
    for document in batch:
        name = f"{document.shard}:{document.id}"
        if document.is_delete:
            held.pop(name, None)
        else:
            held[name] = document.value()
    return [OK] * len(batch)


@contextmanager
def connected(dsn: str) -> Iterator[Conn]:
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as conn:
        yield conn


def execute(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with connected(dsn) as conn:
        cursor = conn.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def _prepared(dsn: str) -> None:
    execute(
        dsn, SCHEMA + "CREATE INDEX ON shop.order_items (order_id); CREATE INDEX ON shop.orders (customer_id)"
    )


@pytest.fixture(scope="module")
def other_server() -> Iterator[TestServer]:
    """A server of an older version, which tests may kill."""
    server = TestServer("system")
    yield server
    server.close()


@pytest.fixture
def eu(servers: Servers) -> Iterator[str]:
    with servers.get(18).database(installed=True, prepare=_prepared) as dsn:
        yield dsn


@pytest.fixture
def us(other_server: TestServer) -> Iterator[str]:
    with other_server.database(installed=True, prepare=_prepared) as dsn:
        execute(dsn, "UPDATE shop.orders SET status = 'of us'")
        yield dsn


@pytest.fixture
def folder(eu: str, us: str, tmp_path: Path) -> Path:
    held.clear()
    (tmp_path / "pytube.toml").write_text(FILE.format(eu=eu, us=us, module=__name__) + DOCUMENT)
    return tmp_path


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "pytube.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def shards(dsn: str) -> dict[str, tuple[int, int]]:
    """Of the root tables and the tables that hold their ids, by name."""
    rows = execute(
        dsn, "SELECT tbl::text, shard, shards FROM tube_list() WHERE tbl IS NOT NULL AND companion_of IS NULL"
    )
    return {table: (first, count) for table, first, count in rows}


@asynccontextmanager
async def working(folder: Path) -> AsyncIterator[Worker]:
    """A worker of the file, as `pytube worker` makes it."""

    def again() -> Any:
        return resolve_each(load(folder / "pytube.toml"))

    config, refused = await asyncio.to_thread(again)
    worker = Worker(config, takes_up=True, refused=refused)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


async def take_up(worker: Worker, folder: Path) -> Mapping[str, Exception]:
    """As the worker does by itself, now and then."""
    config, refused = await asyncio.to_thread(lambda: resolve_each(load(folder / "pytube.toml")))
    await worker.take_up(config, refused)
    worker.note_refused({name: str(why) for name, why in refused.items()})
    return refused


def expected(*dsns: str) -> dict[str, Any]:
    """The copy, by a query of the tests'."""
    found: dict[str, Any] = {}
    for dsn in dsns:
        for shard, key, document in execute(
            dsn,
            """
            SELECT tube_shard_of(o.id, a.shard, a.shards), o.id, json_build_object('id', o.id,
                'status', o.status, 'customer', (SELECT json_build_object('name', c.name)
                    FROM shop.customers AS c WHERE c.id = o.customer_id),
                'items', coalesce((SELECT json_agg(json_build_object('quantity', i.quantity) ORDER BY i.id)
                    FROM shop.order_items AS i WHERE i.order_id = o.id), '[]'))
            FROM shop.orders AS o, tube_attachment AS a
            WHERE a.tube = 'orders' AND a.tbl = 'shop.orders'::regclass""",
        ):
            found[f"{shard}:{key}"] = document
    return found


# --- plan and apply -----------------------------------------------------------------------------------


def test_plan_shows_each_host_and_apply_does_each(folder: Path, eu: str, us: str) -> None:
    execute(us, "DROP INDEX shop.order_items_order_id_idx")
    shown = run("plan", folder=folder).stdout
    of_eu, _, of_us = shown.partition("\nhost us\n")
    assert of_eu.startswith("host eu\ndocument orders: new\n")
    assert "missing indexes" not in of_eu
    assert 'CREATE INDEX CONCURRENTLY ON "shop"."order_items" ("order_id")' in of_us
    plans = run_json("plan", folder=folder)["documents"]
    assert [(one["host"], one["document"], one["state"]) for one in plans] == [
        ("eu", "orders", "new"),
        ("us", "orders", "new"),
    ]
    assert run_json("plan", "--host", "us", folder=folder)["documents"][0]["host"] == "us"

    applied = run("apply", "--backfill", folder=folder).stdout
    assert applied.count("orders: applied; workers send all documents") == 2
    assert shards(eu) == {"shop.orders": (0, 16), "shop.order_items": (0, 16)}
    assert shards(us) == {"shop.orders": (FIRST, 16), "shop.order_items": (FIRST, 16)}
    again = run_json("apply", folder=folder)
    assert [(one["host"], one["steps"], one["result"]) for one in again] == [
        ("eu", [], "orders: nothing to do"),
        ("us", [], "orders: nothing to do"),
    ]


def test_one_host_alone(folder: Path, eu: str, us: str) -> None:
    run("apply", "--host", "us", folder=folder)
    assert (shards(eu), shards(us)["shop.orders"]) == ({}, (FIRST, 16))
    query = run("document", "show", "orders", "7", "--host", "us", folder=folder).stdout
    assert json.loads(query)["status"] == "of us"
    refused = run("document", "show", "orders", folder=folder, code=2)
    assert "give --host, one of eu, us" in refused.stderr
    refused = run("apply", "--print", folder=folder, code=2)
    assert "give --host, one of eu, us" in refused.stderr
    assert "BEGIN;" in run("apply", "--print", "--host", "eu", folder=folder).stdout


@pytest.mark.parametrize("named", ["by the variable", "by the option"])
def test_a_database_that_is_named_has_the_shards_of_its_host(
    folder: Path, eu: str, us: str, named: str
) -> None:
    """Or a worker that runs would write its rows over those of the first host."""
    is_variable = named == "by the variable"
    arguments = () if is_variable else ("--dsn", us)
    run("apply", *arguments, dsn=us if is_variable else None, folder=folder)
    assert (shards(eu), shards(us)["shop.orders"]) == ({}, (FIRST, 16))
    edit(folder, us, "host=127.0.0.1 port=1 dbname=other")
    for command in ("plan", "apply"):
        refused = run(command, "--dsn", us, folder=folder, code=2)
        assert "--dsn names none of the configured ones; give --host, one of eu, us" in refused.stderr


def test_the_doctor_knows_a_named_database_as_that_of_its_host(folder: Path, us: str) -> None:
    run("apply", folder=folder)
    for arguments in (("--dsn", us), ("--host", "us"), ()):
        checks = {one["subject"]: one for one in run_json("doctor", *arguments, folder=folder)}
        subject = "document orders" if arguments else "host us: document orders"
        assert checks[subject]["finding"] == "applied; it follows 3 links", arguments
    edit(folder, us, "host=127.0.0.1 port=1 dbname=other")
    refused = run("doctor", "--dsn", us, folder=folder, code=2)
    assert "--dsn names none of the configured ones; give --host, one of eu, us" in refused.stderr


def test_commands_that_a_plan_names_are_for_its_host(folder: Path, us: str) -> None:
    """Also in the errors of a worker and of apply."""
    execute(us, "SELECT tube_ensure_exists('orders', 2, 'status IS NOT NULL')")
    remedy = "and run: pytube --host us tube create orders --predicate ''"
    assert remedy in run("plan", folder=folder, code=2).stdout
    assert remedy in run("plan", "--host", "us", folder=folder, code=2).stdout
    assert remedy in run("apply", folder=folder, code=2).stderr
    assert remedy in run_json("plan", folder=folder, code=2)["documents"][1]["problem"]
    execute(us, "SELECT tube_ensure_absent('orders')")
    assert run("plan", folder=folder).stdout.count("pytube apply does these steps") == 2
    assert "pytube --host us apply does these steps" in run("plan", "--host", "us", folder=folder).stdout
    applied = run("apply", folder=folder).stdout
    for host in ("eu", "us"):
        assert f"to resend all: pytube --host {host} backfill start orders" in applied
    edit(folder, '["id", "status"]', '["id", "status", "total"]')
    _, refused = resolve_each(load(folder / "pytube.toml"))
    assert "run `pytube --host eu apply`" in str(refused["orders"])


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (
            "ALTER TABLE shop.order_items ALTER quantity TYPE text",
            "shop.order_items.quantity is integer on eu and text on us",
        ),
        (
            "ALTER TABLE shop.customers ADD city text",
            "shop.customers.city is not there on eu and text on us",
        ),
    ],
)
def test_a_document_has_the_same_shape_on_all_hosts(
    folder: Path, eu: str, us: str, change: str, difference: str
) -> None:
    edit(folder, '["name"]', '["*"]')
    execute(us, change)
    reason = (
        f"document.orders: its tables differ: {difference}; make them alike, or plan and apply one host "
        "at a time, by --host"
    )
    assert reason in run("plan", folder=folder, code=2).stdout
    refused = run("apply", folder=folder, code=2)
    assert f"nothing was changed: host us: {reason}" in refused.stderr
    assert (shards(eu), shards(us)) == ({}, {})
    run("apply", "--host", "us", folder=folder)
    assert shards(us)["shop.orders"] == (FIRST, 16)


def test_the_length_of_a_column_is_no_difference(folder: Path, us: str) -> None:
    for dsn, length in ((us, 30),):
        execute(dsn, f"ALTER TABLE shop.orders ALTER status TYPE varchar({length})")
    refused = run("plan", folder=folder, code=2).stdout
    assert "shop.orders.status is text on eu and character varying on us" in refused


def test_a_column_that_one_host_lacks_is_refused_before_anything_changes(
    folder: Path, eu: str, us: str
) -> None:
    execute(us, "ALTER TABLE shop.order_items RENAME quantity TO amount")
    shown = run("plan", folder=folder, code=2).stdout
    assert shown.startswith("host eu\ndocument orders: new\n")
    assert "host us\ndocument orders: can't be applied\n  document.orders.items.fields: 'quantity'" in shown
    refused = run("apply", folder=folder, code=2)
    assert "nothing was changed: host us: document.orders.items.fields: 'quantity'" in refused.stderr
    assert shards(eu) == {}


def test_a_host_that_is_down_is_named_and_the_others_are_shown(
    folder: Path, eu: str, other_server: TestServer
) -> None:
    other_server.postgres.kill()
    try:
        shown = run("plan", folder=folder, code=3)
        assert shown.stdout.startswith("host eu\ndocument orders: new\n")
        assert "pytube: host us: Postgres is not available" in shown.stderr
        refused = run("apply", folder=folder, code=3)
        assert "nothing was changed: host us: Postgres is not available" in refused.stderr
        assert "--host applies to one" in refused.stderr
        assert shards(eu) == {}
        run("apply", "--host", "eu", folder=folder)
        assert shards(eu)["shop.orders"] == (0, 16)
    finally:
        other_server.postgres.start()


def test_a_host_that_fails_leaves_the_others_as_they_are_or_done(folder: Path, eu: str, us: str) -> None:
    with connected(us) as blocker, blocker.transaction():
        blocker.execute("LOCK TABLE shop.orders IN ROW EXCLUSIVE MODE")
        refused = run("apply", "--lock-timeout", "3", folder=folder, code=3)
    assert "pytube: host us: " in refused.stderr
    assert "shop.orders" in refused.stderr
    assert "finished: eu; run it again" in refused.stderr
    assert shards(eu)["shop.orders"] == (0, 16)
    assert "shop.orders" not in shards(us)
    again = run("apply", folder=folder).stdout
    assert "host eu\norders: nothing to do\nhost us\n" in again
    assert shards(us)["shop.orders"] == (FIRST, 16)


def test_hosts_may_come_go_and_move_in_the_file(folder: Path, us: str) -> None:
    """Shards that are there stay, as they are in the names of documents."""
    run("apply", folder=folder)
    text = (folder / "pytube.toml").read_text()
    eu_first = text.index("[postgres.hosts.us]")
    section = text[eu_first : text.index("[worker]")]
    (folder / "pytube.toml").write_text(section + text.replace(section, ""))
    assert run("plan", folder=folder).stdout.count("applied, nothing to do") == 2
    # One that is new and stands first would have the shards of the one that was first.
    execute(us, "SELECT tube_ensure_absent('orders')")
    refused = run("apply", folder=folder, code=2)
    assert (
        "nothing was changed: host eu: document.orders: hosts us and eu would both have its shard 0, so rows "
        "with the same id would overwrite each other at the sink; move the section of the new host"
    ) in refused.stderr


def test_tables_of_a_tube_have_separate_shards_too(folder: Path, eu: str, us: str) -> None:
    path = folder / "pytube.toml"
    path.write_text(path.read_text().replace(DOCUMENT, TABLES))
    run("apply", folder=folder)
    assert shards(eu) == {"shop.orders": (4, 4), "shop.order_items": (4, 4)}
    assert shards(us) == {"shop.orders": (FIRST + 4, 4), "shop.order_items": (FIRST + 4, 4)}
    assert run("plan", folder=folder).stdout.count("applied, nothing to do") == 2
    edit(folder, "shard = 4", "shard = 8")
    refused = run("apply", "--host", "us", folder=folder, code=2)
    assert f"--shard {FIRST + 8} --force" in refused.stderr


@pytest.mark.parametrize("kind", ["document", "tube"])
def test_a_table_that_is_attached_by_hand_keeps_its_shards(folder: Path, eu: str, us: str, kind: str) -> None:
    """Unless the file says them. A table that is new stands where the first one does."""
    if kind == "tube":
        tables = (
            '[tube.orders.tables."shop.orders"]\n[tube.orders.tables."shop.order_items"]\nkey = "order_id"\n'
        )
        edit(folder, DOCUMENT, tables)
    count = 16 if kind == "document" else 1
    for dsn, first in ((eu, 0), (us, 16)):
        execute(
            dsn,
            "SELECT tube_ensure_exists('orders', 2);"
            f" SELECT tube_table_ensure_attached('orders', 'shop.orders', {first}, shards => {count})",
        )
    run("apply", folder=folder)
    assert shards(eu) == {"shop.orders": (0, count), "shop.order_items": (0, count)}
    assert shards(us) == {"shop.orders": (16, count), "shop.order_items": (16, count)}
    assert run("plan", folder=folder).stdout.count("applied, nothing to do") == 2
    if kind == "tube":
        edit(folder, '"shop.orders"]\n', '"shop.orders"]\nshard = 3\n')
        shown = run("plan", "--host", "us", folder=folder, code=2).stdout
        assert "pytube --host us tube attach orders shop.orders --shard 3 --force" in shown


# --- the worker ---------------------------------------------------------------------------------------


def test_the_query_of_a_host_is_made_by_its_own_catalogue(folder: Path, us: str) -> None:
    execute(us, "CREATE DOMAIN shop.word AS text; ALTER TABLE shop.orders ALTER status TYPE shop.word")
    edit(folder, '["id", "status"]', '["id", "status || status AS twice"]')
    run("apply", folder=folder)
    config, refused = resolve_each(load(folder / "pytube.toml"))
    assert refused == {}
    queries = {host: config.of_host(host).tube("orders").enrich.query for host in config.hosts}
    for host in ("eu", "us"):
        shown = run_json("document", "show", "orders", "--query", "--host", host, folder=folder)
        assert shown["query"] == queries[host]
    assert queries["eu"] != queries["us"]


async def test_a_worker_makes_the_documents_of_all_hosts(folder: Path, eu: str, us: str) -> None:
    await asyncio.to_thread(run, "apply", "--backfill", folder=folder)
    async with working(folder) as worker:
        await wait_until_async(lambda: held == expected(eu, us), what="all are sent")
        assert len(held) == 40
        execute(us, "UPDATE shop.customers SET name = 'Ada of us' WHERE id = 1")
        execute(
            eu,
            "UPDATE shop.order_items SET quantity = 9 WHERE id = 3;"
            " DELETE FROM shop.order_items WHERE order_id = 5; DELETE FROM shop.orders WHERE id = 5",
        )
        await wait_until_async(lambda: held == expected(eu, us), what="changes of both arrive")
        assert len(held) == 39
        await asyncio.to_thread(run, "apply", "--backfill", "--wait", "--timeout", "60", folder=folder)

        edit(folder, '["id", "status"]', '["id", "status", "total"]')
        await asyncio.to_thread(run, "apply", "--backfill", folder=folder)
        await take_up(worker, folder)
        await wait_until_async(
            lambda: len(held) == 39 and all("total" in one for one in held.values()), what="all have it"
        )


def test_the_commands_of_an_operator(folder: Path, eu: str, us: str, real_opensearch: SearchServer) -> None:
    """From the file to one index of both, by the program alone."""
    url = real_opensearch.url
    sink = f'type = "opensearch"\nurl = "{url}"\nindex = "of-hosts"'
    edit(folder, f'type = "callable"\ntarget = "{__name__}:deliver"', sink)
    run("apply", "--backfill", folder=folder)
    with start("worker", "--watch", config=folder / "pytube.toml") as worker:
        try:
            run("apply", "--wait", "--timeout", "120", folder=folder)
            execute(us, "UPDATE shop.customers SET name = 'Ada of us' WHERE id = 1")
            execute(
                eu, "DELETE FROM shop.order_items WHERE order_id = 5; DELETE FROM shop.orders WHERE id = 5"
            )
            for host, count in (("eu", 19), ("us", 20)):
                run("wait", "orders", "--host", host, folder=folder)
                report = run_json("verify", "orders", "--host", host, folder=folder)
                assert (report["is_equal"], report["compared"]) == (True, count)
            led = [(one["host"], one["tube"]) for one in run_json("status", folder=folder) if one["leader"]]
            assert sorted(led) == [
                (host, tube) for host in ("eu", "us") for tube in ("orders", "orders", "orders_relations")
            ]
            checks = {one["subject"]: one["level"] for one in run_json("doctor", folder=folder)}
            assert checks["host us: document orders"] == checks["shards"] == "ok"
            run("tube", "detach", "orders", "shop.order_items", "--host", "us", folder=folder)
            drifted = {one["subject"]: one["finding"] for one in run_json("doctor", folder=folder, code=1)}
            assert "missing: attach shop.order_items" in drifted["host us: document orders"]
            assert drifted["host eu: document orders"] == "applied; it follows 3 links"
        finally:
            worker.kill()


def test_a_worker_that_watches_the_file_while_a_host_is_down(
    folder: Path, eu: str, us: str, other_server: TestServer
) -> None:
    """What it logs, and what `status` shows, until the host has what the file says."""
    edit(
        folder, f'type = "callable"\ntarget = "{__name__}:deliver"', f'type = "jsonl"\npath = "{folder}/sent"'
    )
    edit(folder, DOCUMENT, TABLES)
    run("apply", folder=folder)
    log: list[str] = []
    is_down = False

    def logged(*words: str) -> bool:
        return any(all(word in line for word in words) for line in log)

    def sent(dsn: str, row: int, **fields: object) -> None:
        """Touch a row, and wait until it comes with these fields."""
        execute(dsn, f"SELECT shop.orders_touch(ARRAY[{row}::bigint])")

        def has_come() -> bool:
            path = folder / "sent"
            lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
            documents = [one["doc"] for one in lines if one["id"] == row]
            return any(one is not None and one.keys() == {*fields} for one in documents)

        wait_until(has_come, what=lambda: f"{row} with {[*fields]}:\n{''.join(log)}")

    columns = [
        name
        for (name,) in execute(
            eu,
            "SELECT attname FROM pg_attribute WHERE attnum > 0"
            " AND attrelid = 'shop.orders'::regclass ORDER BY attnum",
        )
    ]
    with start("--log-format", "json", "worker", "--watch", config=folder / "pytube.toml") as worker:
        assert worker.stderr is not None
        reader = threading.Thread(target=log.extend, args=[worker.stderr], daemon=True)
        reader.start()
        try:
            sent(us, 1, **dict.fromkeys(columns))
            other_server.postgres.kill()
            is_down = True
            wait_until(lambda: logged('"database_down"', '"us"'), what="its outage is known")
            edit(folder, "[tube.orders.sink]", '[tube.orders.enrich]\ncolumns = ["id"]\n[tube.orders.sink]')
            wait_until(lambda: logged('"config_waits"', '"us"'), what=lambda: "".join(log))
            sent(eu, 2, id=2)
            said = "does not serve all of it as the file says: host us is down, and takes up the changed file"
            wait_until(lambda: said in run("status", folder=folder, code=3).stderr, what="status says so")
            assert "host us was not read" in run("status", folder=folder, code=3).stderr
            other_server.postgres.start()
            is_down = False
            wait_until(
                lambda: len([line for line in log if '"config_taken_up"' in line]) == 2, what="us has it"
            )
            sent(us, 3, id=3)
            wait_until(lambda: said not in run("status", folder=folder).stderr, what="that is over")
        finally:
            if is_down:
                other_server.postgres.start()
            worker.kill()
            worker.wait()
            reader.join(timeout=10)


async def test_a_host_that_is_down_or_not_applied_stops_its_own_documents_only(
    folder: Path, eu: str, us: str, other_server: TestServer
) -> None:
    await asyncio.to_thread(run, "apply", "--backfill", "--host", "eu", folder=folder)
    async with working(folder) as worker:
        await wait_until_async(lambda: held == expected(eu), what="eu is served")
        assert worker.refuses()
        refused = await take_up(worker, folder)
        assert str(refused["orders"]).startswith("host us: document orders differs from the declaration")
        await asyncio.to_thread(run, "apply", "--backfill", "--host", "us", folder=folder)
        assert await take_up(worker, folder) == {}
        await wait_until_async(lambda: held == expected(eu, us), what="us is served, too")

        await asyncio.to_thread(other_server.postgres.kill)
        refused = await take_up(worker, folder)
        assert str(refused["orders"]).startswith("host us: Postgres is not available")
        execute(eu, "UPDATE shop.customers SET name = 'Ada' WHERE id = 1")
        await wait_until_async(
            lambda: expected(eu).items() <= held.items(), what="eu and its relations go on"
        )
        await asyncio.to_thread(other_server.postgres.start)
        execute(us, "UPDATE shop.customers SET name = 'Grace' WHERE id = 2")
        await wait_until_async(lambda: held == expected(eu, us), what="us goes on as it was")

        edit(folder, '["id", "status"]', '["id", "none"]')
        for _ in range(2):  # the second time, the file of before has none of them either
            refused = await take_up(worker, folder)
            assert str(refused["orders"]).startswith("host eu: document.orders.fields: 'none'")
            assert set(worker._sinks) == {"orders", "orders_relations"}
        for dsn in (eu, us):
            execute(dsn, "UPDATE shop.customers SET name = 'Joan' WHERE id = 3")
        await wait_until_async(lambda: held == expected(eu, us), what="both go on as they were")


async def test_a_host_that_is_dead_at_the_start_is_served_once_it_is_back(
    folder: Path, eu: str, us: str, other_server: TestServer
) -> None:
    await asyncio.to_thread(run, "apply", "--backfill", folder=folder)
    await asyncio.to_thread(other_server.postgres.kill)
    async with working(folder) as worker:
        await wait_until_async(lambda: held == expected(eu), what="eu is served")
        await asyncio.to_thread(other_server.postgres.start)
        await wait_until_async(lambda: all(host.is_served for host in worker._hosts), what="us is found")
        assert await take_up(worker, folder) == {}, "at once"
        await wait_until_async(lambda: held == expected(eu, us), what="us is served, too")
