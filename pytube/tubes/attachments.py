"""How a table is to be attached to a tube: as is asked for, else as it is, else by defaults."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

from pytube.errors import InvalidShard, KeysWouldChange, RelatedTables

_MOST = 2**31 - 1
"""Of shards, as Postgres' integer."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The requested settings; None: not given."""

    shard: int | None = None
    shards: int | None = None
    id_col: str | None = None
    columns: Sequence[str] | None = None
    """Empty: each UPDATE counts."""
    replica: bool | None = None
    key_cols: Sequence[str] | None = None
    """The columns of a key of several; not together with `id_col`."""
    shard_by: str | None = None
    """Empty: the whole key."""

    @property
    def names_key(self) -> bool:
        """Whether it says which columns hold the ids."""
        return self.id_col is not None or self.key_cols is not None


@dataclass(frozen=True, slots=True)
class Manner:
    """How a table is attached."""

    shard: int
    shards: int = 1
    id_col: str | None = None
    """None: the SQL finds none, and says so."""
    columns: frozenset[str] = frozenset()
    """An UPDATE that changes none of these makes no touch; none: each UPDATE does."""
    replica: bool = False
    key_cols: tuple[str, ...] = ()
    """The columns of a key of several, of which `id_col` is the first; else none."""
    shard_by: str | None = None
    """The column that alone determines a key's shard; None: the whole key."""

    @property
    def key(self) -> tuple[str | None, ...]:
        """The columns of the key."""
        return self.key_cols or (self.id_col,)

    @property
    def shard_place(self) -> int | None:
        """Which part of the key alone decides its shard, from 0; None: all of them."""
        return self.key.index(self.shard_by) if self.shard_by in self.key_cols else None

    @property
    def option(self) -> str:
        """The option of `pytube tube attach` that names them."""
        name = "--key-cols" if self.key_cols else "--id-col"
        return f"{name} {shlex.quote(','.join(column or '' for column in self.key))}"

    @property
    def end(self) -> int:
        """The first shard behind its own."""
        return self.shard + self.shards

    def overlaps(self, other: Self) -> bool:
        """Whether the two have a shard in common."""
        return self.shard < other.end and other.shard < self.end

    def same_shards(self, other: Self) -> bool:
        """Whether the two have the same shards, so that one is related to the other."""
        return (self.shard, self.shards) == (other.shard, other.shards)


@dataclass(frozen=True, slots=True)
class Attached:
    """One attached table of a tube."""

    tube: str
    oid: int
    name: str
    """As `schema.table`, quoted."""
    root: bool
    manner: Manner


@dataclass(frozen=True, slots=True)
class Place:
    """A table to attach, among the attached ones."""

    tube: str
    table: str
    """As the caller writes it."""
    oid: int
    present: Sequence[Attached]
    """All attached tables of the tube, in the order of attachment."""

    @property
    def was(self) -> Attached | None:
        """How the table is attached; None where it is not."""
        return next((one for one in self.present if one.oid == self.oid), None)

    @property
    def others(self) -> Sequence[Attached]:
        """The other tables of the tube."""
        return [one for one in self.present if one.oid != self.oid]

    @property
    def related(self) -> Sequence[Attached]:
        """The tables that are related to this one."""
        was = self.was
        if was is None or not was.root:
            return []
        return [one for one in self.others if one.manner.same_shards(was.manner)]

    def root_of(self, manner: Manner) -> Attached | None:
        """The other table that is the root in these shards."""
        return next((one for one in self.others if one.root and one.manner.same_shards(manner)), None)

    def manner(self, wish: Wish, in_schema: int | None, id_col: str | None) -> Manner:
        """How to attach it by this column; `in_schema`: the number at the end of its schema's name."""
        was = Manner(in_schema or 0) if self.was is None else self.was.manner
        shard = was.shard if wish.shard is None else wish.shard
        # A table that is related by the column that is asked for has the shards of its root.
        roots = {one.manner.shard: one.manner.shards for one in self.others if one.root}
        shards = roots.get(shard, was.shards) if wish.names_key else was.shards
        key_cols = tuple(wish.key_cols or ()) if wish.names_key else was.key_cols
        kept = was.shard_by if was.shard_by in key_cols else None
        return Manner(
            shard,
            shards if wish.shards is None else wish.shards,
            key_cols[0] if key_cols else id_col,
            was.columns if wish.columns is None else frozenset(wish.columns),
            was.replica if wish.replica is None else wish.replica,
            key_cols,
            kept if wish.shard_by is None else wish.shard_by or None,
        )

    # --- refusals ------------------------------------------------------------------

    def check(self, wish: Wish, manner: Manner, *, force: bool) -> None:
        """Refuse shards of other tables, and another key for each document; the SQL refuses the rest.

        With `force`, documents may get other keys.

        Raises:
            InvalidShard: the shards are partly another table's, or are a root table's and no column is asked
                for that holds its ids.
            KeysWouldChange: `force` is not set.
        """
        if max(manner.shard, manner.shards) > _MOST:
            raise InvalidShard(
                f"{self.table} is not attached: shards are numbers up to {_MOST}, "
                f"not {max(manner.shard, manner.shards)}"
            )
        moves = self.was is None or not self.was.manner.same_shards(manner)
        if moves and manner.shard >= 0 and manner.shards >= 1:
            self._check_shards(wish, manner)
        if self.was is not None and not force:
            self._check_keys(self.was, manner)

    def _check_shards(self, wish: Wish, manner: Manner) -> None:
        for other in self.others:
            if not manner.overlaps(other.manner):
                continue
            if other in self.related:
                raise InvalidShard(
                    f"{self.table} is not changed: {other.name} is related to it, so both need the same "
                    f"shards; run `pytube tube detach {self._words(other.name)}`, change {self.table}, and "
                    f"attach {other.name} again: `pytube tube attach {self._words(other.name)} "
                    f"--shard {manner.shard} {other.manner.option}`"
                )
            if not manner.same_shards(other.manner) or not wish.names_key:
                raise self.taken(other, manner)

    def taken(self, other: Attached, manner: Manner) -> InvalidShard:
        """The refusal of shards that are another table's, with the two commands that work."""
        root = self.root_of(other.manner) or other
        free = max(one.manner.end for one in self.others)
        shards = f" --shards {manner.shards}" if manner.shards != 1 else ""
        force = " --force" if self.was is not None else ""
        words = f"pytube tube attach {self._words(self.table)}"
        return InvalidShard(
            f"{self.table} is not attached: {root.name} has the {_shards(root.manner)} of tube {self.tube!r}"
            f"; if a column of {self.table} holds ids of {root.name}, name it: `{words} --shard "
            f"{root.manner.shard} --shards {root.manner.shards} --id-col COLUMN{force}`; else give "
            f"{self.table} separate shards: `{words} --shard {free}{shards}{force}`"
        )

    def _check_keys(self, was: Attached, manner: Manner) -> None:
        moved = not was.manner.same_shards(manner) or was.manner.shard_place != manner.shard_place
        if not moved and (not was.root or was.manner.key == manner.key):
            return
        change = ", ".join(
            changes(was.manner, replace(manner, columns=was.manner.columns, replica=was.manner.replica))
        )
        heirs = f", and {self.related[0].name} would become the root table" if moved and self.related else ""
        raise KeysWouldChange(
            f"{self.table} is not changed ({change}): each of its rows would have a document under another "
            f"key{heirs}; give --force, and then run `pytube backfill start {shlex.quote(self.tube)} "
            f"--table {shlex.quote(self.table)}`, which writes the documents under the new keys and deletes "
            f"the others by its sweep{self._left(was.manner, manner)}"
        )

    def check_detach(self) -> None:
        """Refuse to detach the root table of others.

        Raises:
            RelatedTables: there are such tables.
        """
        if self.related:
            names = [one.name for one in self.related]
            commands = "; ".join(f"pytube tube detach {self._words(name)}" for name in names)
            raise RelatedTables(
                f"{self.table} is not detached from {self.tube}: {', '.join(names)}, related to it, would "
                f"stay, and {names[0]} would become the root table: its rows would become the documents, and "
                f"the others would be deleted when they are touched; first run `{commands}`, or give --force"
            )

    @staticmethod
    def _left(was: Manner, now: Manner) -> str:
        """What the sweep leaves."""
        if now.shard <= was.shard and was.end <= now.end:
            return ""
        return ", but for those in shards that the table gives up: delete these at the sink"

    def _words(self, table: str) -> str:
        return f"{shlex.quote(self.tube)} {shlex.quote(table)}"


def changes(was: Manner, now: Manner) -> list[str]:
    """The differences, for people."""
    shown = {"shards": (_range(was), _range(now))}
    for field in fields(Manner):
        if field.name not in ("shard", "shards"):
            shown[field.name] = (_text(getattr(was, field.name)), _text(getattr(now, field.name)))
    names = {
        "id_col": "id column",
        "columns": "columns that count",
        "key_cols": "key",
        "shard_by": "spread by",
    }
    return [f"{names.get(name, name)} {a} -> {b}" for name, (a, b) in shown.items() if a != b]


def _text(value: frozenset[str] | tuple[str, ...] | str | bool | None) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "one column"
    if isinstance(value, frozenset):
        return ", ".join(sorted(value)) or "all"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value or "none"


def _range(manner: Manner) -> str:
    return f"{manner.shard}" if manner.shards == 1 else f"{manner.shard} to {manner.end - 1}"


def _shards(manner: Manner) -> str:
    return f"shard {_range(manner)}" if manner.shards == 1 else f"shards {_range(manner)}"
