"""The line of every second: what is written, what has arrived, who leads."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.text import Text

from pytube.demo.duration import duration
from pytube.demo.fleet import NAMES
from pytube.demo.source import Figures, Leader

HEADER = "   time  touches documents  per s  waiting     lag  who leads which partitions"


def live_line(
    second: int,
    figures: Figures,
    delivered: int,
    rate: float,
    leaders: Sequence[Leader],
    dead: Collection[str],
) -> Text:
    """One line below `HEADER`.

    Args:
        second: how many have passed since the beginning.
        figures: how things stand in the database.
        delivered: documents at the sink.
        rate: documents per second since the last line.
        leaders: the present terms.
        dead: workers that were killed; the database still names them until others take over.
    """
    text = Text()
    text.append(f"{second:5} s ", "dim")
    text.append(f"{figures.touches:>8,} ")
    text.append(f"{delivered:>9,} ", "green")
    text.append(f"{rate:>6,.0f} ")
    text.append(f"{figures.waiting:>8,} ", "yellow" if figures.waiting else "dim")
    text.append(f"{duration(figures.lag):>7}  ", "yellow" if figures.lag > 1 else "dim")
    for name in NAMES:
        led = ",".join(str(leader.partition) for leader in leaders if leader.client == name)
        if name in dead:
            text.append(f"{name} killed  ", "red")
        else:
            text.append(f"{f'{name} {led or chr(8211)}':<11}", "cyan" if led else "dim")
    text.rstrip()
    return text
