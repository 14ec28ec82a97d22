"""Waits, after the last fault, until all is led and delivered; waiting without progress is a violation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import psutil
import psycopg

from tests.crash.chaos import outboxes, reader
from tests.crash.chaos.arena import Arena
from tests.crash.chaos.crew import NAMES, Crew
from tests.crash.chaos.invariants import Invariant, Stopped, Violation
from tests.crash.chaos.outboxes import OUTBOXES
from tests.crash.chaos.records import Call
from tests.crash.chaos.sink import calls_of
from tests.crash.chaos.source import TUBES

LED_LIMIT = 45.0
"""Seconds within which one more partition is led again after the last fault."""

DRAIN_LIMIT = 60.0
"""Seconds within which less is left than ever before, after that and without load."""

_LOOK = 0.5

Conn = psycopg.Connection[Any]


class Quiet:
    """Waits for one run."""

    def __init__(self, arena: Arena, crew: Crew, tick: Callable[[], None]) -> None:
        """`tick` lets some time pass."""
        self._arena = arena
        self._crew = crew
        self._tick = tick

    def until_led(self, limit: float = LED_LIMIT) -> float:
        """Seconds until each partition had a leader at work. Raises `Stopped` after `limit` idle seconds."""
        return self._wait(self._unled, limit, "not each partition is led")

    def until_drained(self, limit: float = DRAIN_LIMIT) -> float:
        """Seconds until no touch was left and no call under way. Raises `Stopped` as above."""
        return self._wait(self._undelivered, limit, "the tubes and outboxes are not empty")

    def _wait(self, left: Callable[[Conn], int], limit: float, trouble: str) -> float:
        """Until nothing is `left`; `limit` counts from the last time it fell, since machines may be busy."""
        began = fell = time.monotonic()
        looked = 0.0
        least: float = math.inf
        while True:
            self._tick()
            if time.monotonic() - looked > _LOOK:
                looked = time.monotonic()
                with self._arena.connect() as connection:
                    now = left(connection)
                if now == 0:
                    return time.monotonic() - began
                if now < least:
                    least, fell = now, looked
            if time.monotonic() - fell > limit:
                raise Stopped(Violation(Invariant.LED, f"{trouble} after {limit:g} s: {self._state()}"))

    def _unled(self, connection: Conn) -> int:
        """Partitions without a leader that has just renewed its term and has said that it works."""
        unled = 0
        for name in NAMES:
            rows = connection.execute(
                "SELECT leader_id::text FROM tube_leaders(%s)"
                " WHERE renewed_at > clock_timestamp() - interval '2 seconds'",
                (name,),
            ).fetchall()
            wanted = connection.execute(
                "SELECT partitions FROM tube_registry WHERE tube = %s", (name,)
            ).fetchone()
            working = [row for row in rows if row[0] in self._crew.told[name]]
            unled += 1 if wanted is None else abs(wanted[0] - len(working))
        return unled

    def _undelivered(self, connection: Conn) -> int:
        """Touches, records and calls under way."""
        left = outboxes.left(connection)
        for tube in TUBES:
            count = connection.execute(f"SELECT count(*) FROM tube.{tube.name}").fetchone()
            calls = reader.read_calls(calls_of(tube.name, self._arena.journals))
            left += (count or (0,))[0]
            left += sum(map(is_under_way, calls))
        return left

    def _state(self) -> str:
        """What there is to see when a wait was in vain."""
        with self._arena.connect() as connection:
            leaders = connection.execute(
                "SELECT tube, partitions, partition, client_id, epoch, clock_timestamp() - renewed_at"
                " FROM tube_leaders()"
            ).fetchall()
            left = [
                connection.execute(f"SELECT count(*), min(seq) FROM tube.{tube.name}").fetchone()
                for tube in TUBES
            ]
            records = {
                outbox.name: connection.execute(outboxes.LEFT.format(outbox.table)).fetchone()
                for outbox in OUTBOXES
            }
        shown = [tuple(map(str, row)) for row in leaders]
        return f"leaders {shown}, pods left {left}, records left {records}"


def is_under_way(call: Call) -> bool:
    """Whether the process that made the call may still end it, and no other one has its pid by now."""
    try:
        return call.ended is None and psutil.Process(call.pid).create_time() <= call.began
    except psutil.NoSuchProcess:
        return False
