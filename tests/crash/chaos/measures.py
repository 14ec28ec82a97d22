"""What the report tells beside right and wrong: take-overs, lag, memory."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

from tests.crash.chaos.arena import Arena
from tests.crash.chaos.crew import ELDERS
from tests.crash.chaos.invariants import Invariant, Violation
from tests.crash.chaos.records import Term, Window
from tests.crash.chaos.source import FAR, TUBES

_INTERVAL = 0.5


@dataclass
class Measures:
    """Gathered over all windows."""

    documents: int = 0
    repeated: int = 0
    """Documents that were sent though the sink had the same state of the row already."""
    terms: int = 0
    purged: int = 0
    released: int = 0
    superseded: int = 0
    repartitioned: int = 0
    takeovers: list[float] = field(default_factory=list)
    """Seconds from the last sign of life of a term that did not release to its successor at work."""
    worst_lag: float = 0.0
    """Seconds that the oldest touch in any tube waited."""
    returns: list[float] = field(default_factory=list)
    """Seconds from the end of the last fault until each partition was led again."""
    drains: list[float] = field(default_factory=list)
    """Seconds from then until nothing was left."""
    damages: int = 0
    """How often the broker served its groups no more, and was started again at a checkpoint."""
    memory: dict[str, list[float]] = field(default_factory=dict)
    """MiB of each worker at each checkpoint."""
    _told: set[str] = field(default_factory=set)

    def saw(self, window: Window) -> None:
        """Count what a window has."""
        self.documents += len(window.lines)
        self.purged += len(window.purges)
        held: dict[tuple[int, int], object] = {}
        for line in window.lines:
            key = line.shard, line.id
            self.repeated += key in held and held[key] == line.doc
            held[key] = line.doc
        self.saw_terms(window.terms, window.told)

    def saw_terms(self, terms: Sequence[Term], told: Mapping[str, float]) -> None:
        """Count how long partitions were without a leader, of terms that workers said to have begun."""
        by_id = {term.leader_id: term for term in terms}
        for leader_id, moment in told.items():
            term = by_id.get(leader_id)
            if term is None or leader_id in self._told:
                continue
            self._told.add(leader_id)
            gone = [
                earlier.renewed_at
                for earlier in terms
                if earlier.outcome == "superseded"
                and earlier.epoch < term.epoch
                and earlier.ended_at is not None
                and abs(earlier.ended_at - term.acquired_at) < _SAME
                and earlier.shares_a_shard_with(term)
            ]
            if gone:
                self.takeovers.append(moment - max(gone))

    def count_terms(self, terms: Sequence[Term]) -> None:
        """Count the terms, of which the database has all."""
        self.terms = len(terms)
        outcomes = [term.outcome for term in terms]
        self.released = outcomes.count("released")
        self.superseded = outcomes.count("superseded")
        self.repartitioned = outcomes.count("repartitioned")

    def remember(self, memory: Mapping[str, float]) -> None:
        """Note what workers have in memory."""
        for name, mebibytes in memory.items():
            self.memory.setdefault(name, []).append(mebibytes)

    def typical_takeover(self) -> float:
        """The median; 0 when there was none."""
        return statistics.median(self.takeovers) if self.takeovers else 0.0


GROWTH = 1.5
GROWTH_MIB = 40.0
"""An elder may have so many times what it had at the first checkpoint, and so much more."""


def grown(memory: Mapping[str, list[float]]) -> list[Violation]:
    """Workers that were never restarted and have grown beyond reason."""
    return [
        Violation(Invariant.LEAN, f"{name} had {series[0]:.0f} MiB, and has {series[-1]:.0f}")
        for name, series in memory.items()
        if name in ELDERS and series[-1] > series[0] * GROWTH + GROWTH_MIB
    ]


_SAME = 0.001
"""Seconds: a term that ends another one does so as it begins."""


class LagWatch:
    """Looks every half second how old the oldest touch is."""

    def __init__(self, arena: Arena, measures: Measures) -> None:
        self._arena = arena
        self._measures = measures
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_INTERVAL):
            with suppress(psycopg.Error), self._arena.connect() as connection:
                while not self._over.wait(_INTERVAL):
                    self._look(connection)

    def _look(self, connection: psycopg.Connection) -> None:
        for tube in TUBES:
            # Long transactions' touches are old when they are committed, which is nobody's lag.
            statement = sql.SQL("SELECT extract(epoch FROM min(ts))::float8 FROM {} WHERE ids[1] < %s")
            row = connection.execute(statement.format(sql.Identifier("tube", tube.name)), (FAR,)).fetchone()
            if row and row[0] is not None:
                self._measures.worst_lag = max(self._measures.worst_lag, time.time() - row[0])
