"""How fast the sink `webhook` posts, beside the same bodies made before, posted by the same HTTP client."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from itertools import count

import httpcore

from bench.frame.page import Section
from bench.frame.rounds import interleave
from bench.frame.sends import AT_ONCE, BATCHES, DOCUMENTS, batches, send_all, show, target
from bench.frame.server import Server
from pytube.model import Batch
from pytube.sinks.webhook import WebhookSink, body_of, lines

ROUNDS = 7
TO_BARE = 0.7
"""The bodies that are compared with were made before, and are not signed: what is left of the work is to
write to a socket, less than 2 µs a document. A worker takes longer than that to read one."""
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="  # noqa: S105 # of nobody
WORDS = {"sink": "the sink, signed", "bare": "bodies made before, by httpcore"}


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "The sink `webhook`",
        f"{BATCHES} batches of {DOCUMENTS} documents of some 150 bytes, {AT_ONCE} batches at once, over "
        "loopback to a process that reads them and answers 204.",
    )
    with subprocess.Popen([sys.executable, "-m", "bench.sinks.receiving"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            _measure(server, section, f"http://127.0.0.1:{int(process.stdout.readline())}/")
        finally:
            process.kill()
    return section


def _measure(server: Server, section: Section, url: str) -> None:
    rounds = count(1)
    made: dict[str, list[tuple[Batch, bytes]]] = {}

    def before(name: str) -> None:
        sent = batches(next(rounds))
        bodies = [body_of(lines(b.tube, b.documents), "ndjson") for b in sent]
        made[name] = list(zip(sent, bodies, strict=True))

    taken = interleave(
        server.readings(server.postgres.dsn()),
        {
            "sink": lambda: asyncio.run(_sink(url, [batch for batch, _ in made["sink"]])),
            "bare": lambda: asyncio.run(_bare(url, made["bare"])),
        },
        ROUNDS,
        before,
    )
    show(section, taken, WORDS, to="bare")
    name = f"{WORDS['sink']}, to {WORDS['bare']}"
    section.targets.append(target(taken, name, "sink", "bare", TO_BARE))


async def _sink(url: str, sent: list[Batch]) -> float:
    options = {"url": url, "secret": SECRET, "allow_plain_http": True, "allowed_networks": ["127.0.0.0/8"]}
    sink = WebhookSink.from_options(options)
    await sink.open()
    documents = await send_all(sent, sink.send)
    await sink.close()
    return documents


async def _bare(url: str, made: list[tuple[Batch, bytes]]) -> float:
    bodies = {id(batch): body for batch, body in made}
    async with httpcore.AsyncConnectionPool() as pool:

        async def post(batch: Batch) -> None:
            await pool.request("POST", url, content=bodies[id(batch)])

        return await send_all([batch for batch, _ in made], post)
