"""How fast the sink `redis` writes, beside redis-py's own ways, which compare nothing."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from itertools import count

import redis.asyncio

from bench.frame.page import Section
from bench.frame.rounds import interleave
from bench.frame.sends import AT_ONCE, BATCHES, DOCUMENTS, batches, send_all, show, target
from bench.frame.server import Server
from pytube.embedded.process import HOST, Port
from pytube.model import Batch
from pytube.sinks.redis import RedisSink

ROUNDS = 7
TO_PIPELINE = 0.5
TO_MSET = 0.25
"""One command with all keys and values is the server's fastest way: no script, no token, no register."""
WORDS = {
    "json": 'the sink, `mode = "json"`',
    "hash": 'the sink, `mode = "hash"`',
    "pipeline": "redis-py, a pipeline of SET",
    "mset": "redis-py, one MSET for each batch",
}
Send = Callable[[Batch], Awaitable[object]]


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "The sink `redis`",
        f"{BATCHES} batches of {DOCUMENTS} documents of some 150 bytes, {AT_ONCE} batches at once, over "
        "loopback to a server without persistence. All documents are there before. The sink compares tokens "
        "and keeps its register; what is beside it writes the same values and nothing else.",
    )
    program = shutil.which("redis-server")
    if program is None:
        section.say("This machine has no redis-server, so nothing was measured.")
        return section
    with tempfile.TemporaryDirectory() as folder, Port() as port:
        own = ["--port", str(port.number), "--bind", HOST, "--dir", folder, "--save", "", "--logfile", "log"]
        with subprocess.Popen([program, *own]) as process:
            try:
                _measure(server, section, f"redis://{HOST}:{port.number}")
            finally:
                process.kill()
    return section


def _measure(server: Server, section: Section, url: str) -> None:
    asyncio.run(_until_up(url))
    rounds = count(1)
    taken = interleave(
        server.readings(server.postgres.dsn()),
        {name: lambda name=name: asyncio.run(_case(name, url, next(rounds))) for name in WORDS},  # type: ignore[misc]
        ROUNDS,
    )
    show(section, taken, WORDS, to="mset")
    for other, goal in (("pipeline", TO_PIPELINE), ("mset", TO_MSET)):
        name = f"{WORDS['json']}, to {WORDS[other]}"
        section.targets.append(target(taken, name, "json", other, goal))


async def _case(name: str, url: str, round_: int) -> float:
    sent = batches(round_)
    if name in ("json", "hash"):
        sink = RedisSink.from_options({"url": url, "mode": name, "key": f"{name}:{{id}}"})
        await sink.open()
        documents = await send_all(sent, sink.send)
        await sink.close()
        return documents
    client = redis.asyncio.Redis.from_url(url)

    async def pipeline(batch: Batch) -> None:
        pipe = client.pipeline(transaction=False)
        for document in batch:
            pipe.set(f"pipeline:{document.id}", document.body or b"")
        await pipe.execute()

    async def mset(batch: Batch) -> None:
        await client.mset({f"mset:{document.id}": document.body or b"" for document in batch})

    ways: dict[str, Send] = {"pipeline": pipeline, "mset": mset}
    documents = await send_all(sent, ways[name])
    await client.aclose()
    return documents


async def _until_up(url: str) -> None:
    async with redis.asyncio.Redis.from_url(url) as client:
        while True:
            try:
                await client.ping()
            except redis.exceptions.ConnectionError:
                await asyncio.sleep(0.02)
            else:
                return
