"""What a worker and the fleet tell Prometheus: scraped, parsed, and compared with what was done."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import psycopg
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pytube.config import load
from pytube.errors import SinkUnavailable, UsageError
from pytube.model import OK, Batch, Reject, Result
from pytube.worker import Worker
from pytube.worker.kafka import KafkaCluster
from tests.conftest import Connect
from tests.docs.pages import BY_NAME, table_rows
from tests.docs.rule_tests import fed, shapes
from tests.helpers.cli import run
from tests.helpers.database import ROOT
from tests.helpers.http import get
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.waiting import LIMIT, POLL, wait_until_async
from tests.integration.test_worker_faults import Running, running

Conn = psycopg.Connection[tuple[object, ...]]

PAGE = BY_NAME["docs/metrics.md"]
down = False


def send(batch: Batch) -> Sequence[Result]:
    """The sink of these tests. It refuses the document 13."""
    if down:
        raise SinkUnavailable("https://app:hunter2@index refused")
    return [Reject("unlucky") if document.id == 13 else OK for document in batch]


class Scrape:
    """The metrics of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families: list[Metric] = list(text_string_to_metric_families(text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def all(self, name: str, **labels: str) -> list[float]:
        return [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def one(self, name: str, **labels: str) -> float:
        (value,) = self.all(name, **labels)
        return value

    def documented(self) -> set[tuple[str, str, frozenset[str]]]:
        """Name, type and labels of each, as the page has them."""
        found = set()
        for family in self.families:
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            found.add((name, family.type, frozenset(labels)))
        return found


def on_the_page(section: str) -> set[tuple[str, str, frozenset[str]]]:
    return {
        (row[0].strip("`"), row[1], frozenset(re.findall(r"`(\w+)`", row[2])))
        for row in table_rows(PAGE.section(section))
        if row[0].startswith("`pytube_")
    }


@pytest.fixture
def config(dsn: str, conn: Conn, tmp_path: Path) -> Iterable[tuple[Path, Proxy]]:
    """A worker's way to Postgres leads through the proxy."""
    conn.execute("SELECT tube_ensure_exists('t', 1)")
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 0)")
    with Proxy(int(str(conninfo_to_dict(dsn)["port"]))) as proxy:
        path = tmp_path / "pytube.toml"
        through = make_conninfo(dsn, host="127.0.0.1", port=proxy.port)
        path.write_text(f"""
            [postgres]
            dsn = "{through}"
            [worker]
            listen = "127.0.0.1:0"
            client_id = 'quo"ted'
            [tube.t.sink]
            type = "callable"
            target = "{__name__}:send"
        """)
        yield path, proxy


async def scrape(running: Running) -> Scrape:
    port = running.worker.listens_at
    assert port is not None
    if not running.worker._clusters:  # what is said of Kafka is to be seen, too
        running.worker._clusters.append(KafkaCluster("kafka:9092", {}))
    status, text = await get(port, "/metrics")
    assert status == 200
    return Scrape(text)


async def until(running: Running, what: str, holds: Callable[[Scrape], bool]) -> Scrape:
    """Scrape until it holds."""
    last: list[Scrape] = []

    async def look() -> None:
        while not (last and holds(last[-1])):
            last.append(await scrape(running))
            await asyncio.sleep(POLL)

    looking = asyncio.create_task(look())
    await running.until(what, looking.done)
    await looking
    return last[-1]


async def test_what_a_worker_counts(
    conn: Conn, connect: Connect, config: tuple[Path, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(config[0]) as worker:
        led = await until(worker, "it leads", lambda now: now.all("pytube_sink_up") == [1])
        assert led.one("pytube_partition_led", tube="t", partition="0") == 1
        assert led.one("pytube_terms_total", tube="t", partition="0") == 1
        assert led.one("pytube_worker_info", client_id='quo"ted', election="lease") == 1
        assert led.all("pytube_postgres_up") == led.all("pytube_worker_ready") == [1]

        conn.execute("INSERT INTO public.goods SELECT generate_series(1, 10)")
        done = await until(worker, "it is purged", lambda now: now.all("pytube_purged_pods_total") == [1])
        assert done.one("pytube_touches_total", **{"class": "incremental"}) == 10
        assert done.one("pytube_documents_total", **{"class": "incremental"}) == 10
        assert sum(done.all("pytube_documents_total", **{"class": "backfill"})) == 0
        assert done.one("pytube_send_duration_seconds_count", tube="t") == 1
        assert 0 < done.one("pytube_send_duration_seconds_sum", tube="t") < 100
        assert done.one("pytube_read_duration_seconds_bucket", tube="t", le="+Inf") == 1
        assert set(done.all("pytube_lag_seconds")) == {0}

        # The sink goes down: touches of the same keys coalesce, lag grows, and what was sent is sent again.
        monkeypatch.setattr(f"{__name__}.down", True)
        conn.execute("UPDATE public.goods SET id = id WHERE id = 1")
        await until(worker, "the sink is down", lambda now: now.all("pytube_sink_up") == [0])
        for _ in range(3):
            conn.execute("UPDATE public.goods SET id = id WHERE id = 1")
        held = await until(
            worker, "its pods are held", lambda now: now.all("pytube_pods", **{"class": "incremental"}) == [4]
        )
        assert held.one("pytube_keys_in_flight") <= 1, "between two tries it waits, and takes up touches"
        assert held.one("pytube_lag_seconds", **{"class": "incremental"}) > 0
        assert "hunter2" not in held.text
        monkeypatch.setattr(f"{__name__}.down", False)
        up = await until(worker, "all is purged", lambda now: now.all("pytube_purged_pods_total") == [5])
        assert up.all("pytube_sink_up") == [1]
        assert up.all("pytube_retries_total", **{"class": "incremental"}) == [0], "the sink had taken nothing"
        # The four touches are one document, but those that come while it is being tried are another one. If
        # that try fails, they are one again.
        coalesced = up.one("pytube_coalesced_touches_total")
        assert coalesced in (2, 3)
        documents = up.one("pytube_documents_total", **{"class": "incremental"})
        assert 10 + 1 <= documents <= 10 + 4 - coalesced

        conn.execute("INSERT INTO public.goods VALUES (13)")
        parked = await until(
            worker,
            "it is parked",
            lambda now: now.one("pytube_parked_total", **{"class": "incremental"}) == 1,
        )
        assert parked.one("pytube_rejects_total", **{"class": "incremental"}) == 1

        # An open transaction holds back the settled seq.
        writer = connect(autocommit=False)
        writer.execute("INSERT INTO public.goods VALUES (14)")
        pinned = await until(
            worker, "it is a long writer", lambda now: now.all("pytube_settled_long_writers") == [1]
        )
        assert pinned.one("pytube_settled_age_seconds") > 0.5
        writer.rollback()
        await until(worker, "it is over", lambda now: now.all("pytube_settled_age_seconds") == [0])
        assert (await scrape(worker)).documented() == on_the_page("Metrics of a worker")


async def test_a_worker_is_ready_while_it_reaches_postgres(config: tuple[Path, Proxy]) -> None:
    path, proxy = config
    soon = "receive_deadline = 1\nsession_timeout = 2\n"  # so that it says soon that Postgres is away
    path.write_text(
        path.read_text().replace("[tube.t.sink]", f"{soon}[tube.t.sink]") + "request_timeout = 1\n"
    )
    async with running(path) as worker:
        port = worker.worker.listens_at
        assert port is not None

        async def until_status(status: int) -> str:
            while (answer := await get(port, "/readyz"))[0] != status:  # noqa: ASYNC110 # what is asked is HTTP
                await asyncio.sleep(POLL)
            return answer[1]

        assert await asyncio.wait_for(until_status(200), LIMIT) == "ok\n"
        proxy.switch(Mode.CUT)
        reason = await asyncio.wait_for(until_status(503), LIMIT)
        assert re.fullmatch(r"Postgres has been down for \d+ s\n", reason)
        assert (await scrape(worker)).all("pytube_postgres_up") == [0]
        assert await get(port, "/healthz") == (200, "ok\n")
        proxy.switch(Mode.PASS)
        await asyncio.wait_for(until_status(200), LIMIT)

        next(iter(worker.worker._services._tasks)).cancel()
        await wait_until_async(lambda: worker.worker._services.is_broken)
        assert (await get(port, "/healthz"))[0] == 503
        stopping = asyncio.create_task(worker.worker.stop())
        await asyncio.sleep(0)
        assert (await get(port, "/readyz")) == (503, "the worker is stopping\n")
        await stopping


async def test_a_second_listener_at_a_port(config: tuple[Path, Proxy]) -> None:
    async with running(config[0]) as worker:
        port = worker.worker.listens_at
        second = config[0].with_name("second.toml")
        second.write_text(config[0].read_text().replace("127.0.0.1:0", f"127.0.0.1:{port}"))
        with pytest.raises(UsageError, match=f"key worker.listen: can't listen at 127.0.0.1:{port}: "):
            await Worker(load(second)).start()


def fleet(dsn: str) -> Scrape:
    return Scrape(run("status", "--prometheus", dsn=dsn).stdout)


async def test_what_the_database_knows(
    dsn: str, conn: Conn, connect: Connect, config: tuple[Path, Proxy]
) -> None:
    free = fleet(dsn)
    assert free.all("pytube_fleet_partition_led") == [0]
    assert free.all("pytube_fleet_sink_up") == [], "nobody knows"
    conn.execute("INSERT INTO public.goods SELECT generate_series(1, 3)")
    conn.execute("SET application_name = 'backfill'")
    conn.execute("SELECT public.goods_touch('{1}')")
    conn.execute(
        "INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch) VALUES"
        " ('t', 0, 7, 'U', 1, 'x', 1, 1)"
    )
    conn.execute("SELECT tube_sampled('t', 10, 1, 0, 'missing 7')")
    writer = connect(autocommit=False)
    writer.execute("INSERT INTO public.goods VALUES (14)")
    now = fleet(dsn)
    for name, value in (("checked", 10), ("differing", 1)):
        assert now.one(f"pytube_fleet_sample_{name}", tube="t") == value
    assert now.one("pytube_fleet_copy_differs", tube="t") == 2
    assert now.one("pytube_fleet_source_changed", tube="t") == 0
    classes = {
        label: now.one("pytube_fleet_pods", **{"class": label}) for label in ("incremental", "backfill")
    }
    assert classes == {"incremental": 1, "backfill": 1}
    assert now.one("pytube_fleet_pods", **{"class": "control"}) == 0
    assert all(0 < lag < 1000 for lag in now.all("pytube_fleet_lag_seconds"))
    assert now.all("pytube_fleet_parked_keys") == [1]
    role = conn.execute("SELECT current_user").fetchone()
    assert role is not None
    assert now.one("pytube_fleet_transaction_age_seconds", role=str(role[0])) > 0
    assert now.all("pytube_fleet_transactions_hidden") == [0]
    writer.rollback()
    async with running(config[0]) as worker:
        await worker.until("it leads", lambda: fleet(dsn).all("pytube_fleet_sink_up") == [1])
        led = fleet(dsn)
        assert led.all("pytube_fleet_partition_led") == [1]
        writer.execute("INSERT INTO public.goods VALUES (14)")
        conn.execute("SELECT outbox_ensure_exists('box')")
        conn.execute("SELECT tube_backfill_create('t', 'public.goods')")
        row = '[{"tube": "t", "use": "election", "bootstrap_servers": "k", "reason": "r", "seconds": 9}]'
        conn.execute("SELECT tube_kafka_report(gen_random_uuid(), 'w', %s)", (row,))
        scraped = [await scrape(worker), fleet(dsn)]
    assert scraped[1].one("pytube_fleet_backfill_rows", what="delivered") == 0
    assert scraped[1].documented() == on_the_page("Metrics of the fleet")
    # Those of an outbox's leader are scraped in tests/unit/test_outbox_worker.py.
    of_outboxes = on_the_page("Metrics of outboxes")
    there = {name for name, _, _ in of_outboxes}
    there |= {sample.name for one in scraped for sample in one.samples}
    printed = shapes(scraped[0].text) | shapes(scraped[1].text)
    printed |= {(name, labels, None) for name, _, labels in of_outboxes}
    assert fed(of_hosts=False) - printed == set(), "the tests of the alerts feed in what is not printed"
    for file in ("alerts.yml", "grafana-dashboard.json"):
        named = set(re.findall(r"\bpytube_\w+", (ROOT / "deploy" / file).read_text()))
        assert named, file
        assert named - there == set(), file


def test_each_metric_has_a_panel() -> None:
    shown = (ROOT / "deploy" / "grafana-dashboard.json").read_text()
    sections = ("Metrics of a worker", "Metrics of outboxes", "Metrics of the fleet")
    named = {name for section in sections for name, _, _ in on_the_page(section)}
    assert {name for name in named if not re.search(rf"\b{name}(_bucket|_sum|_count)?\b", shown)} == set()


def test_outboxes_are_among_the_fleet(dsn: str, conn: Conn) -> None:
    """So the alerts for partitions are for theirs, too."""
    conn.execute("SELECT outbox_ensure_exists('orders', 2)")
    conn.execute("SELECT outbox_stash('orders', 'topic', 'k', 'v')")
    conn.execute("SELECT tube_pause('orders', NULL, '1 hour')")
    now = fleet(dsn)
    assert sorted(now.all("pytube_fleet_outbox_records", tube="orders")) == [0, 1]
    for name, value in (("partition_led", 0), ("partition_paused", 1), ("parked_keys", 0)):
        assert now.all(f"pytube_fleet_{name}", tube="orders") == [value] * 2
    assert max(now.all("pytube_fleet_lag_seconds", tube="orders", **{"class": "incremental"})) > 0
    assert now.one("pytube_fleet_bytes", tube="orders") > 0, "what fills a disk is told of outboxes, too"
    said = run("outbox", "status", "orders", dsn=dsn).output
    assert re.search(r"^orders: paused until 2[^:]+:[^:]+:[^:]+: by ", said, re.MULTILINE)


def test_only_one_format_at_a_time(dsn: str) -> None:
    assert "leave --watch and --json out" in run("status", "--prometheus", "--json", dsn=dsn, code=2).output
