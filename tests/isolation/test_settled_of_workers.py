"""The settled seq as workers find it, with writers open at the worst moments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from pytube.sources import queries
from pytube.sources.queries import Statement
from pytube.sources.session import Session
from pytube.sources.settled import Settled
from tests.helpers.terms import Conn, make_tube, touch
from tests.isolation.conftest import NewSession

INSERT = "INSERT INTO tube.queue (op, shard, ids) VALUES ('U', 0, '{1}') RETURNING seq"


@pytest.fixture
async def asking(dsn: str, conn: Conn) -> AsyncIterator[Session]:
    """A worker's session."""
    make_tube(conn)
    asking = await Session.open(dsn, "tube", "settle")
    yield asking
    await asking.close()


async def test_what_is_committed_is_settled_at_once(asking: Session, conn: Conn) -> None:
    seq = touch(conn)
    settled = Settled(asking, "queue")
    await settled.advance()
    assert settled.seq == seq


@pytest.mark.parametrize("asked", ["advance", "is_quiet"])
async def test_an_open_writer_holds_it_up(asking: Session, session: NewSession, asked: str) -> None:
    settled = Settled(asking, "queue")
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

    async def value(statement: Statement, arguments: Mapping[str, Any] | None = None) -> Any:
        answer = await ask(statement, arguments)
        if statement == queries.SETTLE_XID:
            writer.begin()
            writer.run(INSERT)
        return answer

    monkeypatch.setattr(asking, "value", value)
    settled = Settled(asking, "queue")
    await settled.advance()
    assert settled.seq == before
