"""Marks of an outbox while transactions that have written to it stay open: keys keep their order."""

from __future__ import annotations

import pytest

from pytube.db.session import Session
from pytube.outbox.source import OutboxSource
from pytube.sources import terms
from pytube.sources.settled import Settled
from tests.helpers.outbox_sql import OUTBOX, lead, make_outbox, park, retry, stash
from tests.helpers.terms import Conn, Term
from tests.isolation.conftest import NewSession
from tests.isolation.settling import until_provisional

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]
STASH = f"SELECT outbox_stash('{OUTBOX}', 't', 'k', 'v')"


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
def term(asking: Session, conn: Conn) -> Term:  # noqa: ARG001 # it has made the outbox
    return lead(conn)


@pytest.fixture
async def source(asking: Session, term: Term) -> OutboxSource:
    """What a worker marks by."""
    source = OutboxSource(asking, terms.Term(OUTBOX, 1, 0, term.epoch, term.leader_id))
    await source.load()
    return source


async def marked(source: OutboxSource, settled: Settled | None, limit: int = 100) -> list[int]:
    return [record.id for record in await source.mark(limit, settled)]


@pytest.mark.parametrize("end", ["COMMIT", "PREPARE"])
@pytest.mark.parametrize("limit", [1, 100])
async def test_a_long_writer_that_stashes_again_is_sent_in_order(
    asking: Session, source: OutboxSource, conn: Conn, session: NewSession, end: str, limit: int
) -> None:
    """Also by a mark between its commit and the moment at which somebody has noticed that."""
    settled, writer = Settled(asking), session()
    writer.begin()
    writer.run("SAVEPOINT part")  # a writer's xid is that of all of it, not of a part
    first = writer.value(STASH)
    passed = stash(conn, key="another")
    await until_provisional(settled, passed)
    assert await marked(source, settled) == [passed], "a long writer delays nobody else"
    later = stash(conn, key="another")
    await until_provisional(settled, later)
    if end == "PREPARE":
        writer.run("PREPARE TRANSACTION 'long'")
        assert await marked(source, settled) == [later]
        writer.run("COMMIT PREPARED 'long'")
    else:
        assert await marked(source, settled) == [later]
        writer.commit()
    second = writer.value(STASH)
    assert settled.provisional > first, "nobody has noticed"
    answers = [await marked(source, settled, limit) for _ in range(3)]
    assert [id_ for answer in answers for id_ in answer] == [first, second]


async def test_what_is_noticed_of_one_long_writer_hides_no_other(
    asking: Session, source: OutboxSource, conn: Conn, session: NewSession
) -> None:
    settled, one, two = Settled(asking), session(), session()
    for writer in (one, two):
        writer.begin()
    ended, first = one.value(STASH), two.value(STASH)
    passed = stash(conn, key="another")
    await until_provisional(settled, passed)
    assert await marked(source, settled) == [passed]
    one.commit()
    await settled.advance()
    assert settled.long_writers == 1
    assert await marked(source, settled) == [ended]
    assert await marked(source, settled) == []
    two.commit()
    second = two.value(STASH)
    assert await marked(source, settled) == [first, second]


@pytest.mark.parametrize("known", [False, True], ids=["not known", "another one"])
async def test_what_a_worker_forgets_while_it_asks_anew_passes_nothing(
    asking: Session, source: OutboxSource, conn: Conn, session: NewSession, known: bool
) -> None:
    settled, writer = Settled(asking), session()
    writer.begin()
    first = writer.value(STASH)
    passed = stash(conn, key="another")
    await until_provisional(settled, passed)
    assert await marked(source, settled) == [passed]
    writer.commit()
    second = writer.value(STASH)
    assert await marked(source, Settled(asking) if known else None) == [first, second]


async def test_who_has_the_table_open_and_has_not_written_holds_up_nothing(
    asking: Session, source: OutboxSource, conn: Conn, session: NewSession
) -> None:
    """It draws its ids later, so they are greater than all that is settled by then."""
    other, idler = session(), session()
    other.begin()
    other.run("SELECT pg_current_xact_id()")  # so that the holders of the table decide
    idler.begin()
    idler.run(f"LOCK TABLE {OUTBOX} IN ROW EXCLUSIVE MODE")
    settled = Settled(asking)
    first = stash(conn)
    await until_provisional(settled, first)
    assert (settled.seq, settled.long_writers) == (first, 0)
    assert await marked(source, settled) == [first]
    second = idler.value(STASH)
    idler.commit()
    assert await marked(source, settled) == [second]


async def test_what_is_to_be_sent_again_does_not_hide_a_long_writer(
    asking: Session, source: OutboxSource, term: Term, conn: Conn, session: NewSession
) -> None:
    settled, writer = Settled(asking), session()
    writer.begin()
    first = writer.value(STASH)
    mended, passed = stash(conn, key="mended"), stash(conn, key="another")
    await until_provisional(settled, passed)
    assert await marked(source, settled) == [mended, passed]
    await source.purge([passed])
    assert park(conn, term, mended) == [mended]
    retry(conn)
    writer.commit()
    second = writer.value(STASH)
    answers = [await marked(source, settled, 1) for _ in range(4)]
    assert answers == [[mended], [first], [second], []]
