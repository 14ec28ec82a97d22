"""Renewals over a slow network: all terms of a process are renewed in one round trip."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pytube.errors import Fenced
from pytube.pipeline.term_deadline import TermDeadline
from pytube.sources import terms
from pytube.sources.session import Session
from pytube.sources.terms import Candidate, Term
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from tests.conftest import Connect
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.terms import make_tube
from tests.helpers.waiting import wait_until_async
from tests.unit.fakes import FakeClaim

PARTITIONS = 64
DELAY = 0.1
"""Seconds, each way."""


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(int(str(conninfo_to_dict(dsn)["port"]))) as proxy:
        yield proxy


async def test_64_terms_over_a_slow_network(dsn: str, connect: Connect, proxy: Proxy) -> None:
    make_tube(connect(), "wide", PARTITIONS)
    near = await Session.open(dsn, "tube", "test")
    candidate = Candidate(uuid4(), "tester", "neli", 10.0, None)
    active_terms = [
        active_term(await terms.acquire(near, "wide", PARTITIONS, number, 0, candidate))
        for number in range(PARTITIONS)
    ]
    lost = active_terms.pop()
    await terms.release(near, lost.term)
    far = await Session.open(make_conninfo(dsn, host="127.0.0.1", port=proxy.port), "tube", "test")
    proxy.switch(Mode.SLOW, delay=DELAY)
    database = Database(
        *("", "tube", "wide"),
        renew_interval=0.2,
        answer_timeout=10.0,
        renewal_timeout=10.0,
        active_terms=lambda: [*active_terms, lost],
        on_wake=lambda _: None,
        awake=lambda: False,
        emit=lambda _: None,
    )
    renewing = asyncio.create_task(database._renew(far))
    try:
        await wait_until_async(lambda: all(oldest(each) > 0 for each in active_terms), what="all are renewed")
        began = time.monotonic()
        await wait_until_async(
            lambda: all(oldest(each) > began for each in active_terms), what="all are again"
        )
        assert time.monotonic() - began < PARTITIONS * DELAY, "one by one, it would be twice that"
        assert isinstance(lost.ended.result(), Fenced)
        assert not any(each.ended.done() for each in active_terms)
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        await near.close()
        await far.close()


def active_term(term: Term) -> ActiveTerm:
    return ActiveTerm(term, FakeClaim(term.partition), TermDeadline(0.0, -1.0), lambda _: None)


def oldest(one: ActiveTerm) -> float:
    """When its last renewal was sent."""
    return one.deadline.until(float("inf"))
