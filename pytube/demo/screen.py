"""What the spectator sees, and the acts of a demonstration.

Events with their times, and the findings; on a terminal in color, with a last line of the present state.
"""

from __future__ import annotations

import math
import shutil
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
_SILENCE = 10.0
"""Seconds without a line, after which one says how things stand, where no terminal shows it all the time."""
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
        is_terminal = sys.stdout.isatty()
        width = None if is_terminal else _WIDE
        self._console = Console(file=sys.stdout, highlight=False, width=width, soft_wrap=True)
        self._is_terminal = is_terminal and not self._console.is_dumb_terminal
        self._begun = self._said = time.monotonic()
        self._now = Text()
        """How things stood at the last call of `now`."""

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begun

    def step(self, text: str, style: str = "bold") -> None:
        """One thing that was done or happened, with the time."""
        self.line(Text.assemble((f"{self.elapsed:5.1f} s  ", "dim"), (text, style)))

    def line(self, text: Text | str, style: str = "") -> None:
        """One line; square brackets in it are no markup."""
        self._clear()
        self._console.print(Text(text, style) if isinstance(text, str) else text)
        sys.stdout.flush()
        self._said = time.monotonic()

    def now(self, text: Text) -> None:
        """How things stand: on a terminal a line that the next replaces, elsewhere one after a silence."""
        self._now = text
        if not self._is_terminal:
            if time.monotonic() - self._said >= _SILENCE:
                self.line(text)
            return
        self._clear()
        shown = text.copy()
        shown.truncate(max(1, self._console.width - 1))
        self._console.print(shown, end="")
        sys.stdout.flush()

    def last(self) -> None:
        """Say once more how things stood, for good."""
        if self._now:
            self.line(self._now)

    def heading(self, text: str) -> None:
        """The title of what follows, after an empty line."""
        self.line("")
        self.line(text, "bold underline")

    def facts(self, facts: Mapping[str, str]) -> None:
        """Names and values, below each other; further lines of a value stand below its first."""
        wide = max(len(name) for name in facts)
        for name, value in facts.items():
            for number, line in enumerate(value.split("\n")):
                self.line(Text.assemble((f"  {'' if number else name:<{wide}}  ", "dim"), line))

    def _clear(self) -> None:
        """Take away the line that is to be replaced."""
        if self._is_terminal:
            sys.stdout.write("\r\x1b[2K")


def state(
    second: int,
    figures: Figures,
    rate: float,
    leaders: Sequence[Leader],
    dead: Collection[str],
) -> Text:
    """How things stand in a second: the rate of arrivals, the queue, the leaders.

    Workers that were killed are `dead`; the database still names them until others take over.
    """
    text = Text()
    text.append(f"{second:5} s  ", "dim")
    text.append(f"{rate:,.0f}/s delivered", "green")
    if figures.waiting:
        text.append(f", {figures.waiting:,} wait ({duration(figures.lag)})", "yellow")
    for name in WORKERS:
        led = ",".join(str(leader.partition) for leader in leaders if leader.client == name)
        if name in dead:
            text.append(f"  {name} killed", "red")
        else:
            text.append(f"  {name} {led or chr(8211)}", "cyan" if led else "dim")
    return text


# --- measurements -----------------------------------------------------------------------------


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
        return f"half within {duration(self.p50)}, 99 % within {duration(self.p99)}"


_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_BLOCKS = 60
_WIDTHS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds that a block may stand for."""


def lag_through(sample: Sequence[tuple[float, float]], kill: float, victim: str) -> str:
    """How long changes took, by when they were made: a line of blocks, one with the kill, and the scale.

    Args:
        sample: Unix time of each change, and how many seconds later it had arrived.
        kill: Unix time.
        victim: who was killed then.
    """
    if not sample:
        return "not measured"
    times = [0.0, *(at - kill for at, _ in sample)]
    first, last = min(times), max(times)
    width = next((width for width in _WIDTHS if (last - first) / width < _MOST_BLOCKS - 1), last - first)
    longest: dict[int, float] = {}
    for at, took in sample:
        place = math.floor((at - kill) / width)
        longest[place] = max(took, longest.get(place, 0.0))
    top, begins = max(longest.values()), min(0, *longest)
    places = range(begins, max(0, *longest) + 1)
    line = "".join(_block(longest.get(place), top) for place in places)
    scale = f"{_BLOCKS[0]} up to {duration(top / len(_BLOCKS))}, {_BLOCKS[-1]} {duration(top)}"
    return f"{line}\n{' ' * -begins}↑ SIGKILL of {victim}\na block is {width:g} s; {scale}"


def _block(value: float | None, top: float) -> str:
    if value is None:
        return " "
    return _BLOCKS[min(len(_BLOCKS) - 1, int(value / top * len(_BLOCKS)))] if top else _BLOCKS[0]


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
        return f"{slowest} from the SIGKILL of {self.victim} until the others had delivered for it"


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


def suggest(screen: Screen, *others: tuple[str, str]) -> None:
    """What to try next: arguments of the program, and their effect."""
    program = sys.argv[0] if Path(sys.argv[0]).name.startswith("pytube") else "python -m pytube"
    if shutil.which(Path(program).name) == program:
        program = Path(program).name
    screen.heading("Try next")
    screen.facts({f"{program} {arguments}": what for arguments, what in others})


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

    Meanwhile, looks at everything, and says every second how things stand.
    """

    def __init__(
        self,
        screen: Screen,
        workers: Workers,
        database: Readable,
        poll: Callable[[], bool],
        count: Callable[[], int],
        first: Mapping[tuple[int, int], float],
    ) -> None:
        """Nothing is read before the first look.

        Args:
            screen: where the lines go.
            workers: those that act.
            database: what is looked at.
            poll: takes in what has come out at the other end; whether there was something.
            count: of the arrivals.
            first: when each term, as (partition, epoch), first delivered something; Unix time.
        """
        self._screen, self._workers, self._database = screen, workers, database
        self._poll, self._count, self._first = poll, count, first
        self.checks: list[Callable[[], None]] = [workers.check]
        """Called at every look; each raises when what it guards has failed."""
        self._dead: set[str] = set()
        """Workers that were killed and not yet started again."""
        self._second = 0
        self._last = (time.monotonic(), 0)

    def start(self) -> None:
        """Start the workers."""
        for name in WORKERS:
            self._workers.start(name)

    def share(self, partitions: int) -> None:
        """Wait until every partition is led, and every worker leads."""
        leads: dict[str, list[str]] = {}

        def shared() -> bool:
            leads.clear()
            for one in self._database.leaders():
                leads.setdefault(one.client, []).append(str(one.partition))
            return set(leads) == set(WORKERS) and sum(map(len, leads.values())) == partitions

        missing = f"the three workers had not shared the {partitions} partitions among them"
        self.until(shared, limit=_LEAD_LIMIT, missing=missing)
        each = ", ".join(f"{name} leads {' and '.join(leads[name])}" for name in WORKERS)
        self._screen.step(f"the three workers have shared the {partitions} partitions: {each}")

    def load_until(self, moment: float) -> None:
        """Look on until then."""
        limit = max(0.0, moment - time.monotonic()) + 10
        self.until(lambda: time.monotonic() >= moment, limit=limit, missing="the clock did not go on")

    def take_over(self, victim: str) -> Takeover:
        """SIGKILL a leader, see others take over what it led, and start it again."""
        terms = {one.partition: one.epoch for one in self._database.leaders() if one.client == victim}
        at = time.time()
        self._workers.kill(victim)
        self._dead.add(victim)
        led = " and ".join(map(str, terms))
        self._screen.step(f"SIGKILL: {victim}, which led {led}, is gone", "bold red")
        self.until(
            lambda: all(first_after(self._first, *term) is not None for term in terms.items()),
            limit=_TAKEOVER_LIMIT,
            missing=f"the others had not taken over what {victim} led and delivered from there",
        )
        self._screen.step(f"the others have taken over what {victim} led", "bold green")
        self._workers.start(victim)
        self._dead.discard(victim)
        self._screen.step(f"{victim} is started again", "bold green")
        old = max(terms.values())
        self.until(
            lambda: any(one.client == victim and one.epoch > old for one in self._database.leaders()),
            limit=_LEAD_LIMIT,
            missing=f"{victim}, started again, did not lead",
        )
        self._screen.step(f"{victim} leads again", "bold green")
        firsts = {partition: first_after(self._first, partition, epoch) for partition, epoch in terms.items()}
        return Takeover(victim, at, {p: first - at for p, first in firsts.items() if first is not None})

    def drain(self, limit: float, missing: str) -> None:
        """Wait until nothing is left to deliver."""
        self.until(lambda: not self._database.figures().pods, limit=limit, missing=missing)

    def until(
        self, condition: Callable[[], bool], *, limit: float, missing: str, pause: float = _PAUSE
    ) -> None:
        """Look until `condition()`, for `limit` seconds; `missing` says what has not happened then.

        Between two looks that find nothing, `pause` seconds pass.

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
                time.sleep(pause)

    def _look(self) -> bool:
        """Take in what has come, check what must run, and say every second how it stands; whether it came."""
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
        figures, leaders = self._database.figures(), self._database.leaders()
        self._screen.now(state(second, figures, rate, leaders, self._dead))


def first_after(first: Mapping[tuple[int, int], float], partition: int, epoch: int) -> float | None:
    """When a later term than `epoch` first delivered something of the partition; None: none has yet."""
    return min((at for (p, e), at in first.items() if p == partition and e > epoch), default=None)
