"""The settled seq as workers find it, with writers open at the worst moments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, LiteralString

import pytest

from pytube.db.session import Session
from pytube.sources import queries
from pytube.sources.settled import Settled
from tests.helpers.terms import Conn, make_tube, touch
from tests.isolation.conftest import NewSession
from tests.isolation.settling import until_provisional

INSERT = "INSERT INTO tube.queue (op, shard, ids) VALUES ('U', 0, '{1}') RETURNING seq"


@pytest.fixture
def asking(worker_session: Session, conn: Conn) -> Session:
    """A worker's session; there is a tube."""
    make_tube(conn)
    return worker_session


async def test_what_is_committed_is_settled_at_once(asking: Session, conn: Conn) -> None:
    seq = touch(conn)
    settled = Settled(asking)
    await settled.advance()
    assert settled.seq == seq


@pytest.mark.parametrize("asked", ["advance", "is_quiet"])
async def test_an_open_writer_holds_it_up(asking: Session, session: NewSession, asked: str) -> None:
    settled = Settled(asking)
    writer = session()
    writer.begin()
    seq = writer.value(INSERT)
    for _ in range(3):
        await getattr(settled, asked)()
        assert settled.seq < seq
    writer.commit()
    await settled.advance()
    assert settled.seq == seq


async def test_a_writer_that_draws_right_after_the_xid_is_not_settled(
    asking: Session, conn: Conn, session: NewSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = touch(conn)
    writer = session()
    ask = asking.value

    async def value(statement: LiteralString, arguments: Mapping[str, Any] | None = None) -> Any:
        answer = await ask(statement, arguments)
        if statement == queries.SETTLE_XID:
            writer.begin()
            writer.run(INSERT)
        return answer

    monkeypatch.setattr(asking, "value", value)
    settled = Settled(asking)
    await settled.advance()
    assert settled.seq == before


async def test_what_a_long_writer_holds_up_can_be_passed_until_it_is_over(
    asking: Session, conn: Conn, session: NewSession
) -> None:
    before = touch(conn)
    settled = Settled(asking)
    await settled.advance()
    writer = session()
    writer.begin()
    drawn = writer.value(INSERT)
    later = touch(conn)
    await until_provisional(settled, later)
    assert settled.seq == before < drawn
    provisional_version = settled.provisional_version
    writer.run("PREPARE TRANSACTION 'late'")
    latest = touch(conn)
    await until_provisional(settled, latest)
    assert settled.provisional_version == provisional_version, "a prepared transaction is the same one"
    assert settled.seq < drawn
    assert not await settled.is_quiet()
    conn.execute("COMMIT PREPARED 'late'")
    await settled.advance()
    assert settled.provisional_version != provisional_version
    assert settled.seq == latest


async def test_each_long_writer_holds_up_its_own_pods_only(
    asking: Session, conn: Conn, session: NewSession
) -> None:
    settled = Settled(asking)
    first, second = session(), session()
    first.begin()
    first.value(INSERT)
    between = touch(conn)
    await until_provisional(settled, between)
    second.begin()
    drawn = second.value(INSERT)
    later = touch(conn)
    await until_provisional(settled, later)
    first.commit()
    await settled.advance()
    assert between <= settled.seq < drawn
    assert settled.provisional == later
    second.run("ROLLBACK")
    await settled.advance()
    assert settled.seq == later
