"""What Spark's side asks a database about its tubes."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from pytube.db.errors import translated
from pytube.errors import UnknownTube, UsageError
from pytube.spark import kinds, queries


def kind_of(connection: psycopg.Connection, names: Sequence[str]) -> kinds.KeyKind:
    """The kind of keys that some tubes have.

    Raises:
        UnknownTube: there is no such tube.
        UsageError: they have keys of different types.
    """
    with translated():
        rows = connection.execute(queries.KEY_TYPES, {"tubes": list(names)}).fetchall()
    types = {str(tube): str(kind) for tube, kind in rows}
    for name in names:
        if name not in types:
            raise UnknownTube(f"there is no tube {name!r}")
    if len(set(types.values())) > 1:
        each = ", ".join(f"{name!r} {types[name]}" for name in names)
        raise UsageError(f"the tubes have keys of different types ({each}); touch them one by one")
    return kinds.kind_of(types[names[0]])
