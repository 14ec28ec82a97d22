"""`pytube top` as an operator uses it, with a real database, without a terminal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from pydantic import SecretStr
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from pytube.cli.top import TopApp
from pytube.db.database import Database
from tests.helpers.cli import run
from tests.helpers.roles import as_role, database_name, roles
from tests.helpers.waiting import wait_until_async

Conn = psycopg.Connection[tuple[object, ...]]
WIDTHS = (60, 80, 160)


@pytest.fixture
def tubes(conn: Conn) -> None:
    """Two tubes and an outbox; nobody leads them."""
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY, name text)")
    conn.execute(
        "SELECT tube_ensure_exists('goods', 2), tube_ensure_exists('orders'), outbox_ensure_exists('mail')"
    )
    conn.execute("SELECT tube_table_ensure_attached('goods', 'public.goods', 0)")
    conn.execute("INSERT INTO public.goods VALUES (7, 'a [red]ball')")
    conn.execute(
        "INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)"
        " VALUES ('goods', 0, '7', 'U', 1, 'mapper_parsing [broken] \x1b[31m', 5, 1)"
    )


@asynccontextmanager
async def shown(dsn: str, *, width: int = 80) -> AsyncIterator[tuple[TopApp, Pilot[None]]]:
    """The screen, once a sample is on it; it takes one more a moment."""
    app = TopApp([Database(SecretStr(dsn))], interval=0.1)
    async with app.run_test(size=(width, 24)) as pilot:
        await wait_until_async(lambda: table(app).row_count > 0, what="a sample is shown")
        await pilot.pause()
        yield app, pilot


def table(app: TopApp) -> DataTable[object]:
    return app.screen_stack[0].query_one("#table", DataTable)


def cells(app: TopApp) -> list[list[str]]:
    """The table as it is seen."""
    return [[str(cell) for cell in table(app).get_row_at(number)] for number in range(table(app).row_count)]


def said(app: TopApp, part: str) -> str:
    return str(app.screen_stack[0].query_one(f"#{part}", Static).render())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.usefixtures("tubes")
async def test_the_views_fit(dsn: str, width: int) -> None:
    async with shown(dsn, width=width) as (app, pilot):
        for view, first in (("1", "goods"), ("2", "goods/0")):
            await pilot.press(view)
            assert cells(app)[0][0] == first
            assert table(app).virtual_size.width <= width
        await pilot.press("3")
        assert cells(app) == []
        await pilot.press("1", "enter")
        assert [row[0] for row in cells(app)] == ["goods/0", "goods/1"]
        await pilot.press("escape")
        assert [row[0] for row in cells(app)] == ["goods", "mail", "orders"]


@pytest.mark.usefixtures("tubes")
async def test_filter_and_sort(dsn: str, conn: Conn) -> None:
    async with shown(dsn) as (app, pilot):
        await pilot.press("slash", *"ord", "enter")
        assert [row[0] for row in cells(app)] == ["orders"]
        await pilot.press("escape")
        assert len(cells(app)) == 3
        conn.execute("INSERT INTO tube.orders (op, shard, ids) VALUES ('U', 0, '{1}'), ('U', 0, '{2}')")
        await pilot.press("s")
        await wait_until_async(lambda: cells(app)[0][0] == "orders", what="the tube with more is first")
        await pilot.press("S")
        assert cells(app)[-1][0] == "orders"


@pytest.mark.usefixtures("tubes")
async def test_what_is_wrong_is_told(dsn: str, conn: Conn) -> None:
    for partition, reason in enumerate(("a \x1b[31mlook [red]", "another one")):
        conn.execute("SELECT tube_pause('goods', %s, reason => %s)", [partition, reason])
    conn.execute("SELECT tube_pause('orders', NULL, reason => 'of orders'), tube_pause('mail')")
    for held in ("uuid", None):
        conn.execute("SELECT tube_sink_note('goods', %s)", [held])
    looker = f"top_looker_{database_name(dsn)}"
    with roles(dsn, f"{looker} IN ROLE tube_monitor"):
        async with shown(as_role(dsn, looker)) as (app, pilot):
            told = said(app, "troubles")
            assert "goods: the sink has lost its documents" in told
            assert "a  [31mlook [red]" in told, "text of others commands neither the terminal nor the screen"
            assert "mail: paused" not in told
            assert "more: press x" in told
            await pilot.press("x")
            assert "goods: 1 document parked, one of them: mapper_parsing [broken]" in said(app, "troubles")
            assert "mail: paused until it is resumed" in said(app, "troubles")
            await pilot.press("x")
            assert "more: press x" in said(app, "troubles")


@pytest.mark.usefixtures("tubes")
async def test_a_database_that_goes_away(dsn: str, conn: Conn) -> None:
    name = database_name(dsn)
    async with shown(dsn) as (app, pilot):
        with psycopg.connect(dsn, dbname="postgres", autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pytube top'"
            )
            await wait_until_async(lambda: "NOT CONNECTED" in said(app, "summary"), what="it is told")
            assert len(cells(app)) == 3, "the last figures stay"
            assert "not read: Postgres" in said(app, "troubles")
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())
        await wait_until_async(lambda: "NOT" not in said(app, "summary"), what="it is back")
        await pilot.press("q")
    assert not app._thread.is_alive()


def test_refusals(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "stdout is none" in run("top", dsn=dsn, code=2).stderr
    monkeypatch.setattr("pytube.cli.status.find_spec", lambda _: None)
    assert "pip install 'pytube-pg[top]'" in run("top", dsn=dsn, code=2).stderr
