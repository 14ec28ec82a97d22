"""Which table a shard's ids belong to: the root table, by the registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytube.model import Id, KeyType, ids_in

STATE = "convert_to(r.version || ' ' || r.created_at, 'UTF8')"
"""Tells whether the registry is the one that is known: the version, and of which tube of that name it is."""

ROOTS = f"""
    SELECT {STATE}, r.key_type::text, r.predicate, n.nspname, c.relname, a.id_col, a.shard, a.shards
    FROM tube_registry r
    LEFT JOIN tube_attachment a ON a.tube = r.tube
    LEFT JOIN pg_catalog.pg_class c ON c.oid = a.tbl
    LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE r.tube = %(tube)s
    ORDER BY a.position
"""  # noqa: S608 # a constant
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

    def own(self, shard: int, ids: Sequence[Id]) -> Sequence[Id]:
        """Those of `ids` that are in `shard`, which the table has.

        A document names the others with a shard that they had when the table was spread otherwise.
        """
        return ids_in(shard, ids, self.shard, self.shards)


@dataclass(frozen=True, slots=True)
class Roots:
    """The registry of one tube, as of one version."""

    state: bytes
    """As `STATE` gives it."""
    keys: KeyType
    predicate: str | None
    tables: Sequence[Root]

    def of(self, shard: int) -> Root | None:
        """The root table of `shard`: the first attached that has it; None when none does."""
        return next((root for root in self.tables if root.has(shard)), None)
