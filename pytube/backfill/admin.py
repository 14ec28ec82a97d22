"""What an administrator does with backfills, over one session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

from pytube.backfill import queries
from pytube.db.version import check
from pytube.errors import UnknownTable
from pytube.tubes.calls import check_tube, rows_of, value_of
from pytube.tubes.tables import find_table, resending

ACTIVE = ("waiting", "inserting", "delivering")
"""States of a backfill that is under way."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A table that leads to documents of a tube."""

    tube: str
    """That tube, or a companion of it."""
    oid: int
    name: str


class Backfills:
    """The backfills of one installation. Errors as for `Tubes`."""

    def __init__(self, connection: psycopg.Connection, schema: str = "tube") -> None:
        """`connection` is autocommit, with pytube's schema in its path. Raises `SchemaMismatch`."""
        check(connection, schema)
        self._connection = connection
        self._schema = schema

    def tables(self, tube: str, table: str | None = None) -> list[Followed]:
        """The table, or all root tables of the tube, each with the tube whose backfill resends it.

        A document's tube follows some tables by companions. A backfill of these tables resends the documents
        that its rows lead to.

        Raises:
            UnknownTube: there is no such tube.
            UnknownTable: there is no such table, or none is attached.
        """
        if table is not None:
            oid = find_table(self._connection, table)
            names = resending(self._connection, tube, oid) or [tube]  # an unknown one is refused by create
            return [Followed(name, oid, table) for name in names]
        roots = self._rows(queries.ROOTS, tube=tube)
        self._check_tube(tube, roots)
        if not roots:
            raise UnknownTable(f"no table is attached to tube {tube!r}")
        return [Followed(tube, int(root["oid"]), str(root["name"])) for root in roots]

    def family(self, tube: str) -> list[str]:
        """The companions of a tube, and the tube; raises `UnknownTube`."""
        rows = self._rows(queries.FAMILY, tube=tube)
        self._check_tube(tube, rows)
        return [str(row["tube"]) for row in rows]

    def create(
        self, tube: str, table: int, order_col: str | None, *, supersede: bool, by_worker: bool
    ) -> int:
        """Begin a backfill; its number.

        Raises:
            BackfillBusy: another one of the table is under way.
            UsageError: the table is not attached, or has no such column.
        """
        number = self._value(
            queries.CREATE,
            tube=tube,
            table=table,
            order_col=order_col,
            supersede=supersede,
            by_worker=by_worker,
        )
        return int(number)

    def command(self, backfill: int, command: str) -> str:
        """Have a backfill paused, resumed or cancelled; the state that it is in then.

        Raises:
            BackfillEnded: it is past that.
        """
        return str(self._value(queries.COMMAND, backfill=backfill, command=command))

    def all(self, tube: str | None = None, table: str | None = None) -> list[dict[str, Any]]:
        """The backfills of a tube, or of all, as rows of `tube_backfill_list`, the newest first.

        Raises:
            UnknownTube, UnknownTable: there is no such tube, or no such table.
        """
        rows = self._rows(queries.LIST, tube=tube)
        if tube is not None:
            self._check_tube(tube, rows)
        oid = None if table is None else find_table(self._connection, table)
        return [_plain(row) for row in rows if oid in (None, row["oid"])]

    def active(self, tube: str, table: str | None = None) -> list[dict[str, Any]]:
        """The running ones, the oldest first."""
        return [row for row in reversed(self.all(tube, table)) if row["state"] in ACTIVE]

    def _check_tube(self, tube: str, rows: Sequence[object]) -> None:
        """Where there are no rows, it may be because there is no such tube."""
        if not rows:
            check_tube(self._connection, self._schema, tube)

    def _value(self, statement: LiteralString, **arguments: object) -> Any:
        return value_of(self._connection, self._schema, statement, **arguments)

    def _rows(self, statement: LiteralString, **arguments: object) -> list[dict[str, Any]]:
        return rows_of(dict, self._connection, self._schema, statement, **arguments)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Without what only serves to find it."""
    return {name: value for name, value in row.items() if name not in ("relation", "oid")}
