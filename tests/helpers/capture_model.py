"""What a tree of partitions, and a tube that may follow it, have to hold: plain dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

SPARE = 2
"""The partition that comes and goes; `0` and `1` stay."""


@dataclass(frozen=True)
class Row:
    """A row, but for its id."""

    part: int
    n: int
    gone: bool


PREDICATES: dict[str, Callable[[Row], bool]] = {
    "": lambda _row: True,
    "NOT gone": lambda row: not row.gone,
    "n > 2": lambda row: row.n > 2,
}

Rows = dict[int, Row]


@dataclass
class State:
    """The rows of the tree; those of the spare partition while it is none; the tube; the touches."""

    rows: Rows = field(default_factory=dict)
    apart: Rows = field(default_factory=dict)
    predicate: str = ""
    columns: bool = False
    """Whether only `n` counts."""
    attached: bool = True
    whole: bool = True
    """Whether the spare partition is one."""
    touches: list[tuple[str, int]] = field(default_factory=list)
    loose: set[int] = field(default_factory=set)
    """Ids that a MERGE updated beside others that it inserted: Postgres shows wrong rows then, so that
    they may be touched with other ops, or needlessly; but at least once if need be. None moves a row to
    another partition, which Postgres shows to nobody."""
    asks: bool = False
    """Whether rows came or went with a partition, which nothing touches: a pod has to ask for them."""

    def copy(self) -> State:
        return replace(
            self,
            rows=dict(self.rows),
            apart=dict(self.apart),
            touches=list(self.touches),
            loose=set(self.loose),
        )

    def here(self, keys: Iterable[int]) -> set[int]:
        """Which of the keys the tree has."""
        return set(keys) & set(self.rows)

    def free(self, keys: Iterable[int]) -> list[int]:
        """Which of the keys nobody has."""
        return [key for key in keys if key not in self.rows and key not in self.apart]

    def change(self, rows: Rows, written: set[int], *, update: bool = False) -> None:
        """One statement that wrote the rows that had, or now have, the ids `written`."""
        passes = PREDICATES[self.predicate]
        before, self.rows = self.rows, rows
        if not self.attached:
            return
        for key in written:
            old, new = before.get(key), rows.get(key)
            was, is_now = old is not None and passes(old), new is not None and passes(new)
            if update and self.columns and was and is_now and old and new and old.n == new.n:
                continue
            if was or is_now:
                self.touches.append(("U" if was and is_now else "I" if is_now else "D", key))

    def without(self, gone: Iterable[int]) -> None:
        """A statement that takes away rows."""
        gone = set(gone)
        self.change({key: row for key, row in self.rows.items() if key not in gone}, self.here(gone))

    def detach_spare(self) -> None:
        """The spare partition goes, with its rows; a sweep finds them."""
        self.apart = {key: row for key, row in self.rows.items() if row.part == SPARE}
        self.rows = {key: row for key, row in self.rows.items() if row.part != SPARE}
        self.whole = False
        self.asks |= self.attached

    def attach_spare(self) -> None:
        """It comes again, with the rows that it has now; a backfill finds them."""
        self.asks |= self.attached and bool(self.apart)
        self.rows |= self.apart
        self.apart = {}
        self.whole = True

    def allows(self, found: list[tuple[str, int]]) -> bool:
        """Whether these touches are the ones that have to be there, and no others."""
        strict = [touch for touch in self.touches if touch[1] not in self.loose]
        missing = {key for _, key in self.touches} - {key for _, key in found}
        return not missing and sorted(strict) == sorted(t for t in found if t[1] not in self.loose)
