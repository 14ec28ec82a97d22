"""What an administrator does with tubes, over one session."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, LiteralString

import psycopg

from pytube.db.errors import translated
from pytube.db.version import check
from pytube.errors import NoUsableKey
from pytube.logs import Logger
from pytube.model import KeyType
from pytube.tubes import queries
from pytube.tubes.attachments import Attached, Manner, Place, Wish, changes
from pytube.tubes.calls import rows_of, unknown_tube, value_of
from pytube.tubes.tables import IndexQueries, find_table, fit_index, with_retries

_log = Logger("pytube.tubes")
_INDEX = IndexQueries(queries.INDEX_TABLE, queries.INDEX_SQL, queries.LEFTOVERS)


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
    companion_of: str | None = None
    """The tube whose documents' relations it holds; None: it is not a companion."""
    key_cols: list[str] | None = None
    """The columns of a key of several, of which `id_col` is the first; None: `id_col` is the key."""
    shard_by: str | None = None
    """The column that alone determines a key's shard; None: the whole key."""


@dataclass(frozen=True, slots=True)
class TubeSettings:
    """What a tube is made with."""

    partitions: int
    predicate: str | None
    key_type: str


@dataclass(frozen=True, slots=True)
class IdColumn:
    """The column by which a table is attached, and why that one."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class AttachResult:
    """What attaching a table has done."""

    before: Manner | None
    """How it was attached; None for a new one."""
    now: Manner
    column: IdColumn


class Tubes:
    """The tubes of one installation.

    All methods raise `UsageError` for unknown tubes and tables and for calls that the SQL refuses, with
    nothing changed, and `DatabaseUnavailable` when the session is lost.

    In a transaction of the caller, they do all of it there, and commit nothing. An index for another number
    of partitions is left to workers then. `borrowed` in `pytube.db.database` prepares the connection of a
    framework.
    """

    def __init__(self, connection: psycopg.Connection, schema: str = "tube") -> None:
        """`connection` is in autocommit, or in a transaction.

        Raises `SchemaMismatch` unless pytube's SQL is there.
        """
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
            partitions: how many; None keeps the number of an existing tube, and is 1 for a new one.
            predicate: which rows belong to it; None keeps the present one, '' removes it.
            key_type: of its ids, for good; None is the type of an existing tube, and bigint for a new one.

        Returns:
            The settings before, None for a new one; the settings now.
        """
        with translated():
            before = self._settings(tube)
            there = None if before is None else before.partitions
            wanted = partitions if partitions is not None else there or 1
            if there is not None:
                # also where it has them: an index may be left to build, or to drop
                fit_index(self._connection, self._schema, _INDEX, tube, wanted, _log)
            self._value(
                queries.ENSURE_EXISTS,
                tube=tube,
                partitions=wanted,
                predicate=predicate,
                key_type=None if key_type is None else key_type.value,
            )
            if there is not None and (
                left := fit_index(self._connection, self._schema, _INDEX, tube, wanted, _log)
            ):
                _log.warning("index_left", tube=tube, partitions=wanted, reason=left)
            now = self._settings(tube)
        if now is None:
            raise unknown_tube(tube)  # it was dropped meanwhile
        return before, now

    def rebase(self, tube: str, epoch: int) -> int:
        """Continue the epochs of a tube above `epoch`, the highest that its sink holds.

        Returns:
            The greatest epoch issued; later terms have greater ones.
        """
        return int(self._value(queries.REBASE, tube=tube, epoch=epoch))

    def acknowledge(self, tube: str) -> int:
        """Answer for the copy of a tube that is to be verified; returns how many reasons there were."""
        return int(self._value(queries.ACKNOWLEDGE, tube=tube))

    def drop(self, tube: str, *, force: bool = False) -> None:
        """Drop a tube; `force`: also while tables are attached to it, pods wait or documents are parked,
        which are lost then.

        Raises:
            UnknownTube: there is none of that name.
            TubesNotEmpty: it has tables, pods or parked documents, and `force` is not set.
        """
        self._value(queries.DROP, tube=tube, force=force)

    def attach(
        self,
        tube: str,
        table: str,
        shard: int | None = None,
        shards: int | None = None,
        *,
        id_col: str | None = None,
        columns: Sequence[str] | None = None,
        replica: bool | None = None,
        key_cols: Sequence[str] | None = None,
        shard_by: str | None = None,
        force: bool = False,
        limit: float = 60.0,
    ) -> AttachResult:
        """Attach a table to a tube, or change how it is attached: None keeps a setting.

        Args:
            tube: its name.
            table: `schema.table`.
            shard: the table's shard, or the first of them; None, for a new one, is the number at the end of
                its schema's name, else 0.
            shards: over how many shards the table's ids are spread; None, for a new one, is as many as
                the root table of `shard` has if `id_col` or `key_cols` is given, else 1.
            id_col: the column of the ids; None, for a new one, is `id` where it is a key, else the primary
                key of one column.
            columns: an UPDATE that changes none of these makes no touch; with none, each one does, as for a
                new one.
            replica: whether rows that logical replication writes are touched, too; not for a new one.
            key_cols: the columns of a key of several, in place of `id_col`; the tube's keys are texts.
            shard_by: the column that alone determines the shard of an id; empty: all of them.
            force: also if each row would have a document under another key then.
            limit: seconds to wait for the table's lock; writers do not queue behind it meanwhile.

        Raises:
            NoUsableKey: for a new one `id_col` is not given, and nothing proves which column names rows.
            InvalidShard: another table has the shard, and `id_col` is not given, or has it among others.
            KeysWouldChange: `force` is not set.
            LockBusy: the table stayed locked; the message says by whom.
        """
        if key_cols is not None and len(key_cols) == 1 and id_col is None:
            (id_col,), key_cols = key_cols, None
        wish = Wish(shard, shards, id_col, columns, replica, key_cols, shard_by)
        with translated():
            oid = find_table(self._connection, table)
            place = Place(tube, table, oid, self._attached(tube))
            column = self._id_column(table, oid, wish, place.was)
            manner = place.manner(wish, self._in_schema(oid), id_col if column is None else column.name)
            if wish.id_col is not None and wish.key_cols is not None:
                manner = replace(manner, id_col=wish.id_col)  # which the SQL refuses
            place.check(wish, manner, force=force)
            root = with_retries(
                self._connection,
                lambda: self._attach(place, wish, manner),
                table=oid,
                name=table,
                limit=limit,
            )
        assert column is not None  # or the SQL has refused the table
        reason = column.reason if root is None else f"it holds ids of {root}"
        before = None if place.was is None else place.was.manner
        return AttachResult(before, manner, IdColumn(column.name, reason))

    def changes(self, tube: str, table: str, wish: Wish) -> Sequence[str] | None:
        """What `attach` would change of an attached table, for people; None: it is not attached."""
        with translated():
            oid = find_table(self._connection, table)
            place = Place(tube, table, oid, self._attached(tube))
            if place.was is None:
                return None
            column = self._id_column(table, oid, wish, place.was)
        return changes(place.was.manner, place.manner(wish, None, None if column is None else column.name))

    def _id_column(self, table: str, oid: int, wish: Wish, was: Attached | None) -> IdColumn | None:
        """The column, or columns, to attach by: as is wished, else as it is; None where there is none."""
        columns = wish.key_cols if wish.names_key or was is None else was.manner.key_cols
        if columns:
            return self._several(oid, columns)
        name = wish.id_col if was is None else wish.id_col or was.manner.id_col
        row = self._one(queries.ID_COLUMN, table=oid, id_col=name)
        if name is None and (row is None or not row[1]):
            self._refuse_keyless(table, oid, row)
        if row is None:
            return None if name is None else IdColumn(name, "")
        found, _, reason = row
        return IdColumn(found, reason)

    def _refuse_keyless(self, table: str, oid: int, found: tuple[Any, ...] | None) -> None:
        """Name the possible options, unless the SQL finds none, and says so."""
        several = self._one(queries.SEVERAL, table=oid)
        key = ",".join(several[1]) if several is not None and several[0] else None
        if key is not None and found is None:
            raise NoUsableKey(
                f"{table} is not attached: its primary key has several columns; name them: "
                f"--key-cols {shlex.quote(key)}, in a tube that was created with --keys text"
            )
        if found is not None:
            name, _, reason = found
            more = (
                "" if key is None else f"; or all columns of the primary key: --key-cols {shlex.quote(key)}"
            )
            raise NoUsableKey(
                f"{table} is not attached: nothing proves which column names its rows ({name}: {reason}); "
                f"name the column by --id-col, e.g. --id-col {name} if no two rows can have one {name}{more}"
            )

    def _several(self, oid: int, columns: Sequence[str]) -> IdColumn:
        """A key of several columns, and what proves that it names one row."""
        statement = queries.within(queries.SEVERAL, self._schema)
        found = self._connection.execute(statement, {"table": oid}).fetchall()
        proofs = [is_primary for is_primary, names in found if set(names) <= set(columns)]
        reason = "no index proves that it is unique"
        if proofs:
            reason = "it is the primary key" if proofs[0] else "it is unique"
        return IdColumn(f"({', '.join(columns)})", reason)

    def _in_schema(self, table: int) -> int | None:
        """The number at the end of the name of the table's schema."""
        row = self._one(queries.IN_SCHEMA, table=table)
        return None if row is None or row[0] is None else int(row[0])

    def _attached(self, tube: str | None) -> Sequence[Attached]:
        """The tables attached to the tube now; None: to all tubes."""
        statement = queries.within(queries.ATTACHED, self._schema)
        rows = self._connection.execute(statement, {"tube": tube}).fetchall()
        return [
            Attached(
                name,
                oid,
                table,
                is_root,
                Manner(shard, shards, id_col, frozenset(columns), replica, tuple(key_cols), shard_by),
            )
            for name, oid, table, is_root, shard, shards, id_col, columns, replica, key_cols, shard_by in rows
        ]

    def _attach(self, place: Place, wish: Wish, manner: Manner) -> str | None:
        """One attempt; the root table of the shards if that is another one."""
        with self._connection.transaction():
            self._value(
                queries.ATTACH,
                tube=place.tube,
                table=place.oid,
                shard=manner.shard,
                shards=manner.shards,
                id_col=None if manner.key_cols and wish.id_col is None else manner.id_col,
                columns=list(manner.columns),
                replica=manner.replica,
                key_cols=list(manner.key_cols) or None,
                shard_by=manner.shard_by,
            )
            now = replace(place, present=self._attached(place.tube))
            root = now.root_of(manner)
            if root is None:
                return None
            was_related = place.was is not None and place.root_of(place.was.manner) is not None
            if not wish.names_key and not was_related:  # it was attached since the look
                raise now.taken(root, manner)
            return root.name

    def detach(self, tube: str | None, table: str, *, force: bool = False, limit: float = 60.0) -> bool:
        """Detach a table from a tube.

        Args:
            tube: its name; None: all tubes.
            table: `schema.table`.
            limit: as for `attach`.
            force: also while other tables are related to it: the first of them becomes the root table then.

        Raises:
            RelatedTables: there are such tables, and `force` is not set.
            LockBusy: as for `attach`.

        Returns:
            Whether it was attached.
        """
        with translated():
            oid = find_table(self._connection, table)
            attached = self._attached(tube)
            tubes = [one.tube for one in attached if one.oid == oid]
            if not force:
                for name in tubes:
                    Place(name, table, oid, [one for one in attached if one.tube == name]).check_detach()
            with_retries(
                self._connection,
                lambda: self._value(queries.DETACH, tube=tube, table=oid),
                table=oid,
                name=table,
                limit=limit,
            )
        return bool(tubes)

    def list(self) -> list[Attachment]:
        """All tubes by name, with their tables in the order of attachment."""
        return rows_of(Attachment, self._connection, self._schema, queries.LIST)

    def _settings(self, tube: str) -> TubeSettings | None:
        """What a tube is made with; None where there is none of that name."""
        found = rows_of(TubeSettings, self._connection, self._schema, queries.TUBE, tube=tube)
        return found[0] if found else None

    def _value(self, query: LiteralString, **parameters: object) -> Any:
        return value_of(self._connection, self._schema, query, **parameters)

    def _one(self, query: LiteralString, **parameters: object) -> tuple[Any, ...] | None:
        return self._connection.execute(queries.within(query, self._schema), parameters).fetchone()
