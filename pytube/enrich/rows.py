"""Enrichers read the rows of keys as they are now: the row as JSON, or the result of a configured query.

A shard's ids are ids of its root table, so the registry says which section of the configuration they are
read by.

The statement reads the registry's state along with the rows, in one snapshot. So a predicate or
an attachment that changes meanwhile can't mix with the rows: then they are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

import psycopg

from pytube.config import DocumentConfig, EnrichConfig
from pytube.db.arrays import array_of
from pytube.db.connect import NoAnswer, wait_for_answer
from pytube.db.errors import (
    GRANTS,
    OF_DATA,
    about,
    describe,
    how_to_let_read,
    is_connection_lost,
    translate,
)
from pytube.db.locks import LockListener, Reads, TableLock, Waiting, told_of_locks
from pytube.db.session import STEADY_PLANS, SessionPool, Use
from pytube.documents.resolve import digest_of, why_not_applied
from pytube.enrich.statements import (
    ROOTS,
    Root,
    Roots,
    part_arguments,
    refusal,
    section_of,
    statement_for,
)
from pytube.errors import DatabaseUnavailable, EnrichDataError, EnrichFailed, EnrichTimeout, PytubeError
from pytube.keys import CompositeKey, KeyColumn, PartType
from pytube.model import Id, KeyType

OnRoots = Callable[[Roots], None]

_CANCELED = "57014"
_FEW = 20
"""Ids up to which a plan for any ten does: to plan for these very ids costs more than to read them."""
_REGISTRY_CHANGES = 5
"""How often in a row the registry may change under one read before we give up."""


@dataclass(slots=True)
class Read:
    """The rows found for the ids of one shard.

    An id of the shard that is in neither was not there: its document is to be deleted.
    """

    bodies: Mapping[Id, bytes]
    """The documents found; perhaps with documents of other shards, whose ids are others."""
    orphans: Sequence[Id] = field(default_factory=tuple)
    """Ids of a shard that no attached table has: nothing can be said about them."""
    table: str | None = None
    """The root table that was read, as `schema.table`; None when there is none."""


class Enricher:
    """Reads documents: by one statement for each root table of a batch, on a pool of connections.

    A query that names `%(shard)s` is run once for each shard. With `mode = "none"`, nothing is read: each key
    becomes the document `null`, whether its row is still there or not.
    """

    def __init__(
        self,
        pool: SessionPool,
        tube: str,
        config: EnrichConfig | None = None,
        answer_timeout: float | None = None,
        on_roots: OnRoots | None = None,
    ) -> None:
        """`pool`: sessions with pytube's schema in their search path, whose `row_security` is off: a row that
        a policy hides would look deleted, and be deleted at the sink. `on_roots` gets the registry whenever
        it is read, and raises `EnrichFailed` where nothing may be read by it.
        """
        self._on_roots = on_roots
        self._pool = pool
        self._tube = tube
        self._config = config or EnrichConfig()
        self._is_declared = digest_of(self._config) is not None
        self._answer_timeout = answer_timeout
        self._roots: Roots | None = None
        self._last_roots: Roots | None = None
        """The ones read last, even if they are outdated by now."""
        self._reads = Reads()
        self._ways: dict[tuple[bytes, Root | None], tuple[DocumentConfig, bytes]] = {}
        """By the registry's state and the table, how it is read; to compose a statement costs as much as to
        send it. With the state, as another read may have seen another registry meanwhile."""

    async def read(
        self,
        groups: Mapping[int, Sequence[Id]],
        *,
        urgent: bool = True,
        locks: LockListener | None = None,
    ) -> Mapping[int, Read]:
        """The documents of these ids by shard, of one moment for each table that is later than this call.

        Called concurrently, always after the batch's token was drawn. `urgent=False` lets other reads go
        first. `locks` gets the tables that the read waits for.

        Raises:
            DatabaseUnavailable: the connection was lost.
            EnrichFailed: the source can't be read at all (a missing grant, a wrong query).
            EnrichTimeout: it took too long, which fewer ids at a time may not.
            EnrichDataError: the data of some row makes the query fail; smaller batches show which.
        """
        if self._config.mode == "none" and not self._config.tables:
            return {shard: Read(dict.fromkeys(ids, b"null")) for shard, ids in groups.items()}
        if locks is None:
            return await self._read(groups, urgent, None)
        with self._reads.begin(locks, lambda: self._tables_of(groups)) as listener:
            return await self._read(groups, urgent, listener)

    def _tables_of(self, groups: Mapping[int, Sequence[Id]]) -> set[Root]:
        """The root tables of these shards, as far as they are known without asking."""
        roots = self._last_roots
        return set() if roots is None else {root for shard in groups if (root := roots.of(shard)) is not None}

    async def _read(
        self, groups: Mapping[int, Sequence[Id]], urgent: bool, locks: LockListener | None
    ) -> Mapping[int, Read]:
        waiting = Waiting()
        try:
            use = Use.READ if urgent else Use.BACKFILL_READ
            async with self._pool.session(use, self._tube, self._settings(groups)) as session:
                connection = session.connection
                for _ in range(_REGISTRY_CHANGES):
                    try:
                        with told_of_locks(self._pool, connection.info.backend_pid, locks) as waiting:
                            reading = self._read_once(connection, groups)
                            found = await wait_for_answer(connection, self._answer_timeout, reading)
                    except psycopg.errors.InsufficientPrivilege as error:
                        raise await self._denied(connection, error, groups) from error
                    if found is not None:
                        return found
                    self._roots = None
        except psycopg.Error as error:
            self._roots = None
            raise _as_ours(error, self._tube, waiting.lock) from error
        raise EnrichFailed(f"the registry of tube {self._tube!r} keeps changing; it is read again later")

    async def _denied(
        self,
        connection: psycopg.AsyncConnection,
        error: psycopg.Error,
        groups: Mapping[int, Sequence[Id]],
    ) -> EnrichFailed:
        """The error for a missing right, with the statement that grants it."""
        self._roots = None
        remedy = await how_to_read(connection, error, self._tables_of(groups))
        return EnrichFailed(f"rows for tube {self._tube!r} can't be read: {describe(error)}; {remedy}")

    def _settings(self, groups: Mapping[int, Sequence[Id]]) -> Mapping[str, str]:
        """Of the session that reads these ids."""
        if self._is_declared:
            return STEADY_PLANS
        is_few = sum(map(len, groups.values())) <= _FEW
        return {"plan_cache_mode": "force_generic_plan"} if is_few else {}

    async def _read_once(
        self, connection: psycopg.AsyncConnection, groups: Mapping[int, Sequence[Id]]
    ) -> Mapping[int, Read] | None:
        """None when the registry has changed."""
        roots = self._roots
        if roots is None:
            roots = self._last_roots = await load_roots(connection, self._tube)
            self._ways = {}
            self._refuse_another_document(roots)
            if self._on_roots is not None:
                self._on_roots(roots)
            self._roots = roots  # only now: what refuses them may be corrected in the registry
        some = next((ids[0] for ids in groups.values() if ids), None)
        if some is not None and not roots.keys.has(some):  # the tube was made again, for other keys
            return None
        found: dict[int, Read] = {}
        for root, shards in self._shards_read_together(roots, groups):
            wanted = {
                shard: groups[shard] if root is None else root.own(shard, groups[shard]) for shard in shards
            }
            documents = await self._documents(connection, roots, root, wanted)
            if documents is None:
                return None
            for shard, own in wanted.items():
                ids = groups[shard]
                # An id that is not the shard's own may be among the documents, as that of another shard.
                bodies = documents if len(own) == len(ids) else _of(documents, own)
                found[shard] = Read(bodies, orphans=ids) if root is None else Read(bodies, table=root.name)
        return found

    def _refuse_another_document(self, roots: Roots) -> None:
        """Read nothing while another document is applied than the configuration declares.

        Each `apply` changes the registry's state, so the statement that reads documents shows it.
        """
        reason = why_not_applied(self._tube, applied=roots.declared, own=digest_of(self._config))
        if reason is not None:
            raise EnrichFailed(reason)

    def _shards_read_together(
        self, roots: Roots, groups: Mapping[int, Sequence[Id]]
    ) -> Iterable[tuple[Root | None, Sequence[int]]]:
        """The shards that one statement reads: the shards of one root table, which share no id."""
        together: dict[tuple[Root | None, int | None], list[int]] = {}
        for shard in groups:
            root = roots.of(shard)
            query = self._way(roots, root)[0].query
            apart = shard if query is not None and "%(shard)s" in query else None
            together.setdefault((root, apart), []).append(shard)
        return [(root, shards) for (root, _), shards in together.items()]

    async def _documents(
        self,
        connection: psycopg.AsyncConnection,
        roots: Roots,
        root: Root | None,
        wanted: Mapping[int, Sequence[Id]],
    ) -> Mapping[Id, bytes] | None:
        """What one statement finds of these ids by shard; None as for `_read_once`."""
        ids = next(iter(wanted.values())) if len(wanted) == 1 else list(chain.from_iterable(wanted.values()))
        section, statement = self._way(roots, root)
        arguments = arguments_of(self._tube, roots.keys, root, ids, next(iter(wanted)))
        cursor = await connection.execute(statement, arguments, binary=True)
        rows = await cursor.fetchall()
        bodies: dict[Id | None, bytes | None] = dict(rows)  # a loop would take longer than all the rest
        if bodies.pop(None, None) != roots.state:
            return None
        if None in bodies.values():
            key = next(key for key, body in bodies.items() if body is None)
            raise EnrichDataError(f"the query for tube {self._tube!r} has no document for id {key}: NULL")
        documents = cast("dict[Id, bytes]", bodies)
        if root is not None and section.mode == "query":
            _refuse_unasked(documents, ids, root, roots.keys)
        return documents

    def _way(self, roots: Roots, root: Root | None) -> tuple[DocumentConfig, bytes]:
        """What the documents of a table are; raises `EnrichFailed` if they might be another table's."""
        way = self._ways.get((roots.state, root))
        if way is None:
            reason = None if root is None else refusal(self._config, self._tube, roots, root)
            if reason is not None:
                self._roots = None  # it may be fixed in the registry
                raise EnrichFailed(reason)
            section = self._config if root is None else section_of(self._config, root)
            way = self._ways[roots.state, root] = section, statement_for(roots, root, section)
        return way


def _of(documents: Mapping[Id, bytes], ids: Sequence[Id]) -> Mapping[Id, bytes]:
    return {key: documents[key] for key in ids if key in documents}


def arguments_of(
    tube: str, keys: KeyType, root: Root | None, ids: Sequence[Id], shard: int
) -> dict[str, object]:
    """What `statement_for` asks for, for these ids of a table; without ids that no row can have."""
    if root is None or root.key is None:
        return {"tube": tube, "ids": array_of(keys, ids), "shard": shard}
    known, columns = root.key.columns_of(cast("Sequence[str]", ids))
    arrays = [array_of(of.type, column) for of, column in zip(root.key.columns, columns, strict=True)]
    named = {of.name: array for of, array in zip(root.key.columns, arrays, strict=True)}
    return {**named, "tube": tube, "ids": array_of(keys, known), "shard": shard, **part_arguments(arrays)}


def _refuse_unasked(documents: Mapping[Id, bytes], wanted: Sequence[Id], root: Root, keys: KeyType) -> None:
    """Refuse documents of unrequested ids: the query gives the ids of something else.

    The requested ids would look like deleted rows, and be deleted at the sink. Texts are not looked
    at: the column's own collation may find others that equal them.
    """
    if root.key is None and keys is KeyType.TEXT:
        return
    unasked: Iterable[Id] = documents.keys() - set(wanted)
    first = root.id_col
    if root.key is not None:
        first = f"json_build_array({', '.join(of.name for of in root.key.columns)})::text"
        if any(of.type is PartType.TEXT for of in root.key.columns):
            unasked = [key for key in unasked if root.key.values(str(key)) is None]
    if unasked:
        raise EnrichFailed(
            f"the query for {root.name} returned a document of id {min(unasked)}, which is none of %(ids)s: "
            f"its first column has to be {first} of {root.name}, and it has to ask for %(ids)s alone"
        )


async def how_to_read(
    connection: psycopg.AsyncConnection, error: psycopg.Error, roots: Iterable[Root]
) -> str:
    """What to run where the role of a session may not read; `roots`: known to be read."""
    found = await connection.execute(GRANTS, about(error, [(root.schema, root.table) for root in roots]))
    return how_to_let_read(error, connection.info.user, await found.fetchall())


async def load_roots(connection: psycopg.AsyncConnection, tube: str) -> Roots:
    """The registry of a tube; raises `EnrichFailed` if there is none."""
    cursor = await connection.execute(ROOTS, {"tube": tube})
    rows = await cursor.fetchall()
    if not rows:
        raise EnrichFailed(f"the tube {tube!r} is gone")
    tables = [
        Root(schema, table, id_col, shard, shards, _key(tube, f"{schema}.{table}", *key))
        for _, _, _, _, schema, table, id_col, shard, shards, *key in rows
        if schema is not None
    ]
    state, keys, predicate, declared = rows[0][:4]
    return Roots(state, KeyType(keys), predicate, declared, tables)


def _key(
    tube: str, table: str, names: list[str], types: list[str | None], place: int | None
) -> CompositeKey | None:
    """The columns of a table's key; None where it is one."""
    if len(names) == 1:
        return None
    columns = [KeyColumn(name, PartType(of)) for name, of in zip(names, types, strict=True) if of is not None]
    if len(columns) < len(names):
        raise EnrichFailed(
            f"the key of {table} was dropped, or has another type; attach it to tube {tube!r} again"
        )
    return CompositeKey(tuple(columns), place)


def _as_ours(error: psycopg.Error, tube: str, lock: TableLock | None) -> PytubeError:
    if isinstance(error, NoAnswer):  # a slow query, or a dead server: then the worker's session reports it
        # Without the remedy: this is reported until the next try, when the lock may be another's.
        why = "postgres.answer_timeout" if lock is None else lock.finding
        return EnrichTimeout(f"rows for tube {tube!r} can't be read: {error} ({why})")
    if is_connection_lost(error):
        return DatabaseUnavailable(f"Postgres is not available: {describe(error)}")
    ours = translate(error)
    if ours is not None:
        return ours
    text = f"rows for tube {tube!r} can't be read: {describe(error)}"
    if (error.sqlstate or "").startswith(OF_DATA):
        return EnrichDataError(text)
    if error.sqlstate == _CANCELED:
        return EnrichTimeout(text)
    return EnrichFailed(text)
