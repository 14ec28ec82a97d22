"""The lease election against a database of three lines."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytube.election import Claim
from pytube.election.base import REPLACED, Ended
from pytube.election.lease import LeaseClaim, LeaseElection, LeaseTick, Room
from pytube.errors import ClaimLost, DatabaseUnavailable, LeaseHeld
from tests.helpers.election import Holder
from tests.helpers.logs import capture_logs
from tests.helpers.waiting import wait_until_async


class Acquirer(Holder):
    """Holds what nobody else does: of two who claim at the same tick, `tube_leader_acquire` takes one."""

    def __init__(self, election: LeaseElection, leases: Leases) -> None:
        super().__init__(election)
        self._leases = leases

    async def _prove(self, claim: Claim) -> None:
        await super()._prove(claim)
        if any(claim.partition in other.holds for other in self._leases.holders if other is not self):
            claim.handed_over()
            raise LeaseHeld(f"partition {claim.partition} is held")


class Leases:
    """Who holds which partition, as `tube_lease_ticks` would say it of one tube."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.holders: list[Holder] = []
        self.present: list[int] = []
        self.away: list[set[str]] = []
        """What each process leaves to others."""
        self.down = False
        self.gone = False
        """Whether the tube is not in the answers."""
        self.ticks = 0

    def election(self, drain_limit: float = 5.0, most: int | None = None) -> LeaseElection:
        number = len(self.holders)
        self.away.append(set())
        election = LeaseElection(
            tubes=["t"],
            tick=self.tick_of(number),
            leave=self.leave_of(number),
            room=Room(most),
            away=self.away[number],
            interval=0.005,
            drain_limit=drain_limit,
        )
        self.holders.append(Acquirer(election, self))
        return election

    def tick_of(self, number: int) -> Callable[[Collection[str]], Awaitable[dict[str, LeaseTick]]]:
        async def tick(_: Collection[str]) -> dict[str, LeaseTick]:
            self.ticks += 1
            if self.down:
                raise DatabaseUnavailable("gone")
            if self.gone:
                return {}
            if number not in self.present:
                self.present.append(number)
            held = [holder.partitions for holder in self.holders]
            free = set(range(self.partitions)).difference(*held)
            rank = sorted(self.present).index(number)
            return {"t": LeaseTick(self.partitions, len(self.present), free, held[number], rank)}

        return tick

    def leave_of(self, number: int) -> Callable[[str | None], Awaitable[None]]:
        async def leave(_: str | None) -> None:
            self.present = [other for other in self.present if other != number]

        return leave

    def shared(self, *each: int) -> Callable[[], bool]:
        def check() -> bool:
            held = sorted(p for holder in self.holders for p in holder.partitions)
            return held == list(range(self.partitions)) and sorted(
                len(holder.holds) for holder in self.holders
            ) == sorted(each)

        return check


@pytest.fixture
async def leases() -> AsyncIterator[Leases]:
    leases = Leases(4)
    yield leases
    leases.down = False
    for holder in leases.holders:
        holder.keep.set()
        await holder.stop()


async def join(leases: Leases) -> Holder:
    leases.election()
    await leases.holders[-1].start()
    return leases.holders[-1]


async def test_processes_come_to_a_fair_share_and_take_over(leases: Leases) -> None:
    one = await join(leases)
    await wait_until_async(leases.shared(4), what="the first has all")
    await join(leases)
    await wait_until_async(leases.shared(2, 2), what="two share")
    await join(leases)
    await wait_until_async(leases.shared(2, 1, 1), what="three share")
    await one.stop()
    await wait_until_async(leases.shared(0, 2, 2), what="two share again")
    assert not one.holds
    assert not one.lost


async def test_one_claim_is_given_back_at_a_time(leases: Leases) -> None:
    one = await join(leases)
    await wait_until_async(leases.shared(4), what="the first has all")
    one.keep.clear()
    two = await join(leases)
    await wait_until_async(
        lambda: any(claim.withdrawn is not None for claim in one.holds.values()), what="a claim is revoked"
    )
    ticks = leases.ticks
    await wait_until_async(lambda: leases.ticks > ticks + 10, what="ticks go on")
    assert sum(claim.withdrawn is not None for claim in one.holds.values()) == 1
    assert not two.holds


async def test_repartitioning_revokes_what_is_no_more(leases: Leases) -> None:
    one = await join(leases)
    await wait_until_async(leases.shared(4), what="the first has all")
    leases.partitions = 2
    await wait_until_async(lambda: one.partitions == {0, 1}, what="two are left")
    leases.partitions = 6
    await wait_until_async(leases.shared(6), what="six are claimed")


async def test_a_tick_without_the_tube_leaves_its_claims_alone(leases: Leases) -> None:
    """It is just being changed, or was dropped, which its terms find by themselves."""
    one = await join(leases)
    await wait_until_async(leases.shared(4), what="the first has all")
    claims = dict(one.holds)
    leases.gone = True
    ticks = leases.ticks
    await wait_until_async(lambda: leases.ticks > ticks + 5, what="ticks go on")
    assert one.holds == claims
    assert not any(claim.withdrawn is not None for claim in claims.values())
    leases.gone = False
    leases.partitions = 5
    await wait_until_async(leases.shared(5), what="the tube is served again")


async def test_a_database_that_is_away_is_told_once(leases: Leases) -> None:
    one = await join(leases)
    await wait_until_async(leases.shared(4), what="the first has all")
    with capture_logs() as logs:
        leases.down = True
        ticks = leases.ticks
        await wait_until_async(lambda: leases.ticks > ticks + 4, what="it tries on")
        assert len(one.holds) == 4
        leases.down = False
        await wait_until_async(lambda: any(line["log_level"] == "info" for line in logs), what="it is back")
    assert [line["log_level"] for line in logs] == ["warning", "info"]


async def test_a_database_that_is_down_at_the_start(leases: Leases) -> None:
    leases.down = True
    election = LeaseElection(tubes=["t"], tick=leases.tick_of(0), leave=leases.leave_of(0))
    with pytest.raises(DatabaseUnavailable):
        await election.start()


async def test_a_refused_claim_comes_again(leases: Leases) -> None:
    leases.partitions = 1
    election = leases.election()
    await election.start()
    first = await election.claims.get()
    await first.prove()
    first.handed_over()
    with pytest.raises(ClaimLost):
        await first.prove()
    second = await election.claims.get()
    assert second is not first
    assert second.partition == 0
    second.handed_over()


async def test_a_claim_that_ended_for_another_configuration_comes_again_at_the_next_tick(
    leases: Leases,
) -> None:
    leases.partitions = 1
    election = leases.election()
    await election.start()
    first = await election.claims.get()
    first.withdraw(REPLACED)
    first.handed_over()
    ticks = leases.ticks
    second = await election.claims.get()
    assert (second.partition, leases.ticks - ticks) == (0, 1)
    second.handed_over()


async def test_stop_does_not_wait_beyond_the_drain_limit(leases: Leases) -> None:
    leases.partitions = 1
    election = leases.election(drain_limit=0.05)
    await election.start()
    claim = await election.claims.get()
    await election.stop()
    assert isinstance(claim.withdrawn, Ended)
    leases.holders.clear()


async def test_stop_revokes_waits_and_leaves(leases: Leases) -> None:
    one = await join(leases)
    await wait_until_async(leases.shared(4), what="the first has all")
    one.keep.clear()
    stopping = asyncio.create_task(one.stop())
    await wait_until_async(
        lambda: all(claim.withdrawn is not None for claim in one.holds.values()), what="all are revoked"
    )
    assert leases.present
    one.keep.set()
    await stopping
    assert not leases.present


# --- many tubes, one election ----------------------------------------------------------------------


class ManyTubes:
    """Processes that share tubes, as `tube_lease_ticks` would say it; they tick when a test says so."""

    def __init__(self, processes: int, tubes: dict[str, int]) -> None:
        self.tubes = tubes
        self.held: dict[tuple[str, int], tuple[int, Claim]] = {}
        self.elections = [
            LeaseElection(tubes=tubes, tick=self.tick_of(number), leave=_leave, choice=random.Random(number))
            for number in range(processes)
        ]

    def tick_of(self, number: int) -> Callable[[Collection[str]], Awaitable[dict[str, LeaseTick]]]:
        async def tick(names: Collection[str]) -> dict[str, LeaseTick]:
            return {tube: self.of_tube(tube, number) for tube in names}

        return tick

    def of_tube(self, tube: str, number: int) -> LeaseTick:
        taken = {partition: who for (of, partition), (who, _) in self.held.items() if of == tube}
        return LeaseTick(
            self.tubes[tube],
            len(self.elections),
            frozenset(set(range(self.tubes[tube])) - taken.keys()),
            frozenset(partition for partition, who in taken.items() if who == number),
            (number + list(self.tubes).index(tube)) % len(self.elections),
        )

    async def turn(self) -> None:
        """Each process ticks once, and its worker acts upon what it claims and gives back."""
        for number, election in enumerate(self.elections):
            election._apply(await election._take_part())
            while not election.claims.empty():
                claim = election.claims.get_nowait()
                assert claim.withdrawn is None
                where = claim.tube, claim.partition
                assert where not in self.held, "what another process holds was claimed"
                self.held[where] = number, claim
            for where, (who, held) in list(self.held.items()):
                if who == number and held.withdrawn is not None:
                    held.handed_over()
                    del self.held[where]

    def shares(self) -> dict[str, list[int]]:
        """How many partitions of each tube each process holds."""
        return {
            tube: [
                sum(of == tube and who == number for (of, _), (who, _) in self.held.items())
                for number in range(len(self.elections))
            ]
            for tube in self.tubes
        }


async def _leave(_: str | None) -> None:
    """Nobody minds."""


@given(
    processes=st.integers(1, 4),
    partitions=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    repartitioned=st.lists(st.integers(1, 9), min_size=5, max_size=5),
)
@settings(max_examples=60)
def test_each_tube_is_shared_fairly_by_itself(
    processes: int, partitions: list[int], repartitioned: list[int]
) -> None:
    async def check() -> None:
        many = ManyTubes(processes, {f"t{number}": count for number, count in enumerate(partitions)})
        for _ in range(2):
            for _ in range(25):
                await many.turn()
            for tube, shares in many.shares().items():
                assert sum(shares) == many.tubes[tube], f"a partition of {tube} is not led"
                assert max(shares) - min(shares) <= 1, f"{tube} is not shared fairly: {shares}"
            many.tubes = dict(zip(many.tubes, repartitioned, strict=False))

    asyncio.run(check())


async def test_processes_that_come_get_their_share_of_each_tube() -> None:
    many = ManyTubes(1, {"a": 4, "b": 2, "c": 1})
    await many.turn()
    assert many.shares() == {"a": [4], "b": [2], "c": [1]}
    many.elections.append(LeaseElection(tubes=many.tubes, tick=many.tick_of(1), leave=_leave))
    await many.turn()
    assert many.shares()["a"] == [3, 1], "one partition of a tube is given back at a time"
    for _ in range(10):
        await many.turn()
    shares = many.shares()
    assert (shares["a"], shares["b"], sorted(shares["c"])) == ([2, 2], [1, 1], [0, 1])


async def test_claims_of_all_tubes_are_revoked_and_waited_for_at_the_end() -> None:
    many = ManyTubes(1, {"a": 2, "b": 1})
    (election,) = many.elections
    await election.start()
    claims = [await election.claims.get() for _ in range(3)]
    assert sorted((claim.tube, claim.partition) for claim in claims) == [("a", 0), ("a", 1), ("b", 0)]
    stopping = asyncio.create_task(election.stop())
    await wait_until_async(
        lambda: all(claim.withdrawn is not None for claim in claims), what="all are revoked"
    )
    for claim in claims:
        assert not stopping.done()
        claim.handed_over()
    await asyncio.wait_for(stopping, 5)


# --- tubes that are left to others, and a limit ----------------------------------------------------


async def until_held(leases: Leases, *each: int) -> None:
    """Until the processes hold so many partitions, in the order in which they joined."""

    def check() -> bool:
        return [len(holder.holds) for holder in leases.holders] == list(each)

    await wait_until_async(check, what=f"they hold {each}")


async def test_a_tube_that_is_given_up_goes_to_the_others_and_comes_back(leases: Leases) -> None:
    one, _ = await join(leases), await join(leases)
    await until_held(leases, 2, 2)
    election = one.election
    assert isinstance(election, LeaseElection)
    assert election.processes("t") == 2
    leases.away[0].add("t")
    await until_held(leases, 0, 4)
    assert not one.lost, "they ended in order"
    leases.away[0].clear()
    await until_held(leases, 2, 2)


async def test_a_tick_under_way_when_a_tube_is_given_up_claims_nothing(leases: Leases) -> None:
    election = leases.election()
    leases.away[0].add("t")
    election._apply({"t": LeaseTick(4, 1, {0, 1, 2, 3}, set(), 0)})
    assert not election._claims


async def test_a_worker_leads_no_more_than_its_limit_and_others_take_the_rest(leases: Leases) -> None:
    """The one with a limit is not counted while it is full, so the share of the other one is all the rest."""
    leases.election(most=1)
    await leases.holders[-1].start()
    await join(leases)
    await until_held(leases, 1, 3)
    ticks = leases.ticks
    await wait_until_async(lambda: leases.ticks > ticks + 20, what="many ticks")
    assert [len(holder.holds) for holder in leases.holders] == [1, 3], "nothing is given back for nobody"


async def test_a_worker_below_its_limit_takes_part_again(leases: Leases) -> None:
    leases.election(most=2)
    one = leases.holders[-1]
    await one.start()
    await until_held(leases, 2)
    claim = next(iter(one.holds.values()))
    assert isinstance(claim, LeaseClaim)
    claim.end_now()
    await wait_until_async(lambda: bool(one.lost) and len(one.holds) == 2, what="it has two again")


async def test_the_limit_is_that_of_all_tubes_together() -> None:
    many = ManyTubes(1, {"a": 4, "b": 4})
    many.elections = [LeaseElection(tubes=many.tubes, tick=many.tick_of(0), leave=_leave, room=Room(5))]
    for _ in range(3):
        await many.turn()
    assert sum(sum(shares) for shares in many.shares().values()) == 5


async def test_the_limit_is_that_of_all_hosts_together() -> None:
    room = Room(5)
    hosts = [ManyTubes(1, {"a": 3}), ManyTubes(1, {"a": 4})]
    for many in hosts:
        many.elections = [LeaseElection(tubes=many.tubes, tick=many.tick_of(0), leave=_leave, room=room)]
    for _ in range(3):
        for many in hosts:
            await many.turn()
    assert [many.shares() for many in hosts] == [{"a": [3]}, {"a": [2]}]


@pytest.mark.parametrize(
    ("processes", "tubes", "pause"),
    [(4, 1000, 0.5), (200, 1, 0.5), (200, 20, 2.4), (200, 250, 3.0)],
)
def test_a_crowd_that_serves_many_tubes_ticks_less_often(processes: int, tubes: int, pause: float) -> None:
    """Each tick looks at all processes of all tubes, so the ticks of all together grow with their square."""
    names = [f"t{number}" for number in range(tubes)]
    many = ManyTubes(0, dict.fromkeys(names, 4))
    election = LeaseElection(tubes=names, tick=many.tick_of(0), leave=_leave, choice=random.Random(1))
    assert 0.4 <= election._pause() <= 0.6
    election._apply(
        {name: LeaseTick(4, processes, frozenset(), frozenset(), processes - 1) for name in names}
    )
    pauses = [election._pause() for _ in range(100)]
    assert 0.8 * pause <= min(pauses) <= max(pauses) <= 1.2 * pause
    assert max(pauses) > pause > min(pauses)
