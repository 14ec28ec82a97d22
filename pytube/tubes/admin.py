"""What an administrator does with tubes, over one session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from pytube.db.errors import translated
from pytube.db.version import check
from pytube.errors import InvalidShard, NoUsableKey, UnknownTube, UsageError
from pytube.logs import Logger
from pytube.model import KeyType
from pytube.tubes import queries
from pytube.tubes.tables import find_table, with_retries

_log = Logger("pytube.tubes")


@dataclass(frozen=True, slots=True)
class Attachment:
    """One table of one tube; a tube without tables has one with `tbl` None."""

    tube: str
    predicate: str | None
    partitions: int
    tbl: str | None
    shard: int | None
    shards: int | None
    id_col: str | None
    root: bool | None
    """Whether the ids of this table are the documents' ids."""
    key_type: str
    """Of all ids of the tube: `bigint`, `uuid` or `text`."""


@dataclass(frozen=True, slots=True)
class TubeSettings:
    """What a tube is made with."""

    partitions: int
    predicate: str | None
    key_type: str


@dataclass(frozen=True, slots=True)
class IdColumn:
    """The column by which a table was attached, and why that one."""

    name: str
    reason: str


class Tubes:
    """The tubes of one installation.

    All methods raise `UsageError` for unknown tubes and tables and for what our SQL refuses, with
    nothing changed, and `DatabaseUnavailable` when the session is lost.
    """

    def __init__(self, connection: psycopg.Connection, schema: str = "tube") -> None:
        """`connection` is autocommit. Raises `SchemaMismatch` unless our SQL is there."""
        check(connection, schema)
        self._connection = connection
        self._schema = schema

    def create(
        self,
        tube: str,
        partitions: int | None = None,
        predicate: str | None = None,
        key_type: KeyType | None = None,
    ) -> tuple[TubeSettings | None, TubeSettings]:
        """Make a tube, or change one: another number of partitions, another predicate.

        Args:
            tube: its name.
            partitions: how many; None keeps those of a tube that is there, and is 1 for a new one.
            predicate: which rows belong to it; None keeps what is there, '' removes it.
            key_type: of its ids, for good; None is that of a tube that is there, and bigint for a new one.

        Returns:
            What it was before, None for a new one; what it is now.
        """
        with translated():
            before = _settings(self._connection, self._schema, tube)
            there = None if before is None else before.partitions
            wanted = partitions if partitions is not None else there or 1
            if there is not None:
                # also where it has them: an index may be left to build, or to drop
                self._fit_index(tube, wanted)
            self._run(
                queries.ENSURE_EXISTS,
                tube=tube,
                partitions=wanted,
                predicate=predicate,
                key_type=None if key_type is None else key_type.value,
            )
            if there is not None and there != wanted:
                self._fit_index(tube, wanted)
            now = _settings(self._connection, self._schema, tube)
        if now is None:
            raise _unknown(tube)  # somebody dropped it meanwhile
        return before, now

    def rebase(self, tube: str, epoch: int) -> int:
        """Let the epochs of a tube go on above `epoch`, the highest that its sink holds.

        Returns:
            The greatest epoch issued; later terms have greater ones.
        """
        statement = queries.within(queries.REBASE, self._schema)
        with translated():
            row = self._connection.execute(statement, {"tube": tube, "epoch": epoch}).fetchone()
        if row is None:
            raise UsageError(f"the tube {tube!r} could not be rebased")
        return int(row[0])

    def drop(self, tube: str, *, force: bool = False) -> None:
        """Drop a tube; `force`: also while tables are attached to it, pods wait or documents are parked,
        which are lost then.

        Raises:
            UnknownTube: there is none of that name.
            TubesNotEmpty: it has tables, pods or parked documents, and `force` is not set.
        """
        with translated():
            self._run(queries.DROP, tube=tube, force=force)

    def attach(
        self,
        tube: str,
        table: str,
        shard: int | None = None,
        shards: int = 1,
        *,
        id_col: str | None = None,
        columns: Sequence[str] = (),
        replica: bool = False,
        limit: float = 60.0,
    ) -> IdColumn:
        """Attach a table to a tube, or change how it is attached.

        Args:
            tube: its name.
            table: `schema.table`.
            shard: the table's shard, or the first of them; None is the number at the end of its schema's
                name, else the one that it has, else 0.
            shards: over how many shards the table's ids are spread.
            id_col: the column of the ids; None is `id` where it is a key, else the primary key of one column.
            columns: an UPDATE that changes none of these makes no touch; without any, each one does.
            replica: whether rows that logical replication writes are touched, too.
            limit: seconds to wait for the table's lock; nobody queues behind us meanwhile.

        Raises:
            NoUsableKey: `id_col` is not given, and nothing proves which column names the table's rows.
            InvalidShard: `id_col` is not given, and another table has the shard.
            LockBusy: the table stayed locked; the message says by whom.
        """
        with translated():
            oid = find_table(self._connection, table)
            column = self._id_column(table, oid, id_col)
            arguments = {
                "tube": tube,
                "table": oid,
                "shard": self._shard(tube, oid) if shard is None else shard,
                "shards": shards,
                "id_col": id_col if column is None else column.name,
                "columns": list(columns),
                "replica": replica,
            }
            root = with_retries(
                self._connection,
                lambda: self._attach(table, arguments, may_be_related=id_col is not None),
                table=oid,
                name=table,
                limit=limit,
                on_wait=lambda text: _log.warning("lock_awaited", reason=text),
            )
        assert column is not None  # or our SQL has refused the table
        return column if root is None else IdColumn(column.name, f"it holds ids of {root}")

    def _id_column(self, table: str, oid: int, id_col: str | None) -> IdColumn | None:
        """The column to attach by, that of the name `id_col` if given; None where there is none."""
        row = self._one(queries.ID_COLUMN, table=oid, id_col=id_col)
        if row is None:
            return None
        name, is_key, reason = row
        if id_col is None and not is_key:
            raise NoUsableKey(
                f"{table} is not attached: nothing proves which column names its rows ({name}: {reason}); "
                f"name the column by --id-col, e.g. --id-col {name} if no two rows can have one {name}"
            )
        return IdColumn(name, reason)

    def _shard(self, tube: str, table: int) -> int | None:
        """The shard 0; None where our SQL finds another by itself."""
        row = self._one(queries.SHARD, tube=tube, table=table)
        return None if row is None else int(row[0])

    def _attach(self, table: str, arguments: Mapping[str, object], *, may_be_related: bool) -> str | None:
        """One attempt; the root table of the shard if that is another one."""
        with self._connection.transaction():
            self._run(queries.ATTACH, **arguments)
            row = self._one(queries.ROOT_OF, tube=arguments["tube"], table=arguments["table"])
            if row is None:
                return None
            root, shard, free = row
            if not may_be_related:
                raise InvalidShard(
                    f"{table} is not attached: {root} has the shard {shard} of tube {arguments['tube']!r}; "
                    f"name the column that holds ids of {root} by --id-col, or give {table} "
                    f"a shard of its own, as --shard {free}"
                )
            return str(root)

    def detach(self, tube: str | None, table: str, *, limit: float = 60.0) -> bool:
        """Detach a table from a tube; None means from all tubes.

        Arguments and errors as for `attach`.

        Returns:
            Whether it was attached.
        """
        with translated():
            oid = find_table(self._connection, table)
            was_attached = self._one(queries.IS_ATTACHED, tube=tube, table=oid) is not None
            with_retries(
                self._connection,
                lambda: self._run(queries.DETACH, tube=tube, table=oid),
                table=oid,
                name=table,
                limit=limit,
                on_wait=lambda text: _log.warning("lock_awaited", reason=text),
            )
        return was_attached

    def list(self) -> list[Attachment]:
        """All tubes by name, with their tables in the order of attachment."""
        with (
            translated(),
            self._connection.cursor(row_factory=class_row(Attachment)) as cursor,
        ):
            return cursor.execute(queries.within(queries.LIST, self._schema)).fetchall()

    def _fit_index(self, tube: str, partitions: int) -> None:
        """The index for `partitions`, built while the tube is in use; with these, others are dropped so."""
        for schema, name in self._connection.execute(
            queries.LEFTOVERS, {"schema": self._schema, "tube": tube}
        ).fetchall():
            _log.info(
                "index_drop_started", tube=tube, index=name, reason="an interrupted build left it behind"
            )
            self._connection.execute(
                sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(schema, name))
            )
        statement = queries.within(queries.INDEX_SQL, self._schema)
        parameters = {"tube": tube, "partitions": partitions}
        while (row := self._connection.execute(statement, parameters).fetchone()) and row[0]:
            if row[0].startswith("DROP"):
                _log.info("index_drop_started", tube=tube, reason="it is for another number of partitions")
            else:
                _log.info("index_build_started", tube=tube, partitions=partitions)
            self._connection.execute(str(row[0]).encode())

    def _run(self, query: LiteralString, **parameters: object) -> None:
        self._connection.execute(queries.within(query, self._schema), parameters)

    def _one(self, query: LiteralString, **parameters: object) -> tuple[Any, ...] | None:
        return self._connection.execute(queries.within(query, self._schema), parameters).fetchone()


def _settings(connection: psycopg.Connection, schema: str, tube: str) -> TubeSettings | None:
    """What a tube is made with; None where there is none of that name."""
    with connection.cursor(row_factory=class_row(TubeSettings)) as cursor:
        return cursor.execute(queries.within(queries.TUBE, schema), {"tube": tube}).fetchone()


def _unknown(tube: str) -> UnknownTube:
    return UnknownTube(f"there is no tube {tube!r}; `pytube tube list` names those that there are")
