"""The two sides of a comparison: the source as a worker would send it now, and the sink's documents.

Sessions are of the configured role and read-only: they read nothing that a worker could not read.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psycopg

from pytube.config import Config
from pytube.db.connect import wait_for_answer
from pytube.db.errors import describe, translated
from pytube.db.session import Session, SessionPool
from pytube.enrich import Enricher, Read
from pytube.enrich.rows import load_roots
from pytube.enrich.statements import Root, Roots, ids_statement, part_arguments, refuse_unnamed
from pytube.errors import EnrichDataError, EnrichTimeout, StatementFailed, UnknownTable, UsageError
from pytube.logs import Logger, UserFaults
from pytube.model import Documents, Id, Key, Token
from pytube.pipeline.batches import by_shard
from pytube.sinks import Reading, Sink, Stored, build_sink, open_existing, why_no_scan
from pytube.sinks.registry import naming_of
from pytube.transforms import Origin, Transforms
from pytube.tubes.calls import unknown_tube

_SETTINGS = {
    "default_transaction_read_only": "on",
    # A row that a policy hides would look deleted.
    "row_security": "off",
}
_SESSIONS = 6
_PARTITIONS = "SELECT partitions FROM tube_registry WHERE tube = %(tube)s"
_ROWS = """
    SELECT coalesce(
        -- Autovacuum does not analyze a partitioned table, only its partitions.
        (SELECT sum(greatest(l.reltuples, 0)) FROM pg_catalog.pg_partition_tree(c.oid) AS t
            JOIN pg_catalog.pg_class AS l ON l.oid = t.relid WHERE t.isleaf),
        greatest(c.reltuples, 0))::float8
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(table)s
"""


@dataclass(slots=True)
class Now:
    """What a worker would send for some keys."""

    bodies: dict[Key, bytes | None] = field(default_factory=dict)
    """The documents; None: the key would be deleted."""
    skipped: list[Key] = field(default_factory=list)
    """Keys of which a transform lets nothing be sent."""
    unsendable: dict[Key, str] = field(default_factory=dict)
    """Keys whose documents can't be made, and why."""
    orphans: list[Key] = field(default_factory=list)
    """Keys of a shard that no attached table has."""


class Source:
    """One tube's source."""

    def __init__(self, config: Config, tube: str, pool: SessionPool, sink: Sink) -> None:
        """Opens nothing. `ConfigError`: the tube is not configured, or a transform is missing.

        `sink` learns the columns of keys once they are known.
        """
        self._sink = sink
        self.tube = tube
        self.pool = pool
        self._settings = config.tube(tube)
        log = Logger("pytube.verify", tube=tube)
        self._transforms = Transforms.load(
            self._settings.transforms,
            tube,
            log,
            UserFaults(log),
            splits=self._settings.sink.parts is not None,
        )
        self._answer_timeout = config.postgres.answer_timeout
        enrich = self._settings.enrich
        self._enricher = Enricher(pool, tube, enrich, self._answer_timeout, self._learn_roots)
        no_columns = enrich.model_copy(update={"mode": "row", "query": None, "columns": [], "tables": {}})
        self._rows = Enricher(pool, tube, no_columns, self._answer_timeout)

    def _learn_roots(self, roots: Roots) -> None:
        naming = naming_of(self._sink)
        if naming is not None:
            naming.learn_keys(roots.key_of)
            refuse_unnamed(roots, naming.why_no_name)

    async def roots(self) -> Roots:
        """The registry of the tube, as it is now; `UnknownTube` where there is none."""
        async with self._asking() as session:
            if await session.value(_PARTITIONS, {"tube": self.tube}) is None:
                raise unknown_tube(self.tube)
            roots = await load_roots(session.connection, self.tube)
        self._learn_roots(roots)
        return roots

    async def partitions(self) -> int:
        """The number of partitions."""
        async with self._asking() as session:
            return int(await session.value(_PARTITIONS, {"tube": self.tube}))

    async def rows(self, root: Root) -> float:
        """About how many rows a table has, by the statistics; 0 where there are none."""
        async with self._asking() as session:
            found = await session.value(_ROWS, {"schema": root.schema, "table": root.table})
            return float(found or 0)

    async def ids(
        self,
        roots: Roots,
        root: Root,
        after: Id | None,
        limit: int,
        drawn: tuple[float, bool] | None = None,
    ) -> list[Id]:
        """The next ids of a root table, in its order; of a sample (see `ids_statement`), all at once."""
        statement = ids_statement(roots, root, first=after is None, drawn=drawn)
        arguments: dict[str, object] = {"after": after, "limit": limit}
        if after is not None and root.key is not None:
            values = root.key.values(str(after))
            if values is None:
                raise StatementFailed(
                    f"{root.name} has another key than when this comparison began; begin anew"
                )
            arguments = {"limit": limit, **part_arguments(values)}
        async with self._asking() as session:
            connection = session.connection

            async def ask() -> list[Id]:
                cursor = await connection.execute(statement, arguments, binary=True)
                return [row[0] for row in await cursor.fetchall()]

            return await wait_for_answer(connection, self._answer_timeout, ask())

    async def now(self, keys: Sequence[Key]) -> Now:
        """What a worker would send for these keys."""
        now = Now()
        for shard, ids, read in await _in_halves(self._enricher, keys, now.unsendable):
            await self._take(now, shard, ids, read)
        return now

    async def without_row(self, keys: Sequence[Key], unknown: dict[Key, str]) -> list[Key]:
        """The keys that no row of the tube has.

        `unknown` gets the keys that can't be read, even alone, with the reasons.
        """
        found = await _in_halves(self._rows, keys, unknown)
        return [(shard, key) for shard, ids, read in found for key in ids if key not in read.bodies]

    async def _take(self, now: Now, shard: int, ids: Sequence[Id], read: Read) -> None:
        if read.orphans:
            now.orphans += [(shard, key) for key in ids]
            return
        if self._transforms is None:
            now.bodies |= {(shard, key): read.bodies.get(key) for key in ids}
            return
        documents = Documents(Token(0, 0), 0)
        documents.add(shard, ids, map(read.bodies.get, ids))
        origin = Origin(self.tube, 0, time.time(), {shard: read.table})
        came = await self._transforms.apply(documents, origin)
        now.bodies |= {document.key: document.body for document in came.documents}
        now.skipped += came.skipped
        now.unsendable |= came.rejected

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[Session]:
        try:
            with translated():
                async with self.pool.session() as session:
                    yield session
        except psycopg.Error as error:
            raise StatementFailed(f"the source can't be read: {describe(error)}") from error


async def _in_halves(
    enricher: Enricher, keys: Sequence[Key], unreadable: dict[Key, str]
) -> list[tuple[int, Sequence[Id], Read]]:
    """The ids of each shard, with their rows; read in halves if a row, or the time, makes that fail.

    `unreadable` gets the keys that can't be read, even alone, with the reasons.
    """
    groups = by_shard(keys)
    try:
        found = await enricher.read(groups)
    except (EnrichDataError, EnrichTimeout) as error:
        if len(keys) == 1:
            unreadable[keys[0]] = str(error)
            return []
        half = len(keys) // 2
        first = await _in_halves(enricher, keys[:half], unreadable)
        return first + await _in_halves(enricher, keys[half:], unreadable)
    return [(shard, ids, found[shard]) for shard, ids in groups.items()]


def chosen(roots: Roots, tube: str, tables: Sequence[str]) -> list[Root]:
    """The root tables to compare: the named ones, or all."""
    found = list(roots.all)
    if not found:
        raise UsageError(f"no table is attached to tube {tube!r}, so there is nothing to compare")
    if not tables:
        return found
    named = []
    for name in tables:
        match = [root for root in found if name in (root.name, root.table)]
        if len(match) != 1:
            known = ", ".join(root.name for root in found)
            raise UnknownTable(f"{name} is not a root table of tube {tube!r}; its root tables: {known}")
        named += match
    return named


def keys_in(root: Root, ids: Sequence[Id]) -> Iterator[Key]:
    """The keys of ids of a root table."""
    for shard in range(root.shard, root.shard + root.shards):
        for key in root.own(shard, ids):
            yield shard, key


@asynccontextmanager
async def opened(config: Config, tube: str, purpose: str) -> AsyncIterator[tuple[Source, Sink]]:
    """The source, and the sink, open; `ConfigError` and `SinkUnavailable` as they say."""
    postgres, settings = config.postgres, config.tube(tube).sink

    async def open_session() -> Session:
        return await Session.open(
            postgres.only_dsn.get_secret_value(),
            postgres.schema_name,
            f"pytube {purpose}",
            answer_timeout=postgres.answer_timeout,
            settings=_SETTINGS,
        )

    pool = SessionPool(open_session, _SESSIONS)
    sink = build_sink(
        settings.type, settings.options, request_timeout=settings.request_timeout, parts=settings.parts
    )
    source = Source(config, tube, pool, sink)
    try:
        yield source, sink
    finally:
        await sink.close()
        await pool.close()


# --- the sink ---------------------------------------------------------------------------------------


class Absent:
    """Is read in place of an absent sink."""

    def __init__(self, sink: Sink, missing: str) -> None:
        """`sink`: the configured one; `missing`: the missing object, in words."""
        self.missing = missing
        self._why_no_scan = why_no_scan(sink)

    async def read(self, tube: str, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        """No document."""
        del tube
        return dict.fromkeys(keys, Stored())

    def cannot_scan(self) -> str | None:
        """As the sink."""
        return self._why_no_scan

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        """No id."""
        del tube, shard, below_seq
        nothing: Sequence[Sequence[Id]] = ()
        for page in nothing:
            yield page


async def open_to_read(sink: Sink) -> Reading:
    """Open a sink that can be read, and make nothing; returns the object to read, which may be absent.

    Raises:
        SinkError: it can't be opened.
    """
    missing = await open_existing(sink)
    if missing is not None:
        return Absent(sink, missing)
    assert isinstance(sink, Reading)
    return sink
