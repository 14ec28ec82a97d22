"""The judge of outboxes: what keeps the promises of a mode passes, and what breaks one is found."""

from __future__ import annotations

import re
from collections.abc import Sequence

import psycopg
import pytest

from pytube.outbox.stash import EPOCH, OUTBOX_ID
from tests.crash.outbox_judge import (
    JOURNAL,
    MODES,
    READ,
    STRICT,
    TRANSACTIONS,
    WINDOW,
    WINDOWED,
    Judge,
    Stashed,
    keys_that_overlap,
    stash,
)
from tests.helpers.outbox import Seen
from tests.helpers.outbox_sql import OUTBOX, make_outbox
from tests.helpers.terms import Conn

Found = tuple[int, int]
"""Id and epoch."""


def seen(found: Sequence[Found], key: str = "k") -> list[Seen]:
    return [
        Seen(0, key, b"x", {OUTBOX_ID: str(number), EPOCH: str(epoch)}, offset)
        for offset, (number, epoch) in enumerate(found)
    ]


def sent(*ids: int, epoch: int = 1) -> list[Found]:
    return [(number, epoch) for number in ids]


def one_by_one(*ids: int) -> list[Stashed]:
    """Records of one key, each of a transaction that begins after the one before."""
    return [Stashed(number, "k", 100 + number, f"{100 + number}:{100 + number}:") for number in ids]


LONG = Stashed(1, "k", 101, "101:101:")
AMID = Stashed(2, "k", 102, "101:102:101")
AFTER = Stashed(3, "k", 103, "103:103:")
"""`AMID` is committed while `LONG` is open, `AFTER` is stashed when both are over."""


def judge(
    mode: str, found: Sequence[Found], stashed: Sequence[Stashed] | None = None, *, overdue: bool = False
) -> int:
    if stashed is None:
        stashed = one_by_one(*sorted({number for number, _ in found}))
    return Judge(mode).take(seen(found), stashed, overdue=overdue)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_in_order_passes(mode: str) -> None:
    assert judge(mode, sent(1, 2, 3)) == 0
    assert judge(mode, sent(1, 2, 3), [LONG, AMID, AFTER]) == 0
    assert judge(mode, sent(2, 1, 3), [LONG, AMID, AFTER]) == 0, "nobody has promised an order of these two"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("found", "stashed", "what"),
    [
        (sent(1, 3), one_by_one(1, 2, 3), "are missing: .*id=2"),
        (sent(), one_by_one(1), "are missing"),
        (sent(1, 2, 3), one_by_one(1, 3), "were never committed: .*id': '2"),
        (sent(1, 3, 2), one_by_one(1, 2, 3), "id=3.* is in front of what was committed before it: .*id=[12]"),
        (sent(2, 3, 1), [LONG, AMID, AFTER], "id=3.* is in front of what was committed before it: .*id=[12]"),
        (sent(1, 3, 2), [LONG, AMID, AFTER], "id=3.* is in front of what was committed before it: .*id=[12]"),
        (sent(2, 1), [Stashed(1, "k", 101, "101:101:"), Stashed(2, "k", 101, "101:101:")], "in front of"),
    ],
    ids=[
        "missing",
        "all missing",
        "rolled back",
        "order",
        "order of a long writer",
        "order after both",
        "one transaction",
    ],
)
def test_it_is_found(mode: str, found: Sequence[Found], stashed: Sequence[Stashed], what: str) -> None:
    with pytest.raises(AssertionError, match=re.compile(what, re.DOTALL)):
        judge(mode, found, stashed, overdue=True)


def test_a_key_that_nobody_has_stashed_is_found() -> None:
    with pytest.raises(AssertionError, match="never committed"):
        Judge(WINDOWED).take(seen(sent(1)), [], overdue=False)


def test_what_may_come_again() -> None:
    judge(STRICT, sent(1, 2, 2, 3))
    judge(WINDOWED, sent(1, 2, 3, 2, 3, 4))
    many = range(1, WINDOW + 3)
    judge(WINDOWED, sent(*many, *many[2:]))
    judge(WINDOWED, sent(1, 2, 3, 1, 4, 2, 3, 4), overdue=True)
    for mode, found in (
        (STRICT, sent(1, 2, 1, 2)),
        (WINDOWED, sent(1, 2, 3, 1, 3)),
        (WINDOWED, sent(*many, *many)),
        (TRANSACTIONS, sent(1, 2, 2, 3)),
    ):
        with pytest.raises(AssertionError):
            judge(mode, found)
    with pytest.raises(AssertionError):
        judge(STRICT, sent(1, 2, 1, 2), overdue=True)


def test_what_comes_late() -> None:
    found = [(1, 1), (1, 2), (2, 2), (1, 1), (3, 2)]
    assert judge(STRICT, found) == judge(WINDOWED, found) == 1
    with pytest.raises(AssertionError, match="came late"):
        judge(TRANSACTIONS, found)
    with pytest.raises(AssertionError, match="are missing"):
        judge(WINDOWED, [(1, 1), (2, 2), (1, 1), (3, 1)])  # the leader never sent the third one


@pytest.mark.parametrize("mode", MODES)
def test_pieces_follow_each_other(mode: str) -> None:
    """What was judged may come once more as the late one of a stopped leader, and only so."""
    one = Judge(mode)
    one.take(seen([(1, 2), (2, 2)]), one_by_one(1, 2), overdue=False)
    one.take(seen([(3, 2)]), one_by_one(3), overdue=False)
    if mode == TRANSACTIONS:
        with pytest.raises(AssertionError, match="came late"):
            one.take(seen([(2, 1), (4, 2)]), one_by_one(4), overdue=False)
    else:
        assert one.take(seen([(2, 1), (4, 2)]), one_by_one(4), overdue=False) == 1
    with pytest.raises(AssertionError, match="came again"):
        one.take(seen([(3, 2), (5, 2)]), one_by_one(5), overdue=False)


def test_the_journal_knows_what_was_committed_before(conn: Conn, dsn: str) -> None:
    make_outbox(conn)
    conn.execute(JOURNAL)
    with psycopg.connect(dsn) as long:
        stash(long, OUTBOX, ["k", "own"], topic="t")
        stash(conn, OUTBOX, ["k", "k"], topic="t")
        long.commit()
        stash(long, OUTBOX, ["k", "own"], topic="t")
    rolled_back = psycopg.connect(dsn)
    stash(rolled_back, OUTBOX, ["k"], topic="t")
    rolled_back.close()
    stashed = [Stashed(*row) for row in conn.execute(READ, (OUTBOX,))]
    assert [one.key for one in stashed] == ["k", "own", "k", "k", "k", "own"]
    first, _, *amid, last, _ = stashed
    assert [one.sees_any([first.xid]) for one in (*amid, last)] == [False, False, True]
    assert last.sees_any([amid[0].xid])
    assert not last.sees_any([last.xid])
    assert keys_that_overlap(stashed) == {"k"}
