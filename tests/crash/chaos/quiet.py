"""Waits, after the last fault, until all is led and delivered; waiting too long is a violation."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import psycopg

from tests.crash.chaos import outboxes, reader
from tests.crash.chaos.arena import Arena
from tests.crash.chaos.crew import NAMES, Crew
from tests.crash.chaos.invariants import Invariant, Stopped, Violation
from tests.crash.chaos.outboxes import OUTBOXES
from tests.crash.chaos.sink import calls_of
from tests.crash.chaos.source import TUBES

LED_LIMIT = 45.0
"""Seconds within which each partition is led again after the last fault."""

DRAIN_LIMIT = 60.0
"""Seconds within which nothing is left after that, without load."""

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
        """Seconds until each partition had a leader at work. Raises `Stopped` when that takes too long."""
        return self._wait(self._is_led, limit, "not each partition is led")

    def until_drained(self, limit: float = DRAIN_LIMIT) -> float:
        """Seconds until no touch was left and no call under way. Raises `Stopped` as above."""
        return self._wait(self._is_drained, limit, "the tubes and outboxes are not empty")

    def _wait(self, done: Callable[[Conn], bool], limit: float, trouble: str) -> float:
        began = time.monotonic()
        looked = 0.0
        while True:
            self._tick()
            if time.monotonic() - looked > _LOOK:
                looked = time.monotonic()
                with self._arena.connect() as connection:
                    if done(connection):
                        return time.monotonic() - began
            if time.monotonic() - began > limit:
                raise Stopped(Violation(Invariant.LED, f"{trouble} after {limit:g} s: {self._state()}"))

    def _is_led(self, connection: Conn) -> bool:
        """Each partition has a leader that has just renewed its term, and has said that it works."""
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
            if wanted is None or len(working) != wanted[0]:
                return False
        return True

    def _is_drained(self, connection: Conn) -> bool:
        for tube in TUBES:
            if connection.execute(f"SELECT 1 FROM tube.{tube.name} LIMIT 1").fetchone():
                return False
            calls = reader.read_calls(calls_of(tube.name, self._arena.journals))
            if any(call.ended is None and _is_alive(call.pid) for call in calls):
                return False
        return outboxes.is_drained(connection)

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


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
