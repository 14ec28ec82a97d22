"""Marks of an outbox around records that others have locked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pytube.db.session import Session
from pytube.outbox import source as queries
from pytube.outbox.records import Sent
from pytube.outbox.source import OutboxSource
from pytube.sources import terms
from tests.helpers.outbox_sql import OUTBOX, lead, make_outbox, stash
from tests.helpers.terms import Conn
from tests.helpers.waiting import wait_until_async
from tests.isolation.conftest import NewSession

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]
LOCK = f"SELECT FROM {OUTBOX} WHERE id = %s FOR UPDATE"


@pytest.fixture
def dsn(any_dsn: str) -> str:
    """Each version of Postgres."""
    return any_dsn


@pytest.fixture
def asking(worker_session: Session, conn: Conn) -> Session:
    """A worker's session; there is an outbox."""
    make_outbox(conn)
    return worker_session


@pytest.fixture
async def source(asking: Session, conn: Conn) -> OutboxSource:
    """What a worker marks by."""
    term = lead(conn)
    source = OutboxSource(asking, terms.Term(OUTBOX, 1, 0, term.epoch, term.leader_id))
    await source.load()
    return source


async def marked(source: OutboxSource, limit: int = 100, done: Sequence[int] = ()) -> list[int]:
    return [record.id for record in await source.mark(limit, None, done)]


@pytest.fixture
def is_around(asking: Session, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[bool]]:
    """Of each statement that marks since the last call, whether it went around locked records."""
    seen: list[bool] = []
    ask = asking.held_rows

    def held_rows(statements: tuple[Any, ...], *args: Any, **more: Any) -> Any:
        seen.append(queries.MARK_AROUND_DECLARE in statements)
        return ask(statements, *args, **more)

    def take() -> list[bool]:
        taken = seen.copy()
        seen.clear()
        return taken

    monkeypatch.setattr(asking, "held_rows", held_rows)
    return take


async def test_what_is_committed_while_a_mark_goes_around_comes_in_order(
    source: OutboxSource, conn: Conn, session: NewSession
) -> None:
    """A mark looks several times: what is before a record of its key is not left out by an earlier look."""
    writer, locker, gate = session(), session(), session()
    conn.execute(
        "CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_advisory_xact_lock_shared(77); RETURN new; END'"
    )
    conn.execute(f"CREATE TRIGGER wait BEFORE UPDATE ON {OUTBOX} FOR EACH ROW EXECUTE FUNCTION public.wait()")
    writer.begin()
    first = writer.value(f"SELECT outbox_stash('{OUTBOX}', 't', 'a', 'v')")
    locked, free = stash(conn, key="locked"), stash(conn, key="free")
    stash(conn, key="locked")
    locker.begin()
    locker.run(LOCK % locked)
    assert await marked(source, 1) == [free]
    assert source.is_held_up
    await source.reset([free])

    gate.begin()
    gate.run("SELECT pg_advisory_xact_lock(77)")
    mark = asyncio.create_task(marked(source, 3))
    await wait_until_async(
        lambda: conn.execute(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 77 AND NOT granted"
        ).fetchone(),
        what="it marks",
    )
    writer.commit()
    second = stash(conn, key="a")
    gate.commit()
    answers = [*await mark, *await marked(source)]
    assert [one for one in answers if one in (first, second)] == [first, second]
    assert free in answers
    assert locked not in answers


async def test_only_the_records_behind_a_locked_one_wait_however_many_there_are(
    source: OutboxSource, conn: Conn, session: NewSession
) -> None:
    before = stash(conn, key="hot")
    locked = stash(conn, key="hot")
    behind = [stash(conn, key="hot") for _ in range(30)]
    alone = [stash(conn, key=None) for _ in range(10)]
    others = [stash(conn, key=str(number)) for number in range(5)]
    locker = session()
    locker.begin()
    for number in (locked, *alone):
        locker.run(LOCK % number)
    assert await marked(source, 3) == [before, *others[:2]]
    assert await marked(source, 3) == others[2:]
    assert await marked(source, 3) == []
    locker.run(f"DELETE FROM {OUTBOX} WHERE id = {locked}")
    assert await marked(source, 3) == [], "that may be rolled back"
    locker.commit()
    assert await marked(source) == [*behind, *alone]


async def test_a_purge_does_not_forget_that_a_record_is_locked(
    source: OutboxSource, conn: Conn, session: NewSession, is_around: Callable[[], list[bool]]
) -> None:
    """Else each mark after a purge waits for the lock again."""
    locked, free = stash(conn, key="locked"), stash(conn, key="free")
    locker = session()
    locker.begin()
    locker.run(LOCK % locked)
    assert await marked(source) == [free]
    await source.purge([free])
    later = stash(conn, key="free")
    is_around()
    assert await marked(source) == [later]
    assert is_around() == [True]
    locker.commit()
    assert await marked(source) == [locked]
    assert not source.is_held_up


async def test_a_record_that_could_not_be_purged_is_not_waited_for_again(
    source: OutboxSource, conn: Conn, session: NewSession, is_around: Callable[[], list[bool]]
) -> None:
    locked = stash(conn, key="locked")
    assert await marked(source) == [locked]
    locker = session()
    locker.begin()
    locker.run(LOCK % locked)
    await source.purge([locked])
    assert source.unpurged == {locked}
    stash(conn, key="free")
    is_around()
    await marked(source)
    assert is_around() == [False], "others are marked from the floor on"
    assert not source.unpurged
    for _ in range(2):
        await marked(source, done=[locked])
        assert (is_around(), source.unpurged) == ([True], frozenset({locked}))
    locker.commit()
    await source.purge([locked])
    assert (source.unpurged, source.is_held_up) == (frozenset(), False)


async def test_what_an_earlier_term_has_sent_is_not_waited_for_while_somebody_has_it_locked(
    source: OutboxSource, conn: Conn, session: NewSession
) -> None:
    """Nor does the term end by it: the worker tries again, and marks nothing before."""
    ids, locker = [stash(conn, key=key) for key in "ab"], session()
    locker.begin()
    locker.run(LOCK % ids[0])
    sent = Sent(frozenset(ids), time.time() + 3600)
    assert not await source.purge_sent(sent)
    assert conn.execute(f"SELECT count(*) FROM {OUTBOX}").fetchone() == (2,)
    locker.run("ROLLBACK")
    assert await source.purge_sent(sent)
    assert conn.execute(f"SELECT count(*) FROM {OUTBOX}").fetchone() == (0,)
