"""`python -m tests.docs.screens`: renew the pictures in docs/monitor.md, of `pytube top` and of `pytube web`.

They show a small fleet of its own: a worker that delivers under load, a paused tube, and a parked document.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from pydantic import SecretStr

from pytube.cli.top import TopApp
from pytube.db.database import Database
from tests.helpers.chromium import Chromium
from tests.helpers.database import ROOT, TestServer
from tests.helpers.waiting import wait_until

SCREENS = ROOT / "docs/screens"
MOST_BYTES = 150_000
_TABLES = """
    CREATE TABLE public.orders (id bigint PRIMARY KEY, total numeric NOT NULL);
    CREATE TABLE public.customers (id bigint PRIMARY KEY, name text NOT NULL);
    CREATE TABLE public.products (id bigint PRIMARY KEY, sku text NOT NULL);
    INSERT INTO public.orders SELECT n, n FROM generate_series(1, 2000) AS n;
    INSERT INTO public.customers SELECT n, 'Customer ' || n FROM generate_series(1, 200) AS n;
    INSERT INTO public.products SELECT n, 'sku-' || n FROM generate_series(1, 50) AS n;
    SELECT tube_ensure_exists('orders', 4), tube_ensure_exists('customers', 2);
    SELECT tube_ensure_exists('products');
    SELECT tube_table_ensure_attached('orders', 'public.orders', 0, 16);
    SELECT tube_table_ensure_attached('customers', 'public.customers', 0, 16);
    SELECT tube_table_ensure_attached('products', 'public.products', 0, 16);
    SELECT tube_pause('products', NULL, NULL, 'the index is being moved');
    UPDATE public.products SET sku = sku || '!';
    INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)
        VALUES ('customers', 7, '7', 'U', 1, 'mapper_parsing_exception: failed to parse field [name]', 5, 1);
"""
_LOAD = "UPDATE public.orders SET total = total + 1 WHERE id %% 20 = %s"
_SINK = '[tube.{}.sink]\ntype = "jsonl"\npath = "{}/{}.jsonl"\nfsync = false\n'
_FONTS = re.compile(r"\s*@font-face \{.*?\}\n", re.DOTALL)
"""Of the SVG: fetched from elsewhere, where a monospaced font of the reader's does as well."""


@contextmanager
def running(*arguments: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A command of pytube with the fleet's file; ended afterwards."""
    command = [sys.executable, "-m", "pytube", "--config", str(folder / "pytube.toml"), *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def write_load(connection: psycopg.Connection[tuple[object, ...]], rounds: int) -> None:
    """Change some orders, round by round."""
    for number in range(rounds):
        connection.execute(_LOAD, [number % 20])


async def picture_of_top(dsn: str, connection: psycopg.Connection[tuple[object, ...]]) -> str:
    """The screen as SVG, after some samples under load."""
    app = TopApp([Database(SecretStr(dsn))], interval=0.5)
    async with app.run_test(size=(120, 16)) as pilot:
        for _ in range(8):
            await asyncio.to_thread(write_load, connection, 10)
            await pilot.pause(0.5)
        return _FONTS.sub("", app.export_screenshot(title="pytube top"))


def picture_of_web(folder: Path, connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """The first page as PNG, after some samples under load."""
    with (
        running("web", "--listen", "127.0.0.1:0", "--interval", "1", folder=folder) as web,
        TemporaryDirectory() as profile,
    ):
        assert web.stdout is not None
        address = web.stdout.readline().split()[0]
        browser = Chromium(Path(profile))
        try:
            browser.look(1000)

            def has_graphs() -> bool:
                write_load(connection, 10)
                browser.open(address)
                return int(browser.evaluate("document.querySelectorAll('svg').length")) > 0

            for _ in range(12):
                wait_until(has_graphs, what=lambda: str(browser.evaluate("document.body.innerText")))
            browser.picture(SCREENS / "web.png")
        finally:
            browser.close()


def main() -> None:
    """Write both."""
    SCREENS.mkdir(exist_ok=True)
    server = TestServer(18)
    try:
        with (
            server.database(installed=True) as dsn,
            TemporaryDirectory() as name,
            psycopg.connect(dsn, autocommit=True, options="-c search_path=public,tube") as connection,
        ):
            folder = Path(name)
            sinks = "".join(_SINK.format(tube, folder, tube) for tube in ("orders", "customers", "products"))
            text = f'[postgres]\ndsn = "{dsn}"\n[worker]\nclient_id = "shop-1"\n{sinks}'
            (folder / "pytube.toml").write_text(text)
            connection.execute(_TABLES.encode())
            with running("worker", folder=folder):
                led = "SELECT count(*) = 7 FROM tube.tube_leaders()"
                wait_until(lambda: connection.execute(led).fetchone() == (True,), what="leaders")
                (SCREENS / "top.svg").write_text(asyncio.run(picture_of_top(dsn, connection)))
                picture_of_web(folder, connection)
    finally:
        server.close()
    for picture in SCREENS.iterdir():
        assert picture.stat().st_size < MOST_BYTES, picture


if __name__ == "__main__":
    main()
