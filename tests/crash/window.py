"""A stretch of a long run that is as it shall be, for tests that spoil it."""

from __future__ import annotations

from typing import Any

from pytube.model import Token
from pytube.sinks.jsonl import Line
from tests.crash.chaos.invariants import Invariant
from tests.crash.chaos.ledger import Ledger
from tests.crash.chaos.records import Call, Change, Key, Pod, Purge, Term, Window

SHARD, ID = 0, 7
KEY: Key = (SHARD, ID)
OTHER: Key = (SHARD, 8)
FIRST, SECOND = 100, 200
"""Epochs: the first term was not released and ran out at 25; the second began at 24, and works."""


def line(n: int | None, epoch: int, counter: int, at: float, key: Key = KEY) -> Line:
    doc = None if n is None else {"id": key[1], "n": n}
    op = "delete" if n is None else "upsert"
    return Line("live", *key, op, Token(epoch, counter), 1, at, "tester", doc)


def call(n: int | None, epoch: int, counter: int, began: float, **more: Any) -> Call:
    """A call with one document, answered after a tenth of a second."""
    options = {"ended": began + 0.1, **more}
    return Call(f"{epoch}-{counter}", Token(epoch, counter), began, {KEY: n}, **options)


def good() -> Window:
    """The row gets n = 1, which the first term delivers, and n = 2, which the second does."""
    return Window(
        "live",
        receive_deadline=2.0,
        request_timeout=3.0,
        lines=[line(1, FIRST, 1, 11.05), line(2, SECOND, 1, 31.05)],
        calls=[call(1, FIRST, 1, 11.0), call(2, SECOND, 1, 31.0)],
        pods=[Pod(1, 501, SHARD, [ID], 10.0), Pod(2, 502, SHARD, [ID], 30.0)],
        purges=[Purge(1, "a", 12.0), Purge(2, "b", 32.0)],
        changes=[Change(501, KEY, 1), Change(502, KEY, 2)],
        terms=[
            Term("a", FIRST, 4, 0, 5.0, 1.0, 20.0, 24.0, "superseded"),
            Term("b", SECOND, 4, 0, 5.0, 24.0, 33.0),
        ],
        renewals={"a": [5.0, 10.5, 20.0], "b": [24.0, 30.5, 33.0]},
        told={"a": 2.0, "b": 25.0},
        rows={KEY: {"id": ID, "n": 2}},
    )


def broken(window: Window, *earlier: Window) -> set[Invariant]:
    """The invariants that a window breaks, after others that are well."""
    ledger = Ledger()
    for before in earlier:
        assert ledger.take(before) == []
    return {violation.invariant for violation in ledger.take(window)}


def a_change_makes_no_touch(window: Window) -> None:
    window.changes = [*window.changes, Change(503, OTHER, 1)]


def deleted(window: Window) -> None:
    """The row is deleted after all, and the second term delivers that."""
    window.changes = [*window.changes, Change(503, KEY, None)]
    window.pods = [*window.pods, Pod(3, 503, SHARD, [ID], 30.5)]
    window.purges = [*window.purges, Purge(3, "b", 32.0)]
    window.calls = [window.calls[0], call(None, SECOND, 1, 31.0)]
    window.lines = [window.lines[0], line(None, SECOND, 1, 31.05)]
    window.rows = {}
