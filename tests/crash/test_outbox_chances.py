"""Deliveries and calls of the database fail by chance: all arrives, and each mode keeps its promise."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.embedded.kafka_real import RealKafka
from pytube.events import LeaderAcquired
from tests.crash.chance import (
    OF_CALLS,
    OF_RECORDS,
    OF_TRANSACTIONS,
    Chance,
    database_calls_fail,
    deliveries_fail,
)
from tests.crash.outbox_judge import MODES
from tests.crash.outboxes import Outboxes


@pytest.fixture
def outboxes(dsn: str, tmp_path: Path, kafka_real: RealKafka) -> Iterator[Outboxes]:
    with Outboxes(dsn, tmp_path, kafka_real.bootstrap) as outboxes:
        yield outboxes


def stash(outboxes: Outboxes, connection: psycopg.Connection[Any], records: int) -> None:
    for mode in MODES:
        outboxes.stash(connection, mode, [f"key-{number % 9}" for number in range(records)])


def until_all_have_struck(
    outboxes: Outboxes, records: int, failures: Chance, ways: Sequence[str], times: int = 1
) -> None:
    """Records are delivered, and more until each way to fail has struck so often."""
    with outboxes.connect() as connection:
        stash(outboxes, connection, records)

        def have_struck() -> bool:
            if all(failures.counts[way] >= times for way in ways):
                return True
            if not any(outboxes.waiting(mode) for mode in MODES):
                stash(outboxes, connection, 9)
            return False

        outboxes.wait_until(have_struck, "each way to fail has struck")
    outboxes.wait_until_drained()


@pytest.mark.parametrize(
    ("rate", "records", "ways"),
    [(0.02, 200, OF_RECORDS), (0.2, 40, (*OF_RECORDS, *OF_TRANSACTIONS))],
    ids=["2 %", "20 %"],
)
async def test_deliveries_fail(
    outboxes: Outboxes, monkeypatch: pytest.MonkeyPatch, rate: float, records: int, ways: Sequence[str]
) -> None:
    failures = deliveries_fail(monkeypatch, rate)
    async with outboxes.running() as events:
        await asyncio.to_thread(until_all_have_struck, outboxes, records, failures, ways)
    assert outboxes.judge() == dict.fromkeys(MODES, 0), "nobody but the leader sends"
    terms = [event for event in events if isinstance(event, LeaderAcquired)]
    assert len(terms) == 2 * len(MODES), "a term outlives what fails"


async def test_database_calls_fail(outboxes: Outboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = database_calls_fail(monkeypatch, 0.02)
    async with outboxes.running():
        await asyncio.to_thread(until_all_have_struck, outboxes, 200, failures, OF_CALLS, times=4)
    assert outboxes.judge() == dict.fromkeys(MODES, 0), "nobody but the leader sends"
