"""`python -I smoke.py [EXTRA…]`: does an installed pytube work here, with what these extras bring?

It reads nothing of the checkout. PYTUBE_DSN is a database that it may fill; the working folder is its own.
With one extra, it leaves the SQL there for the next; otherwise it empties the database again.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import pkgutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

import pytube

DSN = os.environ.get("PYTUBE_DSN", "")
ROWS = 300
CLOSED = "127.0.0.1:9"
"""Nobody listens there."""

SHOP = """
CREATE TABLE public.customers (id bigint PRIMARY KEY, name text);
CREATE TABLE public.orders (id bigint PRIMARY KEY, customer_id bigint REFERENCES public.customers);
INSERT INTO public.customers VALUES (1, 'Ada'), (2, 'Grace');
INSERT INTO public.orders SELECT n, 1 + n % 2 FROM generate_series(1, {rows}) AS n
"""
CONFIG = """
[postgres]
dsn = "${PYTUBE_DSN}"
[tube.orders]
sink = { type = "postgres", dsn = "${PYTUBE_DSN}", table = "orders_copy", create = true }
[document.orders]
table = "public.orders"
fields = ["id"]
customer = { one = "public.customers", fields = ["name"] }
"""


def program(*arguments: str) -> list[str]:
    """The command line, as this environment has it."""
    return [str(Path(sys.executable).with_name("pytube-pg")), *arguments]


def run(*arguments: str) -> str:
    """What the command prints; it has to succeed."""
    done = subprocess.run(program(*arguments), check=False, capture_output=True, text=True)
    assert done.returncode == 0, (
        f"pytube-pg {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stdout


def execute(statement: str) -> list[tuple[Any, ...]]:
    """The rows of a statement."""
    with psycopg.connect(DSN, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


# --- without extras ---------------------------------------------------------------------------


def core() -> None:
    """Rows and their copy become equal, and stay so; nothing is left of the SQL."""
    empty()
    run("install")
    try:
        deliver()
    finally:
        empty()
    assert not is_installed()


def empty() -> None:
    """Remove what this script made, now or earlier."""
    execute("DROP TABLE IF EXISTS public.orders, public.customers, public.orders_copy, public.items")
    if is_installed():
        run("uninstall", "--force", "--yes")


def is_installed() -> bool:
    """Whether the database has the SQL."""
    return bool(execute("SELECT 1 FROM pg_namespace WHERE nspname = 'tube'"))


def deliver() -> None:
    """A worker brings rows to their copy."""
    assert "worker" in run("--help")
    assert pytube.__version__ in run("--version")
    for module in ("pytube.outbox", "pytube.delivered"):
        importlib.import_module(module)
    execute(SHOP.format(rows=ROWS))
    Path("pytube.toml").write_text(CONFIG)
    with Path("worker.log").open("wb") as log:
        run("apply", "--yes")
        worker = subprocess.Popen(program("worker"), stdout=log, stderr=log)
        try:
            run("apply", "--backfill", "--yes", "--wait", "--timeout", "120")
            execute("UPDATE public.customers SET name = 'Lovelace' WHERE id = 1")
            execute("DELETE FROM public.orders WHERE id = 3")
            run("wait", "orders", "--timeout", "120")
            run("verify", "orders")
        finally:
            worker.terminate()
            assert worker.wait(60) == 0, Path("worker.log").read_text()
    names = "SELECT doc #>> '{customer,name}', count(*)::int FROM orders_copy GROUP BY 1 ORDER BY 1"
    assert execute(names) == [("Grace", ROWS // 2 - 1), ("Lovelace", ROWS // 2)], execute(names)


# --- what each extra brings ---------------------------------------------------------------------


def run_on_a_tube(*arguments: str) -> str:
    """What the command prints, in a database with a tube."""
    prepare()
    return run(*arguments)


def prepare() -> None:
    """Make a tube with a table; an earlier extra may have done so."""
    if is_installed():
        return
    run("install")
    execute(
        f"CREATE TABLE public.items AS SELECT n::bigint AS id FROM generate_series(1, {ROWS}) AS n;"  # noqa: S608
        "ALTER TABLE public.items ADD PRIMARY KEY (id);"
        "SELECT tube.tube_ensure_exists('items');"
        "SELECT tube.tube_table_ensure_attached('items', 'public.items', 0)"
    )


def opens(sink: str, **options: object) -> None:
    """Open the sink, which imports its client; where its server is down, that is all that may be said."""
    from pytube.sinks import build_sink

    async def attempt() -> None:
        built = build_sink(sink, options)
        try:
            await built.open()
        except Exception as error:  # each client has its own
            if CLOSED not in str(error):
                raise
        finally:
            await built.close()

    asyncio.run(attempt())


def kafka() -> None:
    """At a mock of Kafka, which is a part of the client."""
    from confluent_kafka import Producer

    host = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 3})
    (broker,) = host.list_topics("orders", timeout=30).brokers.values()
    opens("kafka", bootstrap_servers=f"{broker.host}:{broker.port}", topic="orders")
    importlib.import_module("pytube.election.neli")


def spark() -> None:
    """A fan-out, in a session of this machine."""
    assert f"{ROWS} ids in" in run_on_a_tube(
        "spark", "fanout", "items", "--query", "SELECT id FROM public.items", "--cores=1"
    )


def web() -> None:
    """The first page."""
    prepare()
    with subprocess.Popen(
        program("web", "--listen", "127.0.0.1:0"), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout
            address = server.stdout.readline().split()[0]
            with urllib.request.urlopen(address, timeout=60) as page:  # noqa: S310 # on this machine
                assert page.status == 200
        finally:
            server.terminate()


def top() -> None:
    """The first sample, on a screen without a terminal."""
    prepare()
    from pydantic import SecretStr
    from textual.widgets import DataTable

    from pytube.cli.top import TopApp
    from pytube.db.database import Database

    async def look() -> None:
        app = TopApp([Database(SecretStr(DSN))], interval=0.2)
        async with app.run_test() as pilot, asyncio.timeout(60):
            while not app.screen_stack[0].query_one("#table", DataTable).row_count:
                await pilot.pause(0.1)

    asyncio.run(look())


def tracing() -> None:
    """What a worker with `worker.tracing` begins with."""
    from pytube.worker.metrics import build_tracing

    asyncio.run(build_tracing(f"http://{CLOSED}", "smoke").close())


def embedded() -> None:
    """Java; the jars come from Maven Central when a server is first started."""
    importlib.import_module("jgo")
    from pytube.embedded import java

    subprocess.run([java.find(), "-version"], check=True, capture_output=True)


def everything() -> None:
    """Each module can be imported, and warns of nothing."""
    import warnings

    warnings.simplefilter("error")
    for module in pkgutil.walk_packages(pytube.__path__, "pytube."):
        if not module.name.endswith("__main__") and module.name != "pytube.contrib.django":
            importlib.import_module(module.name)


EXTRAS: dict[str, Callable[[], object]] = {
    "alembic": lambda: run_on_a_tube("upgrade"),
    "demo": lambda: run("demo", "--seconds", "1"),
    "embedded": embedded,
    "kafka": kafka,
    "metrics": lambda: run_on_a_tube("status", "--prometheus"),
    "opensearch": lambda: opens("opensearch", url=f"http://{CLOSED}", index="orders"),
    "redis": lambda: opens("redis", url=f"redis://{CLOSED}"),
    "spark": spark,
    "top": top,
    "tracing": tracing,
    "web": web,
    "webhook": lambda: opens("webhook", url=f"https://{CLOSED}/", allowed_networks=["127.0.0.0/8"]),
}


def main(*extras: str) -> None:
    """Try one extra, all that there are, or pytube without any."""
    assert "site-packages" in pytube.__file__, f"{pytube.__file__} is not installed"
    if len(extras) == 1:
        EXTRAS[extras[0]]()
        return
    if extras:
        everything()
    core()


if __name__ == "__main__":
    main(*sys.argv[1:])
