"""A worker without its servers: what it tells of, and what of one partition does not touch the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from pytube.config import Config, load, parse
from pytube.election.base import Claim
from pytube.election.lease import LeaseElection
from pytube.errors import ConfigError, DatabaseUnavailable
from pytube.events import Event, LeaderAcquired, MeterRead, SinkDown, WorkerStandsBy
from pytube.worker import Worker
from pytube.worker import host as module
from pytube.worker.active_term import ActiveTerm
from pytube.worker.elections import ALL
from pytube.worker.host import Host
from pytube.worker.leadership import Leadership
from pytube.worker.metrics import SINK_NOT_OPEN, View, collect
from tests.helpers.logs import capture_logs
from tests.helpers.waiting import wait_until_async
from tests.unit.fakes import FakeClaim

CONFIG = """
[postgres]
dsn = "postgresql://nobody@127.0.0.1:1/none"
[worker]
client_id = "the name of both"
meter_interval = 0.001
[tube.t.sink]
type = "jsonl"
path = "sink.jsonl"
[tube.u.sink]
type = "jsonl"
path = "other.jsonl"
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "pytube.toml"
    path.write_text(CONFIG)
    return load(path)


def reading(tube: str, partition: int, pods: int = 0) -> MeterRead:
    return MeterRead(
        tube,
        partition,
        interval=1.0,
        pods=pods,
        touches=0,
        documents=0,
        skipped=0,
        parked=0,
        waiting=0,
        in_flight=0,
        lag=0.0,
    )


def working(*readings: MeterRead | None) -> ActiveTerm:
    """A term whose worker gives these readings, and then none."""
    left = list(readings)
    worker = SimpleNamespace(read_metrics=lambda: left.pop(0) if left else None)
    return cast("ActiveTerm", SimpleNamespace(worker=worker, is_resting=False))


def idle() -> ActiveTerm:
    """A term that marks nothing yet."""
    return cast("ActiveTerm", SimpleNamespace(worker=None, is_resting=False))


@asynccontextmanager
async def service(work: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_two_workers_of_one_name_are_two_instances(config: Config) -> None:
    """All that the database and the election tell them apart by is theirs alone."""
    candidates = [Worker(config)._hosts[0].queues["t"].candidate for _ in range(2)]
    assert candidates[0].client_id == candidates[1].client_id == "the name of both"
    assert candidates[0].instance_id != candidates[1].instance_id


async def test_all_tubes_of_a_worker_are_one_instance(config: Config) -> None:
    queues = Worker(config)._hosts[0].queues.values()
    assert len({queue.candidate.instance_id for queue in queues}) == 1


async def test_all_tubes_of_a_worker_share_one_election_by_leases(config: Config) -> None:
    (host,) = Worker(config)._hosts
    assert host._elections.are_shared
    assert sorted(host.queues) == ["t", "u"]


async def test_a_worker_without_a_tube_is_refused(config: Config) -> None:
    with pytest.raises(ConfigError, match="nothing is configured to be served"):
        Worker(config, tubes=[])


async def test_the_process_reads_the_metrics_of_all_partitions_that_it_works_on(config: Config) -> None:
    events: list[Event] = []
    worker = Worker(config, on_event=events.append)
    expected = [reading("t", 0, pods=3), reading("u", 2), reading("t", 0)]
    worker._hosts[0].database.terms |= {
        ("t", 0): working(expected[0], expected[2]),
        ("t", 1): idle(),
        ("u", 2): working(expected[1]),
    }
    async with service(worker._read_metrics()):
        await wait_until_async(lambda: len(events) >= 3, what="all are read")
    assert events == expected, "a partition that has nothing to tell is told of"
    assert worker.leads("t") == {0}


async def test_readings_of_idle_partitions_are_no_noise_in_the_log(config: Config) -> None:
    worker = Worker(config)
    with capture_logs() as logs:
        worker._emit(reading("t", 0))
        worker._emit(reading("t", 0, pods=1))
        worker._emit(SinkDown("t", 0, "no answer"))
    assert [line["log_level"] for line in logs] == ["debug", "info", "warning"]
    assert [line["event"] for line in logs] == ["meter_read", "meter_read", "sink_down"]


async def test_a_callback_that_fails_is_logged_and_called_again(config: Config) -> None:
    calls: list[Event] = []

    def fail(event: Event) -> None:
        calls.append(event)
        raise ValueError("a fault of the caller's")

    worker = Worker(config, on_event=fail)
    with capture_logs() as logs:
        for _ in range(2):
            worker._emit(LeaderAcquired("t", 0, uuid4(), 1, waited=0.0))
    assert len(calls) == 2
    assert [line["event"] for line in logs if line["log_level"] == "error"] == []
    assert [(line["event"], line["call"], line["reason"]) for line in logs if "error" in line] == [
        ("user_code_raised", "on_event", "ValueError: a fault of the caller's")
    ], "the same fault is logged once a minute"


def led(host: Host) -> list[Claim]:
    return list(host._leading.values())


async def test_a_fault_in_one_partition_is_logged_and_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch, config: Config
) -> None:
    (host,), claims = Worker(config)._hosts, [FakeClaim("t", 1), FakeClaim("t", 2)]

    async def run(leadership: Leadership) -> None:
        if leadership._claim is claims[0]:
            raise ValueError("a fault of ours")
        await claims[1].wait_until_withdrawn()

    monkeypatch.setattr(Leadership, "run", run)
    with capture_logs() as logs:
        for claim in claims:
            host._elections.claims.put_nowait(claim)
        async with service(host._take_claims()):
            await wait_until_async(
                lambda: host._elections.claims.empty() and led(host) == claims[1:], what="one has ended"
            )
    assert [(line["event"], line["partition"]) for line in logs] == [("leading_failed", 1)]
    claims[1].revoke()
    await wait_until_async(lambda: not host._leading, what="the other has ended in order")


async def test_no_term_begins_of_a_tube_that_is_being_replaced_or_is_not_served(config: Config) -> None:
    """The election offers its claim again."""
    (host,), claims = Worker(config)._hosts, [FakeClaim("t", 1), FakeClaim("none", 0)]
    host._held.add("t")
    for claim in claims:
        host._elections.claims.put_nowait(claim)
    async with service(host._take_claims()):
        await wait_until_async(lambda: all(one.is_handed_over for one in claims), what="they are handed over")
    assert not led(host)


async def test_a_tube_that_is_dropped_is_told_of_once_and_served_again_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch, config: Config
) -> None:
    answers: list[Exception | dict[str, int]] = [
        {"t": 4, "u": 1},
        {"t": 4},
        DatabaseUnavailable("down"),
        {"t": 8},
        {"t": 8, "u": 2},
    ]
    seen: list[tuple[int, int]] = []

    async def read_partitions(_pool: object, tubes: list[str]) -> dict[str, int]:
        assert tubes == ["t", "u"]
        seen.append((host.queues["t"].partitions, host.queues["u"].partitions))
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "read_partitions", read_partitions)
    monkeypatch.setattr(module, "_PARTITIONS_INTERVAL", 0.001)
    (host,) = Worker(config)._hosts
    with capture_logs() as logs:
        async with service(host._follow_partitions()):
            await wait_until_async(lambda: len(seen) > 5, what="the partitions are followed")
    assert seen[:6] == [(0, 0), (4, 1), (4, 0), (4, 0), (8, 0), (8, 2)]
    of_tubes = [line for line in logs if line["event"] != "election_not_joined"]  # there is no server here
    assert [(line["event"], line["tube"]) for line in of_tubes] == [("tube_dropped", "u")]


async def test_a_worker_that_leads_nothing_of_a_tube_says_so_once(
    monkeypatch: pytest.MonkeyPatch, config: Config
) -> None:
    async def read_partitions(_pool: object, tubes: list[str]) -> dict[str, int]:
        return dict.fromkeys(tubes, 3)

    monkeypatch.setattr(module, "read_partitions", read_partitions)
    monkeypatch.setattr(module, "_PARTITIONS_INTERVAL", 0.001)
    monkeypatch.setattr(module, "_STANDBY", 0.01)
    events: list[Event] = []
    (host,) = Worker(config, on_event=events.append)._hosts
    future: asyncio.Future[None] = asyncio.Future()
    leading = cast("dict[asyncio.Future[None], Claim]", host._leading)
    leading[future] = FakeClaim("t", 0)
    async with service(host._follow_partitions()):
        await wait_until_async(lambda: events, what="it is told of the other tube")
        del leading[future]
        await wait_until_async(lambda: len(events) > 1, what="it is told of the first tube")
        leading[future] = FakeClaim("u", 1)
        host.database.terms["u", 1] = working()
        await wait_until_async(lambda: "u" not in host._standing_by, what="it leads again")
        del leading[future], host.database.terms["u", 1]
        await wait_until_async(lambda: len(events) > 2, what="it is told again")
    assert events == [WorkerStandsBy("u", 3), WorkerStandsBy("t", 3), WorkerStandsBy("u", 3)]


SEVERAL = """
    [postgres.hosts.one]
    dsn = "host=127.0.0.1 port=1"
    [postgres.hosts.two]
    dsn = "host=127.0.0.1 port=2"
    [kafka]
    bootstrap_servers = "127.0.0.1:1"
    [worker]
    election = "lease"
    partitions = 7
    [tube.t.sink]
    type = "jsonl"
    path = "-"
    requests = 3
    [outbox.o]
"""


async def test_hosts_shed_by_themselves_and_share_the_limits_of_sinks_and_claims() -> None:
    """An outbox is led like a tube, and is not left to others."""
    one, two = Worker(parse(SEVERAL, environment={}))._hosts
    assert one._shedder is not None
    assert one._shedder is not two._shedder
    assert one._shedder._health.keys() == {"t"}, "an outbox is not judged"
    tubes = [host.tubes()["t"] for host in (one, two)]
    assert tubes[0].gate is tubes[1].gate
    assert tubes[0].metrics is not tubes[1].metrics
    elections = [host._elections._unjoined[ALL] for host in (one, two)]
    assert isinstance(elections[0], LeaseElection)
    assert isinstance(elections[1], LeaseElection)
    assert elections[0]._room is elections[1]._room
    assert set(elections[0]._wanted) == {"t", "o"}, "its partitions count"
    two.database.terms["t", 1] = idle()
    assert two._shedder is not None
    assert (one._shedder.read(), two._shedder.read()) == ({}, {"t": {1: SINK_NOT_OPEN}})


async def test_what_a_host_sheds_is_told_of_that_host_and_its_sinks_once() -> None:
    hosts = Worker(parse(SEVERAL, environment={}))._hosts
    hosts[1].away.add("t")
    hosts[1].tubes()["t"].metrics.sheds = 2
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in collect(View(hosts, {"client_id": "w", "election": "lease"}, lambda: True))
        if metric is not None
        for sample in metric.samples
    }
    assert samples["pytube_load_away", "one", "t"] == 0
    assert samples["pytube_load_away", "two", "t"] == 1
    assert samples["pytube_load_sheds_total", "two", "t"] == 2
    assert samples["pytube_sink_requests", "t"] == 0
    limits = [samples[f"pytube_sink_{name}", "t"] for name in ("requests_limit", "batch_limit", "slow")]
    assert limits == [3, 10, 0], "a slow start, within `requests`"
