"""Waits for conditions while it looks at everything, and prints the line of every second."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pytube.demo.failure import DemoFailed
from pytube.demo.live import HEADER, live_line
from pytube.demo.screen import Screen
from pytube.demo.source import Source
from pytube.demo.tally import Tally
from pytube.sinks.jsonl_replay import Replay

_POLL = 0.05
_HEADER_EVERY = 20


class Watch:
    """One pair of eyes for the whole demonstration."""

    def __init__(self, source: Source, sink: Path, screen: Screen) -> None:
        """Nothing is read before the first look.

        Args:
            source: the database.
            sink: the file that the workers write to.
            screen: where the lines go.
        """
        self.tally = Tally()
        self.replay = Replay([sink], on_line=self.tally.take)
        self.checks: list[Callable[[], None]] = []
        """Called at every look; each raises when what it guards has failed."""
        self.dead: set[str] = set()
        """Workers that were killed and not yet started again."""
        self._source = source
        self._screen = screen
        self.caught_up = False
        """Whether the last look found nothing new at the sink."""
        self._lines = 0
        self._second = 0
        self._last = (time.monotonic(), 0)

    def until(self, condition: Callable[[], bool], *, limit: float, missing: str) -> None:
        """Look until `condition()`.

        Args:
            condition: what is waited for.
            limit: seconds.
            missing: what has not happened when they are over, as the rest of a sentence.

        Raises:
            DemoFailed: it did not happen in time, or one of the checks failed.
        """
        ends = time.monotonic() + limit
        while True:
            self.look()
            if condition():
                return
            if time.monotonic() > ends:
                raise DemoFailed(f"within {limit:g} s {missing}")
            if self.caught_up:
                time.sleep(_POLL)

    def look(self) -> None:
        """Take in what has come, check what must run, and print a line when it is time."""
        # Little by little, so that a flood does not keep the lines from being on time.
        self.caught_up = not self.replay.poll(pieces=1)
        for check in self.checks:
            check()
        if (second := int(self._screen.elapsed)) > self._second:
            self._second = second
            self._print(second)

    def _print(self, second: int) -> None:
        now = time.monotonic()
        then, before = self._last
        delivered = self.tally.documents
        rate = (delivered - before) / max(now - then, 0.001)
        self._last = (now, delivered)
        if self._lines % _HEADER_EVERY == 0:
            self._screen.line(HEADER, "dim")
        self._lines += 1
        figures, leaders = self._source.figures(), self._source.leaders()
        self._screen.line(live_line(second, figures, delivered, rate, leaders, self.dead))
