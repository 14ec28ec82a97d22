"""A worker without its servers: what it tells of, and what of one partition does not touch the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from pytube.config import Config, load
from pytube.errors import ConfigError, DatabaseUnavailable
from pytube.events import Event, LeaderAcquired, MeterRead, SinkDown, WorkerStandsBy
from pytube.worker import Worker
from pytube.worker import worker as module
from pytube.worker.leadership import Leadership
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


def working(*readings: MeterRead | None) -> Leadership:
    """A leadership whose worker gives these readings, and then none."""
    left = list(readings)
    worker = SimpleNamespace(read_metrics=lambda: left.pop(0) if left else None)
    return cast("Leadership", SimpleNamespace(partition_worker=worker))


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
    candidates = [Worker(config)._tubes["t"].candidate for _ in range(2)]
    assert candidates[0].client_id == candidates[1].client_id == "the name of both"
    assert candidates[0].instance_id != candidates[1].instance_id


async def test_all_tubes_of_a_worker_are_one_instance(config: Config) -> None:
    tubes = Worker(config)._tubes.values()
    assert len({tube.candidate.instance_id for tube in tubes}) == 1


async def test_all_tubes_of_a_worker_share_one_election_by_leases(config: Config) -> None:
    worker = Worker(config)
    assert len(worker._elections) == 1
    assert sorted(worker._tubes) == ["t", "u"]


async def test_a_worker_without_a_tube_is_refused(config: Config) -> None:
    with pytest.raises(ConfigError, match="no tube is configured"):
        Worker(config, tubes=[])


async def test_the_process_reads_the_metrics_of_all_partitions_that_it_works_on(config: Config) -> None:
    events: list[Event] = []
    worker = Worker(config, on_event=events.append)
    idle = cast("Leadership", SimpleNamespace(partition_worker=None))
    expected = [reading("t", 0, pods=3), reading("u", 2), reading("t", 0)]
    worker._leaderships |= {
        ("t", 0): working(expected[0], expected[2]),
        ("t", 1): idle,
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


async def test_a_fault_in_one_partition_is_logged_and_leaves_the_next_leadership_alone(
    config: Config,
) -> None:
    worker, claim = Worker(config), FakeClaim("t", 1)

    async def fail() -> None:
        raise ValueError("a fault of ours")

    failing = cast("Leadership", SimpleNamespace(run=fail, partition_worker=None))
    worker._leaderships["t", 1] = failing
    with capture_logs() as logs:
        await worker._lead(failing, claim)
    assert worker._leaderships == {}
    assert [(line["event"], line["partition"]) for line in logs] == [("leading_failed", 1)]
    worker._leaderships["t", 1] = current = working()
    with capture_logs():
        await worker._lead(failing, claim)
    assert worker._leaderships == {("t", 1): current}, "the claim was granted again meanwhile"


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
        seen.append((worker._tubes["t"].partitions, worker._tubes["u"].partitions))
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "read_partitions", read_partitions)
    monkeypatch.setattr(module, "_PARTITIONS_INTERVAL", 0.001)
    worker = Worker(config)
    with capture_logs() as logs:
        async with service(worker._follow_partitions()):
            await wait_until_async(lambda: len(seen) > 5, what="the partitions are followed")
    assert seen[:6] == [(0, 0), (4, 1), (4, 0), (4, 0), (8, 0), (8, 2)]
    assert [(line["event"], line["tube"]) for line in logs] == [("tube_dropped", "u")]


async def test_a_worker_that_leads_nothing_of_a_tube_says_so_once(
    monkeypatch: pytest.MonkeyPatch, config: Config
) -> None:
    async def read_partitions(_pool: object, tubes: list[str]) -> dict[str, int]:
        return dict.fromkeys(tubes, 3)

    monkeypatch.setattr(module, "read_partitions", read_partitions)
    monkeypatch.setattr(module, "_PARTITIONS_INTERVAL", 0.001)
    monkeypatch.setattr(module, "_STANDBY", 0.01)
    events: list[Event] = []
    worker = Worker(config, on_event=events.append)
    worker._leaderships["t", 0] = working()
    async with service(worker._follow_partitions()):
        await wait_until_async(lambda: events, what="it is told of the other tube")
        del worker._leaderships["t", 0]
        await wait_until_async(lambda: len(events) > 1, what="it is told of the first tube")
        worker._leaderships["u", 1] = working()
        await wait_until_async(lambda: "u" not in worker._standing_by, what="it leads again")
        del worker._leaderships["u", 1]
        await wait_until_async(lambda: len(events) > 2, what="it is told again")
    assert events == [WorkerStandsBy("u", 3), WorkerStandsBy("t", 3), WorkerStandsBy("u", 3)]


async def test_a_take_over_of_many_partitions_is_gradual(config: Config) -> None:
    """A second's worth at once, then one by one; a claim that is over is not waited for."""
    worker = Worker(config.model_copy(update={"worker": config.worker.model_copy(update={"claims": 2.0})}))
    began = time.monotonic()
    for _ in range(3):
        await worker._wait_for_turn(FakeClaim())
    assert time.monotonic() - began >= 0.49
    over = FakeClaim()
    over.lose()
    await asyncio.wait_for(worker._wait_for_turn(over), 0.4)
