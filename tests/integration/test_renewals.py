"""Renewals over a slow network: all terms of a process are renewed in one round trip."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from pytube.config import PostgresConfig
from pytube.db.session import Session
from pytube.election.base import Ended
from pytube.election.lease import LeaseClaim
from pytube.sources import terms
from pytube.sources.terms import Candidate, Term
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from tests.conftest import Connect
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.terms import make_tube
from tests.helpers.waiting import wait_until_async

PARTITIONS = 64
DELAY = 0.1
"""Seconds, each way."""


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(int(str(conninfo_to_dict(dsn)["port"]))) as proxy:
        yield proxy


async def test_64_terms_over_a_slow_network(dsn: str, connect: Connect, proxy: Proxy) -> None:
    """Of two tubes, and one of them is over."""
    near = await Session.open(dsn, "tube", "test")
    candidate = Candidate(uuid4(), "tester", "neli", 10.0, None)
    active_terms = []
    for tube in ("wide", "other"):
        make_tube(connect(), tube, PARTITIONS // 2)
        for number in range(PARTITIONS // 2):
            term = await terms.acquire(near, tube, PARTITIONS // 2, number, 0, candidate)
            active_terms.append(active_term(term))
    *present, lost = active_terms
    await terms.release(near, lost.term)
    far = await Session.open(make_conninfo(dsn, host="127.0.0.1", port=proxy.port), "tube", "test")
    proxy.switch(Mode.SLOW, delay=DELAY)
    database = Database(
        PostgresConfig(dsn=SecretStr(dsn)), ["wide", "other"], receive_deadline=1.0, emit=lambda _: None
    )
    database.terms = {(one.term.tube, one.term.partition): one for one in active_terms}
    renewing = asyncio.create_task(database._renew(far))
    try:
        await wait_until_async(lambda: all(renewed_at(each) > 0 for each in present), what="all are renewed")
        began = time.monotonic()
        await wait_until_async(
            lambda: all(renewed_at(each) > began for each in present), what="all are again"
        )
        assert time.monotonic() - began < PARTITIONS * DELAY, "one by one, it would be twice that"
        assert isinstance(lost.stop, Ended)
        assert not any(each.stop for each in present)
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        await near.close()
        await far.close()


def active_term(term: Term) -> ActiveTerm:
    claim = LeaseClaim(term.tube, term.partition)
    return ActiveTerm(term, claim, deadline=0.0, sent_at=-1.0, emit=lambda _: None)


def renewed_at(one: ActiveTerm) -> float:
    """When its last renewal was sent: the deadline is none."""
    return one.trusted_until()
