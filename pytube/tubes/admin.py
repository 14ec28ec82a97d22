"""What an administrator does with tubes, over one session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import class_row, dict_row

from pytube.db.errors import translated
from pytube.db.version import check
from pytube.errors import UsageError
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
    ) -> None:
        """Make a tube, or change one: another number of partitions, another predicate.

        Args:
            tube: its name.
            partitions: how many; None keeps those of a tube that is there, and is 1 for a new one.
            predicate: which rows belong to it; None keeps what is there, '' removes it.
            key_type: of its ids, for good; None is that of a tube that is there, and bigint for a new one.
        """
        with translated():
            there = self._partitions(tube)
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

    def drop(self, tube: str) -> None:
        """Take a tube away with all its pods; none of that name is no error."""
        with translated():
            self._run(queries.ENSURE_ABSENT, tube=tube)

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
    ) -> None:
        """Attach a table to a tube, or change how it is attached.

        Args:
            tube: its name.
            table: `schema.table`.
            shard: the table's shard, or the first of them; None takes it from the schema's name.
            shards: over how many shards the table's ids are spread.
            id_col: the column of the ids; None is `id`, else the primary key of one column.
            columns: an UPDATE that changes none of these makes no touch; without any, each one does.
            replica: whether rows that logical replication writes are touched, too.
            limit: seconds to wait for the table's lock; nobody queues behind us meanwhile.

        Raises:
            LockBusy: the table stayed locked; the message says by whom.
        """
        with translated():
            oid = find_table(self._connection, table)
            with_retries(
                self._connection,
                lambda: self._run(
                    queries.ATTACH,
                    tube=tube,
                    table=oid,
                    shard=shard,
                    shards=shards,
                    id_col=id_col,
                    columns=list(columns),
                    replica=replica,
                ),
                table=oid,
                name=table,
                limit=limit,
                on_wait=lambda text: _log.warning("lock_awaited", reason=text),
            )

    def detach(self, tube: str | None, table: str, *, limit: float = 60.0) -> None:
        """Detach a table from a tube; None means from all tubes.

        Arguments and errors as for `attach`.
        """
        with translated():
            oid = find_table(self._connection, table)
            with_retries(
                self._connection,
                lambda: self._run(queries.DETACH, tube=tube, table=oid),
                table=oid,
                name=table,
                limit=limit,
                on_wait=lambda text: _log.warning("lock_awaited", reason=text),
            )

    def list(self) -> list[Attachment]:
        """All tubes by name, with their tables in the order of attachment."""
        with (
            translated(),
            self._connection.cursor(row_factory=class_row(Attachment)) as cursor,
        ):
            return cursor.execute(queries.within(queries.LIST, self._schema)).fetchall()

    def _partitions(self, tube: str) -> int | None:
        statement = queries.within(queries.PARTITIONS, self._schema)
        row = self._connection.execute(statement, {"tube": tube}).fetchone()
        return None if row is None else int(row[0])

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

    def _run(self, query: str, **parameters: object) -> None:
        self._connection.execute(queries.within(query, self._schema), parameters)


def parked(
    connection: psycopg.Connection, schema: str, tube: str | None = None, limit: int = 100
) -> list[dict[str, Any]]:
    """What was set aside with its error, the newest first, as rows of `tube_park_list`."""
    with translated(), connection.cursor(row_factory=dict_row) as cursor:
        statement = queries.within(queries.PARK_LIST, schema)
        return cursor.execute(statement, {"tube": tube, "limit": limit}).fetchall()
