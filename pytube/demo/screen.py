"""What the spectator sees, and the acts of a demonstration.

In colour on a terminal, plain lines elsewhere: a line a second, what happened when, and what was found.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.text import Text

from pytube.errors import PytubeError

if TYPE_CHECKING:
    from pytube.demo.stage import Workers

WORKERS = ("w1", "w2", "w3")
_WIDE = 160
"""Columns of a table that goes to a file or a pipe."""
_PAUSE = 0.05
_HEADER_EVERY = 20
# Seconds; a demonstration that is well comes near none of them.
_LEAD_LIMIT = 120.0
_TAKEOVER_LIMIT = 120.0


class DemoFailed(PytubeError):
    """Something did not happen, or a process ended that should not; the message says what."""


def duration(seconds: float) -> str:
    """Milliseconds below one second, else seconds with one decimal."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    return f"{seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Figures:
    """How things stand at one moment."""

    touches: int
    """Ids written to the tube since it was made."""
    pods: int
    waiting: int
    """Ids that wait, in those pods."""
    lag: float
    """Age of the oldest pod, in seconds; 0 when none waits."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a partition, and under which epoch."""

    partition: int
    client: str
    epoch: int


class Screen:
    """Standard output, and the time since the demonstration began."""

    def __init__(self) -> None:
        width = None if sys.stdout.isatty() else _WIDE
        self._console = Console(file=sys.stdout, highlight=False, width=width, soft_wrap=True)
        self._begun = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begun

    def step(self, text: str, style: str = "bold") -> None:
        """One thing that was done or happened, with the time."""
        self.line(Text.assemble((f"{self.elapsed:5.1f} s  ", "dim"), (text, style)))

    def line(self, text: Text | str, style: str = "") -> None:
        """One line; square brackets in it are no markup."""
        self._console.print(Text(text, style) if isinstance(text, str) else text)
        sys.stdout.flush()

    def heading(self, text: str) -> None:
        """The title of what follows, after an empty line."""
        self.line("")
        self.line(text, "bold underline")

    def facts(self, facts: Mapping[str, str]) -> None:
        """Names and values, below each other."""
        wide = max(len(name) for name in facts)
        for name, value in facts.items():
            self.line(Text.assemble((f"  {name:<{wide}}  ", "dim"), value))


def live_line(
    second: int,
    figures: Figures,
    delivered: int,
    rate: float,
    leaders: Sequence[Leader],
    dead: Collection[str],
) -> Text:
    """The line of one second: what is written, what has arrived, who leads.

    Workers that were killed are `dead`; the database still names them until others take over.
    """
    text = Text()
    text.append(f"{second:5} s ", "dim")
    text.append(f"{figures.touches:>8,} ")
    text.append(f"{delivered:>9,} ", "green")
    text.append(f"{rate:>6,.0f} ")
    text.append(f"{figures.waiting:>8,} ", "yellow" if figures.waiting else "dim")
    text.append(f"{duration(figures.lag):>7}  ", "yellow" if figures.lag > 1 else "dim")
    for name in WORKERS:
        led = ",".join(str(leader.partition) for leader in leaders if leader.client == name)
        if name in dead:
            text.append(f"{name} killed  ", "red")
        else:
            text.append(f"{f'{name} {led or chr(8211)}':<11}", "cyan" if led else "dim")
    text.rstrip()
    return text


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of a sample, in seconds; `count` 0 means that there was none."""

    count: int
    p50: float
    p99: float
    worst: float

    @classmethod
    def of(cls, sample: Iterable[float]) -> Latency:
        """The percentiles of a sample."""
        ordered = sorted(sample)
        if not ordered:
            return cls(0, 0.0, 0.0, 0.0)
        p50, p99 = (ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.50, 0.99))
        return cls(len(ordered), p50, p99, ordered[-1])

    def __str__(self) -> str:
        if not self.count:
            return "not measured"
        return f"p50 {duration(self.p50)}, p99 {duration(self.p99)}, worst {duration(self.worst)}"


@dataclass(frozen=True, slots=True)
class Takeover:
    """What followed the SIGKILL of a leader."""

    victim: str
    at: float
    """Unix time of the kill."""
    seconds: Mapping[int, float]
    """By partition: from the kill to the first document of the next leader."""

    def __str__(self) -> str:
        slowest = duration(max(self.seconds.values(), default=0.0))
        each = ", ".join(f"partition {p}: {duration(s)}" for p, s in sorted(self.seconds.items()))
        return f"{slowest} after the SIGKILL of {self.victim} ({each})"


def verdict(
    screen: Screen, directory: Path, wrong: Sequence[str], well: str, details: Sequence[str] = ()
) -> int:
    """Print what is wrong or, where nothing is, that all is `well`; the exit code."""
    screen.line("")
    for text in wrong:
        screen.line(f"WRONG: {text}", "bold red")
    for text in details if wrong else ():
        screen.line(f"  {text}")
    if not wrong:
        screen.line(well, "bold green")
    screen.line(f"Data and logs are kept in {directory}", "" if wrong else "dim")
    return 1 if wrong else 0


def wrong_exits(exits: Mapping[str, int]) -> list[str]:
    """Workers that did not end as they should, a sentence each."""
    codes = {name: exits.get(name) for name in WORKERS}
    return [
        f"the worker {name} ended with {code} after SIGTERM, not with 0"
        for name, code in codes.items()
        if code != 0
    ]


# --- the acts ---------------------------------------------------------------------------------


class Readable(Protocol):
    """A database that a demonstration looks at."""

    def figures(self) -> Figures:
        """How things stand."""

    def leaders(self) -> list[Leader]:
        """Who leads what."""


class Acts:
    """What happens in both demonstrations: workers start, one is killed, and others take over.

    Meanwhile, looks at everything, and prints the line of every second.
    """

    def __init__(
        self,
        screen: Screen,
        workers: Workers,
        database: Readable,
        poll: Callable[[], bool],
        count: Callable[[], int],
        first: Mapping[tuple[int, int], float],
        header: str,
    ) -> None:
        """Nothing is read before the first look.

        Args:
            screen: where the lines go.
            workers: those that act.
            database: what is looked at.
            poll: takes in what has come out at the other end; whether there was something.
            count: of what has come.
            first: when each term, as (partition, epoch), first delivered something; Unix time.
            header: of the columns of the lines.
        """
        self._screen, self._workers, self._database = screen, workers, database
        self._poll, self._count, self._first, self._header = poll, count, first, header
        self.checks: list[Callable[[], None]] = [workers.check]
        """Called at every look; each raises when what it guards has failed."""
        self._dead: set[str] = set()
        """Workers that were killed and not yet started again."""
        self._lines = 0
        self._second = 0
        self._last = (time.monotonic(), 0)

    def begin(self, partitions: int) -> None:
        """Start the workers; every partition is to be led, and every worker to lead."""
        for name in WORKERS:
            self._workers.start(name)
        self._screen.step(f"three workers start: {', '.join(WORKERS)}")

        def shared() -> bool:
            leaders = self._database.leaders()
            led, leading = {one.partition for one in leaders}, {one.client for one in leaders}
            return led == set(range(partitions)) and leading == set(WORKERS)

        missing = f"the three workers had not shared the {partitions} partitions among them"
        self._until(shared, limit=_LEAD_LIMIT, missing=missing)
        self._screen.step("every partition is led, and every worker leads")

    def load_until(self, moment: float) -> None:
        """Look on until then."""
        limit = max(0.0, moment - time.monotonic()) + 10
        self._until(lambda: time.monotonic() >= moment, limit=limit, missing="the clock did not go on")

    def take_over(self, victim: str) -> Takeover:
        """SIGKILL a leader, see others take over what it led, and start it again."""
        terms = {one.partition: one.epoch for one in self._database.leaders() if one.client == victim}
        at = time.time()
        self._workers.kill(victim)
        self._dead.add(victim)
        led = " and ".join(map(str, terms))
        self._screen.step(f"SIGKILL: {victim}, which led {led}, is gone", "bold red")
        self._until(
            lambda: all(first_after(self._first, *term) is not None for term in terms.items()),
            limit=_TAKEOVER_LIMIT,
            missing=f"the others had not taken over what {victim} led and delivered from there",
        )
        self._screen.step(f"the others have taken over what {victim} led", "bold green")
        self._workers.start(victim)
        self._dead.discard(victim)
        self._screen.step(f"{victim} is started again", "bold green")
        old = max(terms.values())
        self._until(
            lambda: any(one.client == victim and one.epoch > old for one in self._database.leaders()),
            limit=_LEAD_LIMIT,
            missing=f"{victim}, started again, did not lead",
        )
        self._screen.step(f"{victim} leads again", "bold green")
        firsts = {partition: first_after(self._first, partition, epoch) for partition, epoch in terms.items()}
        return Takeover(victim, at, {p: first - at for p, first in firsts.items() if first is not None})

    def drain(self, limit: float, missing: str) -> None:
        """Wait until nothing is left to deliver."""
        self._until(lambda: not self._database.figures().pods, limit=limit, missing=missing)

    def _until(self, condition: Callable[[], bool], *, limit: float, missing: str) -> None:
        """Look until `condition()`, for `limit` seconds; `missing` says what has not happened then.

        Raises:
            DemoFailed: it did not happen in time, or one of the checks failed.
        """
        ends = time.monotonic() + limit
        while True:
            has_come = self._look()
            if condition():
                return
            if time.monotonic() > ends:
                raise DemoFailed(f"within {limit:g} s {missing}")
            if not has_come:
                time.sleep(_PAUSE)

    def _look(self) -> bool:
        """Take in what has come, check what must run, and print a line when it is time; whether it came."""
        has_come = self._poll()
        for check in self.checks:
            check()
        if (second := int(self._screen.elapsed)) > self._second:
            self._second = second
            self._print(second)
        return has_come

    def _print(self, second: int) -> None:
        now = time.monotonic()
        then, before = self._last
        delivered = self._count()
        rate = (delivered - before) / max(now - then, 0.001)
        self._last = (now, delivered)
        if self._lines % _HEADER_EVERY == 0:
            self._screen.line(self._header, "dim")
        self._lines += 1
        figures, leaders = self._database.figures(), self._database.leaders()
        self._screen.line(live_line(second, figures, delivered, rate, leaders, self._dead))


def first_after(first: Mapping[tuple[int, int], float], partition: int, epoch: int) -> float | None:
    """When a later term than `epoch` first delivered something of the partition; None: none has yet."""
    return min((at for (p, e), at in first.items() if p == partition and e > epoch), default=None)
