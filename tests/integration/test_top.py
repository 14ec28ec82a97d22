"""`pytube top` as an operator uses it, with a real database, without a terminal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from pytube.cli.context import Database
from pytube.cli.top.app import TopApp
from pytube.cli.top.dialogs import Ask, ParkList, Question, Reading
from pytube.config import Config, load
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
async def shown(
    dsn: str, *, width: int = 80, config: Config | None = None
) -> AsyncIterator[tuple[TopApp, Pilot[None]]]:
    """The screen, once a sample is on it; it takes one more a moment."""
    app = TopApp([Database(SecretStr(dsn), "tube")], config, interval=0.1)
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


def notices(app: TopApp) -> str:
    return "\n".join(notice.message for notice in app._notifications)


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
async def test_pause_and_resume(dsn: str, conn: Conn) -> None:
    async with shown(dsn) as (app, pilot):
        await pilot.press("p")
        await wait_until_async(lambda: isinstance(app.screen, Ask), what="it asks")
        await pilot.press("escape")
        assert conn.execute("SELECT count(*) FROM tube_paused").fetchone() == (0,)
        await pilot.press("p", *"look", "enter")
        await wait_until_async(lambda: "look" in said(app, "troubles"), what="the pause is shown")
        await pilot.press("2")
        await pilot.press("r", "y")
        await wait_until_async(lambda: "resume the whole tube" in notices(app), what="it is told")
        await pilot.press("1", "r")
        await wait_until_async(lambda: isinstance(app.screen, Question), what="it asks")
        await pilot.press("n")
        assert conn.execute("SELECT count(*) FROM tube_paused").fetchone() == (1,)
        await pilot.press("r", "y")
        await wait_until_async(lambda: "paused" not in said(app, "troubles"), what="the pause is gone")
    acts = conn.execute("SELECT action, tube, client FROM tube_audit ORDER BY audit_id").fetchall()
    assert acts == [("pause", "goods", "pytube cli"), ("resume", "goods", "pytube cli")]


@pytest.mark.usefixtures("tubes")
async def test_a_park_entry_and_a_key(dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "pytube.toml"
    path.write_text(
        f'[postgres]\ndsn = "{dsn}"\n[tube.goods.sink]\ntype = "jsonl"\npath = "{tmp_path}/out"\n'
    )
    async with shown(dsn, config=load(path)) as (app, pilot):
        await pilot.press("k")
        await wait_until_async(lambda: isinstance(app.screen, ParkList), what="what is parked is listed")
        await pilot.press("enter")
        await wait_until_async(lambda: isinstance(app.screen, Reading), what="the entry is open")
        text = str(app.screen.query_one(Static).render())
        assert "mapper_parsing [broken]" in text
        assert "attempts:    5" in text
        assert "\x1b" not in text
        await pilot.press("escape", "e", *"7", "enter")
        await wait_until_async(lambda: isinstance(app.screen, Reading), what="the key is explained")
        assert "a [red]ball" in str(app.screen.query_one(Static).render())


@pytest.mark.usefixtures("tubes")
async def test_what_is_parked_is_tried_again(dsn: str, conn: Conn) -> None:
    conn.execute("SELECT outbox_stash('mail', 'topic', 'key', 'value')")
    conn.execute(
        "INSERT INTO tube_outbox_parked (outbox, id, topic, key, slot, error, attempts, epoch, hold, behind)"
        " SELECT 'mail', r.id, 'topic', 'key', 0, 'too large', 1, 1, false, false FROM tube.mail AS r"
    )

    def retried() -> list[object]:
        found = conn.execute("SELECT tube FROM tube_audit WHERE action IN ('park retry', 'outbox retry')")
        return [tube for (tube,) in found.fetchall()]

    async with shown(dsn) as (app, pilot):

        async def listed() -> None:
            await pilot.press("k")
            await wait_until_async(lambda: isinstance(app.screen, ParkList), what="what is parked is listed")

        async def asked() -> None:
            await wait_until_async(lambda: isinstance(app.screen, Question), what="it asks")

        await listed()
        await pilot.press("r")
        await asked()
        await pilot.press("n")
        assert retried() == []
        await listed()
        await pilot.press("enter")
        await wait_until_async(lambda: isinstance(app.screen, Reading), what="the entry is open")
        await pilot.press("r")
        await asked()
        await pilot.press("y")
        await wait_until_async(lambda: "0/7 of tube goods is to be" in notices(app), what="it is done")
        assert conn.execute("SELECT ids FROM tube.goods").fetchall() == [([7],), ([7],)], "the insert, and it"
        await pilot.press("down")
        await listed()
        conn.execute("DELETE FROM tube_outbox_parked")
        await pilot.press("r", "y")
        await wait_until_async(lambda: "not parked any more" in notices(app), what="it is told")
    assert retried() == ["goods"]


@pytest.mark.usefixtures("tubes")
async def test_a_control_pod_is_not_tried_again_with_all_others(dsn: str, conn: Conn) -> None:
    conn.execute("UPDATE tube_parked SET id = NULL, payload = '{}'")
    async with shown(dsn) as (app, pilot):
        await pilot.press("k")
        await wait_until_async(lambda: isinstance(app.screen, ParkList), what="what is parked is listed")
        await pilot.press("r", "y")
        await wait_until_async(lambda: "a control pod has no key" in notices(app), what="it is refused")


@pytest.mark.usefixtures("tubes")
async def test_without_the_rights_it_says_so(dsn: str, conn: Conn) -> None:
    looker = f"top_looker_{database_name(dsn)}"
    with roles(dsn, f"{looker} IN ROLE tube_monitor"):
        async with shown(as_role(dsn, looker)) as (app, pilot):
            await pilot.press("p", "enter")
            await wait_until_async(lambda: "acting tube_admin" in notices(app), what="it is refused")
            await pilot.press("k")
            await wait_until_async(lambda: isinstance(app.screen, ParkList), what="what is parked is listed")
            await pilot.press("r", "y")
            await wait_until_async(lambda: notices(app).count("acting tube_admin") == 2, what="and this")
            await pilot.press("e", "7", "enter")
            await wait_until_async(lambda: "--config" in notices(app), what="it lacks the configuration")
    assert conn.execute("SELECT count(*) FROM tube_paused").fetchone() == (0,)


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
        await pilot.press("question_mark")
        assert isinstance(app.screen, Reading)
        await pilot.press("escape", "q")
    assert not app._sampler._thread.is_alive()


def test_refusals(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "stdout is none" in run("top", dsn=dsn, code=2).stderr
    monkeypatch.setattr("pytube.cli.top.find_spec", lambda _: None)
    assert "pip install 'pytube-pg[top]'" in run("top", dsn=dsn, code=2).stderr
