"""The servers of outboxes go away under load and come back: workers go on by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytube.embedded.kafka_real import RealKafka
from pytube.embedded.postgres import Postgres
from pytube.events import SinkDown, SinkUp
from tests.crash.outboxes import MODES, Load, Outboxes
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
        with Load(outboxes):
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
    assert outboxes.judge() == dict.fromkeys(MODES, 0)


async def test_postgres_is_killed_and_restarted(outboxes: Outboxes, postgres: Postgres) -> None:
    async with outboxes.running():
        with Load(outboxes):
            await asyncio.to_thread(outboxes.go_on, "the start")
            await asyncio.to_thread(postgres.kill)
            await asyncio.to_thread(postgres.start)
            await asyncio.to_thread(outboxes.go_on, "the kill")
            await asyncio.to_thread(postgres.stop, "fast")
            await asyncio.to_thread(postgres.start)
            await asyncio.to_thread(outboxes.go_on, "the restart")
        await asyncio.to_thread(outboxes.wait_until_drained)
    assert outboxes.judge() == dict.fromkeys(MODES, 0)
