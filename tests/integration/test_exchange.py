"""A mark that purges, too: one transaction, under one fence."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from pytube.db.session import Session
from pytube.errors import Fenced, StatementFailed
from pytube.sources.pods import TubeSource
from pytube.sources.terms import Term
from tests.helpers.terms import TUBE, acquire, make_tube

Conn = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def term(conn: Conn) -> Term:
    make_tube(conn)
    conn.execute(
        "INSERT INTO tube.queue (op, shard, ids) SELECT 'U', 0, ARRAY[g] FROM generate_series(1, 6) g"
    )
    held = acquire(conn)
    return Term(TUBE, 1, 0, held.epoch, held.leader_id)


@pytest.fixture
async def source(dsn: str, term: Term) -> AsyncIterator[TubeSource]:
    session = await Session.open(dsn, "tube", "pytube test")
    yield TubeSource(session, term)
    await session.close()


def left(conn: Conn) -> list[tuple[object, ...]]:
    return conn.execute("SELECT ids[1], leader_id IS NOT NULL FROM tube.queue ORDER BY seq").fetchall()


async def test_what_is_done_is_gone_when_more_is_marked(conn: Conn, source: TubeSource) -> None:
    first = await source.mark(2, settled=None)
    second = await source.mark(2, settled=None, done=[pod.seq for pod in first])
    assert [pod.ids for pod in second] == [[3], [4]]
    assert left(conn) == [(3, True), (4, True), (5, False), (6, False)]


async def test_it_is_one_message(source: TubeSource, tmp_path: Path) -> None:
    """Of several, Postgres would do the first ones, and keep their locks while we are stopped between two."""
    first = await source.mark(2, settled=None)
    assert isinstance(source._session, Session)
    server = source._session.connection.pgconn
    with (tmp_path / "trace").open("wb+") as trace:
        server.trace(trace.fileno())
        await source.mark(2, settled=None, done=[pod.seq for pod in first])
        server.untrace()
        trace.seek(0)
        sent = re.findall(rb"\tF\t\d+\t(\w+)", trace.read())
    assert sent == [b"Query"]


async def test_nothing_is_purged_when_the_mark_fails(conn: Conn, source: TubeSource) -> None:
    first = await source.mark(2, settled=None)
    with pytest.raises(StatementFailed, match="pods_limit"):
        await source.mark(0, settled=None, done=[pod.seq for pod in first])
    assert left(conn)[:2] == [(1, True), (2, True)]
    assert len(await source.mark(1, settled=None)) == 1, "the session is whole"


async def test_under_a_term_that_is_over_neither_is_done(conn: Conn, source: TubeSource) -> None:
    first = await source.mark(2, settled=None)
    acquire(conn)
    with pytest.raises(Fenced):
        await source.mark(2, settled=None, done=[pod.seq for pod in first])
    assert left(conn) == [(1, True), (2, True), (3, False), (4, False), (5, False), (6, False)]


@pytest.mark.parametrize("indexes", ["its own", "none"])
async def test_a_mark_purges_both_classes_whatever_index_there_is(
    conn: Conn, source: TubeSource, indexes: str
) -> None:
    conn.execute(
        "INSERT INTO tube.queue (op, shard, ids) SELECT 'B', 0, ARRAY[g] FROM generate_series(7, 9) g"
    )
    if indexes == "none":
        row = conn.execute("SELECT name FROM tube_private_indexes('queue')").fetchone()
        assert row is not None
        conn.execute(f"DROP INDEX {row[0]}".encode())
    first = await source.mark(8, settled=None)
    second = await source.mark(8, settled=None, done=[pod.seq for pod in first[1:]])
    assert [pod.ids for pod in second] == [[9]]
    assert left(conn) == [(1, True), (9, True)]
