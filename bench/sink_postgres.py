"""How fast the sink `postgres` writes, beside upserts and COPY by hand that keep no stamps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import psycopg

from bench.frame.page import Section
from bench.frame.rounds import interleave
from bench.frame.sends import show, target
from bench.frame.server import Server, connect
from bench.sinks.batches import AT_ONCE, DOCUMENTS, EACH, at_once, batches, bodies
from pytube.model import OK
from pytube.sinks.postgres import PostgresSink

ROUNDS = 5
TO_COPY = 0.5
"""Of COPY and an upsert without stamps: the sink writes two rows for each document, and compares it."""
WORDS = {
    "sink": "sink, a column of jsonb",
    "columns": "sink, three columns",
    "upsert": "`INSERT … ON CONFLICT` of lists",
    "copy": "COPY into a staging table, then one upsert",
}
TABLES = """
    CREATE TABLE public.hand (shard int, id bigint, doc jsonb, PRIMARY KEY (shard, id));
    CREATE TABLE public.wide (
        shard int, id bigint, name text, text text, n numeric, PRIMARY KEY (shard, id));
"""
UPSERT = """
    INSERT INTO public.hand SELECT 0, g.id, g.doc::jsonb FROM unnest(%s::bigint[], %s::text[]) AS g (id, doc)
    ON CONFLICT (shard, id) DO UPDATE SET doc = excluded.doc
"""
STAGE = "CREATE TEMP TABLE stage (id bigint, doc jsonb) ON COMMIT DELETE ROWS"
STAGED = """
    INSERT INTO public.hand SELECT 0, id, doc FROM stage
    ON CONFLICT (shard, id) DO UPDATE SET doc = excluded.doc
"""


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "The sink `postgres`",
        f"{DOCUMENTS:,} documents of some {len(bodies()[-1])} bytes over rows that are there, {EACH} a "
        f"transaction, {AT_ONCE} at once, each durable: by the sink, which compares and stamps each; and by "
        "hand, in as many sessions, without stamps.",
    )
    dsn = server.database("bench_sink_postgres")
    with connect(dsn) as admin, asyncio.Runner() as runner:
        admin.execute(TABLES)
        cases = Cases(dsn)
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "sink": partial(cases.sink, "copy", {}),
            "columns": partial(cases.sink, "wide", {"columns": ["name", "text", "n"]}),
            "upsert": cases.upsert,
            "copy": cases.copy,
        }

        def case(name: str) -> Callable[[], float]:
            async def work() -> float:
                await works[name]()
                return DOCUMENTS

            return lambda: runner.run(work())

        readings = server.readings(dsn)
        # Old row versions of one case must not slow the next one down.
        taken = interleave(
            readings, {name: case(name) for name in works}, ROUNDS, lambda _: admin.execute("VACUUM")
        )
    show(section, taken, WORDS, to="copy", server=True)
    section.targets.append(target(taken, "Postgres: to COPY and an upsert", "sink", "copy", TO_COPY))
    server.drop("bench_sink_postgres")
    return section


class Cases:
    """The ways to write. Each opens its sessions itself; that is a small part of what it takes."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._epoch = 0

    async def sink(self, table: str, options: dict[str, object]) -> None:
        """By the sink."""
        self._epoch += 1
        sink = PostgresSink.from_options({"dsn": self._dsn, "table": table, "create": True, **options})
        await sink.open()

        async def send(numbers: range) -> None:
            assert await sink.send(next(batches(self._epoch, [numbers]))) == [OK] * EACH

        await at_once(send)
        await sink.close()

    async def upsert(self) -> None:
        """By one statement a batch."""

        async def send(session: psycopg.AsyncConnection, numbers: range) -> None:
            documents = [body.decode() for body in bodies()[numbers.start : numbers.stop]]
            await session.execute(UPSERT, [list(numbers), documents])

        await self._by_hand(send)

    async def copy(self) -> None:
        """By COPY of a batch, and one statement."""

        async def send(session: psycopg.AsyncConnection, numbers: range) -> None:
            lines = b"".join(b"%d\t%b\n" % (n, bodies()[n].replace(b"\\", b"\\\\")) for n in numbers)
            async with session.transaction(), session.cursor() as cursor:
                async with cursor.copy("COPY stage FROM STDIN") as copy:
                    await copy.write(lines)
                await cursor.execute(STAGED)

        await self._by_hand(send)

    async def _by_hand(self, send: Callable[[psycopg.AsyncConnection, range], Awaitable[None]]) -> None:
        free = [await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) for _ in range(AT_ONCE)]
        sessions = list(free)
        for session in sessions:
            await session.execute(STAGE)

        async def one(numbers: range) -> None:
            session = free.pop()
            await send(session, numbers)
            free.append(session)

        await at_once(one)
        for session in sessions:
            await session.close()
