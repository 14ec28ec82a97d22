"""Outboxes get other numbers of partitions under load, while workers are killed: what a consumer finds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytube import admin, faults
from pytube.embedded.kafka_real import RealKafka
from pytube.faults import Point
from pytube.outbox.admin import Outboxes as Admin
from tests.crash.outbox_judge import MODES, TRANSACTIONS
from tests.crash.outboxes import Load, Outboxes, was_overdue
from tests.helpers.armed import VARIABLE, Action
from tests.helpers.outbox import check_exactly_once


@pytest.fixture
def outboxes(dsn: str, tmp_path: Path, kafka_real: RealKafka) -> Iterator[Outboxes]:
    with Outboxes(dsn, tmp_path, kafka_real.bootstrap) as outboxes:
        yield outboxes


def repartition(outboxes: Outboxes, partitions: int) -> None:
    """As `pytube outbox create NAME --partitions N` does."""
    with outboxes.connect() as connection:
        for mode in MODES:
            Admin(connection).create(mode, partitions)


@pytest.mark.soak
def test_workers_are_killed_while_it_is_repartitioned(outboxes: Outboxes) -> None:
    """One dies between a commit at Kafka and its purge, right before; the other one right after.

    `make test` has each of both alone: workers that die there in test_outbox_points.py, a repartition below.
    """
    outboxes.start(1)
    with Load(outboxes, pause=0.2):
        outboxes.go_on("the start")
        outboxes.start(2, **{VARIABLE: f"{Point.AFTER_COMMIT}:{Action.KILL}:5"})
        outboxes.wait_until_struck(2, Action.KILL)
        repartition(outboxes, 5)
        outboxes.kill(1)
        outboxes.start(1)
        outboxes.start(2)
        outboxes.go_on("the repartition")
    outboxes.wait_until_drained()
    outboxes.terminate()
    assert outboxes.judge() == dict.fromkeys(MODES, 0), "a process that is gone sends nothing"


async def test_what_is_paused_meanwhile_repeats_nothing(
    outboxes: Outboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction is just committed and not purged: a repartition right now would repeat it."""
    committed, goes_on = asyncio.Event(), asyncio.Event()

    async def hold(point: Point) -> None:
        if point is Point.AFTER_COMMIT:
            committed.set()
            await goes_on.wait()

    monkeypatch.setattr(faults, "handler", hold)
    with outboxes.connect() as connection:
        for mode in MODES:
            outboxes.stash(connection, mode, [f"key-{number % 9}" for number in range(90)])
        async with outboxes.running() as events:
            await committed.wait()
            for mode in MODES:
                admin.pause(connection, mode)
            goes_on.set()
            for mode in MODES:
                assert not await asyncio.to_thread(admin.wait_until_halted, connection, mode), "it rests"
            repartition(outboxes, 5)
            for mode in MODES:
                outboxes.stash(connection, mode, [f"key-{number % 9}" for number in range(90)])
                admin.resume(connection, mode)
            await asyncio.to_thread(outboxes.wait_until_drained)
    assert outboxes.judge(events=events) == dict.fromkeys(MODES, 0), "one worker alone sends nothing late"
    for mode in MODES:
        # What a broker does not acknowledge in time, on a busy machine, is sent again.
        if mode == TRANSACTIONS or not was_overdue(mode, events):
            check_exactly_once(outboxes.read(mode))
