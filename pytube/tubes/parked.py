"""What was parked."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.rows import dict_row

from pytube.db.errors import translated
from pytube.tubes import queries


def parked(
    connection: psycopg.Connection, schema: str, tube: str | None = None, limit: int = 100
) -> list[dict[str, Any]]:
    """What was set aside with its error, the newest first, as rows of `tube_park_list`."""
    with translated(), connection.cursor(row_factory=dict_row) as cursor:
        statement = queries.within(queries.PARK_LIST, schema)
        return cursor.execute(statement, {"tube": tube, "limit": limit}).fetchall()
