"""The servers of outboxes go away under load and come back: workers go on by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytube import faults
from pytube.embedded.kafka_real import RealKafka
from pytube.embedded.postgres import Postgres
from pytube.errors import DatabaseUnavailable
from pytube.events import LeaderAcquired, SinkDown, SinkUp
from pytube.faults import Point
from tests.crash.outbox_judge import MODES, TRANSACTIONS
from tests.crash.outboxes import Load, Outboxes
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.waiting import wait_until_async


@pytest.fixture
def outboxes(dsn: str, tmp_path: Path, kafka_real: RealKafka) -> Iterator[Outboxes]:
    with Outboxes(dsn, tmp_path, kafka_real.bootstrap) as outboxes:
        yield outboxes


async def test_the_broker_is_out_of_reach_for_longer_than_a_record_may_take_and_then_killed(
    outboxes: Outboxes, kafka_real: RealKafka, kafka_proxy: Proxy
) -> None:
    async with outboxes.running(kafka_proxy.address) as events:
        with Load(outboxes, pause=0.2):
            await asyncio.to_thread(outboxes.go_on, "the start")
            kafka_proxy.switch(Mode.HALF_OPEN)
            await wait_until_async(
                lambda: {event.tube for event in events if isinstance(event, SinkDown)} == set(MODES),
                what="all tell that no broker answers",
            )
            kafka_proxy.switch(Mode.PASS)
            await asyncio.to_thread(outboxes.go_on, "the network is back")
            await asyncio.to_thread(kafka_real.kill)
            await asyncio.to_thread(kafka_real.start)
            await asyncio.to_thread(outboxes.go_on, "the broker is back")
        await asyncio.to_thread(outboxes.wait_until_drained)
    assert any(isinstance(event, SinkUp) for event in events)
    assert outboxes.judge(events=events) == dict.fromkeys(MODES, 0)


async def test_postgres_is_killed_and_restarted(outboxes: Outboxes, postgres: Postgres) -> None:
    async with outboxes.running():
        with Load(outboxes):
            await asyncio.to_thread(outboxes.go_on, "the start")
            await asyncio.to_thread(postgres.kill)
            await asyncio.to_thread(postgres.start)
            await asyncio.to_thread(outboxes.go_on, "the kill")
            await asyncio.to_thread(postgres.stop)
            await asyncio.to_thread(postgres.start)
            await asyncio.to_thread(outboxes.go_on, "the restart")
        await asyncio.to_thread(outboxes.wait_until_drained)
    assert outboxes.judge() == dict.fromkeys(MODES, 0)


async def test_a_session_is_lost_between_a_commit_and_its_purge(
    outboxes: Outboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The term is given back in order, although it has left records at Kafka that it has not purged."""
    lost = asyncio.Event()

    async def lose(point: Point) -> None:
        if point is Point.BEFORE_PURGE and not lost.is_set():
            lost.set()
            raise DatabaseUnavailable("the session was lost")

    monkeypatch.setattr(faults, "handler", lose)
    with outboxes.connect() as connection:
        outboxes.stash(connection, TRANSACTIONS, [f"key-{number % 9}" for number in range(90)])
    async with outboxes.running() as events:
        await lost.wait()
        await asyncio.to_thread(outboxes.wait_until_drained)
    terms = [one for one in events if isinstance(one, LeaderAcquired) and one.tube == TRANSACTIONS]
    assert len(terms) == 3, "of two partitions, and one more"
    assert outboxes.judge() == dict.fromkeys(MODES, 0)
