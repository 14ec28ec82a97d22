"""Reads documents from the root tables: the row as JSON, or what a configured query makes of it.

A shard's ids are those of its root table, so the registry tells which section of the configuration they are
read by.

The statement reads the registry's state along with the rows, in one snapshot. So a predicate or
an attachment that changes meanwhile can't mix with what was read: then it is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import psycopg

from pytube.config import DocumentConfig, EnrichConfig
from pytube.db.arrays import array_of
from pytube.db.connect import NoAnswer, wait_for_answer
from pytube.db.errors import describe, is_connection_lost, translate
from pytube.db.session import SessionPool, Use
from pytube.enrich.base import Enricher, Read, TouchEnricher
from pytube.enrich.sections import refusal, section_of
from pytube.enrich.statements import ROOTS, Root, Roots, statement_for
from pytube.errors import DatabaseUnavailable, EnrichDataError, EnrichFailed, EnrichTimeout, PytubeError
from pytube.model import Id, KeyType

_DATA_ERRORS = ("21", "22")  # SQLSTATE classes: cardinality violation, data exception
_CANCELED = "57014"
_REGISTRY_CHANGES = 5
"""How often in a row the registry may change under one read before we give up."""


class RowEnricher:
    """One statement per shard and batch, on a pool of connections."""

    def __init__(
        self,
        pool: SessionPool,
        tube: str,
        config: EnrichConfig | None = None,
        answer_timeout: float | None = None,
    ) -> None:
        """Args:
        pool: sessions with our schema in their search path, whose `row_security` is off: a row that a
            policy hides would look like one that is gone, and be deleted at the sink.
        tube: whose registry is read.
        config: what the documents are; None: the rows of the root tables.
        answer_timeout: seconds that one read may take; None: any.
        """
        self._pool = pool
        self._tube = tube
        self._config = config or EnrichConfig()
        self._answer_timeout = answer_timeout
        self._roots: Roots | None = None
        self._sections: dict[Root, DocumentConfig] = {}
        """By root table, as far as they were read since the registry was."""

    async def read(self, shard: int, ids: Sequence[Id], *, urgent: bool = True) -> Read:
        """See `Enricher.read`."""
        try:
            use = Use.READ if urgent else Use.BACKFILL_READ
            async with self._pool.session(use, self._tube) as session:
                for _ in range(_REGISTRY_CHANGES):
                    reading = self._read_once(session.connection, shard, ids)
                    found = await wait_for_answer(session.connection, self._answer_timeout, reading)
                    if found is not None:
                        return found
                    self._roots = None
        except psycopg.Error as error:
            self._roots = None
            raise _as_ours(error, self._tube) from error
        raise EnrichFailed(f"the registry of tube {self._tube!r} keeps changing; it is read again later")

    async def _read_once(
        self, connection: psycopg.AsyncConnection, shard: int, ids: Sequence[Id]
    ) -> Read | None:
        """None when the registry is not the one that we know any more."""
        roots = self._roots
        if roots is None:
            roots = self._roots = await load_roots(connection, self._tube)
            self._sections = {}
        if ids and not roots.keys.has(ids[0]):  # the tube was made again, for other keys
            return None
        root = roots.of(shard)
        wanted = ids if root is None else root.own(shard, ids)
        arguments = {"tube": self._tube, "ids": array_of(roots.keys, wanted), "shard": shard}
        section = self._section(roots, root)
        statement = statement_for(roots, root, section)
        cursor = await connection.execute(statement, arguments, binary=True)
        rows = await cursor.fetchall()
        bodies: dict[Id | None, bytes | None] = dict(rows)  # a loop would take longer than all the rest
        if bodies.pop(None, None) != roots.state:
            return None
        if None in bodies.values():
            key = next(key for key, body in bodies.items() if body is None)
            raise EnrichDataError(f"the query for tube {self._tube!r} has no document for id {key}: NULL")
        documents = cast("dict[Id, bytes]", bodies)
        if root is not None and section.mode == "query" and roots.keys is not KeyType.TEXT:
            _refuse_unasked(documents, wanted, root)
        return Read(documents, orphans=ids) if root is None else Read(documents, table=root.name)

    def _section(self, roots: Roots, root: Root | None) -> DocumentConfig:
        """What the documents of a table are; raises `EnrichFailed` if they might be another table's."""
        if root is None:
            return self._config
        section = self._sections.get(root)
        if section is None:
            reason = refusal(self._config, self._tube, roots, root)
            if reason is not None:
                self._roots = None  # it may be mended in the registry
                raise EnrichFailed(reason)
            section = self._sections[root] = section_of(self._config, root)
        return section


def _refuse_unasked(documents: Mapping[Id, bytes], wanted: Sequence[Id], root: Root) -> None:
    """Refuse documents of ids that were not asked for: the query gives the ids of something else.

    What it was asked for would look like rows that are gone, and be deleted at the sink. Texts are not looked
    at: the column's own collation may find others that equal them.
    """
    unasked = documents.keys() - set(wanted)
    if unasked:
        raise EnrichFailed(
            f"the query for {root.name} returned a document of id {min(unasked)}, which is none of %(ids)s: "
            f"its first column has to be {root.id_col} of {root.name}, and it has to ask for %(ids)s alone"
        )


async def load_roots(connection: psycopg.AsyncConnection, tube: str) -> Roots:
    """The registry of a tube; raises `EnrichFailed` if there is none."""
    cursor = await connection.execute(ROOTS, {"tube": tube})
    rows = await cursor.fetchall()
    if not rows:
        raise EnrichFailed(f"the tube {tube!r} is gone")
    tables = [Root(*row[3:]) for row in rows if row[3] is not None]
    state, keys, predicate = rows[0][:3]
    return Roots(state, KeyType(keys), predicate, tables)


def _as_ours(error: psycopg.Error, tube: str) -> PytubeError:
    if isinstance(error, NoAnswer):  # a slow query, or a dead server: then the worker's own session tells
        return EnrichTimeout(f"rows for tube {tube!r} can't be read: {error} (postgres.answer_timeout)")
    if is_connection_lost(error):
        return DatabaseUnavailable(f"Postgres is not available: {describe(error)}")
    ours = translate(error)
    if ours is not None:
        return ours
    text = f"rows for tube {tube!r} can't be read: {describe(error)}"
    if (error.sqlstate or "").startswith(_DATA_ERRORS):
        return EnrichDataError(text)
    if error.sqlstate == _CANCELED:
        return EnrichTimeout(text)
    return EnrichFailed(text)


def build_enricher(config: EnrichConfig, tube: str, pool: SessionPool, answer_timeout: float) -> Enricher:
    """The enricher of one tube in this process; `answer_timeout` as for `RowEnricher`."""
    if config.mode == "none" and not config.tables:
        return TouchEnricher()
    return RowEnricher(pool, tube, config, answer_timeout)
