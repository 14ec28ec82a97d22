"""Compares the source with a sink, key by key, while both go on changing.

Every row is read as a worker would read it now, with the tube's transforms, and looked up at the sink. Then
every document that the sink has is looked up at the source. A key that differs is looked at again until it
agrees or time is up, because a change that is on its way differs for a moment. So a difference that is
reported may be a change that waits in the tube; one that stays is always reported.

Keys are looked up and not summed in buckets: a sink that can be reindexed gives documents by their keys, so
that each side is walked once, and differences are known by key at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from psycopg import sql

from pytube.comparison import decode
from pytube.db.errors import translated
from pytube.db.session import SessionPool
from pytube.enrich import Enricher
from pytube.enrich.rows import load_roots
from pytube.enrich.statements import Root, Roots, raw
from pytube.model import Documents, Id, Key, Token, shard_of
from pytube.sinks.base import EVERY_SEQ, READ_MOST, Stored
from pytube.sinks.reindexing import ReadableSink
from pytube.transforms import Origin, Transforms

Kind = Literal["missing", "extra", "different"]

_KEPT = 10_000
"""Differing keys that are looked at again; of more, only the number is kept."""
_AGAIN = 0.5
"""Seconds between two looks at keys that differ."""
_EXAMPLES = 20


@dataclass(slots=True)
class Comparison:
    """What was compared, and what differs."""

    source: int = 0
    """Keys of the source."""
    sink: int = 0
    """Keys of the sink."""
    skipped: int = 0
    """Keys of which a transform sends nothing: whatever the sink holds of them was not compared."""
    rejected: int = 0
    """Keys of which a transform refuses to make a document: not compared."""
    counts: dict[Kind, int] = field(default_factory=lambda: {"missing": 0, "extra": 0, "different": 0})
    """Keys that only the source has, that only the sink has, and whose documents differ."""
    examples: list[tuple[Kind, int, Id]] = field(default_factory=list)
    """Some of the keys that differ: kind, shard, id."""
    looked_once: int = 0
    """Keys among `counts` that were too many to be looked at again."""

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not any(self.counts.values())

    def __str__(self) -> str:
        words = [f"{count} {kind}" for kind, count in self.counts.items()]
        skipped = [
            f"{count} not compared, because a transform {verb} them"
            for count, verb in ((self.skipped, "skips"), (self.rejected, "refuses"))
            if count
        ]
        where = f"of {self.source} keys of the source and {self.sink} of the sink"
        return "; ".join([f"{', '.join(words)}, {where}", *skipped])


class Comparer:
    """One comparison of one tube."""

    def __init__(
        self,
        tube: str,
        partitions: int,
        pool: SessionPool,
        enricher: Enricher,
        transforms: Transforms | None,
        sink: ReadableSink,
    ) -> None:
        """Args:
        tube: its name.
        partitions: of the tube.
        pool: where ids are read.
        enricher: reads documents.
        transforms: of the tube.
        sink: is compared; open.
        """
        self._tube = tube
        self._partitions = partitions
        self._pool = pool
        self._enricher = enricher
        self._transforms = transforms
        self._sink = sink
        self._found = Comparison()
        self._again: dict[Key, Kind] = {}

    async def run(self, patience: float) -> Comparison:
        """Compare; look at keys that differ again for at most `patience` seconds.

        Raises:
            PytubeError: a side can't be read; nothing is known then.
        """
        async with self._pool.session() as session:
            with translated():
                roots = await load_roots(session.connection, self._tube)
        async for keys in self._source_keys(roots):
            self._found.source += len(keys)
            self._note(await self._differing(keys))
        for shard in [shard for root in roots.all for shard in range(root.shard, root.shard + root.shards)]:
            async for keys in self._sink_keys(roots, shard):
                self._found.sink += len(keys)
                self._note(await self._differing(keys, only_extra=True))
        await self._look_again(patience)
        return self._found

    # --- keys -----------------------------------------------------------------------------

    async def _source_keys(self, roots: Roots) -> AsyncIterator[Sequence[Key]]:
        """The keys of all root tables, page by page. Each page is a statement: no snapshot is held."""
        for root in roots.all:
            last: Id | None = None
            while True:
                statement = _ids_after(roots, root, last)
                async with self._pool.session() as session:
                    with translated():
                        cursor = await session.connection.execute(
                            statement, {"last": last, "page": READ_MOST}
                        )
                        ids: list[Id] = [row[0] for row in await cursor.fetchall()]
                keys = [(shard_of(id_, root.shard, root.shards), id_) for id_ in ids]
                if own := [key for key in keys if roots.of(key[0]) is root]:
                    yield own
                if len(ids) < READ_MOST:
                    break
                last = ids[-1]

    async def _sink_keys(self, roots: Roots, shard: int) -> AsyncIterator[Sequence[Key]]:
        async for page in self._sink.scan(self._tube, shard, EVERY_SEQ):
            ids = list(filter(roots.keys.has, page))
            for start in range(0, len(ids), READ_MOST):
                yield [(shard, id_) for id_ in ids[start : start + READ_MOST]]

    # --- documents ------------------------------------------------------------------------

    async def _differing(
        self, keys: Sequence[Key], *, only_extra: bool = False, counts: bool = True
    ) -> Mapping[Key, Kind]:
        """Which of at most `READ_MOST` keys differ now; with `only_extra`, those that the source lacks."""
        documents = await self._source_documents(keys, counts=counts and not only_extra)
        if only_extra:
            documents = {key: body for key, body in documents.items() if body is None}
        written = [key for key, body in documents.items() if body is not None]
        bodies = [body for body in documents.values() if body is not None]
        held = dict(zip(written, await self._sink.as_held(bodies), strict=True))
        found = await self._sink.read(self._tube, list(documents)) if documents else {}
        kinds = ((key, _kind(held.get(key), found[key])) for key in documents)
        return {key: kind for key, kind in kinds if kind is not None}

    async def _source_documents(self, keys: Sequence[Key], *, counts: bool) -> Mapping[Key, bytes | None]:
        """What a worker would send for each key now, None for a delete; not keys that it would not send."""
        documents = Documents(Token(0, 0), 0)
        tables: dict[int, str | None] = {}
        for shard, ids in _by_shard(keys).items():
            read = await self._enricher.read(shard, ids)
            documents.add(shard, ids, map(read.bodies.get, ids))
            tables[shard] = read.table
        if self._transforms is not None:
            partition = keys[0][0] % self._partitions
            came = await self._transforms.apply(documents, Origin(self._tube, partition, time.time(), tables))
            documents = came.documents
            if counts:
                self._found.skipped += len(came.skipped)
                self._found.rejected += len(came.rejected)
        return {document.key: document.body for document in documents}

    # --- what differs ---------------------------------------------------------------------

    def _note(self, differing: Mapping[Key, Kind]) -> None:
        for key, kind in differing.items():
            if len(self._again) < _KEPT:
                self._again[key] = kind
            else:
                self._found.looked_once += 1
                self._found.counts[kind] += 1

    async def _look_again(self, patience: float) -> None:
        """Until all agree or time is up; what is left differs."""
        until = time.monotonic() + patience
        while self._again:
            left: dict[Key, Kind] = {}
            keys = list(self._again)
            for start in range(0, len(keys), READ_MOST):
                left |= await self._differing(keys[start : start + READ_MOST], counts=False)
            self._again = left
            if time.monotonic() >= until:
                break
            if left:
                await asyncio.sleep(_AGAIN)
        for key, kind in self._again.items():
            self._found.counts[kind] += 1
            if len(self._found.examples) < _EXAMPLES:
                self._found.examples.append((kind, *key))


def _ids_after(roots: Roots, root: Root, last: Id | None) -> sql.Composed:
    """The next page of the ids of a root table, which capture would touch."""
    name = sql.Identifier("r", root.id_col)
    conditions = [sql.SQL("{} IS NOT NULL").format(name)]
    if last is not None:
        conditions.append(sql.SQL("{} > %(last)s").format(name))
    if roots.predicate is not None:
        # From the registry, where it was checked; % is psycopg's own sign.
        conditions.append(sql.SQL("({}\n)").format(raw(roots.predicate.replace("%", "%%"))))
    cast = sql.SQL("bigint" if roots.keys.value == "bigint" else "text")
    page = sql.SQL("SELECT DISTINCT {name} FROM {table} r WHERE {where} ORDER BY 1 LIMIT %(page)s").format(
        name=name,
        table=sql.Identifier(root.schema, root.table),
        where=sql.SQL(" AND ").join(conditions),
    )
    return sql.SQL("SELECT p.id::{cast} FROM ({page}) p(id) ORDER BY p.id").format(cast=cast, page=page)


def _by_shard(keys: Iterable[Key]) -> dict[int, list[Id]]:
    groups: dict[int, list[Id]] = {}
    for shard, id_ in keys:
        groups.setdefault(shard, []).append(id_)
    return groups


def _kind(expected: bytes | None, held: Stored) -> Kind | None:
    """How a key differs; None when it does not."""
    if expected is None:
        return "extra" if held.exists else None
    if not held.exists:
        return "missing"
    return None if _is_same(decode(expected), held.value) else "different"


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values of JSON are equal; for Python, `true` equals `1`."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)
