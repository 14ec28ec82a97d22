"""Batches that sinks of stores are given, all alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import cache

import orjson

from pytube.model import Batch, Documents, Token

DOCUMENTS = 60_000
EACH = 500
"""Documents of a batch, as a worker's by default."""
AT_ONCE = 4
"""Batches under way, as a worker's partition by default."""


@cache
def bodies() -> list[bytes]:
    """The documents, by id."""
    text = "some words about number "
    return [
        orjson.dumps({"id": n, "name": f"name {n}", "n": n / 7, "text": f'{text}"{n}" ' * 5})
        for n in range(DOCUMENTS)
    ]


def pieces() -> Iterator[range]:
    """The ids of each batch."""
    return (range(start, start + EACH) for start in range(0, DOCUMENTS, EACH))


def batches(epoch: int, numbers: Iterable[range]) -> Iterator[Batch]:
    """The batches of these ids, under tokens of one term."""
    for ids in numbers:
        token = Token(epoch, 1 + ids.start)
        documents = Documents(token, 1)
        documents.add(0, ids, bodies()[ids.start : ids.stop])
        yield Batch("bench", 0, token, documents)


async def at_once(send: Callable[[range], Awaitable[None]]) -> None:
    """Send all batches, so many at the same time."""
    waiting = pieces()

    async def line() -> None:
        for numbers in waiting:
            await send(numbers)

    await asyncio.gather(*(line() for _ in range(AT_ONCE)))
