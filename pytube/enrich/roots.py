"""Which table a shard's ids belong to: the root table, by the registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ROOTS = """
    SELECT r.version, r.predicate, n.nspname, c.relname, a.id_col, a.shard, a.shards
    FROM tube_registry r
    LEFT JOIN tube_attachment a ON a.tube = r.tube
    LEFT JOIN pg_catalog.pg_class c ON c.oid = a.tbl
    LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE r.tube = %(tube)s
    ORDER BY a.position
"""
"""All attachments of a tube, the first attached first; one row with NULLs when there is none."""


@dataclass(frozen=True, slots=True)
class Root:
    """An attached table, and the shards it has."""

    schema: str
    table: str
    id_col: str
    shard: int
    shards: int

    def has(self, shard: int) -> bool:
        """Whether the table's ids are in `shard`."""
        return self.shard <= shard < self.shard + self.shards


@dataclass(frozen=True, slots=True)
class Roots:
    """The registry of one tube, as of one version."""

    version: int
    predicate: str | None
    tables: Sequence[Root]

    def of(self, shard: int) -> Root | None:
        """The root table of `shard`: the first attached that has it; None when none does."""
        return next((root for root in self.tables if root.has(shard)), None)
