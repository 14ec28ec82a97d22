"""Waiting until what was committed is at the sink: when it returns, and when it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

import pytube
from pytube import delivered
from pytube.delivered import Delivered, wait_async
from pytube.errors import DatabaseUnavailable, KeysParked, UnknownTube, UsageError, WaitTimeout
from tests.conftest import Connect
from tests.docs.pages import BY_NAME
from tests.helpers.terms import (
    TUBE,
    Claim,
    Conn,
    Term,
    acquire,
    make_tube,
    mark,
    park,
    park_item,
    purge,
    scalar,
    touch,
)
from tests.helpers.waiting import wait_until_async

WATCHERS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"


@asynccontextmanager
async def waiting(dsn: str, conn: Conn, **options: Any) -> AsyncIterator[asyncio.Task[Delivered]]:
    """A wait under way, which purges notify by now."""
    task = asyncio.create_task(wait_async(TUBE, dsn=dsn, **options))
    await wait_until_async(lambda: task.done() or scalar(conn, WATCHERS) >= 16)
    assert not task.done()
    yield task
    task.cancel()


async def test_it_returns_when_all_that_was_committed_before_is_purged(dsn: str, conn: Conn) -> None:
    make_tube(conn, partitions=2)
    terms = [acquire(conn, Claim(partitions=2, partition=p)) for p in (0, 1)]
    for shard in (0, 1):
        touch(conn, shard=shard)
    marked = [[pod.seq for pod in mark(conn, term)] for term in terms]
    async with waiting(dsn, conn) as task:
        touch(conn)  # later: not waited for
        purge(conn, terms[0], marked[0])
        done, _ = await asyncio.wait({task}, timeout=0.05)
        assert not done
        purge(conn, terms[1], marked[1])
        result = await task
    assert (result.seq, result.parked, result.tubes) == (max(marked[0] + marked[1]), 0, (TUBE,))


@pytest.mark.parametrize("payload", ["\u00b2 0 1", "1 0 " + "9" * 5000, "1 0"])
async def test_what_anybody_notifies_ends_no_wait(dsn: str, conn: Conn, payload: str) -> None:
    make_tube(conn)
    term = acquire(conn)
    touch(conn)
    marked = [pod.seq for pod in mark(conn, term)]
    async with waiting(dsn, conn) as task:
        conn.execute("SELECT pg_notify(tube_delivered_channel(%s), %s)", (TUBE, payload))
        done, _ = await asyncio.wait({task}, timeout=0.05)
        assert not done
        purge(conn, term, marked)
        assert (await task).parked == 0


async def test_nothing_waits(dsn: str, conn: Conn) -> None:
    make_tube(conn)
    assert (await wait_async(TUBE, dsn=dsn)).parked == 0


def test_from_a_program_without_a_loop(dsn: str, conn: Conn) -> None:
    make_tube(conn)
    assert pytube.wait([TUBE, TUBE], dsn=dsn).tubes == (TUBE,)


async def test_a_seq_waits_for_those_who_may_still_commit_below_it(
    dsn: str, conn: Conn, connect: Connect
) -> None:
    """What is committed now does not: the late one was not committed before."""
    make_tube(conn)
    late = connect()
    late.execute("BEGIN")
    touch(late)
    term = acquire(conn)
    touch(conn)
    purge(conn, term, [pod.seq for pod in mark(conn, term)])
    seq = scalar(conn, "SELECT tube_settle_seq()")
    await wait_async(TUBE, dsn=dsn, timeout=30)
    with pytest.raises(WaitTimeout, match="1 transaction that wrote to tube .* is still open"):
        await wait_async(TUBE, dsn=dsn, seq=seq, timeout=0)
    task = asyncio.create_task(wait_async(TUBE, dsn=dsn, seq=seq))
    late.execute("COMMIT")
    await wait_until_async(lambda: task.done() or scalar(conn, WATCHERS) >= 16)
    purge(conn, term, [pod.seq for pod in mark(conn, term)])
    assert (await task).seq == seq


async def test_an_lsn(dsn: str, conn: Conn, connect: Connect) -> None:
    make_tube(conn)
    other = connect()
    other.execute("BEGIN")
    touch(other)
    lsn = scalar(conn, "SELECT pg_current_wal_insert_lsn()::text")
    with pytest.raises(WaitTimeout, match="still open"):
        await wait_async(TUBE, dsn=dsn, lsn=lsn, timeout=0)
    other.execute("ROLLBACK")
    await wait_async(TUBE, dsn=dsn, lsn=lsn)


async def test_a_repartition_while_it_waits(dsn: str, conn: Conn) -> None:
    make_tube(conn, partitions=2)
    for shard in range(3):
        touch(conn, shard=shard)
    async with waiting(dsn, conn) as task:
        conn.execute("SELECT tube_ensure_exists(%s, 3)", [TUBE])
        for partition in range(3):
            term = acquire(conn, Claim(partitions=3, partition=partition))
            purge(conn, term, [pod.seq for pod in mark(conn, term)])
        assert (await task).parked == 0


async def test_several_tubes(dsn: str, conn: Conn) -> None:
    make_tube(conn)
    make_tube(conn, "other")
    touch(conn, tube="other")
    with pytest.raises(WaitTimeout, match="tube 'other' still holds touches"):
        await wait_async([TUBE, "other"], dsn=dsn, timeout=0.01)


COMPANION = f"{TUBE}_relations"


@pytest.fixture
def related(conn: Conn) -> Conn:
    """A session; the tube follows a table, and has a companion, both with one partition."""
    make_tube(conn)
    conn.execute("CREATE TABLE public.item (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_table_ensure_attached(%s, 'public.item', 0)", [TUBE])
    conn.execute("SELECT tube_companion_ensure(%s, %s, 'bigint')", (TUBE, COMPANION))
    return conn


def resolve(conn: Conn, *ids: int) -> tuple[Term, list[int]]:
    """Touch documents as a worker does with what waits in the companion; how to purge that."""
    term = acquire(conn, Claim(tube=COMPANION))
    marked = [pod.seq for pod in mark(conn, term)]
    conn.execute("SELECT tube_document_touch(%s, 'U', %s::bigint[])", (TUBE, list(ids)))
    return term, marked


async def test_a_change_waits_in_a_companion_and_then_as_touches_of_documents(
    dsn: str, related: Conn
) -> None:
    touch(related, tube=COMPANION)
    seq = scalar(related, "SELECT tube_settle_seq()")
    async with waiting(dsn, related) as task:
        term = acquire(related)
        touch(related)
        purge(related, term, [pod.seq for pod in mark(related, term)])  # the tube is empty
        done, _ = await asyncio.wait({task}, timeout=0.05)
        assert not done
        purge(related, *resolve(related, 1, 2))
        await wait_until_async(lambda: task.done() or scalar(related, WATCHERS) >= 32)
        assert not task.done()
        touch(related)  # later: not waited for
        first = mark(related, term)[0].seq
        purge(related, term, [first])
        result = await task
    assert (result.seq, result.tubes) == (seq, (TUBE,))


async def test_only_a_tube_with_companions_is_waited_for_longer(dsn: str, related: Conn) -> None:
    """What comes to another one meanwhile is not waited for."""
    make_tube(related, "other")
    touch(related, tube=COMPANION)
    task = asyncio.create_task(wait_async([TUBE, "other"], dsn=dsn))
    await wait_until_async(lambda: task.done() or scalar(related, WATCHERS) >= 16)
    touch(related, tube="other")
    purge(related, *resolve(related))
    assert (await task).tubes == (TUBE, "other")


async def test_a_seq_waits_for_writers_of_a_companion(dsn: str, related: Conn, connect: Connect) -> None:
    late = connect()
    late.execute("BEGIN")
    touch(late, tube=COMPANION)
    seq = scalar(related, "SELECT tube_settle_seq()")
    with pytest.raises(WaitTimeout, match=f"1 transaction that wrote to tube '{COMPANION}' is still open"):
        await wait_async(TUBE, dsn=dsn, seq=seq, timeout=0)
    task = asyncio.create_task(wait_async(TUBE, dsn=dsn, seq=seq))
    late.execute("COMMIT")
    await wait_until_async(lambda: task.done() or scalar(related, WATCHERS) >= 16)
    assert not task.done()
    purge(related, *resolve(related))
    assert (await task).seq == seq


@pytest.mark.parametrize("role", ["postgres", "tube_writer"])
async def test_the_timeout_says_that_a_companion_is_behind(dsn: str, related: Conn, role: str) -> None:
    touch(related, tube=COMPANION)
    login = psycopg.conninfo.make_conninfo(dsn, options=f"-c role={role}")
    says = f"tube '{COMPANION}', a companion of tube '{TUBE}', still holds touches up to seq 1, .* partition"
    with pytest.raises(WaitTimeout, match=says):
        await wait_async(TUBE, dsn=login, timeout=0)


async def test_what_is_parked_in_a_companion_is_not_at_the_sink(dsn: str, related: Conn) -> None:
    park(related, acquire(related, Claim(tube=COMPANION)), park_item(7, shard=4))
    with pytest.raises(KeysParked, match=f"1 in tube '{COMPANION}', as shard 4 id 7"):
        await wait_async(TUBE, dsn=dsn)
    assert (await wait_async(TUBE, dsn=dsn, ignore_parked=True)).parked == 1


async def test_parked_keys_are_not_at_the_sink(dsn: str, conn: Conn) -> None:
    make_tube(conn)
    park(conn, acquire(conn), park_item(7, shard=4))
    with pytest.raises(KeysParked, match=f"1 in tube '{TUBE}', as shard 4 id 7"):
        await wait_async(TUBE, dsn=dsn)
    assert (await wait_async(TUBE, dsn=dsn, ignore_parked=True)).parked == 1


async def test_the_timeout_says_who_is_behind(dsn: str, conn: Conn) -> None:
    make_tube(conn, partitions=2)
    acquire(conn, Claim(partitions=2, partition=1))
    for shard in (0, 1):
        touch(conn, shard=shard)
    with pytest.raises(WaitTimeout) as caught:
        await wait_async(TUBE, dsn=dsn, timeout=0)
    assert "in 2 of 2 partitions: partition 0 has no leader (start a worker)" in str(caught.value)
    assert "partition 1 is led by" in str(caught.value)


async def test_a_session_that_is_lost(dsn: str, conn: Conn) -> None:
    make_tube(conn)
    touch(conn)
    async with waiting(dsn, conn) as task:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pytube wait'"
        )
        with pytest.raises(DatabaseUnavailable):
            await task


async def test_a_pause_is_why_it_takes_so_long(dsn: str, conn: Conn) -> None:
    make_tube(conn)
    acquire(conn)
    touch(conn)
    conn.execute("SELECT tube_pause(%s, NULL, NULL, 'the index is moved')", (TUBE,))
    with pytest.raises(WaitTimeout, match="partition 0 is paused: by .*: the index is moved"):
        await wait_async(TUBE, dsn=dsn, timeout=0.01)


@pytest.mark.parametrize("role", ["tube_writer", "tube_worker", "tube_monitor"])
async def test_roles_that_may_wait(dsn: str, conn: Conn, role: str) -> None:
    make_tube(conn)
    touch(conn)
    with pytest.raises(WaitTimeout, match="still holds touches"):
        await wait_async(
            TUBE, dsn=psycopg.conninfo.make_conninfo(dsn, options=f"-c role={role}"), timeout=0.01
        )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seq": 10**15}, "was not drawn yet"),
        ({"lsn": "FFFFFFFF/0"}, "was not written yet"),
        ({"lsn": "x"}, "is not a valid LSN"),
        ({"lsn": "0/0", "seq": 1}, "not for both"),
    ],
)
async def test_what_can_not_be_waited_for(dsn: str, conn: Conn, options: dict[str, Any], says: str) -> None:
    make_tube(conn)
    with pytest.raises(UsageError, match=says):
        await wait_async(TUBE, dsn=dsn, **options)


async def test_a_standby_is_refused(dsn: str, conn: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tube(conn)
    monkeypatch.setattr(delivered, "IS_STANDBY", "SELECT true")
    with pytest.raises(UsageError, match="is a standby"):
        await wait_async(TUBE, dsn=dsn)


def test_the_program_of_the_page(dsn: str, conn: Conn) -> None:
    make_tube(conn, "es-live")
    (program,) = BY_NAME["docs/verify.md"].blocks("python")
    exec(compile(program.text, program.page, "exec"), {"dsn": dsn})  # noqa: S102 # our page


async def test_no_tube(dsn: str) -> None:
    with pytest.raises(UsageError, match="which tube"):
        await wait_async([], dsn=dsn)
    with pytest.raises(UnknownTube):
        await wait_async("none", dsn=dsn)
