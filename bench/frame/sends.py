"""Documents for sinks that are measured by themselves, and how they are sent: some batches at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

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
