"""What an administrator does with backfills, over one session."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

from pytube.backfill import queries
from pytube.db.errors import TRANSIENT, translated
from pytube.db.version import check
from pytube.errors import UnknownTable, UnknownTube
from pytube.tubes.tables import find_table

_TRIES = 10
_PAUSE = 0.1
"""Seconds between two tries, on average. Without a pause, the retry overtakes the session that waits for the
locks just released, and deadlocks with it again; a fixed pause would keep two administrators in step."""

ACTIVE = ("waiting", "inserting", "delivering")
"""States of a backfill that is under way."""


class Backfills:
    """The backfills of one installation. Errors as for `Tubes`."""

    def __init__(self, connection: psycopg.Connection, schema: str = "tube") -> None:
        """`connection` is autocommit, with our schema in its path. Raises `SchemaMismatch`."""
        check(connection, schema)
        self._connection = connection

    def tables(self, tube: str, table: str | None = None) -> list[tuple[int, str]]:
        """The table, or all root tables of the tube: oids and names.

        Raises:
            UnknownTube: there is no such tube.
            UnknownTable: there is no such table, or none is attached.
        """
        if table is not None:
            return [(find_table(self._connection, table), table)]
        with translated():
            roots = self._connection.execute(queries.ROOTS, {"tube": tube}).fetchall()
            is_tube = roots or self._connection.execute(queries.IS_TUBE, {"tube": tube}).fetchone()
        if not is_tube:
            raise UnknownTube(f"there is no tube {tube!r}")
        if not roots:
            raise UnknownTable(f"no table is attached to tube {tube!r}")
        return [(int(oid), str(name)) for oid, name in roots]

    def create(
        self, tube: str, table: int, order_col: str | None, *, supersede: bool, by_worker: bool
    ) -> int:
        """Begin a backfill; its number.

        Raises:
            BackfillBusy: another one of the table is under way.
            UsageError: the table is not attached, or has no such column.
        """
        arguments = {
            "tube": tube,
            "table": table,
            "order_col": order_col,
            "supersede": supersede,
            "by_worker": by_worker,
        }
        return int(self._value(queries.CREATE, arguments))

    def command(self, backfill: int, command: str) -> str:
        """Have a backfill paused, resumed or cancelled; the state that it is in then.

        Raises:
            BackfillEnded: it is past that.
        """
        return str(self._value(queries.COMMAND, {"backfill": backfill, "command": command}))

    def _value(self, statement: LiteralString, arguments: dict[str, Any]) -> Any:
        """The result of a statement; retried after a transient error, such as a deadlock with a worker."""
        with translated():
            for _ in range(_TRIES - 1):
                with suppress(*TRANSIENT):
                    return self._one(statement, arguments)
                time.sleep(random.uniform(0.5, 1.5) * _PAUSE)  # noqa: S311 # spreads load, guards nothing
            return self._one(statement, arguments)

    def _one(self, statement: LiteralString, arguments: dict[str, Any]) -> Any:
        row = self._connection.execute(statement, arguments).fetchone()
        assert row is not None
        return row[0]

    def all(self, tube: str | None = None, table: str | None = None) -> list[dict[str, Any]]:
        """The backfills of a tube, or of all, as rows of `tube_backfill_list`, the newest first.

        Raises:
            UnknownTube, UnknownTable: there is no such tube, or no such table.
        """
        with translated(), self._connection.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(queries.LIST, {"tube": tube}).fetchall()
            known = tube is None or rows or cursor.execute(queries.IS_TUBE, {"tube": tube}).fetchone()
        if not known:
            raise UnknownTube(f"there is no tube {tube!r}")
        oid = None if table is None else find_table(self._connection, table)
        return [_plain(row) for row in rows if oid in (None, row["oid"])]

    def active(self, tube: str, table: str | None = None) -> list[dict[str, Any]]:
        """Those that are under way, the oldest first."""
        return [row for row in reversed(self.all(tube, table)) if row["state"] in ACTIVE]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Without what only serves to find it."""
    return {name: value for name, value in row.items() if name not in ("relation", "oid")}
