"""One worker for several Postgres hosts: what happens to one of them is no concern of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from pytube.config import Config, HostConfig, KafkaConfig, load
from pytube.errors import ConfigError, DatabaseUnavailable, UnknownTube
from pytube.events import (
    ConfigWaits,
    DatabaseDown,
    DatabaseUp,
    Event,
    LeaderRevoked,
    TrustLapsed,
    WorkerStarted,
)
from pytube.health.doctor import examine
from pytube.health.findings import Level
from pytube.model import OK, Batch, Id, Key, Result
from pytube.worker import Worker
from pytube.worker import worker as module
from pytube.worker.reload import Changes
from tests.conftest import Servers
from tests.docs.rule_tests import fed, shapes
from tests.helpers.cli import run, run_json
from tests.helpers.database import TestServer
from tests.helpers.http import get
from tests.helpers.logs import capture_logs
from tests.helpers.waiting import wait_until_async

Conn = psycopg.Connection[tuple[Any, ...]]
taken: list[tuple[str | None, Key]] = []
values: list[tuple[str | None, str, Id, Any]] = []
"""The same, with the tubes and the documents."""


def send(batch: Batch) -> Sequence[Result]:
    """Takes everything."""
    taken.extend((batch.host, document.key) for document in batch)
    values.extend((batch.host, batch.tube, document.id, document.value()) for document in batch)
    return [OK] * len(batch)


@pytest.fixture(scope="module")
def other_server() -> Iterator[TestServer]:
    """A server that tests may kill."""
    server = TestServer(18)
    yield server
    server.close()


@contextmanager
def connected(dsn: str) -> Iterator[Conn]:
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as conn:
        yield conn


def make_tube(dsn: str, shard: int, *, tube: str = "items") -> None:
    with connected(dsn) as conn:
        conn.execute("SELECT tube_ensure_exists(%s)", (tube,))
        conn.execute(f"CREATE TABLE public.{tube} (id bigint PRIMARY KEY)")
        conn.execute("SELECT tube_table_ensure_attached(%s, %s, %s)", (tube, f"public.{tube}", shard))


def insert(dsn: str, *ids: int, tube: str = "items") -> None:
    with connected(dsn) as conn:
        conn.execute(f"INSERT INTO public.{tube} SELECT unnest(%s::bigint[])", (list(ids),))


@pytest.fixture
def one(servers: Servers) -> Iterator[str]:
    with servers.get(18).database(installed=True) as dsn:
        yield dsn


@pytest.fixture
def two(other_server: TestServer) -> Iterator[str]:
    with other_server.database(installed=True) as dsn:
        yield dsn


@pytest.fixture
def config_file(one: str, two: str, tmp_path: Path) -> Path:
    """Both databases, as hosts of these names."""
    taken.clear()
    values.clear()
    path = tmp_path / "pytube.toml"
    path.write_text(
        f"""
        [postgres]
        pool_size = 3
        [postgres.hosts.one]
        dsn = "{one}"
        [postgres.hosts.two]
        dsn = "{two}"
        pool_size = 2
        [worker]
        listen = "127.0.0.1:0"
        [tube.items.sink]
        type = "callable"
        target = "{__name__}:send"
        """
    )
    return path


@pytest.fixture
def config(config_file: Path) -> Config:
    return load(config_file)


@asynccontextmanager
async def running(config: Config, events: list[Event]) -> AsyncIterator[Worker]:
    worker = Worker(config, on_event=events.append)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


def fleet(config_file: Path, dsn: str) -> str:
    """What the databases know, while one of them has an outbox, and a transaction that writes."""
    with connected(dsn) as conn:
        conn.execute("SELECT outbox_ensure_exists('box')")
        with conn.transaction():
            conn.execute("CREATE TABLE public.open ()")
            return run("--config", str(config_file), "status", "--prometheus").stdout


async def ready(worker: Worker) -> tuple[int, str]:
    assert worker.listens_at is not None
    return await get(worker.listens_at, "/readyz")


def of_host(events: list[Event], host: str, *kinds: type[Event]) -> list[Event]:
    return [event for event in events if event.host == host and isinstance(event, kinds)]


async def test_a_host_that_is_dead_stops_its_own_part_only(
    config: Config, config_file: Path, one: str, two: str, other_server: TestServer
) -> None:
    """Dead when the worker starts, and killed later."""
    make_tube(one, 0)
    make_tube(two, 1)
    insert(two, 1)
    other_server.postgres.kill()
    events: list[Event] = []
    async with running(config, events) as worker:
        assert [type(event) for event in events[:2]] == [DatabaseDown, WorkerStarted]
        await wait_until_async(lambda: worker._why_unready() is None, what="it is ready")
        status, text = await ready(worker)
        assert status == 200
        assert text.startswith("ok\nhost two is not served: Postgres is not available: ")
        insert(one, 10)
        await wait_until_async(lambda: taken == [("one", (0, 10))], what="the host that is up is served")

        await asyncio.to_thread(other_server.postgres.start)
        await wait_until_async(lambda: ("two", (1, 1)) in taken, what="the other one is taken up")
        assert worker.leads("items") == worker.leads("items", "one") == worker.leads("items", "two") == {0}
        await wait_until_async(lambda: of_host(events, "two", DatabaseUp), what="its outage is over")
        assert await ready(worker) == (200, "ok\n")

        other_server.postgres.kill()
        await wait_until_async(
            lambda: len(of_host(events, "two", DatabaseDown)) == 2, what="it is told again"
        )
        for key in range(11, 31):
            insert(one, key)
            await wait_until_async(lambda: taken[-1] == ("one", (0, key)), what="one goes on")  # noqa: B023
        status, text = await ready(worker)
        assert (status, text.partition(" for ")[0]) == (
            200,
            "ok\nhost two is not served: Postgres has been down",
        )
        assert worker.listens_at is not None
        scraped = (await get(worker.listens_at, "/metrics"))[1]
        metrics = scraped.splitlines()
        assert 'pytube_postgres_up{host="one"} 1.0' in metrics
        assert 'pytube_postgres_up{host="two"} 0.0' in metrics
        assert 'pytube_postgres_pool_size{host="two"} 2.0' in metrics
        delivered = [line for line in metrics if line.startswith("pytube_documents_total{")]
        assert [line.endswith(" 21.0") for line in delivered if 'host="one"' in line] == [True, False]
        printed = shapes(scraped) | shapes(await asyncio.to_thread(fleet, config_file, one))
        fed_in = {series for series in fed(of_hosts=True) if not series[0].startswith("pytube_outbox_")}
        assert fed_in - printed == set(), "the tests of the alerts feed in what is not printed"
        await asyncio.to_thread(other_server.postgres.start)
        insert(two, 2)
        await wait_until_async(lambda: ("two", (1, 2)) in taken, what="the other one is served again")
        with connected(two) as conn:
            conn.execute("SELECT tube_backfill_create('items', 'public.items', by_worker => true)")
        await wait_until_async(lambda: taken.count(("two", (1, 2))) == 2, what="its backfill is run")
    assert of_host(events, "one", DatabaseDown, TrustLapsed) == []
    assert len(of_host(events, "one", LeaderRevoked)) == 1, "at the end, and not before"


async def test_each_host_has_elections_of_its_own_at_the_broker(
    config: Config, one: str, two: str, kafka_mock: str
) -> None:
    make_tube(one, 0)
    make_tube(two, 1)
    insert(one, 1)
    insert(two, 2)
    kafka = KafkaConfig(bootstrap_servers=kafka_mock)
    worker = config.worker.model_copy(update={"installation": one.rpartition("/")[2]})
    async with running(config.model_copy(update={"kafka": kafka, "worker": worker}), []):
        await wait_until_async(lambda: len(taken) == 2, what="both are led")
    assert sorted(taken) == [("one", (0, 1)), ("two", (1, 2))]


async def test_a_worker_whose_hosts_are_all_dead_does_not_start(
    config: Config, other_server: TestServer
) -> None:
    hosts = dict.fromkeys(config.postgres.hosts, config.postgres.hosts["two"])
    postgres = config.postgres.model_copy(update={"hosts": hosts})
    other_server.postgres.kill()
    with pytest.raises(DatabaseUnavailable):
        await Worker(config.model_copy(update={"postgres": postgres})).start()


async def test_a_host_without_the_tube_is_named(config: Config, one: str) -> None:
    make_tube(one, 0)
    with pytest.raises(UnknownTube, match="host two: there is no tube 'items'"):
        await Worker(config).start()


async def test_one_shard_on_two_hosts_is_refused(config: Config, one: str, two: str) -> None:
    make_tube(one, 7)
    with connected(two) as conn:
        conn.execute("SELECT tube_ensure_exists('items')")
        conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY)")
        conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', 4, 10)")
    with pytest.raises(ConfigError, match="tube 'items' has shard 7 on host one and on host two, so rows"):
        await Worker(config).start()


def test_commands_on_several_hosts(config_file: Path, one: str, two: str, other_server: TestServer) -> None:
    """`status` and `doctor` look at all of them and name them; others ask which one is meant."""
    make_tube(one, 0)
    make_tube(two, 0)
    insert(two, 1)
    options = ("--config", str(config_file))
    rows = run_json(*options, "status")
    assert [(row["host"], row["tube"], row["waiting"]) for row in rows] == [
        ("one", "items", 0),
        ("two", "items", 1),
    ]
    assert [row["host"] for row in run_json(*options, "status", "--host", "two")] == ["two"]
    refused = run(*options, "tube", "list", code=2)
    assert "which host? The configuration has several: give --host, one of one, two" in refused.stderr
    run(*options, "tube", "list", "--host", "one")
    unknown = run(*options, "tube", "list", "--host", "three", code=2)
    assert "there is no host 'three' in the configuration (known: one, two)" in unknown.stderr
    checks = {check["subject"]: check["level"] for check in run_json(*options, "doctor", code=1)}
    assert checks["host one: tube items"] == checks["host two: tube items"] == "ok"
    assert checks["shards of items"] == "fail"
    assert checks["sink of items"] == "ok", "once, and not for each host"
    checks = {check["subject"]: check["level"] for check in run_json(*options, "doctor", "--host", "two")}
    assert checks["tube items"] == "ok"
    assert "shards of items" not in checks

    run(*options, "pause", "items", "--host", "two")
    remedy = "pytube --host two resume items"
    assert remedy in run(*options, "status").stderr
    assert remedy in [check["remedy"] for check in run_json(*options, "doctor", code=1)]
    assert remedy in [check["remedy"] for check in run_json(*options, "doctor", "--host", "two")]
    explained = run_json(*options, "explain", "items", "1", "--host", "two")["sentences"]
    assert any(f"`{remedy}`" in sentence for sentence in explained)
    gone = run(*options, "outbox", "status", "none", "--host", "two", code=2).stderr
    assert "`pytube --host two outbox list` lists" in gone
    run(*options, *remedy.split()[1:])

    other_server.postgres.kill()
    half = run(*options, "status", code=3)
    assert half.stdout.splitlines()[0].split("\t")[:2] == ["host", "tube"]
    assert half.stdout.splitlines()[1].split("\t")[:2] == ["one", "items"]
    assert half.stderr.startswith("host two was not read: Postgres is not available: ")
    metrics = run(*options, "status", "--prometheus")
    # It exits with 0: the textfile of a command that fails would not be replaced.
    assert 'pytube_fleet_postgres_up{host="one"} 1.0' in metrics.stdout
    assert 'pytube_fleet_postgres_up{host="two"} 0.0' in metrics.stdout
    assert 'pytube_fleet_parked_keys{host="one",partition="0",tube="items"} 0.0' in metrics.stdout
    found = {check.subject: check for check in examine(load(config_file))}
    assert found["host two: Postgres"].level is Level.FAIL
    assert found["shards"].finding == "not checked on two"


def test_each_host_gets_what_the_file_declares(config_file: Path) -> None:
    text = config_file.read_text()
    config_file.write_text(
        text.replace("[tube.items.sink]", "[tube.items]\npartitions = 2\n[tube.items.sink]")
    )
    options = ("--config", str(config_file))
    asked = run(*options, "apply", "--print", code=2)
    assert "give --host, one of one, two" in asked.stderr
    assert "items: applied\n" in run(*options, "apply", "--host", "two").stdout
    states = {
        host: run_json(*options, "plan", "--host", host)["tubes"][0]["state"] for host in ("one", "two")
    }
    assert states == {"one": "new", "two": "applied"}
    checks = {check["subject"]: check["level"] for check in run_json(*options, "doctor", code=1)}
    assert checks["host one: declared tube items"] == "fail"
    assert checks["host two: declared tube items"] == "ok"


async def test_a_shard_that_comes_to_a_second_host_is_told(
    config: Config, one: str, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SHARDS_INTERVAL", 0.01)
    make_tube(one, 0)
    make_tube(two, 1)
    with capture_logs() as logs:
        async with running(config, []) as worker:
            with connected(two) as conn:
                conn.execute("CREATE TABLE public.more (id bigint PRIMARY KEY)")
                conn.execute("SELECT tube_table_ensure_attached('items', 'public.more', 0)")
            told = "tube 'items' has shard 0 on host one and on host two"
            await wait_until_async(
                lambda: [line for line in logs if line["event"] == "shard_shared"], what="the log tells"
            )
            assert f"\n{told}, so " in (await ready(worker))[1]


# --- another configuration while one of them is down ------------------------------------------------


def edited(config_file: Path) -> Config:
    """The file, by which documents of the tube are other ones, and another tube is served."""
    more = f"""[tube.items.enrich]
        mode = "none"
        [tube.more.sink]
        type = "callable"
        target = "{__name__}:send"
        """
    config_file.write_text(f"{config_file.read_text()}\n{more}")
    return load(config_file)


async def came(host: str, tube: str, key: int, value: object) -> None:
    await wait_until_async(
        lambda: (host, tube, key, value) in values, what=f"{key} of {tube} on {host} comes as {value}"
    )


async def test_a_host_that_is_down_takes_up_a_changed_file_when_it_is_back(
    config: Config, config_file: Path, one: str, two: str, other_server: TestServer
) -> None:
    for tube in ("items", "more"):
        make_tube(one, 0, tube=tube)
        make_tube(two, 1, tube=tube)
    events: list[Event] = []
    async with running(config, events) as worker:
        insert(two, 1)
        await came("two", "items", 1, {"id": 1})
        await asyncio.to_thread(other_server.postgres.kill)
        try:
            await wait_until_async(lambda: of_host(events, "two", DatabaseDown), what="its outage is known")
            new = edited(config_file)
            waiting = {"two": ("items", "more")}
            assert await worker.take_up(new) == Changes(("more",), ("items",), (), waiting)
            for key in (2, 3):
                insert(one, key)
                await came("one", "items", key, None)
                insert(one, key, tube="more")
                await came("one", "more", key, {"id": key})
                assert await worker.take_up(new) == Changes((), (), (), waiting)
            assert of_host(events, "two", ConfigWaits) == [ConfigWaits(("items", "more"), host="two")]
        finally:
            await asyncio.to_thread(other_server.postgres.start)
        insert(two, 4)
        await came("two", "items", 4, {"id": 4})
        await wait_until_async(lambda: of_host(events, "two", DatabaseUp), what="its outage is over")
        assert await worker.take_up(new) == Changes((), ("items", "more"), ())
        insert(two, 5)
        await came("two", "items", 5, None)
        insert(two, 6, tube="more")
        await came("two", "more", 6, {"id": 6})
        insert(one, 7)
        await came("one", "items", 7, None)


async def test_a_host_that_is_back_and_refuses_the_file_continues_as_before(
    config: Config, config_file: Path, one: str, two: str, other_server: TestServer
) -> None:
    make_tube(one, 0)
    make_tube(two, 1)
    make_tube(one, 0, tube="more")
    events: list[Event] = []
    async with running(config, events) as worker:
        await asyncio.to_thread(other_server.postgres.kill)
        try:
            await wait_until_async(lambda: of_host(events, "two", DatabaseDown), what="its outage is known")
            new = edited(config_file)
            await worker.take_up(new)
        finally:
            await asyncio.to_thread(other_server.postgres.start)
        await wait_until_async(lambda: of_host(events, "two", DatabaseUp), what="its outage is over")
        refusal = "host two: there is no tube 'more'; create it with `pytube --host two tube create`"
        with pytest.raises(UnknownTube, match=refusal):
            await worker.take_up(new)
        assert worker.unserved(new, ()) == ["items", "more"]
        insert(two, 1)
        await came("two", "items", 1, {"id": 1})
        insert(one, 2)
        await came("one", "items", 2, None)
        make_tube(two, 1, tube="more")
        assert await worker.take_up(new) == Changes((), ("items", "more"), ())
        insert(two, 3)
        await came("two", "items", 3, None)


async def test_a_file_is_refused_while_all_hosts_are_down(
    config: Config, config_file: Path, two: str, other_server: TestServer
) -> None:
    """Nothing could be checked."""
    with other_server.database(installed=True) as three:
        hosts = {name: HostConfig(dsn=SecretStr(dsn)) for name, dsn in (("two", two), ("three", three))}
        postgres = config.postgres.model_copy(update={"hosts": hosts})
        make_tube(two, 0)
        make_tube(three, 1)
        events: list[Event] = []
        async with running(config.model_copy(update={"postgres": postgres}), events) as worker:
            insert(two, 1)
            await came("two", "items", 1, {"id": 1})
            await asyncio.to_thread(other_server.postgres.kill)
            try:
                await wait_until_async(
                    lambda: of_host(events, "two", DatabaseDown) and of_host(events, "three", DatabaseDown),
                    what="both outages are known",
                )
                new = edited(config_file).model_copy(update={"postgres": postgres})
                with pytest.raises(DatabaseUnavailable, match=r"host (two|three): Postgres is not available"):
                    await worker.take_up(new)
            finally:
                await asyncio.to_thread(other_server.postgres.start)
            insert(two, 2)
            await came("two", "items", 2, {"id": 2})
