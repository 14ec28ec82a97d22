"""From where marks of an outbox scan: nothing that may still be committed lies below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pytube.db.session import Queries
from pytube.outbox.records import Record
from pytube.outbox.source import OutboxSource
from pytube.sources.settled import Settled
from pytube.sources.terms import Term


class Table(Queries):
    """Answers marks with what a test wants."""

    def __init__(self, *, adopted: bool) -> None:
        self.adopted = adopted
        self.answer: list[Record] = []
        self.floors: list[int] = []

    async def rows(self, _: str, __: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return [(self.adopted, True, [], "orders/1")]

    async def held_rows(
        self, _: tuple[str, ...], arguments: Mapping[str, Any], before: tuple[str, ...] = ()
    ) -> list[tuple[Any, ...]]:
        assert not before
        self.floors.append(arguments["floor"])
        return [tuple(one) for one in self.answer]


def records(*ids: int, retried: bool = False) -> list[Record]:
    return [Record(number, 0.0, "t", "k", b"v", retried=retried) for number in ids]


@pytest.mark.parametrize("adopted", [False, True])
async def test_the_next_mark_scans_from_what_is_settled_and_was_returned(adopted: bool) -> None:
    table = Table(adopted=adopted)
    source = OutboxSource(table, Term("orders", 1, 0, epoch=1))
    await source.load()
    settled = Settled(table)
    settled.seq = settled.provisional = 20
    for answer in (
        records(7, 15),  # a full mark: above 15 it has not looked
        records(18, 30),  # another one: above 20 a commit may be late
        records(12, 15, retried=True),  # all retried: it has not looked beyond the floor
        records(23),  # fewer than it could: it has looked at all
        [],
    ):
        table.answer = answer
        await source.mark(2, settled)
    settled.seq = settled.provisional = 40
    await source.mark(2, settled)
    await source.mark(2, settled)
    assert table.floors == ([0] * 7 if adopted else [0, 15, 20, 20, 20, 20, 40])
