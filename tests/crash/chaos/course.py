"""The course of a run: a leg of load and faults, then a checkpoint, again and again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.crash.chaos import (
    faults_of_network,
    faults_of_servers,
    faults_of_tubes,
    faults_of_workers,
    outboxes,
    reader,
)
from tests.crash.chaos.arena import Arena
from tests.crash.chaos.crew import MEMBERS, RECEIVE_DEADLINE, Crew
from tests.crash.chaos.invariants import Stopped, Violation
from tests.crash.chaos.ledger import Ledger
from tests.crash.chaos.load import Load
from tests.crash.chaos.measures import LagWatch, Measures, grown
from tests.crash.chaos.monkey import CALM_LIMIT, Monkey, Scene
from tests.crash.chaos.outboxes import OUTBOXES
from tests.crash.chaos.quiet import Quiet
from tests.crash.chaos.records import Term, Window
from tests.crash.chaos.sink import REQUEST_TIMEOUT
from tests.crash.chaos.source import TUBES

FAULTS = [
    *faults_of_workers.FAULTS,
    *faults_of_servers.FAULTS,
    *faults_of_tubes.FAULTS,
    *faults_of_network.FAULTS,
]
FIRST_LIMIT = 120.0
"""Seconds for all workers to start, all at once, and to deliver the first rows."""

LONG = 30 * 60.0
"""Seconds: a run that is so long has each fault at least once."""

_MORE_LEGS = 4
"""For faults that have not struck by the end: some can only between every second pair of checkpoints."""

_TICK = 0.05


class Run:
    """One run. `go` it once."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        """Args:
        folder: for all that is written.
        seed: of the faults that are drawn.
        say: told one line per checkpoint.
        """
        self.folder = folder
        self.seed = seed
        self.measures = Measures()
        self.checkpoints = 0
        self.committed = 0
        self.starts = 0
        self._say = say
        self._never = threading.Event()
        self._stack = ExitStack()
        self.arena = self._stack.enter_context(Arena(folder, MEMBERS))
        self.crew = Crew(self.arena)
        self._stack.callback(self.crew.close)
        self.load = Load(self.arena)
        self._stack.callback(self.load.close)
        scene = Scene(self.arena, self.crew, random.Random(seed))
        self.monkey = Monkey(scene, FAULTS, folder / "faults.jsonl")
        self.consumer = outboxes.Consumer(self.arena.kafka.bootstrap)
        self._ledgers = {tube.name: Ledger() for tube in TUBES}
        self._quiet = Quiet(self.arena, self.crew, self._tick)
        self._began = time.monotonic()

    def close(self) -> None:
        """End everything that was started."""
        self._stack.close()

    def go(self, seconds: float, leg: float) -> None:
        """Run for so long once all workers are at work, with a checkpoint after each leg.

        Raises:
            Stopped: something is wrong; everything stays as it is, so that one can look.
        """
        self._began = time.monotonic()
        for name in MEMBERS:
            self.crew.start(name)
        self._quiet.until_led(FIRST_LIMIT)
        self._quiet.until_drained(FIRST_LIMIT)
        # Only now: the first rows waited for the first workers to start.
        self._stack.callback(LagWatch(self.arena, self.measures).close)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._leg(min(leg, end - time.monotonic()))
            self._checkpoint()
        if seconds >= LONG:
            self._have_each_fault(leg)

    def _have_each_fault(self, leg: float) -> None:
        self.monkey.insist()
        for _ in range(_MORE_LEGS):
            if not self.monkey.missing:
                return
            self._say(f"one more leg, for {', '.join(self.monkey.missing)}")
            self._leg(leg)
            self._checkpoint()

    # --- a leg ----------------------------------------------------------------------------

    def _leg(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.load.go()
        self.monkey.begin()
        while time.monotonic() < end:
            self.monkey.step()
            self._tick()
        limit = time.monotonic() + CALM_LIMIT
        while not self.monkey.is_calm:
            assert time.monotonic() < limit, "a fault does not come to its end"
            self.monkey.go_on()
            self._tick()
        self.load.pause()

    def _tick(self) -> None:
        """Let some time pass, and see that nothing is wrong with the workers."""
        self._never.wait(_TICK)
        self._raise(self.crew.look())

    def _raise(self, violations: list[Violation]) -> None:
        if violations:
            raise Stopped(*violations)

    # --- a checkpoint ---------------------------------------------------------------------

    def _checkpoint(self) -> None:
        if self.arena.restart_damaged_broker():
            self.measures.damages += 1
            self._say("the broker served its groups no more, and was started again")
        self.measures.returns.append(self._quiet.until_led())
        self.measures.drains.append(self._quiet.until_drained())
        self._raise(self.crew.look())
        aside = self.arena.rotate(self.checkpoints)
        began = time.monotonic()
        windows = []
        with self.arena.connect() as connection:
            for tube in TUBES:
                window = reader.read(
                    connection, tube, aside, self.crew.told[tube.name], RECEIVE_DEADLINE, REQUEST_TIMEOUT
                )
                windows.append(window)
            violations = [wrong for window in windows for wrong in self._ledgers[window.tube].take(window)]
            violations += self.consumer.take(connection, self.crew.overdue)
            self._count(windows, {one.name: reader.terms(connection, one.name) for one in OUTBOXES})
            self._raise(violations + grown(self.measures.memory))
            reader.forget(connection)
            outboxes.forget(connection)
        self.crew.overdue.clear()
        self.arena.drop(aside)
        self.checkpoints += 1
        self._say(self._progress(windows, time.monotonic() - began))
        self.arena.switch_prepared()

    def _count(self, windows: list[Window], of_outboxes: dict[str, list[Term]]) -> None:
        terms = [*(window.terms for window in windows), *of_outboxes.values()]
        self.measures.count_terms([one for several in terms for one in several])
        for window in windows:
            self.measures.saw(window)
        for name, several in of_outboxes.items():
            self.measures.saw_terms(several, self.crew.told[name])
        self.measures.remember(self.crew.memory())
        self.committed = self.load.committed
        self.starts = self.crew.starts

    def _progress(self, windows: list[Window], took: float) -> str:
        measures = self.measures
        return (
            f"{(time.monotonic() - self._began) / 60:5.1f} min  checkpoint {self.checkpoints}: 0 violations; "
            f"{self.monkey.counts.total()} faults, {measures.terms} terms, "
            f"{sum(len(window.lines) for window in windows)} documents, "
            f"{sum(len(window.pods) for window in windows)} touches, "
            f"{self.consumer.stashed} records stashed so far; led after {measures.returns[-1]:.1f} s, "
            f"drained after {measures.drains[-1]:.1f} s, checked in {took:.1f} s"
        )
