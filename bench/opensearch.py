"""How fast the sink `opensearch` writes, beside what the server's own client does at its best."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count

import orjson
from opensearchpy import AsyncOpenSearch
from opensearchpy.helpers import async_bulk

from bench.frame.page import Section
from bench.frame.rounds import interleave
from bench.frame.sends import show, target
from bench.frame.server import Server
from pytube.embedded.search_server import OpenSearch
from pytube.model import OK, Batch, Documents, Token
from pytube.sinks.opensearch import OpenSearchSink

DOCUMENTS = 20_000
EACH = 500
"""Documents of a batch, as a worker's by default."""
AT_ONCE = 4
ROUNDS = 5
TO_LINES = 0.7
"""Of ready-made lines without versions: the sink looks each document's version up at the server, puts its
stamp in, and the server indexes five fields more."""
TO_HELPER = 1.0
WORDS = {
    "sink": "sink",
    "plain": "sink, `compress = false`",
    "lines": "client, ready-made lines",
    "helper": "client, `async_bulk`",
}
SETTINGS = {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "30s"}
PROPERTIES = {"id": {"type": "long"}, "name": {"type": "keyword"}, "text": {"type": "text"}}

_BODIES = [
    orjson.dumps({"id": n, "name": f"name {n}", "text": f"some words about number {n} " * 6})
    for n in range(DOCUMENTS)
]


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "OpenSearch",
        f"{DOCUMENTS:,} new documents of {len(_BODIES[-1])} bytes into an empty index of one shard on this "
        f"machine, {EACH} a request, {AT_ONCE} requests at once: by the sink; by the official client with "
        "lines that were made before the clock ran, without versions and stamps, which is the most this "
        "server takes from one process; and by the client's own helper, which makes its lines from "
        "dictionaries and sends one request after the other.",
    )
    readings = server.readings(server.database("bench_opensearch"))
    with tempfile.TemporaryDirectory() as folder, OpenSearch(folder) as search, asyncio.Runner() as runner:
        cases = Cases(search.url)
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "sink": lambda: cases.sink(compress=True),
            "plain": lambda: cases.sink(compress=False),
            "lines": cases.lines,
            "helper": cases.helper,
        }

        def case(name: str) -> Callable[[], float]:
            async def work() -> float:
                await works[name]()
                return DOCUMENTS

            return lambda: runner.run(work())

        taken = interleave(
            readings, {name: case(name) for name in works}, ROUNDS, lambda _: runner.run(cases.renew())
        )
        runner.run(cases.client.close())
    server.drop("bench_opensearch")
    show(section, taken, WORDS, to="lines")
    section.targets += [
        target(taken, "OpenSearch: to ready-made lines", "sink", "lines", TO_LINES),
        target(taken, "OpenSearch: to the client's helper", "sink", "helper", TO_HELPER),
    ]
    return section


class Cases:
    """The ways to fill an index."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._name = ""
        self._numbers = count()
        self.client = AsyncOpenSearch(url, timeout=60)
        self._lines = [
            b"".join(b'{"index":{"_id":"0:%d"}}\n%b\n' % (n, _BODIES[n]) for n in numbers)
            for numbers in _batches()
        ]

    async def renew(self) -> None:
        """Make a new index, and drop the one before."""
        if self._name:
            await self.client.indices.delete(index=f"{self._name}-000001")
        self._name = f"bench-{next(self._numbers)}"
        sink = self._sink(compress=True)
        await sink.open()
        await sink.close()

    async def sink(self, *, compress: bool) -> None:
        """By the sink."""
        sink = self._sink(compress=compress)
        await sink.open()

        async def send(numbers: range) -> None:
            token = Token(1, 1 + numbers.start)
            documents = Documents(token, 1)
            documents.add(0, numbers, _BODIES[numbers.start : numbers.stop])
            assert await sink.send(Batch("bench", 0, token, documents)) == [OK] * EACH

        await _at_once([partial(send, numbers) for numbers in _batches()])
        await sink.close()

    async def lines(self) -> None:
        """By the client, from lines."""

        async def send(lines: bytes) -> None:
            answer = await self.client.bulk(body=lines, index=self._name)
            assert not answer["errors"]

        await _at_once([partial(send, lines) for lines in self._lines])

    async def helper(self) -> None:
        """By the client's helper."""
        actions = (
            {"_index": self._name, "_id": f"0:{n}", "_source": orjson.loads(body)}
            for n, body in enumerate(_BODIES)
        )
        done, _ = await async_bulk(self.client, actions, chunk_size=EACH)
        assert done == DOCUMENTS

    def _sink(self, *, compress: bool) -> OpenSearchSink:
        return OpenSearchSink.from_options(
            {
                "url": self._url,
                "index": self._name,
                "compress": compress,
                "settings": SETTINGS,
                "mappings": {"properties": PROPERTIES},
            }
        )


def _batches() -> Iterator[range]:
    return (range(start, start + EACH) for start in range(0, DOCUMENTS, EACH))


async def _at_once(works: list[Callable[[], Awaitable[None]]]) -> None:
    """All of them, so many at the same time."""
    waiting = iter(works)

    async def line() -> None:
        for work in waiting:
            await work()

    await asyncio.gather(*(line() for _ in range(AT_ONCE)))
