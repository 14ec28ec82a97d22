"""What the heartbeats at Kafka and the leaders in the database disagree about, moment by moment."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from pytube.health.disagreements import disagreements
from pytube.health.fleet import FleetSample, HostSample, Partition, Queue
from pytube.health.heartbeats import Beat, Heard

TERM = UUID(int=1)
DEADLINE = 5.0
LED = Partition(
    kind="tube",
    name="t",
    partition=0,
    waiting=0,
    backfill=0,
    lag=None,
    backfill_lag=None,
    inserted=0,
    deleted=0,
    leader="a",
    leader_id=TERM,
    instance_id=UUID(int=2),
    election="neli",
    epoch=7,
    leads_for=1000.0,
    renewed_ago=0.1,
    state="leads",
    sink_down=None,
    sink_down_for=None,
    source_down=None,
    source_down_for=None,
    paused=None,
    paused_kind=None,
    paused_for=None,
)


def said(
    read_at: float, at: float, last_at: float | None, *, since: float = 0.0, until: float | None = None
) -> list[str]:
    """What is said of heartbeats: of a term that was heard last then, by a database that was read then.

    `until`: when the broker answered last, by default at the end.
    """
    beats = [] if last_at is None else [Beat("a", TERM, 7, since, last_at)]
    heard = Heard(
        at,
        DEADLINE,
        beats={("topic", 0): beats},
        places={("t", 0): ("topic", 0)},
        since={"topic": since},
        until=at if until is None else until,
    )
    host = HostSample(None, [replace(LED)], read_at=read_at, heard=heard)
    sample = FleetSample(datetime.now(UTC), [host], [Queue("tube", "t", [LED])])
    return [one.finding for one in disagreements(sample, "1") if "heartbeat" in one.finding]


@pytest.mark.parametrize(
    ("last_at", "is_silent"), [(99.9, False), (95.5, False), (94.0, True), (None, True), (120.0, False)]
)
def test_a_leader_is_silent_after_the_deadline(last_at: float | None, is_silent: bool) -> None:
    found = said(100.0, 120.2, last_at)
    assert [line.split(", and ")[1].split(" at ")[0] for line in found] == (
        ["no heartbeat of it is heard"] if is_silent else []
    )


def test_a_leader_that_was_released_after_the_database_was_read_is_not_silent() -> None:
    """A large fleet is read anew only after a while."""
    assert said(100.0, 120.0, 101.0) == []


@pytest.mark.parametrize(("until", "is_silent"), [(94.9, False), (99.5, True)])
def test_a_leader_is_not_silent_when_it_is_we_who_do_not_reach_the_broker(
    until: float, *, is_silent: bool
) -> None:
    assert bool(said(100.0, 120.0, 90.0, until=until)) is is_silent


def test_who_was_not_listened_to_for_long_is_not_silent() -> None:
    assert said(100.0, 120.0, None, since=96.0) == []
