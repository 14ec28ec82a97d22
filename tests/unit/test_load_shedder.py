"""What the load shedder asks and does: it looks only in trouble, leaves the tube, and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count, repeat
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from pytube.db.session import Queries
from pytube.errors import DatabaseUnavailable
from pytube.events import Event, LoadResumed, LoadShed
from pytube.sources import queries
from pytube.worker.database import Database
from pytube.worker.elections import Elections
from pytube.worker.metrics import SINK_NOT_OPEN, Reading, TubeMetrics
from pytube.worker.queues import Queue
from pytube.worker.shedding import LoadShedder
from tests.helpers.waiting import wait_until_async

ME, PEER = UUID(int=1), UUID(int=2)
WELL = Reading(UUID(int=7), None, 0, sink_is_up=True)
REFUSED = replace(SINK_NOT_OPEN, refused_at=float("inf"))


class Others(Queries):
    """The database, which shows our partition 0 and a peer's partition 1, whose pods go one by one."""

    def __init__(self) -> None:
        self.looks = 0
        self.first_seq: int | None = 10
        self.failures = 0

    async def rows(self, statement: str, arguments: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        assert statement == queries.PLACES
        assert arguments is not None
        self.looks += 1
        if self.failures:
            self.failures -= 1
            raise DatabaseUnavailable("gone")
        if self.first_seq is not None:
            self.first_seq += 1
        return [
            row
            for tube in arguments["tubes"]
            for row in ((tube, 0, ME, False, 60.0, 5), (tube, 1, PEER, True, 0.1, self.first_seq))
        ]


class Group:
    """Elections that can leave some tubes, whose names are letters."""

    def __init__(self, processes: int | None, *, leaves_all: bool) -> None:
        self.count = processes
        self.leaves_all = leaves_all

    def processes(self, tube: str) -> int | None:
        return self.count if tube == "t" or self.leaves_all else 1


class Away(set[str]):
    """The tubes that are left, and what became of each."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def add(self, tube: str) -> None:
        super().add(tube)
        self.said.append(f"give up {tube}")

    def discard(self, tube: object) -> None:
        super().discard(tube)
        self.said.append(f"come back {tube}")


class Fleet:
    """A shedder that cycles quickly, and what it is told."""

    def __init__(self, processes: int | None = 2, *, together: bool = False) -> None:
        self.others = Others()
        self.election = Group(processes, leaves_all=together)
        self.away = Away()
        self.metrics = {"t": TubeMetrics(), "u": TubeMetrics()}
        self.readings: dict[str, dict[int, Reading]] = {"t": {0: WELL}}
        self.cycles = 0
        self.events: list[Event] = []
        self.records: Iterator[int] = repeat(7)
        """Delivered of outboxes, as of each cycle."""

    def read(self) -> dict[str, dict[int, Reading]]:
        self.cycles += 1
        return self.readings

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        queues = {
            name: SimpleNamespace(kind="tube", metrics=metrics) for name, metrics in self.metrics.items()
        }
        shedder = LoadShedder(
            cast("Database", SimpleNamespace(pool=self.others, emit=self.events.append)),
            cast("Mapping[str, Queue]", queues),
            cast("Elections", self.election),
            self.away,
            ME,
            shed_after=0.012,
            shed_pause=0.05,
        )
        shedder.read = self.read  # type: ignore[method-assign]
        shedder._count_records = lambda: next(self.records)  # type: ignore[method-assign]
        task = asyncio.create_task(shedder.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def cycle(self, count: int) -> None:
        end = self.cycles + count
        await wait_until_async(lambda: self.cycles >= end, what=f"{count} cycles")


async def test_it_asks_nothing_while_all_is_well() -> None:
    fleet = Fleet()
    async with fleet.running():
        await fleet.cycle(20)
    assert fleet.others.looks == 0


async def test_a_worker_whose_sends_hang_leaves_the_tube_and_comes_back_later() -> None:
    fleet = Fleet()
    fleet.readings = {"t": {0: REFUSED}}
    async with fleet.running():
        await wait_until_async(lambda: fleet.events, what="it sheds")
        assert fleet.away.said == ["give up t"]
        assert (fleet.metrics["t"].sheds, fleet.away) == (1, {"t"})
        shed = fleet.events[0]
        assert isinstance(shed, LoadShed)
        assert (shed.tube, shed.partitions, shed.seconds) == ("t", (0,), 0.05)
        assert "takes documents of 1 other worker" in shed.reason
        fleet.readings = {}
        await wait_until_async(lambda: len(fleet.events) == 2, what="it comes back")
    assert fleet.events[1] == LoadResumed("t")
    assert fleet.away.said == ["give up t", "come back t"]
    assert not fleet.away


async def test_a_hand_over_that_takes_long_is_no_second_one() -> None:
    fleet = Fleet()
    fleet.readings = {"t": {0: REFUSED}}
    async with fleet.running():
        await wait_until_async(lambda: fleet.events, what="it sheds")
        await wait_until_async(lambda: len(fleet.events) > 1, what="it comes back")
    assert fleet.events[1] == LoadResumed("t")


async def test_the_only_worker_asks_nothing() -> None:
    fleet = Fleet(processes=1)
    fleet.readings = {"t": {0: REFUSED}}
    async with fleet.running():
        await fleet.cycle(20)
    assert fleet.others.looks == 0


async def test_what_can_t_be_seen_sheds_nothing_and_is_looked_at_again() -> None:
    fleet = Fleet()
    fleet.others.failures = 3
    fleet.readings = {"t": {0: REFUSED}}
    async with fleet.running():
        await wait_until_async(lambda: fleet.others.looks == 3, what="three looks fail")
        assert not fleet.events
        await wait_until_async(lambda: fleet.events, what="the next ones tell")


async def test_tubes_of_one_group_are_left_together() -> None:
    """The other one delivers nothing, so that nothing is lost by moving it."""
    fleet = Fleet(None, together=True)
    fleet.readings = {"t": {0: REFUSED}, "u": {3: WELL}}
    async with fleet.running():
        await wait_until_async(lambda: len(fleet.events) > 3, what="it sheds and comes back")
    shed, other = fleet.events[:2]
    assert isinstance(shed, LoadShed)
    assert isinstance(other, LoadShed)
    assert (other.tube, other.partitions, other.seconds) == ("u", (3,), shed.seconds)
    assert other.reason == f"all tubes share one consumer group, and of tube 't' {shed.reason}"
    assert fleet.events[2:4] == [LoadResumed("t"), LoadResumed("u")]
    assert fleet.away.said[:4] == ["give up t", "give up u", "come back t", "come back u"]


async def test_a_tube_that_delivers_keeps_the_others_of_its_group() -> None:
    fleet = Fleet(None, together=True)

    def read() -> dict[str, dict[int, Reading]]:
        fleet.cycles += 1
        return {
            "t": {0: REFUSED},
            "u": {0: Reading(WELL.term, None, documents=fleet.cycles, sink_is_up=True)},
        }

    fleet.read = read  # type: ignore[method-assign]
    async with fleet.running():
        await wait_until_async(lambda: fleet.others.looks > 5, what="it looks several times")
    assert fleet.events == []


async def test_an_outbox_that_delivers_keeps_the_tubes_of_its_group() -> None:
    """It would be left with them."""
    fleet = Fleet(None, together=True)
    fleet.records = count()
    fleet.readings = {"t": {0: REFUSED}, "u": {}}
    async with fleet.running():
        await fleet.cycle(20)
        assert fleet.events == []
        fleet.records = repeat(0)
        await wait_until_async(lambda: fleet.events, what="it sheds")
