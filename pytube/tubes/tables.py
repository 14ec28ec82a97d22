"""Tables as people name them: `schema.table`, with double quotes where SQL wants them."""

from __future__ import annotations

import psycopg
from psycopg import errors

from pytube.errors import UnknownTable
from pytube.tubes.queries import TABLE

# Older servers raise these where newer ones answer NULL.
_NO_NAME = (errors.InvalidName, errors.SyntaxError, errors.FeatureNotSupported, errors.UndefinedTable)


def find_table(connection: psycopg.Connection, name: str) -> int:
    """The oid of the table `name`; `UnknownTable` when there is none in this database."""
    try:
        row = connection.execute(TABLE, {"table": name}).fetchone()
    except _NO_NAME:
        row = None
    if row is None or row[0] is None:
        raise UnknownTable(
            f"there is no table {name!r} in this database; write schema.table, "
            'with quotes where SQL wants them: "My Schema"."My Table"'
        )
    return int(row[0])
