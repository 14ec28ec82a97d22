"""The sink `postgres`: a table of another database, by columns or as JSON. It compares tokens."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Self, TypeVar

import psycopg
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format

from pytube.db.arrays import Int8Array, array_of
from pytube.db.connect import connect_async, connection_string, shut_down, wait_for_answer
from pytube.db.errors import OF_DATA, TRANSIENT, describe, is_connection_lost
from pytube.db.session import Session, SessionPool, tried
from pytube.errors import ConfigError, DatabaseUnavailable, SinkError, SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Document, Id, Key, KeyType, Reject, Result, Retry, Stale, Token
from pytube.sinks.base import PAGE, Stored, Trial, of_the_suite, refuse_lapsed
from pytube.sinks.postgres_statements import Tables
from pytube.sinks.postgres_table import (
    PostgresOptions,
    create,
    look,
    read_files,
    read_note,
    write_note,
)

T = TypeVar("T")

_NAME = "pytube sink"
_PUT_OFF = 1.0
"""Seconds until documents are sent again that met a lock, or another writer too often."""

_PUT_OFF_STATES = {"55P03", "57014"}  # lock_not_available, query_canceled: rolled back, nothing is wrong

_OPEN_LIMIT = 30.0
"""Seconds until a server that stays silent while the sink is opened counts as down."""

_CLEANED = 1000
"""Tombstones that one step removes at most."""

_SETTINGS = {
    "default_transaction_isolation": "read committed",
    # Policies that hide rows make a delete miss them in silence; this makes it an error.
    "row_security": "off",
    # Plans of an empty table must not stay when it fills.
    "plan_cache_mode": "force_custom_plan",
    # A limit of the role would put a batch off again and again; `request_timeout` limits it already.
    "statement_timeout": "0",
    "jit": "off",
}


class PostgresSink:
    """Writes each batch in one transaction, and a second one for its deletes; it compares tokens.

    Sessions are not shared with other users. A write whose session was lost may have been
    done; a lower token never overwrites a higher one, so nothing need be waited for.
    """

    compares = True

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        connection_string(options.dsn, _NAME)  # understood, or a ConfigError
        self._pool: SessionPool | None = None
        self._tables: Tables | None = None
        self._clean_at = 0.0
        self._why_no_note: str | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """The sink for these options; `ConfigError` names a bad one."""
        return cls(PostgresOptions.parse("postgres", options))

    # --- the contract -------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; create the tables if that is asked for; check columns, keys and rights."""
        await self._open(creates=self._options.create)

    async def open_existing(self) -> str | None:
        """Connect, and check; why not, if a table is missing that `open` would create."""
        return await self._open(creates=False)

    async def _open(self, *, creates: bool) -> str | None:
        if self._pool is not None:
            return None
        pool = SessionPool(self._connect, self._options.pool_size)
        try:
            async with pool.session() as session:
                prepared = self._prepare(session, creates=creates)
                self._tables = await wait_for_answer(session.connection, _OPEN_LIMIT, prepared)
        except DatabaseUnavailable as error:
            raise _unavailable(error) from error
        except psycopg.Error as error:
            raise _unavailable(describe(error)) from error
        finally:
            if self._tables is None:
                await pool.close()
        if self._tables is None:
            table = self._options.qualified(self._options.table)
            return f'sink "postgres": there is no table {table}, or none of its stamps'
        self._pool = pool
        self._why_no_note = None
        return None

    async def _prepare(self, session: Session, *, creates: bool) -> Tables | None:
        """The tables; None: one is missing that is to be created, though not now."""
        if creates:
            await create(session.connection, self._options)
        elif self._options.create and await read_files(session.connection, self._options) is None:
            return None
        return await self._look(session.connection)

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Write the batch in one transaction, and delete in a second one."""
        pool = self._pool
        if pool is None:
            raise _unavailable("it is not open")
        if not batch.documents:
            return []
        try:
            async with pool.session() as session:
                if pool is not self._pool:
                    raise _unavailable("it is closed")
                return await _at_once(session.connection, self._send(session.connection, batch))
        except DatabaseUnavailable as error:
            raise _unavailable(error) from error

    async def abandon(self, batch: Batch) -> None:
        """Return at once: a late write has a lower token, and loses."""

    async def close(self) -> None:
        """Close the sessions that are idle now, and each of the others after its write."""
        pool, self._pool = self._pool, None
        self._tables = None
        if pool is not None:
            await pool.close()

    def cannot_hold(self, keys: KeyType) -> str | None:
        """Of a table that it does not create, only the server knows."""
        if not self._options.create or self._options.id_type == keys:
            return None
        return f'it creates a table of id_type = "{self._options.id_type}"; set id_type = "{keys.value}"'

    # --- scanning -----------------------------------------------------------------------------

    def trial(self, name: str, keys: KeyType) -> Trial:
        """Two separate tables in the same schema, with documents as JSON."""
        table = f"pytube_{name}".replace("-", "_")
        own: dict[str, object] = {
            "table": table,
            "stamps": None,
            "columns": None,
            "types": {},
            "key": ("shard", "id"),
            "create": True,
            "id_type": keys.value,
        }
        options = self._options.model_copy(update=own)
        notes = (of_the_suite("the form of the table"),)
        where = f"tables {table} and {table}_pytube"
        return Trial(lambda: type(self)(options), where, type(self)(options).erase_trial, notes)

    async def erase_trial(self, _: str, __: Collection[Key]) -> None:
        """Drop the tables of a trial."""
        pool = SessionPool(self._connect, 1)
        options = self._options
        tables = options.table, options.stamps_table
        names = [sql.Identifier(options.schema_name, table) for table in tables]
        try:
            async with pool.session() as session:
                await session.connection.execute(
                    sql.SQL("DROP TABLE IF EXISTS {}").format(sql.SQL(", ").join(names))
                )
        except psycopg.Error as error:
            raise _unavailable(describe(error)) from error
        finally:
            await pool.close()

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        """Walk through the table by its key, in steps of as many rows as a page may have."""
        last: Any = None
        while True:
            arguments = {"tube": tube, "shard": shard, "below": below_seq, "after": last, "limit": PAGE}
            rows = await self._step(arguments, first=last is None)
            if not rows:
                return
            last = rows[-1][0]
            page = [key for key, is_old in rows if is_old]
            yield page

    async def _step(self, arguments: Mapping[str, Any], *, first: bool) -> list[tuple[Any, ...]]:
        async with self._asking() as (connection, tables):
            rows = await _at_once(connection, _rows(connection, tables.scan(first=first), arguments))
            # A uuid is a text in pytube's documents.
            return [(str(key), old) for key, old in rows] if tables.keys is KeyType.UUID else rows

    # --- reading ------------------------------------------------------------------------------

    async def read(self, tube: str, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        """Rows with their stamps, in one statement. A key that the table's type can't hold is not there."""
        del tube  # a key has one row, whatever tube it came from
        async with self._asking() as (connection, tables):
            known = [key for key in keys if tables.keys.has(key[1])]
            asking = _rows(connection, tables.read, _keys(tables.keys, known))
            rows = await _at_once(connection, asking)
        stored = dict.fromkeys(keys, Stored())
        for number, token, seq, body in rows:
            stored[known[number - 1]] = Stored(body, None if token is None else Token.parse(token), seq)
        return stored

    async def as_held(self, bodies: Sequence[bytes]) -> Sequence[bytes | None]:
        """The same, or what its columns make of it; None for a document that a column's type refuses."""
        if self._options.columns is None:
            return bodies
        async with self._asking() as (connection, tables):
            return await _at_once(connection, self._cast(connection, tables, bodies))

    async def _cast(
        self, connection: psycopg.AsyncConnection, tables: Tables, bodies: Sequence[bytes]
    ) -> list[bytes | None]:
        try:
            rows = await _rows(connection, tables.cast, {"docs": _JsonArray(bodies)})
        except psycopg.Error as error:
            if not (error.sqlstate or "").startswith(OF_DATA):
                raise
            if len(bodies) == 1:
                return [None]
        else:
            return [body for (body,) in rows]
        half = len(bodies) // 2
        first = await self._cast(connection, tables, bodies[:half])
        return first + await self._cast(connection, tables, bodies[half:])

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[tuple[psycopg.AsyncConnection, Tables]]:
        """A session to ask something, and the tables as they are."""
        async with self._session() as connection:
            yield connection, await self._known(connection)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[psycopg.AsyncConnection]:
        pool = self._pool
        if pool is None:
            raise _unavailable("it is not open")
        try:
            async with pool.session() as session:
                yield session.connection
        except (DatabaseUnavailable, ConfigError) as error:
            raise _unavailable(error) from error
        except psycopg.Error as error:
            self._tables = None
            raise _unavailable(describe(error)) from error

    # --- the mark -----------------------------------------------------------------------------

    async def read_mark(self, tube: str) -> str | None:
        """The numbers of both tables, and of their files, which a TRUNCATE renews."""
        del tube
        async with self._session() as connection:
            return await _at_once(connection, read_files(connection, self._options))

    async def write_mark(self, tube: str, mark: str) -> None:
        """Create missing tables, which have their ids from then on."""
        del tube, mark
        self._tables = None
        async with self._session() as connection:
            if self._options.create:
                await _at_once(connection, create(connection, self._options))
            self._tables = await self._look(connection)

    def cannot_note(self) -> str | None:
        """Why not, once the server has refused it."""
        return self._why_no_note

    async def read_note(self, key: str) -> str | None:
        """From the comment of the table of stamps, which goes where the table goes."""
        async with self._session() as connection:
            return await _at_once(connection, read_note(connection, self._options, key))

    async def write_note(self, key: str, text: str) -> None:
        """Set the comment, unless another session holds the table: vacuum is not to be cut off for it."""
        async with self._session() as connection:
            try:
                await _at_once(connection, write_note(connection, self._options, key, text))
                return
            except psycopg.errors.LockNotAvailable as error:  # neither says anything about the tables
                refusal: Exception = _unavailable(f"no note was left: {describe(error)}")
            except psycopg.errors.InsufficientPrivilege as error:
                table = self._options.qualified(self._options.stamps_table)
                self._why_no_note = (
                    f'sink "postgres": no note can be left at {table}, whose owner the user is to be: '
                    f"{describe(error)}"
                )
                refusal = ConfigError(self._why_no_note)
        raise refusal

    # --- writing ------------------------------------------------------------------------------

    async def _send(self, connection: psycopg.AsyncConnection, batch: Batch) -> list[Result]:
        try:
            tables, results = await self._answers(connection, batch)
        except ConfigError as error:  # the table was changed since it was opened
            raise _unavailable(error) from error
        except psycopg.Error as error:
            if error.sqlstate in _PUT_OFF_STATES or isinstance(error, TRANSIENT):
                return [Retry(_PUT_OFF, describe(error))] * len(batch)
            self._tables = None
            if is_connection_lost(error):
                raise SinkTimeout(f'sink "postgres": {describe(error)}') from error
            raise _unavailable(describe(error)) from error
        await self._clean(connection, tables)
        return results

    async def _answers(
        self, connection: psycopg.AsyncConnection, batch: Batch
    ) -> tuple[Tables, list[Result]]:
        """Write the batch; again, where it was refused and a column has got another type by now."""
        tables = await self._known(connection)
        results = await _results(connection, tables, batch)
        if any(isinstance(result, Reject) for result in results):
            self._tables = await self._look(connection)
            if self._tables.write != tables.write:  # its text names the types
                return self._tables, await _results(connection, self._tables, batch)
        return tables, results

    async def _look(self, connection: psycopg.AsyncConnection) -> Tables:
        return Tables(self._options, *await look(connection, self._options))

    async def _known(self, connection: psycopg.AsyncConnection) -> Tables:
        if self._tables is None:
            self._tables = await self._look(connection)
        return self._tables

    async def _clean(self, connection: psycopg.AsyncConnection, tables: Tables) -> None:
        """Remove some tombstones that are older than any late write, sixty times in their life."""
        if time.monotonic() < self._clean_at:
            return
        seconds = self._options.tombstone_seconds
        self._clean_at = time.monotonic() + seconds / 60
        # Earlier writes are answered, whatever this results in.
        with suppress(psycopg.Error):
            cursor = await connection.execute(tables.clean, {"seconds": seconds, "limit": _CLEANED})
            if cursor.rowcount == _CLEANED:  # there are more: continue after the next write
                self._clean_at = 0.0

    async def _connect(self) -> Session:
        connection = await connect_async(
            self._options.dsn.get_secret_value(),
            "pg_catalog",
            _NAME,
            lock_timeout=self._options.lock_timeout,
            # Triggers of the table may look for their own; temporary objects come last.
            also=(self._options.schema_name, "pg_temp"),
            # An answer means that the write is on disk, whatever role or database have as their default.
            settings={**_SETTINGS, "synchronous_commit": self._options.synchronous_commit},
        )
        return Session(connection)


async def _results(connection: psycopg.AsyncConnection, tables: Tables, batch: Batch) -> list[Result]:
    """Write the batch; where a document makes that fail, without such documents."""
    documents = list(batch)
    if not tables.keys.has(documents[0].id):
        kind = type(documents[0].id).__name__
        raise _unavailable(f"ids are {kind}s, and its table has {tables.keys.value}")
    # All writers take the rows of their keys in one order, so that no two wait for each other.
    order = sorted(range(len(documents)), key=lambda n: (documents[n].id, documents[n].shard))
    ordered = [documents[n] for n in order]
    refuse_lapsed('sink "postgres"', batch)
    try:
        answers = await tried(partial(_written, connection, tables, batch, ordered))
    except psycopg.Error as error:
        if not (error.sqlstate or "").startswith(OF_DATA):
            raise
        if len(documents) == 1:
            return [Reject(f"{describe(error)} (SQLSTATE {error.sqlstate})")]
        refuse_lapsed('sink "postgres"', batch)
        answers = await _one_by_one(connection, tables, batch, ordered)
    results: list[Result] = [OK] * len(documents)
    for number, answer in answers.items():
        results[order[number]] = answer
    return results


async def _written(
    connection: psycopg.AsyncConnection, tables: Tables, batch: Batch, documents: Sequence[Document]
) -> dict[int, Result]:
    """Write them all; the answers other than `OK`, by the places of the documents."""
    arguments = {
        "tube": batch.tube,
        "token": int(batch.token),
        "docs": (_JsonbArray if tables.is_jsonb else _JsonArray)(document.body for document in documents),
        **_arrays(tables.keys, documents),
    }
    answers = _stale(await _rows(connection, tables.write, arguments))
    gone = [document.key for document in documents if document.is_delete]
    if gone:
        await connection.execute(tables.delete, {"token": int(batch.token), **_keys(tables.keys, gone)})
    return answers


async def _one_by_one(
    connection: psycopg.AsyncConnection, tables: Tables, batch: Batch, documents: Sequence[Document]
) -> dict[int, Result]:
    """As `_written`, but without the documents that the server refuses, which are rejected.

    Raises:
        SinkError: the server can't say which they are; in a smaller batch the document at fault may be alone.
    """
    arguments = {
        "tube": batch.tube,
        "token": int(batch.token),
        "docs": [document.body for document in documents],
        **_arrays(tables.keys, documents),
    }

    async def write() -> list[tuple[Any, ...]]:
        # It puts the arguments into the text, as a message of several statements needs.
        cursor = psycopg.AsyncClientCursor(connection)
        await cursor.execute(tables.one_by_one, arguments)
        while cursor.nextset():
            pass
        return await cursor.fetchall()

    try:
        ((answers,),) = await tried(write)
    except psycopg.Error as error:
        if is_connection_lost(error) or isinstance(error, TRANSIENT) or error.sqlstate in _PUT_OFF_STATES:
            raise
        # No right to use plpgsql, no such language, or refused only at the end of the transaction, say. What
        # is wrong with the sink itself shows in the smaller batch, too.
        raise SinkError(f'sink "postgres": {describe(error)}') from error
    return {
        number - 1: Reject(" ".join(said.split())) if token is None else Stale(token)
        for number, token, said in answers
    }


def _keys(keys: KeyType, documents: Sequence[Key]) -> dict[str, Any]:
    shards = Int8Array(shard for shard, _ in documents)
    return {"shards": shards, "ids": array_of(keys, [key for _, key in documents])}


def _arrays(keys: KeyType, documents: Sequence[Document]) -> dict[str, Any]:
    seqs = Int8Array(document.seq for document in documents)
    return {"seqs": seqs, **_keys(keys, [document.key for document in documents])}


def _stale(lost: Sequence[tuple[Any, ...]]) -> dict[int, Result]:
    return {number - 1: Stale(token) for number, token in lost}


async def _rows(connection: psycopg.AsyncConnection, statement: Any, arguments: Any) -> list[tuple[Any, ...]]:
    cursor = await connection.execute(statement, arguments)
    return await cursor.fetchall()


async def _at_once(connection: psycopg.AsyncConnection, asking: Coroutine[Any, Any, T]) -> T:
    """Await it; if the caller is cancelled, cut the session off and return at once.

    psycopg would wait for the server, which may be silent.
    """
    task = asyncio.ensure_future(asking)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        shut_down(connection)
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio would log it
        raise


def _unavailable(reason: object) -> SinkUnavailable:
    text = str(reason)
    return SinkUnavailable(text if text.startswith('sink "postgres"') else f'sink "postgres": {text}')


# --- documents as Postgres takes them -----------------------------------------------------------

_LENGTH = struct.Struct("!i").pack
_NULL = _LENGTH(-1)


class _JsonArray(list[bytes | None]):
    """JSON texts that are sent as `json[]`, unchanged; None is NULL."""

    oid = 199
    element = 114
    head = b""


class _JsonbArray(_JsonArray):
    """As `jsonb[]`, whose binary form is a version and the text."""

    oid = 3807
    element = 3802
    head = b"\1"


class _JsonArrayDumper(Dumper):
    format = Format.BINARY

    def __init__(self, cls: type[_JsonArray], context: Any = None) -> None:
        super().__init__(cls, context)
        self.oid = cls.oid

    def dump(self, obj: _JsonArray) -> bytes:
        head = obj.head
        extra = len(head)
        pieces = [struct.pack("!iiIii", 1, None in obj, obj.element, len(obj), 1)]
        pieces += [
            _NULL if body is None else b"%b%b%b" % (_LENGTH(len(body) + extra), head, body) for body in obj
        ]
        return b"".join(pieces)


psycopg.adapters.register_dumper(_JsonArray, _JsonArrayDumper)
psycopg.adapters.register_dumper(_JsonbArray, _JsonArrayDumper)
