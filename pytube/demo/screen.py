"""What the spectator sees of a demonstration.

Events with their times, and the findings; on a terminal in color, with a last line of the present state.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from pytube.clock import for_people
from pytube.errors import PytubeError

WORKERS = ("w1", "w2", "w3")
_WIDE = 160
"""Columns of a table that goes to a file or a pipe."""
_SILENCE = 10.0
"""Seconds without a line, after which one says how things stand, where no terminal shows it all the time."""


class DemoFailed(PytubeError):
    """Something did not happen, or a process ended that should not; the message says what."""


class Figures(NamedTuple):
    """How things stand at one moment."""

    pods: int
    waiting: int
    """Ids that wait, in those pods."""
    lag: float
    """Age of the oldest pod, in seconds; 0 when none waits."""


class Leader(NamedTuple):
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

    def facts(self, title: str, facts: Mapping[str, str]) -> None:
        """Names and values, below each other; further lines of a value stand below its first."""
        self.line("")
        self.line(title, "bold underline")
        wide = max(len(name) for name in facts)
        for name, value in facts.items():
            for number, line in enumerate(value.split("\n")):
                self.line(Text.assemble((f"  {'' if number else name:<{wide}}  ", "dim"), line))

    def _clear(self) -> None:
        """Take away the line that is to be replaced."""
        if self._is_terminal:
            sys.stdout.write("\r\x1b[2K")


def state(
    second: int, figures: Figures, rate: float, leaders: Sequence[Leader], dead: Collection[str]
) -> Text:
    """How things stand in a second: the rate of arrivals, the queue, the leaders.

    Workers that were killed are `dead`; the database still names them until others take over.
    """
    text = Text()
    text.append(f"{second:5} s  ", "dim")
    text.append(f"{rate:,.0f}/s delivered", "green")
    if figures.waiting:
        text.append(f", {figures.waiting:,} wait ({for_people(figures.lag)})", "yellow")
    for name in WORKERS:
        led = ",".join(str(leader.partition) for leader in leaders if leader.client == name)
        if name in dead:
            text.append(f"  {name} killed", "red")
        else:
            text.append(f"  {name} {led or chr(8211)}", "cyan" if led else "dim")
    return text


# --- measurements -----------------------------------------------------------------------------


def percentiles(sample: Iterable[float]) -> str:
    """How long half of a sample took, and nearly all, in seconds."""
    ordered = sorted(sample)
    if not ordered:
        return "not measured"
    half, most = (ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.50, 0.99))
    return f"half within {for_people(half)}, 99 % within {for_people(most)}"


_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_BLOCKS = 60
_WIDTHS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds that a block may stand for."""


def lag_through(sample: Sequence[tuple[float, float]], kill: float, victim: str) -> str:
    """How long changes took, by when they were made: a line of blocks, one with the kill, and the scale.

    `sample` has the Unix time of each change, and how many seconds later it had arrived.
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
    scale = f"{_BLOCKS[0]} up to {for_people(top / len(_BLOCKS))}, {_BLOCKS[-1]} {for_people(top)}"
    return f"{line}\n{' ' * -begins}↑ SIGKILL of {victim}\na block is {width:g} s; {scale}"


def _block(value: float | None, top: float) -> str:
    if value is None:
        return " "
    return _BLOCKS[min(len(_BLOCKS) - 1, int(value / top * len(_BLOCKS)))] if top else _BLOCKS[0]


class Takeover(NamedTuple):
    """What followed the SIGKILL of a leader."""

    victim: str
    at: float
    """Unix time of the kill."""
    seconds: float
    """From the kill until the next leaders had delivered from each of its partitions."""

    def __str__(self) -> str:
        return (
            f"{for_people(self.seconds)} from the SIGKILL of {self.victim} until the others had delivered "
            "for it"
        )


def verdict(
    screen: Screen,
    directory: Path,
    wrong: Sequence[str],
    well: str,
    others: Mapping[str, str],
    details: Sequence[str] = (),
) -> int:
    """Print what is wrong or, where nothing is, that all is `well`, and what to try next; the exit code.

    `others`: arguments of the program, and their effect. `details`: more of what is wrong.
    """
    screen.line("")
    for text in wrong:
        screen.line(f"WRONG: {text}", "bold red")
    for text in details if wrong else ():
        screen.line(f"  {text}")
    if not wrong:
        screen.line(well, "bold green")
    screen.line(f"Data and logs are kept in {directory}", "" if wrong else "dim")
    if wrong:
        return 1
    program = sys.argv[0] if Path(sys.argv[0]).name.startswith("pytube") else "python -m pytube"
    if shutil.which(Path(program).name) == program:
        program = Path(program).name
    screen.facts("Try next", {f"{program} {arguments}": what for arguments, what in others.items()})
    return 0
