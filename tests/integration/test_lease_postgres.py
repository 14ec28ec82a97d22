"""The lease election against Postgres: several elections share one tube."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from pytube.db.errors import translated
from pytube.election.lease import LeaseElection, LeaseTick
from pytube.errors import NotLeader
from tests.helpers.election import Holder, until_shared
from tests.helpers.waiting import wait_until_async

if TYPE_CHECKING:
    from pytube.election import Claim

TUBE = "t"
LEASE = timedelta(minutes=1)
"""So long that no pause of a busy machine ends a term."""


class LeaseHolder(Holder):
    """A holder that really acquires and releases terms, and renews them while it ticks."""

    def __init__(self, session: psycopg.AsyncConnection[Any], partitions: int) -> None:
        self.session = session
        self.instance_id = uuid.uuid4()
        self.partition_count = partitions
        self.tube = TUBE
        self.terms: dict[int, uuid.UUID] = {}
        self.lease = LEASE
        self.dead = False
        self.ticks = 0
        super().__init__(LeaseElection(tubes=[self.tube], tick=self.tick, leave=self.leave, interval=0.05))

    async def call(self, text: str, *values: object) -> Any:
        with translated():
            cursor = await self.session.execute(text.encode(), values)
            return await cursor.fetchone()

    async def tick(self, _: Collection[str]) -> dict[str, LeaseTick]:
        self.ticks += 1
        for partition, term in list(self.terms.items()):
            await self.call("SELECT tube_leader_renew(%s, %s, %s, %s)", *self._term(partition, term))
        row = await self.call("SELECT * FROM tube_lease_ticks(%s, %s, 'test', %s)", *self._tick())
        if row is None:
            return {}
        tube, partitions, instances, free, mine, rank = row
        return {tube: LeaseTick(partitions, instances, frozenset(free), frozenset(mine), rank)}

    async def leave(self, _: str | None) -> None:
        await self.call("SELECT tube_lease_leave(NULL, %s)", self.instance_id)

    def _tick(self) -> tuple[object, ...]:
        return [self.tube], self.instance_id, self.lease

    def _term(self, partition: int, term: uuid.UUID) -> tuple[object, ...]:
        return self.tube, self.partition_count, partition, term

    async def _prove(self, claim: Claim) -> None:
        epoch = await self.call(
            "SELECT tube_leader_epoch(%s, %s, %s)", self.tube, self.partition_count, claim.partition
        )
        await claim.prove()
        term = uuid.uuid4()
        try:
            await self.call(
                "SELECT tube_leader_acquire(%s, %s, %s, %s, %s, 'test', %s, 'lease', %s, %s)",
                *self._term(claim.partition, term),
                self.instance_id,
                epoch[0],
                self.lease,
                self.lease,
            )
        except NotLeader:
            claim.handed_over()
            raise
        self.terms[claim.partition] = term

    async def ended(self, claim: Claim) -> None:
        if (term := self.terms.pop(claim.partition, None)) is not None:
            await self.call("SELECT tube_leader_release(%s, %s, %s, %s)", *self._term(claim.partition, term))


@asynccontextmanager
async def lease_holders(dsn: str, count: int, partitions: int) -> AsyncIterator[list[LeaseHolder]]:
    sessions = [
        await psycopg.AsyncConnection.connect(dsn, autocommit=True, options="-c search_path=tube,public")
        for _ in range(count)
    ]
    await sessions[0].execute("SELECT tube_ensure_exists(%s, %s)", (TUBE, partitions))
    holders = [LeaseHolder(session, partitions) for session in sessions]
    try:
        yield holders
    finally:
        for holder in holders:
            if not holder.dead:
                await holder.stop()
        for session in sessions:
            await session.close()


async def test_three_share_one_leaves_and_two_go_on(dsn: str) -> None:
    async with lease_holders(dsn, 3, 6) as holders:
        await holders[0].start()
        await until_shared([*holders[:1]], 6)
        await holders[1].start()
        await holders[2].start()
        await until_shared([*holders], 6, each=2)
        await holders[2].stop()
        await until_shared([*holders[:2]], 6, each=3)
        assert not any(holder.lost for holder in holders)


async def test_leases_of_a_process_that_died_run_out(dsn: str) -> None:
    async with lease_holders(dsn, 2, 2) as (first, second):
        first.lease = second.lease = timedelta(seconds=2)
        await first.start()
        await until_shared([first], 2)
        first.dead = True
        await first.session.close()  # no renewal comes any more, and no release
        await second.start()
        await until_shared([second], 2)


async def test_a_tube_that_is_not_there_yet(dsn: str) -> None:
    async with lease_holders(dsn, 1, 1) as (holder,):
        holder.tube = "later"
        await holder.start()
        await wait_until_async(lambda: holder.ticks > 3, what="it ticks")
        assert not holder.holds
        await holder.call("SELECT tube_ensure_exists('later', 1)")
        await until_shared([holder], 1)


async def test_a_partition_that_is_led_is_left_to_its_leader(dsn: str) -> None:
    async with lease_holders(dsn, 2, 1) as (first, second):
        await first.start()
        await until_shared([first], 1)
        taken = first.terms[0]
        await second.start()
        ticks = second.ticks
        await wait_until_async(lambda: second.ticks > ticks + 5, what="the second looks on")
        assert not second.holds
        assert first.terms[0] == taken
        await first.stop()
        await until_shared([second], 1)
