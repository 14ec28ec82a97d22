"""NELI against librdkafka's mock cluster, which is what demos and quick starts use.

The mock waits 3 s before a group's first balance, and then at each one the session timeout less a
second. A session timeout of 3 s or less never gets past the first.
"""

from __future__ import annotations

from typing import Any

import pytest

from pytube.election.neli import NeliClaim
from pytube.errors import ClaimLost
from tests.helpers.election import fresh_tube, holding, neli, until_shared
from tests.helpers.waiting import wait_until_async

QUICK: dict[str, Any] = {"session_timeout": 3.5, "receive_deadline": 1.0}


async def test_one_member_gets_every_partition_and_proves_it(kafka_mock: str) -> None:
    async with holding(neli(kafka_mock, fresh_tube(), **QUICK)) as holders:
        await until_shared(holders, 4)
        for claim in holders[0].holds.values():
            await claim.prove()


async def test_partitions_beyond_the_tube_s_are_not_claimed(kafka_mock: str) -> None:
    async with holding(neli(kafka_mock, fresh_tube(), partitions=2, **QUICK)) as holders:
        await until_shared(holders, 2)


async def test_two_members_share_and_the_one_that_stays_gets_all(kafka_mock: str) -> None:
    tube = fresh_tube()
    async with holding(neli(kafka_mock, tube, **QUICK)) as one:
        await until_shared(one, 4)
        async with holding(neli(kafka_mock, tube, **QUICK)) as two:
            await until_shared(one + two, 4)
            assert not one[0].lost
        await until_shared(one, 4)
        assert not one[0].lost
        assert not two[0].lost


async def test_a_claim_that_is_over_proves_nothing(kafka_mock: str) -> None:
    async with holding(neli(kafka_mock, fresh_tube(), **QUICK)) as holders:
        await until_shared(holders, 4)
        claim = holders[0].holds[0]
        assert isinstance(claim, NeliClaim)
        claim.end_now()
        with pytest.raises(ClaimLost):
            await claim.prove()
        await wait_until_async(
            lambda: holders[0].holds.get(0) not in (None, claim), what="a new claim is offered"
        )
