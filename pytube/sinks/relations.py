"""The sink `relations`: turns the pods of a companion tube into touches of documents.

`pytube.documents.resolve` configures it.

The keys of a companion tube are the values of links; see `pytube.documents.model`. For each relation, which
is a shard, its path finds the documents that rows with these values lead to, and they are touched in the
document's own tube. No document that changed is missed, under three conditions:

1. Paths are read after the pods were marked: in a later snapshot, and on the primary. So they see what the
   writers of the pods have done, and all that was committed before. Where the chain of rows from a link to a
   document is broken by then, whoever broke it has touched a value nearer to the document, in the same
   transaction.
2. Documents are read after paths: their touches are inserted after the path was read, and marked after that.
3. The columns of a `where` count as links: a row that leaves a document by one is touched as if it had moved.

No document is written here, so a send that comes late, or twice, does no harm: documents are read once more.
Hence the sink has no use for tokens. But touches have to be where the pods are purged then. They are on disk
when they are answered. And a session that has stayed with another server, as after a failover that left it
open, does not know the term: the statement looks for it.

Nothing is rejected. A parked relation would leave its documents wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import psycopg
from psycopg import sql
from pydantic import Field, SecretStr

from pytube.db.arrays import array_of
from pytube.db.connect import connect_async, connection_string, shut_down
from pytube.db.errors import describe, is_connection_lost
from pytube.db.session import STEADY_PLANS, Session, SessionPool, tried
from pytube.documents.resolve import why_not_applied
from pytube.errors import DatabaseUnavailable, SinkError, SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Id, KeyType, Result, Retry
from pytube.sinks.base import Abandoned, refuse_lapsed
from pytube.sinks.registry import SinkOptions

_SESSIONS = 2
_AGAIN = 0.5
"""Seconds until those documents of a batch are sent again of which something failed."""
_LEAST_PAUSE, _MOST_PAUSE = 0.2, 1.0
"""Seconds until it is looked again whether fewer documents wait."""
_CANCEL_LIMIT = 2.0
"""Seconds that the server may take to end a statement that is not wanted any more; then the session is cut
off."""
_SHARE_OF_TIME = 0.9
"""Of `timeout`: the server ends a statement before the worker gives it up, so that it is known not to have
worked."""
_PODS_LOOKED_AT = 1000
"""Of each class, to estimate how many documents wait."""
_PODS_LOOKED_THROUGH = 10_000
"""Of each class, to find those: a backfill has 2000 in the tube, unless configured to have more."""


class RelationsOptions(SinkOptions):
    """Options of the sink of a companion tube. They stand in no file."""

    dsn: SecretStr = Field(description="a connection string, as postgresql://user@host/database")
    schema_name: str = Field(default="tube", alias="schema", description="the schema of pytube's SQL")
    tube: str = Field(description="the tube of the document")
    digest: str = Field(description="the digest of the document")
    key_type: KeyType = Field(description="the type of the links")
    document_key_type: KeyType = Field(description="the type of the document's keys")
    paths: dict[int, str] = Field(description="for each number of a relation a SELECT")
    timeout: float = Field(default=10.0, gt=0, description="a number of seconds above 0")
    lock_timeout: float = Field(default=5.0, ge=0.001, description="a number of seconds, 0.001 or more")
    backfill_above: int = Field(default=10_000, ge=0, description="a number of documents")
    most_waiting: int = Field(default=100_000, ge=1, description="a number of documents")


# The partition and the class of a pod are written as in the index of a tube (sql/tubes/indexes.sql). Of each,
# the newest are looked at: pods of fan-outs, if there were any lately. Pods that wait for a backfill (their
# payload says so) do not count, or relations would wait for as long as the backfill.
_TOUCH = """
    SELECT r.declared, r.partitions, l.epoch, w.waiting,
        CASE WHEN r.declared = %(digest)s AND r.partitions = {partitions} AND l.epoch = %(epoch)s
                AND w.waiting <= {most_waiting} THEN (
            SELECT tube_document_touch(%(tube)s, CASE WHEN count(*) > {backfill_above} THEN 'B' ELSE 'U' END,
                array_agg(p.key::{key_type}))
            FROM ({path}
            ) AS p (key)
        ) END
    FROM tube_registry AS r
    CROSS JOIN LATERAL (
        SELECT tube_leader_epoch(c.tube, c.partitions, %(partition)s)
        FROM tube_registry AS c WHERE c.tube = %(companion)s
    ) AS l (epoch)
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(cardinality(n.ids)), 0)::bigint AS waiting
        FROM (VALUES (0), (1)) AS c (class)
        CROSS JOIN generate_series(0, {partitions} - 1) AS p (number)
        CROSS JOIN LATERAL (
            SELECT f.ids
            FROM (
                SELECT t.ids, t.payload FROM {queue} AS t
                WHERE (t.shard %% {partitions}) = p.number
                    AND (CASE WHEN t.op = 'B' THEN 1 ELSE 0 END) = c.class
                ORDER BY t.seq DESC LIMIT {looked_through}
            ) AS f
            WHERE f.payload IS NULL OR NOT f.payload ? 'backfill'
            LIMIT {looked_at}
        ) AS n
    ) AS w
    WHERE r.tube = %(tube)s
"""
_RELATION = """
    SELECT r.declared, l.epoch, (
        SELECT pg_catalog.concat_ws('.', n.nspname, c.relname, a.keys[1])
        FROM tube_attachment AS a
        JOIN pg_catalog.pg_class AS c ON c.oid = a.tbl
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE a.tube = %(companion)s AND a.shard = %(shard)s)
    FROM tube_registry AS r
    CROSS JOIN LATERAL (
        SELECT tube_leader_epoch(c.tube, c.partitions, %(partition)s)
        FROM tube_registry AS c WHERE c.tube = %(companion)s
    ) AS l (epoch)
    WHERE r.tube = %(tube)s
"""


class RelationsSink:
    """Touches the documents to which the links of changed rows lead."""

    compares = False

    def __init__(self, options: RelationsOptions) -> None:
        self._options = options
        connection_string(options.dsn)  # understood, or a ConfigError
        self._pool: SessionPool | None = None
        self._partitions = 1
        """Of the document's tube, as last seen."""
        self._abandoned = Abandoned()

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> RelationsSink | RelationsOfHosts:
        """The sink for these options, of one host or of several; `ConfigError` names a bad option."""
        hosts = options.get("hosts")
        if isinstance(hosts, Mapping):
            return RelationsOfHosts({host: cls.of_one(one) for host, one in hosts.items()})
        return cls.of_one(options)

    @classmethod
    def of_one(cls, options: Mapping[str, object]) -> Self:
        """The sink of one database."""
        return cls(RelationsOptions.parse("relations", options))

    # --- the contract -------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect."""
        if self._pool is not None:
            return
        pool = SessionPool(self._connect, _SESSIONS)
        try:
            async with pool.session():
                self._pool = pool
        except DatabaseUnavailable as error:
            await pool.close()
            raise _unavailable(error) from error

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Touch the documents of each relation by a separate statement.

        If some fail, the others are answered: so the failed ones are sent alone the next time, and raise.
        """
        if self._pool is None:
            raise _unavailable("it is not open")
        refuse_lapsed('sink "relations"', batch)
        work = _Work()
        sending = asyncio.ensure_future(self._send(work, self._pool, batch))
        try:
            await asyncio.wait([sending])
        except asyncio.CancelledError:
            work.is_given_up = True
            self._abandoned.add(batch, sending)
            self._abandoned.add(batch, asyncio.ensure_future(work.end(sending)))
            raise
        return sending.result()

    async def abandon(self, batch: Batch) -> None:
        """Return when the statement of a `send` that was cancelled is over: it is cancelled, too."""
        await self._abandoned.over(batch)

    async def close(self) -> None:
        """Close the sessions that are idle now, and each of the others after its statement."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    # --- a batch ------------------------------------------------------------------------------

    async def _send(self, work: _Work, pool: SessionPool, batch: Batch) -> list[Result]:
        relations: dict[int, list[Id]] = {}
        for document in batch:
            relations.setdefault(document.shard, []).append(document.id)
        answers: dict[int, Result] = {}
        failure: SinkError | None = None
        for shard, ids in relations.items():
            if work.is_given_up or isinstance(failure, SinkTimeout) or pool is not self._pool:
                break
            try:
                answers[shard] = await self._resolve(work, pool, batch, shard, ids)
            except SinkError as error:
                failure = error
        if failure is not None and not answers:
            raise failure
        others = Retry(_AGAIN, "the sink was closed" if failure is None else str(failure))
        return [answers.get(document.shard, others) for document in batch]

    async def _resolve(
        self, work: _Work, pool: SessionPool, batch: Batch, shard: int, ids: Sequence[Id]
    ) -> Result:
        """Touch the documents that links of one relation lead to."""
        path = self._options.paths.get(shard)
        try:
            async with pool.session(settings=STEADY_PLANS) as session:
                work.connection = session.connection
                try:
                    if path is None:
                        return await self._pass_over(session.connection, batch, shard)
                    touching = partial(self._touch, session.connection, batch, path, ids)
                    return await tried(touching)
                except psycopg.Error as error:
                    raise self._failure(error, single=len(ids) == 1) from error
                finally:
                    work.connection = None
        except DatabaseUnavailable as error:
            raise _unavailable(error) from error

    async def _touch(
        self, connection: psycopg.AsyncConnection, batch: Batch, path: str, ids: Sequence[Id]
    ) -> Result:
        options = self._options
        arguments = {
            "tube": options.tube,
            "digest": options.digest,
            "companion": batch.tube,
            "partition": batch.partition,
            "epoch": batch.token.epoch,
            "keys": array_of(options.key_type, ids),
        }
        while True:
            assumed = self._partitions
            cursor = await connection.execute(self._statement(path, assumed), arguments)
            row = await cursor.fetchone()
            if row is None:
                raise _unavailable(f"the tube {options.tube!r} is gone")
            declared, self._partitions, epoch, waiting, touched = row
            self._refuse_another(declared)
            if touched is not None:
                return OK
            _refuse_other_server(connection, batch, epoch)
            if self._partitions == assumed:
                return self._put_off(waiting)

    async def _pass_over(self, connection: psycopg.AsyncConnection, batch: Batch, shard: int) -> Result:
        """What becomes of links of a relation that the document does not have.

        It was taken out of it, or was put in by a file that this worker does not know.
        """
        tube, companion = self._options.tube, batch.tube
        cursor = await connection.execute(
            _RELATION, {"tube": tube, "companion": companion, "partition": batch.partition, "shard": shard}
        )
        row: tuple[Any, ...] | None = await cursor.fetchone()
        if row is None:
            raise _unavailable(f"the tube {tube!r} is gone")
        declared, epoch, relation = row
        self._refuse_another(declared)
        _refuse_other_server(connection, batch, epoch)
        if relation is not None:
            raise _unavailable(
                f"this worker does not know relation {relation}: restart it with the file that was applied"
            )
        return OK

    def _refuse_another(self, declared: str | None) -> None:
        """Raise unless the document in the database is this one."""
        reason = why_not_applied(self._options.tube, applied=declared, own=self._options.digest)
        if reason is not None:
            raise SinkUnavailable(reason)

    def _put_off(self, waiting: int) -> Retry:
        """Of a row that changes all the time, touches would come faster than any sink takes documents."""
        most = self._options.most_waiting
        pause = min(_MOST_PAUSE, _LEAST_PAUSE * waiting / most)
        return Retry(
            pause,
            f"at least {waiting} documents are queued in tube {self._options.tube}; documents of changed "
            f"relations are looked up when {most} or fewer are queued",
        )

    def _statement(self, path: str, partitions: int) -> sql.Composed:
        options = self._options
        return sql.SQL(_TOUCH).format(
            partitions=sql.Literal(partitions),
            most_waiting=sql.Literal(options.most_waiting),
            backfill_above=sql.Literal(options.backfill_above),
            looked_at=sql.Literal(max(1, _PODS_LOOKED_AT // partitions)),
            looked_through=sql.Literal(max(1, _PODS_LOOKED_THROUGH // partitions)),
            key_type=sql.SQL(options.document_key_type.value),
            path=sql.SQL(path),
            queue=sql.SQL(
                sql.Identifier(options.schema_name, options.tube).as_string().replace("%", "%%"),
            ),
        )

    def _failure(self, error: psycopg.Error, *, single: bool) -> SinkError:
        text = describe(error)
        if is_connection_lost(error):
            return SinkTimeout(f'sink "relations": {text}')
        if isinstance(error, psycopg.errors.QueryCanceled):
            if not single:  # fewer at a time may not take as long
                return SinkTimeout(f'sink "relations": {text}')
            return _unavailable(
                f"to find the documents that one changed row leads to takes longer than "
                f"{self._options.timeout * _SHARE_OF_TIME:g} s: {text}; see `pytube plan` for missing "
                "indexes, or raise worker.session_timeout"
            )
        return _unavailable(
            f"the documents of tube {self._options.tube} that changed rows lead to can't be looked up: {text}"
        )

    async def _connect(self) -> Session:
        options = self._options
        connection = await connect_async(
            options.dsn,
            options.schema_name,
            "pytube relations",
            lock_timeout=options.lock_timeout,
            settings={
                # A document that a policy hides would not be touched, in silence; this makes it an error.
                "row_security": "off",
                "synchronous_commit": "on",
                "statement_timeout": f"{int(options.timeout * _SHARE_OF_TIME * 1000)}ms",
            },
        )
        return Session(connection)


class RelationsOfHosts:
    """The relations of several hosts: touches are written where the pods came from."""

    compares = False

    def __init__(self, sinks: Mapping[str, RelationsSink]) -> None:
        self._sinks = sinks
        self._opening = {host: asyncio.Lock() for host in sinks}
        self._is_open = False

    async def open(self) -> None:
        """Each host is connected to when it is needed: a dead host must not keep back the others."""
        self._is_open = True

    async def send(self, batch: Batch) -> Sequence[Result]:
        """As for one host."""
        host = str(batch.host)
        async with self._opening[host]:
            if not self._is_open:
                raise _unavailable("it is not open")
            await self._sinks[host].open()
        return await self._sinks[host].send(batch)

    async def abandon(self, batch: Batch) -> None:
        """As for one host."""
        await self._sinks[str(batch.host)].abandon(batch)

    async def close(self) -> None:
        """As for one host."""
        self._is_open = False
        await asyncio.gather(*(sink.close() for sink in self._sinks.values()))


@dataclass(eq=False, slots=True)
class _Work:
    """The work for one batch."""

    connection: psycopg.AsyncConnection | None = None
    """Where a statement is under way."""
    is_given_up: bool = False

    async def end(self, sending: asyncio.Future[list[Result]]) -> None:
        """Have the statement cancelled; its session is cut off if that does not end it."""
        connection = self.connection
        if connection is None:
            return
        with suppress(psycopg.Error, TimeoutError, OSError):
            await connection.cancel_safe(timeout=_CANCEL_LIMIT)
        await asyncio.wait([sending], timeout=_CANCEL_LIMIT)
        if not sending.done():
            shut_down(connection)


def _refuse_other_server(connection: psycopg.AsyncConnection, batch: Batch, epoch: int) -> None:
    """Raise if the session is not with the server that knows the term; then it is closed."""
    if epoch != batch.token.epoch:
        shut_down(connection)
        raise _unavailable(
            f"its session was with a server that knows term {epoch} of {batch.tube}, not "
            f"{batch.token.epoch}; another one is opened"
        )


def _unavailable(reason: object) -> SinkUnavailable:
    return SinkUnavailable(f'sink "relations": {reason}')
