"""`pytube verify`: what differs is found, what is on its way is not, and an interrupted run goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

import pytube
from pytube import Worker, model
from pytube.config import Config, parse
from pytube.enrich import Enricher
from pytube.errors import (
    ConfigError,
    EnrichDataError,
    EnrichTimeout,
    SinkUnavailable,
    StatementFailed,
    UnknownTable,
    UnknownTube,
    UsageError,
)
from pytube.sinks import build_sink
from pytube.sinks.postgres import PostgresSink
from pytube.testing import batch
from pytube.transforms import SKIP, Change
from pytube.verify import run as run_module
from pytube.verify import verify
from pytube.verify.run import Sample
from tests.helpers.capture import open_session
from tests.helpers.cli import run, run_json
from tests.helpers.database import preparing
from tests.helpers.terms import Claim, Conn, acquire, park, park_item
from tests.helpers.waiting import wait_until_async

CONFIG = """
[postgres]
dsn = "{dsn}"
[worker]
election = "lease"
[tube.t.sink]
type = "postgres"
dsn = "{dsn}"
table = "copy"
create = true
"""


@dataclass
class Copy:
    """A tube of `goods`, whose sink is a table beside it."""

    conn: Conn
    dsn: str
    more: str = ""

    @property
    def config(self) -> Config:
        return parse(CONFIG.format(dsn=self.dsn) + self.more, environment={})

    def deliver(self, values: dict[int, Any] | None = None, counter: int = 1) -> None:
        """Do what a worker would have done: of all rows, or of these."""
        if values is None:
            rows = self.conn.execute("SELECT id, row_to_json(g)::text FROM public.goods g").fetchall()
            values = {key: text.encode() for key, text in rows}

        async def send() -> None:
            settings = self.config.tube("t").sink
            sink = build_sink(settings.type, settings.options)
            await sink.open()
            for start in range(0, len(values), 1000):
                part = dict(list(values.items())[start : start + 1000])
                await sink.send(batch(part, token=(1, counter), tube="t"))
            await sink.close()

        asyncio.run(send())

    def waiting(self) -> list[int]:
        return sorted(key for (keys,) in self.conn.execute("SELECT ids FROM t") for key in keys)


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("SELECT tube_ensure_exists('t', 2)")
        conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY, n int)")
        conn.execute("INSERT INTO public.goods SELECT g, g FROM generate_series(1, 300) g")
        conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 0)")


prepare = preparing(prepared, "copy")


@pytest.fixture
def copy(conn: Conn, dsn: str) -> Copy:
    """Of 300 rows, which are not in the tube."""
    return Copy(conn, dsn)


def spoil(copy: Copy) -> None:
    """One key is missing, one extra, one different."""
    copy.deliver()
    copy.deliver({7: None, 1000: {"id": 1000}, 9: {"id": 9, "n": 0}}, counter=2)


async def check(copy: Copy, **options: Any) -> Any:
    return await verify(copy.config, "t", **options)


def test_equal(copy: Copy) -> None:
    copy.deliver()
    report = asyncio.run(check(copy))
    assert report.is_equal
    assert (report.compared, report.not_checked) == (300, [])


@pytest.mark.parametrize(("sample", "total"), [(None, 300), ("50%", None)])
def test_how_far_it_is(
    copy: Copy, monkeypatch: pytest.MonkeyPatch, sample: str | None, total: int | None
) -> None:
    copy.deliver()
    copy.conn.execute("ANALYZE public.goods")
    monkeypatch.setattr(run_module, "_TELL_EVERY", 0.0)
    seen: list[tuple[int, int]] = []
    given = None if sample is None else Sample.parse(sample)
    asyncio.run(check(copy, sample=given, counted=lambda report, of: seen.append((report.compared, of))))
    done, of = seen[-1]
    assert done == of > 0
    assert total in (None, done)
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [
        (None, "the sink, which was found emptied, counts as complete again"),
        ("NULL", "the sink, which was found emptied, counts as complete again"),
        ("clock_timestamp()", "the sink was found emptied again meanwhile; compare it again"),
    ],
)
def test_a_sink_that_was_found_emptied(copy: Copy, meanwhile: str | None, said: str) -> None:
    """Another loss asks for another comparison; that a worker saw the end of this one does not."""
    copy.deliver()
    copy.conn.execute(
        "INSERT INTO tube_sink (tube, emptied_at) VALUES ('t', clock_timestamp() - interval '1 minute')"
    )

    async def pace(_: float) -> None:
        if meanwhile is not None:
            copy.conn.execute(f"UPDATE tube_sink SET emptied_at = {meanwhile}".encode())

    told: list[str] = []
    report = asyncio.run(check(copy, told=told.append, pace=pace))
    assert report.is_equal
    assert told[-1] == said


def test_what_differs(copy: Copy) -> None:
    spoil(copy)
    report = asyncio.run(check(copy))
    assert not report.is_equal
    assert report.examples == {"missing": [(0, 7)], "different": [(0, 9)], "extra": [(0, 1000)]}
    assert (report.missing, report.different, report.extra, report.touched) == (1, 1, 1, 0)
    assert copy.waiting() == []


def test_what_differs_is_counted_once_where_rows_can_not_be_read_all_at_once(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(copy)
    read = Enricher.read

    async def slow(self: Enricher, groups: Any) -> Any:
        if sum(map(len, groups.values())) > 40:
            raise EnrichTimeout("too many")
        return await read(self, groups)

    monkeypatch.setattr(Enricher, "read", slow)
    report = asyncio.run(check(copy))
    assert (report.compared, report.missing, report.extra, report.different) == (300, 1, 1, 1)
    assert report.unsendable == 0


def test_a_key_that_can_not_be_read_even_alone_is_counted_once(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the walk, and not again among the documents that only the sink has."""
    copy.deliver()
    read = Enricher.read

    async def refusing(self: Enricher, groups: Any) -> Any:
        if any(9 in ids for ids in groups.values()):
            raise EnrichDataError("division by zero")
        return await read(self, groups)

    monkeypatch.setattr(Enricher, "read", refusing)
    report = asyncio.run(check(copy))
    assert (report.compared, report.unsendable, report.extra) == (300, 1, 0)
    assert report.examples == {"unsendable": [(0, 9)]}
    assert not report.is_complete
    assert report.not_checked == [
        "whether the sink alone has 1 key that can't be read, e.g. shard 0 id '9': division by zero"
    ]


def test_repair_touches_what_differs_and_nothing_else(copy: Copy) -> None:
    spoil(copy)
    report = asyncio.run(check(copy, repair=True))
    assert report.touched == 3
    assert copy.waiting() == [7, 9, 1000]
    details = copy.conn.execute("SELECT action, tube, details FROM tube_audit ORDER BY audit_id").fetchall()
    assert details == [
        ("verify repair", "t", {"missing": 1, "different": 1}),
        ("verify repair", "t", {"extra": 1}),
    ]


def test_many_repairs_go_behind_live_changes(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "TOUCHED_AT_ONCE", 2)
    spoil(copy)
    assert asyncio.run(check(copy, repair=True)).touched == 3
    ops = copy.conn.execute("SELECT op, sum(cardinality(ids)) FROM tube.t GROUP BY op ORDER BY op").fetchall()
    assert ops == [("B", 1), ("T", 2)]


def test_a_key_that_is_parked_differs_and_is_said_to_be(copy: Copy) -> None:
    spoil(copy)
    park(copy.conn, acquire(copy.conn, Claim(tube="t", partitions=2, partition=0)), park_item(7, shard=0))
    report = asyncio.run(check(copy))
    assert (report.missing, report.parked) == (1, 1)


def test_what_waits_without_a_worker_is_neither_equal_nor_different(copy: Copy) -> None:
    copy.deliver()
    copy.deliver({9: {"id": 9, "n": 0}}, counter=2)
    copy.conn.execute("UPDATE public.goods SET n = 0 WHERE id = 5")
    report = asyncio.run(check(copy, patience=0.05))
    assert (report.different, report.waiting, report.is_equal) == (1, 1, False)
    assert report.examples == {"different": [(0, 9)], "waiting": [(0, 5)]}
    assert report.not_checked[0].startswith("keys that seem to differ and were not delivered in time: 1 wait")


async def test_what_waits_in_a_companion_may_lead_to_any_key(copy: Copy) -> None:
    """So it is waited for first, and then for what it led to, which has later numbers."""
    await asyncio.to_thread(copy.deliver)
    copy.conn.execute("SELECT tube_companion_ensure('t', 't_relations', 'bigint')")
    copy.conn.execute("SELECT t_relations_touch(3, '{1}', 'U')")
    await asyncio.to_thread(copy.deliver, {5: {"id": 5, "n": 0}}, counter=2)
    report = await check(copy, patience=0.05)
    assert (report.different, report.examples) == (0, {"waiting": [(0, 5)]})

    asked = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE %s AND pid <> pg_backend_pid()"

    def has_asked(function: str) -> bool:
        row = copy.conn.execute(asked, [f"%{function}(%"]).fetchone()
        return row is not None and row[0] > 0

    task = asyncio.create_task(check(copy, patience=60))
    await wait_until_async(lambda: task.done() or has_asked("tube_companions"))
    assert not task.done()
    with copy.conn.transaction():  # as a worker does, only that it commits twice
        copy.conn.execute("SELECT tube_document_touch('t', 'U', ARRAY[5]::bigint[])")
        copy.conn.execute("DELETE FROM t_relations")
    await wait_until_async(lambda: task.done() or has_asked("tube_keys_waiting"))
    done, _ = await asyncio.wait({task}, timeout=0.1)
    assert not done
    await asyncio.to_thread(copy.deliver, counter=3)
    copy.conn.execute("DELETE FROM t")
    assert (await task).is_equal


async def test_no_false_alarm_while_rows_change_and_a_worker_delivers(copy: Copy) -> None:
    """And what really differs is found all the same."""
    await asyncio.to_thread(copy.deliver)
    await asyncio.to_thread(copy.deliver, {9: {"id": 9, "n": 0}}, 2)
    worker = Worker(copy.config)
    await worker.start()
    stop = asyncio.Event()

    async def write() -> None:
        number = 0
        connection = await psycopg.AsyncConnection.connect(copy.dsn, autocommit=True)
        async with connection:
            while not stop.is_set():
                number += 1
                key = 10 + number % 250
                await connection.execute("UPDATE public.goods SET n = n + 1 WHERE id = %s", [key])
                await connection.execute("DELETE FROM public.goods WHERE id = %s", [400 + number % 7])
                await connection.execute(
                    "INSERT INTO public.goods VALUES (%s, 0) ON CONFLICT DO NOTHING", [400 + number % 5]
                )

    writer = asyncio.create_task(write())
    try:
        await wait_until_async(lambda: worker.leads("t") == {0, 1})
        for _ in range(3):
            report = await check(copy)
            assert (report.missing, report.extra, report.different) == (0, 0, 1), report
            assert report.examples["different"] == [(0, 9)]
    finally:
        stop.set()
        await writer
        await worker.stop()


def interrupt(
    copy: Copy, state: Path, monkeypatch: pytest.MonkeyPatch, *, at: int = 3, **options: Any
) -> None:
    """Kill a run at a read of the sink."""
    reads = 0
    read = PostgresSink.read

    async def dying(self: PostgresSink, *arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads == at:
            raise RuntimeError("killed")
        return await read(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "_SAVE_EVERY", 0.0)
        patch.setattr(PostgresSink, "read", dying)
        with pytest.raises(RuntimeError, match="killed"):
            asyncio.run(check(copy, state=state, **options))


def test_an_interrupted_run_goes_on(copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(copy)
    state = tmp_path / "state.json"
    interrupt(copy, state, monkeypatch, repair=True)
    stopped = json.loads(state.read_text())["content"]
    assert 0 < stopped["after"] < 300
    assert state.stat().st_mode & 0o077 == 0, "ids may be names of people"
    said: list[str] = []
    report = asyncio.run(check(copy, state=state, repair=True, told=said.append))
    assert said[0].startswith("resuming an interrupted run")
    assert (report.compared, report.missing, report.extra, report.different) == (300, 1, 1, 1)
    assert copy.waiting() == [7, 9, 1000]
    assert not state.exists()


BAD_STATES: list[tuple[str, Callable[[str], str], str]] = [
    ("cut off", lambda text: text[: len(text) // 2], "can't be read: .*; remove it, or name another"),
    ("a digit changed", lambda text: text.replace('"compared": ', '"compared": 9'), "is damaged"),
    ("nothing in it", lambda text: changed(text, "content", None), "is damaged"),
    ("another tube's", lambda text: changed(text, "pytube_verify", "other"), "of tube 'other' stopped"),
    ("anything else", lambda _: "[1]", "is not a state of pytube verify"),
]


def changed(text: str, name: str, value: Any) -> str:
    return json.dumps(json.loads(text) | {name: value})


def test_a_state_that_can_t_be_trusted_is_refused_and_kept(
    copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.deliver()
    state = tmp_path / "state.json"
    interrupt(copy, state, monkeypatch)
    good = state.read_text()
    for what, spoiled, said in BAD_STATES:
        text = spoiled(good)
        assert text != good, what
        state.write_text(text)
        with pytest.raises(ConfigError, match=said):
            asyncio.run(check(copy, state=state))
        assert state.read_text() == text, "the file may be anybody's"
    state.write_text(good)
    assert asyncio.run(check(copy, state=state)).compared == 300


def test_a_state_of_another_comparison_is_not_used(
    copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one of another version: that is another comparison, whatever else is in its file."""
    copy.deliver()
    state = tmp_path / "state.json"
    with monkeypatch.context() as patch:
        patch.setattr(pytube, "__version__", "99.0")
        interrupt(copy, state, monkeypatch)
    state.write_text(changed(state.read_text(), "checksum", "of another kind"))
    said: list[str] = []
    assert asyncio.run(check(copy, state=state, told=said.append)).compared == 300
    assert "starting over" in said[0]


def test_a_repair_does_not_go_on_where_a_run_without_it_stopped(
    copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What that run has found was not touched, and would not be found again."""
    spoil(copy)
    state = tmp_path / "state.json"
    monkeypatch.setattr(run_module, "_SUSPECTS", 1)
    interrupt(copy, state, monkeypatch, at=6)
    assert json.loads(state.read_text())["content"]["report"]["missing"] == 1
    report = asyncio.run(check(copy, state=state, repair=True))
    assert (report.missing, report.touched) == (1, 3)
    assert copy.waiting() == [7, 9, 1000]


def test_a_run_does_not_go_on_with_another_sink(
    copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.deliver()
    state = tmp_path / "state.json"
    interrupt(copy, state, monkeypatch)
    another = parse(CONFIG.format(dsn=copy.dsn).replace('"copy"', '"another"'), environment={})
    assert asyncio.run(verify(another, "t", state=state)).missing == 300


@pytest.mark.parametrize(("text", "least", "most"), [("50", 50, 50), ("100%", 300, 300)])
def test_a_sample(copy: Copy, text: str, least: int, most: int) -> None:
    spoil(copy)
    copy.conn.execute("ANALYZE public.goods")
    report = asyncio.run(check(copy, sample=Sample.parse(text)))
    assert least <= report.compared <= most
    assert "only the sink has were not looked for" in report.not_checked[0]
    assert report.extra == 0


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_sample_is_drawn_from_the_whole_table(
    copy: Copy, monkeypatch: pytest.MonkeyPatch, *, is_partitioned: bool
) -> None:
    """Its end, too; of a partitioned table, which nothing analyzes, not the first keys each time."""
    conn = copy.conn
    if is_partitioned:
        conn.execute("CREATE TABLE public.parted (id bigint PRIMARY KEY) PARTITION BY RANGE (id)")
        conn.execute("CREATE TABLE public.low PARTITION OF public.parted FOR VALUES FROM (1000) TO (2000)")
        conn.execute("CREATE TABLE public.high PARTITION OF public.parted FOR VALUES FROM (2000) TO (9000)")
        conn.execute("INSERT INTO public.parted SELECT generate_series(1000, 3999)")
        conn.execute("SELECT tube_table_ensure_attached('t', 'public.parted', 1)")
        conn.execute("ANALYZE public.low")
        conn.execute("ANALYZE public.high")
        table, first = "public.parted", 1000
    else:
        conn.execute("INSERT INTO public.goods SELECT g, g FROM generate_series(301, 3000) g")
        conn.execute("ANALYZE public.goods")
        table, first = "public.goods", 1
    conn.execute("DELETE FROM t")
    monkeypatch.setattr("pytube.verify.report.EXAMPLES", 1000)
    report = asyncio.run(check(copy, sample=Sample(keys=200), tables=[table]))
    assert report.missing == report.compared > 0, "nothing was delivered"
    drawn = [int(key) - first for _, key in report.examples["missing"]]
    assert max(drawn) > 2700, "of 3000 rows the last tenth is left out as good as never"
    assert min(drawn) < 300


def test_a_sample_of_nothing_is_not_equal(copy: Copy) -> None:
    copy.conn.execute("DELETE FROM public.goods")
    report = asyncio.run(check(copy, sample=Sample.parse("1%")))
    assert (report.compared, report.is_equal) == (0, False)
    assert report.not_checked[-1] == "no key was drawn; take a larger sample"


def test_a_tube_that_is_changed_meanwhile(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    copy.deliver()

    async def compare(self: run_module._Run, *arguments: Any) -> None:
        copy.conn.execute("SELECT tube_ensure_exists('t', 2, 'n > 5')")
        await compare_all(self, *arguments)

    compare_all = run_module._Run._compare_all
    monkeypatch.setattr(run_module._Run, "_compare_all", compare)
    report = asyncio.run(check(copy))
    assert not report.is_equal
    assert "changed meanwhile" in report.not_checked[0]


@pytest.mark.parametrize("text", ["0", "x", "101%", "-1%", "1000001", ""])
def test_no_sample(text: str) -> None:
    with pytest.raises(UsageError, match="a sample is"):
        Sample.parse(text)


def skip_odd(change: Change) -> Any:
    """Sends nothing of odd ids, and something that can't be of 8."""
    if change.id == 8:
        return None
    return SKIP if change.id % 2 else {"even": change.id}


def test_transforms(copy: Copy) -> None:
    copy.more = f"[tube.t]\ntransforms = ['{__name__}:skip_odd']\n"
    copy.deliver({key: {"even": key} for key in range(2, 301, 2)})
    report = asyncio.run(check(copy))
    assert (report.skipped, report.unsendable, report.missing, report.different) == (150, 1, 0, 0)
    assert not report.is_equal
    assert report.examples == {"unsendable": [(0, 8)]}
    assert report.not_checked == ["150 keys that a transform lets nothing be sent of"]


def unreadable(change: Change) -> Any:
    """Fails from the second time on that it sees a key."""
    SEEN.append(change.id)
    if SEEN.count(change.id) > 1:
        raise ValueError("no more")
    return change.document


SEEN: list[Any] = []


def test_a_key_that_differs_and_can_not_be_looked_at_again_is_not_called_equal(copy: Copy) -> None:
    """As when the database is slow by then."""
    spoil(copy)
    SEEN.clear()
    copy.more = f'[tube.t]\ntransforms = ["{__name__}:unreadable"]\n'
    report = asyncio.run(check(copy))
    assert not report.is_equal
    assert {(0, 7), (0, 9)} <= set(report.examples["unsendable"])


def test_a_document_that_is_another_each_time_is_not_called_different(copy: Copy) -> None:
    document = "json_build_object($$at$$, clock_timestamp())"
    query = f"SELECT id, {document} FROM public.goods WHERE id = ANY(%(ids)s)"
    copy.more = f'[tube.t.enrich]\nmode = "query"\nquery = "{query}"\n'
    copy.conn.execute("DELETE FROM public.goods WHERE id > 3")
    copy.conn.execute("DELETE FROM t")
    copy.deliver()
    report = asyncio.run(check(copy))
    assert (report.different, report.changing, report.is_equal) == (0, 3, False)
    assert "are not the same twice" in report.not_checked[0]


async def test_columns_of_other_types(copy: Copy) -> None:
    """The sink keeps some fields, in the types of its columns."""
    copy.conn.execute("CREATE TABLE public.narrow (id bigint PRIMARY KEY, amount numeric(10, 2))")
    copy.more = "key = ['id']\ncolumns = { amount = 'n' }\n"
    config = CONFIG.replace('"copy"', '"narrow"')
    copy_of = parse(config.format(dsn=copy.dsn) + copy.more, environment={})
    sink = build_sink("postgres", copy_of.tube("t").sink.options)
    await sink.open()
    rows = copy.conn.execute("SELECT id, row_to_json(g)::text FROM public.goods g").fetchall()
    await sink.send(batch({key: text.encode() for key, text in rows}, tube="t"))
    await sink.send(batch({5: {"n": 5.001}, 6: {"n": 7}}, token=(1, 2), tube="t"))
    await sink.close()
    report = await verify(copy_of, "t")
    assert report.examples == {"different": [(0, 6)]}


def test_a_sink_that_is_down(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytube.verify.compare._SINK_PAUSE", 0.0)
    copy.deliver()

    async def down(*_: Any) -> Any:
        raise SinkUnavailable("it is down")

    monkeypatch.setattr(PostgresSink, "read", down)
    with pytest.raises(SinkUnavailable):
        asyncio.run(check(copy))


def test_a_sink_that_can_not_be_read(copy: Copy) -> None:
    text = f"[postgres]\ndsn = '{copy.dsn}'\n[tube.t.sink]\ntype = 'jsonl'\npath = '-'\n"
    with pytest.raises(UsageError, match="can't be compared: only a file can be read back"):
        asyncio.run(verify(parse(text, environment={}), "t"))


def test_a_sink_that_can_not_be_scanned(copy: Copy, tmp_path: Path) -> None:
    text = f"[postgres]\ndsn = '{copy.dsn}'\n[tube.t.sink]\ntype = 'jsonl'\npath = '{tmp_path}/x'\n"
    report = asyncio.run(verify(parse(text, environment={}), "t"))
    assert (report.missing, report.waiting) == (300, 0)
    assert report.not_checked == [
        "keys that only the sink has were not looked for: the sink can't be scanned"
    ]


def test_what_can_not_be_verified(copy: Copy) -> None:
    with pytest.raises(ConfigError, match="not configured"):
        asyncio.run(verify(copy.config, "none"))
    with pytest.raises(UnknownTable, match="its root tables: public.goods"):
        asyncio.run(check(copy, tables=["public.none"]))
    copy.conn.execute("SELECT tube_ensure_absent('t')")
    with pytest.raises(UnknownTube):
        asyncio.run(check(copy))


def test_repair_without_the_right(copy: Copy, dsn: str) -> None:
    copy.deliver({1: None})
    copy.conn.execute("GRANT SELECT ON public.goods TO tube_monitor")
    config = copy.config
    limited = config.postgres.model_copy(
        update={"dsn": SecretStr(make_conninfo(dsn, options="-c role=tube_monitor"))}
    )
    with pytest.raises(UsageError, match="may not touch: grant it tube_worker"):
        asyncio.run(verify(config.model_copy(update={"postgres": limited}), "t", repair=True))
    assert copy.waiting() == []


def test_a_standby_is_refused(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "_IS_STANDBY", "SELECT true")
    with pytest.raises(UsageError, match="is a standby"):
        asyncio.run(check(copy))


def test_a_role_that_may_not_read(copy: Copy, dsn: str) -> None:
    config = copy.config
    limited = config.postgres.model_copy(
        update={"dsn": SecretStr(make_conninfo(dsn, options="-c role=tube_monitor"))}
    )
    with pytest.raises(StatementFailed, match="permission denied for table goods"):
        asyncio.run(verify(config.model_copy(update={"postgres": limited}), "t"))


def test_repair_of_a_read_only_database(copy: Copy, dsn: str) -> None:
    name = conninfo_to_dict(dsn)["dbname"]
    copy.conn.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(UsageError, match="read-only, so nothing can be touched"):
        asyncio.run(check(copy, repair=True))


def test_the_command(copy: Copy, tmp_path: Path) -> None:
    (tmp_path / "pytube.toml").write_text(CONFIG.format(dsn=copy.dsn))
    spoil(copy)
    state = str(tmp_path / "state")
    shown = run("verify", "--tube", "t", "--state", state, folder=tmp_path, code=1).stdout.splitlines()
    assert shown[0].startswith("1 missing, 1 extra, 1 different, of 300 keys compared (")
    assert "missing\tshard 0\tid 7" in shown
    found = run_json("verify", "--tube", "t", "--state", state, "--repair", folder=tmp_path, code=1)
    assert (found["is_equal"], found["touched"]) == (False, 3)
    copy.conn.execute("DELETE FROM t")
    copy.deliver(counter=3)
    copy.deliver({1000: None}, counter=3)
    assert run_json("verify", "--tube", "t", "--state", state, folder=tmp_path)["is_equal"]
