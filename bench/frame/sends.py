"""Sinks measured by themselves: their documents, how these are sent (some batches at once), and the table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from bench.frame.page import Section, Target
from bench.frame.readings import Reading
from bench.frame.rounds import rates
from bench.frame.statistics import ratios, spread
from pytube.model import Batch, Documents, Token

DOCUMENTS = 500
"""Of a batch, as a worker sends by default."""
BATCHES = 40
AT_ONCE = 4


def batches(round_: int) -> list[Batch]:
    """Batches of documents of about 150 bytes, under a token that grows with `round_`."""
    made = []
    for number in range(BATCHES):
        token = Token(round_, number + 1)
        documents = Documents(token, round_)
        ids = range(number * DOCUMENTS, (number + 1) * DOCUMENTS)
        documents.add(0, ids, [b'{"id":%d,"name":"%b"}' % (key, b"n" * 120) for key in ids])
        made.append(Batch("t", 0, token, documents))
    return made


async def send_all(sent: Sequence[Batch], send: Callable[[Batch], Awaitable[object]]) -> float:
    """Send them all, `AT_ONCE` at a time; how many documents they had."""
    waiting = iter(sent)

    async def lane() -> None:
        for batch in waiting:
            await send(batch)

    await asyncio.gather(*(lane() for _ in range(AT_ONCE)))
    return float(sum(map(len, sent)))


def show(
    section: Section,
    taken: Mapping[str, list[Reading]],
    words: Mapping[str, str],
    *,
    to: str,
    server: bool = False,
) -> None:
    """The table of sinks beside other ways to write the same.

    Args:
        section: gets it.
        taken: the readings of each way.
        words: what the table calls each.
        to: the way that ratios are taken to.
        server: whether the readings' server is the one that is written to.
    """

    def row(name: str, found: Sequence[Reading]) -> list[str]:
        ratio = "" if name == to else ratios(rates(taken, name), rates(taken, to)).text()
        client = f"{spread([reading.own_cpu_each for reading in found]).middle:,.1f}"
        busy = [f"{spread([reading.cpu_each for reading in found]).middle:,.1f}"] if server else []
        return [words[name], spread(rates(taken, name)).text(0), ratio, client, *busy]

    head = ["", "documents/s", f"ratio to {words[to]}", "client CPU µs each"]
    section.table(
        [*head, *(["server CPU µs each"] if server else [])],
        [row(name, found) for name, found in taken.items()],
    )


def target(taken: Mapping[str, list[Reading]], name: str, over: str, under: str, goal: float) -> Target:
    """That one way is at least so fast, to another."""
    return Target(name, goal, ratios(rates(taken, over), rates(taken, under)).middle)
