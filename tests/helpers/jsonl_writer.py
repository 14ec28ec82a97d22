"""Writes rounds of documents through the sink `jsonl`, and tells each round that was answered on stderr.

`python -m tests.helpers.jsonl_writer PATH SHARD ROUNDS DOCUMENTS SIZE`; SIZE: bytes of a document's text.
"""

from __future__ import annotations

import asyncio
import sys

from pytube.sinks.jsonl import JsonlSink
from pytube.testing import batch


def tell(what: object) -> None:
    """A line on stderr, at once."""
    sys.stderr.write(f"{what}\n")
    sys.stderr.flush()


async def main(path: str, shard: int, rounds: int, documents: int, size: int) -> None:
    """Write them."""
    sink = JsonlSink(path, client=f"writer-{shard}")
    await sink.open()
    tell("open")
    body = b'{"text":"%b"}' % (b"x" * size)
    values = {(shard, id_): body for id_ in range(documents)}
    for round_ in range(1, rounds + 1):
        await sink.send(batch(values, token=(1, round_)))
        tell(round_)
    await sink.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
