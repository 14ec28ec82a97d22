"""Rows that are split into parts: by a worker, the sweep, `verify` and `explain`, on a real sink."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pytube import Worker
from pytube.config import Config, parse
from pytube.events import Event, Parked
from pytube.sinks import build_sink
from pytube.testing import batch, trial
from pytube.transforms import Change
from pytube.verify import Explanation, explain, verify
from pytube.verify.report import Report
from tests.helpers.capture import open_session
from tests.helpers.cli import run
from tests.helpers.database import preparing
from tests.helpers.terms import Conn
from tests.helpers.waiting import wait_until_async

PARTS = ("head", "body", "tags")


def split(change: Change) -> object:
    """As many parts as the row says, and one that is not declared of the row 13."""
    row = change.document or {"n": 0}
    parts = {name: {"id": change.id, "of": name} for name in PARTS[: row["n"]]}
    return parts | ({"feet": 1} if change.id == 13 else {})


def no_tags(change: Change) -> object:
    parts: Any = split(change)
    return {name: value for name, value in parts.items() if name != "tags"}


def configured(dsn: str, parts: Collection[str] | None = PARTS, function: str | None = "split") -> Config:
    transforms = "" if function is None else f'transforms = ["{__name__}:{function}"]'
    return parse(
        f"""
        [postgres]
        dsn = "{dsn}"
        [worker]
        election = "lease"
        [tube.t]
        {transforms}
        [tube.t.sink]
        type = "postgres"
        dsn = "{dsn}"
        table = "copy"
        create = true
        id_type = "text"
        {"" if parts is None else f"parts = {list(parts)}"}
        """,
        environment={},
    )


def attached_goods(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("SELECT tube_ensure_exists('t')")
        conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY, n int)")
        conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 0)")


prepare = preparing(attached_goods, "goods")


@pytest.fixture
def goods(conn: Conn) -> Conn:
    return conn


@asynccontextmanager
async def working(config: Config) -> AsyncIterator[list[Event]]:
    events: list[Event] = []
    worker = Worker(config, on_event=events.append)
    await worker.start()
    try:
        yield events
    finally:
        await worker.stop()


async def becomes(conn: Conn, *names: str) -> None:
    """Wait until these are the ids at the sink, and the tube is empty."""

    def is_so() -> bool:
        left = conn.execute("SELECT count(*) FROM t").fetchone()
        found = {key for (key,) in conn.execute("SELECT id FROM public.copy").fetchall()}
        return left == (0,) and found == set(names)

    await wait_until_async(is_so, what=f"the sink has {names}")


async def leave_behind(conn: Conn, config: Config, *names: str) -> None:
    """Put documents at the sink that workers wrote long ago, and nothing has deleted."""
    conn.execute("DELETE FROM public.copy_pytube WHERE id = ANY(%s)", [list(names)])
    settings = config.tube("t").sink
    sink = build_sink(settings.type, settings.options)
    await sink.open()
    await sink.send(batch({name: {"of": name} for name in names}, token=(0, 1), seq=0, tube="t"))
    await sink.close()


async def backfilled(conn: Conn) -> None:
    conn.execute("SELECT tube_backfill_schedule('t', 'id', 0, 0)")

    def is_over() -> bool:
        left = conn.execute("SELECT count(*) FROM t").fetchone()
        return left == (0,) and conn.execute("SELECT DISTINCT state FROM tube_backfill").fetchall() == [
            ("finished",)
        ]

    await wait_until_async(is_over, what="the backfill and its sweep are over")


async def check(config: Config, **options: Any) -> Report:
    return await verify(config, "t", **options)


async def test_a_row_is_split_in_three_then_in_one_and_deleted(goods: Conn, dsn: str) -> None:
    config = configured(dsn)
    goods.execute("INSERT INTO public.goods VALUES (1, 3), (2, 0), (3, 2), (13, 1)")
    async with working(config) as events:
        await becomes(goods, "1/head", "1/body", "1/tags", "3/head", "3/body")
        (parked,) = [event for event in events if isinstance(event, Parked)]
        assert (parked.id, parked.reason) == (
            13,
            "it can't be split into parts: its member 'feet' is none of the parts head, body, tags",
        )
        goods.execute("DELETE FROM public.goods WHERE id = 13")
        goods.execute("UPDATE public.goods SET n = 1 WHERE id = 1")
        await becomes(goods, "1/head", "3/head", "3/body")
        goods.execute("DELETE FROM public.goods WHERE id = 1")
        await becomes(goods, "3/head", "3/body")
        report = await check(config)
        assert (report.is_equal, report.compared, report.not_checked) == (True, 2, [])


async def test_a_part_that_is_missing_or_left_over_is_found_and_mended(
    goods: Conn, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytube.sinks.postgres.PAGE", 1)  # parts of one row come in several pages
    monkeypatch.setattr("pytube.verify.run._LOOK_AT_ONCE", 1)
    config = configured(dsn)
    goods.execute("INSERT INTO public.goods VALUES (3, 2), (4, 0)")
    async with working(config):
        await becomes(goods, "3/head", "3/body")
        await leave_behind(goods, config, "99/body", "99/tags", "4/head", "3/tags")
        report = await check(config)
        assert report.examples == {"different": [(0, 3)], "extra": [(0, 4), (0, 99)]}
        assert (report.different, report.extra) == (1, 2), "each key counts once, whatever its parts"
        await backfilled(goods)
        await becomes(goods, "3/head", "3/body")
        assert (await check(config)).is_equal

        goods.execute("DELETE FROM public.copy WHERE id = '3/body'")
        assert (await check(config)).examples == {"different": [(0, 3)]}
        found: Explanation = await explain(config, "t", "3")
        assert (found.fields, found.sink.document) == (["body"], {"head": {"id": 3, "of": "head"}})
        assert (await check(config, repair=True)).touched == 1
        await becomes(goods, "3/head", "3/body")
        assert (await explain(config, "t", "3")).is_settled
        assert (await explain(config, "t", "4")).is_settled


async def test_a_part_that_is_declared_no_more_is_told_of_and_how_it_is_deleted(
    goods: Conn, dsn: str
) -> None:
    """As docs/transforms.md says: leave it empty first, then take its name away."""
    goods.execute("INSERT INTO public.goods VALUES (1, 3), (2, 2)")
    async with working(configured(dsn)):
        await becomes(goods, "1/head", "1/body", "1/tags", "2/head", "2/body")
    await leave_behind(goods, configured(dsn), "99/tags")
    narrow = configured(dsn, PARTS[:2], "no_tags")
    report = await check(narrow)
    assert (report.is_equal, report.missing + report.extra + report.different) == (False, 0)
    (said,) = report.not_checked
    assert said.startswith("2 documents at the sink are none of the configured parts, e.g. shard 0 id '")
    (said,) = (await check(configured(dsn, None, None))).not_checked
    assert said.startswith("6 documents at the sink have ids that no row of this tube can have, e.g. shard 0")

    async with working(configured(dsn, PARTS, "no_tags")):
        await backfilled(goods)
        await becomes(goods, "1/head", "1/body", "2/head", "2/body")
    assert (await check(narrow)).is_equal


def test_the_sink_is_checked_without_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "names_of_checks", lambda: ["test_odd_documents"])
    (tmp_path / "pytube.toml").write_text(
        f'[postgres]\ndsn = ""\n[tube.t.sink]\ntype = "jsonl"\npath = "{tmp_path}/out"\nparts = 2\n'
    )
    shown = run("sink", "check", "--tube", "t", folder=tmp_path).output.splitlines()
    assert (
        shown[0]
        == "note: the checks write whole documents, and how the configuration splits them is not judged"
    )
    assert shown[-1] == "nothing is left at the sink"
