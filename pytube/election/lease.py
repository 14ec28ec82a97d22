"""Leader election on Postgres alone: a lease per partition, renewed where the term stands.

Each process ticks about twice a second (in a crowd that serves many tubes, less often), so that a partition
which is given up in order has a new leader within one: it says that it is there, and learns for each of its
tubes which partitions are free and how many processes share them. It claims free ones up to its fair share,
and gives back one at a time when it has more. Who gets a partition that several want is decided by the
acquire of the term, a compare-and-set that also looks at the lease.

A process does not take part in tubes that it has given up, nor in any while it leads as many partitions as
it may. Then it does not tick for them, and the others do not count it: their fair shares grow, so they take
the partitions that it gives up. It keeps those it leads, as the leases are renewed with the terms.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Set
from dataclasses import dataclass

from pytube.election.base import REPLACED, SHARED, STOPS, Claim, Claims, Election, Revoked, wait_until_over
from pytube.errors import DatabaseUnavailable, PytubeError
from pytube.logs import Logger, host_fields
from pytube.pipeline.retry_queue import doubled

# --- fair shares ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeaseTick:
    """What the database says of a tube, to one process."""

    partitions: int
    instances: int
    """Processes that share the tube, this one included."""

    free: Set[int]
    """Partitions whose lease is free or has run out."""

    mine: Set[int]
    """Partitions whose last lease was this process's."""

    rank: int | None = None
    """How many of the processes come before this one, in an order on which all agree; if known."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What to do now."""

    claim: frozenset[int]
    give_back: frozenset[int]


def fair_share(tick: LeaseTick) -> int:
    """How many partitions this process may have.

    `partitions / instances`, rounded up. With a rank only the first `partitions % instances`
    processes round up: the shares then add up to the partitions, and no process goes without while
    another has two.
    """
    least, more = divmod(tick.partitions, max(1, tick.instances))
    if tick.rank is None:
        return least + (1 if more else 0)
    return least + (1 if tick.rank < more else 0)


def decide(
    tick: LeaseTick,
    held: Set[int],
    leaving: Set[int],
    passed_over: Set[int],
    choice: random.Random,
    most: int | None = None,
) -> Steps:
    """Steps toward the fair share.

    `held` are claimed and not `leaving`; those `passed_over` are not claimed now, as they were just tried,
    and refused. `most`: so many more this process may lead; None: any number. Chance picks among free
    partitions, so that processes seldom want the same.

    Returns:
        Free partitions to claim, as far as the share goes; claims to give back: those whose
        partition is no more, and else, one at a time, those beyond the share. The only partition that a
        process leads is not beyond it.
    """
    vanished = frozenset(partition for partition in held if partition >= tick.partitions)
    kept = held - vanished
    share = fair_share(tick)
    # With fewer partitions than processes none is entitled to what another leads: who has one keeps it.
    if len(kept) > (share if tick.partitions >= tick.instances else 1):
        surplus = frozenset() if leaving else frozenset({max(kept)})
        return Steps(claim=frozenset(), give_back=vanished | surplus)
    open_ones = (tick.free | tick.mine) - held - leaving - passed_over
    wanted = sorted(partition for partition in open_ones if partition < tick.partitions)
    still_ours = len(kept) + sum(partition < tick.partitions for partition in leaving)
    room = max(0, share - still_ours if most is None else min(most, share - still_ours))
    picked = choice.sample(wanted, min(room, len(wanted)))
    return Steps(claim=frozenset(picked), give_back=vanished)


# --- claims --------------------------------------------------------------------------------------


_JITTER = 0.2
_LONGEST_PAUSE = 3.0
_LOOK = 3e-6
"""Seconds. Each tick looks at all processes of all its tubes, which takes Postgres a microsecond each; the
ticks of all processes together are to take a third of a core at most."""
_GIVEN_UP = Revoked("this process leaves the tube to others")


class LeaseClaim(Claim):
    """A partition to try for, until it is withdrawn. See `pytube.election.base.Claim`."""

    async def prove(self) -> None:
        """Nothing to ask: the acquire itself sees whether the lease is free (`LeaseHeld`)."""
        self._refuse_when_over()


class Room:
    """How many partitions this process leads at most, in all its lease elections together."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._claims: list[Claim] = []

    def add(self, claim: Claim) -> None:
        self._claims.append(claim)

    @property
    def left(self) -> int | None:
        """How many more partitions this process may lead; None: any number."""
        self._claims = [claim for claim in self._claims if claim.over_at is None]
        return None if self._most is None else max(0, self._most - len(self._claims))


class LeaseElection(Election):
    """The claims of all tubes of this process, by leases. See `pytube.election.base.Election`."""

    def __init__(
        self,
        *,
        tubes: Collection[str],
        tick: Callable[[Collection[str]], Awaitable[Mapping[str, LeaseTick]]],
        leave: Callable[[str | None], Awaitable[None]],
        room: Room | None = None,
        away: Set[str] = frozenset(),
        interval: float = 0.5,
        longest: float = _LONGEST_PAUSE,
        drain_limit: float = 30.0,
        choice: random.Random | None = None,
        host: str | None = None,
        claims: Claims | None = None,
    ) -> None:
        """Nothing is begun before `start`. All times are seconds.

        `tubes` and `away`, those left to others, are looked at before each tick. `tick` calls
        `tube_lease_ticks`; a tube that is not in its answer stays as it is. `leave` calls `tube_lease_leave`;
        None: for all tubes. `room` is shared with other elections; None: without end. Ticks come each
        `interval`; the more processes and tubes there are, the fewer, down to one each `longest`, which has
        to be well below the time for which a process counts without one.
        """
        super().__init__(claims)
        self._wanted = tubes
        self._tick = tick
        self._leave = leave
        self._room = room or Room(None)
        self._away = away
        self._left: frozenset[str] = frozenset()
        """Tubes in which this process takes no part, as the others can see."""
        self._processes: dict[str, int] = {}
        self._settled: dict[str, LeaseTick] = {}
        """The last tick of tubes of which nothing is to be claimed or given back, while it stays the same."""
        self._interval = interval
        self._longest = longest
        self._drain_limit = drain_limit
        self._choice = choice or random.Random()  # noqa: S311 -- spreads load, guards nothing
        self._log = Logger("pytube.election", **host_fields(host))
        self._claims: dict[str, dict[int, LeaseClaim]] = {}
        self._task: asyncio.Task[None] | None = None
        self._failures = 0

    async def start(self) -> None:
        """Tick once, and continue in the background. Raises errors of the first tick."""
        self._apply(await self._tick(frozenset(self._wanted)))
        self._task = asyncio.create_task(self._run(), name="pytube-lease")

    async def stop(self, why: Revoked = STOPS) -> None:
        """Withdraw all claims, wait until each is over (at most the drain limit), leave."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        claims = [claim for of_tube in self._claims.values() for claim in of_tube.values()]
        for one in claims:
            one.withdraw(why)
        await wait_until_over(claims, self._drain_limit)
        try:
            await self._leave(None)
        except PytubeError as error:
            self._log.warning("lease_not_left", reason=str(error))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause())
            try:
                ticks = await self._take_part()
            except PytubeError as error:
                self._failed(error)
            else:
                self._succeeded()
                self._apply(ticks)

    async def _take_part(self) -> Mapping[str, LeaseTick]:
        wanted = frozenset(self._wanted)
        gone = self._leave_gone(wanted)
        tubes = wanted | gone
        given_up = (tubes & self._away) | gone
        for tube in given_up:
            for claim in self._claims.get(tube, {}).values():
                claim.withdraw(_GIVEN_UP)
        absent = tubes if self._room.left == 0 else given_up
        if absent == tubes != self._left:
            await self._leave(None)
            self._left = absent
        for tube in absent - self._left:
            await self._leave(tube)
            self._left |= {tube}
        self._left &= absent
        present = tubes - absent
        return await self._tick(present) if present else {}

    def _leave_gone(self, wanted: Set[str]) -> frozenset[str]:
        """The tubes that are wanted no more, and are still to be left: forgotten once they are."""
        gone = frozenset(self._claims.keys() - wanted)
        for tube in gone & self._left:
            if all(claim.over_at is not None for claim in self._claims[tube].values()):
                for known in (self._claims, self._settled, self._processes):
                    known.pop(tube, None)
        return gone & self._claims.keys()

    def processes(self, tube: str) -> int | None:
        return self._processes.get(tube)

    def _pause(self) -> float:
        """Seconds until the next tick: longer in a crowd and after each failure, never the same for all."""
        others = self._processes.values()
        crowd = max(others, default=0) * sum(others) * _LOOK
        interval = max(self._interval, min(self._longest, crowd))
        pause = doubled(self._failures + 1, interval, max(interval, _LONGEST_PAUSE))
        return pause * self._choice.uniform(1 - _JITTER, 1 + _JITTER)

    def _failed(self, error: PytubeError) -> None:
        self._failures = min(self._failures + 1, 16)
        if self._failures == 1:
            level = logging.WARNING if isinstance(error, DatabaseUnavailable) else logging.ERROR
            self._log.write(level, "claims_paused", {"reason": str(error)})

    def _succeeded(self) -> None:
        if self._failures:
            self._log.info("claims_resumed", failures=self._failures)
        self._failures = 0

    def _apply(self, ticks: Mapping[str, LeaseTick]) -> None:
        for tube, tick in ticks.items():
            self._apply_to(tube, tick)

    def _apply_to(self, tube: str, tick: LeaseTick) -> None:
        self._processes[tube] = tick.instances
        if tube in self._away:
            return  # since the tick was sent
        claims = self._claims.setdefault(tube, {})
        if self._settled.get(tube) == tick and not any(
            claim.withdrawn or claim.over_at for claim in claims.values()
        ):
            return  # as at nearly all ticks
        over = {partition for partition, claim in claims.items() if claim.over_at is not None}
        # Partitions given up since the last tick are passed over once, so that another process may have them.
        passed_over = {partition for partition in over if claims[partition].withdrawn != REPLACED}
        for partition in over:
            del claims[partition]
        leaving = {partition for partition, claim in claims.items() if claim.withdrawn is not None}
        steps = decide(tick, claims.keys() - leaving, leaving, passed_over, self._choice, self._room.left)
        self._settled.pop(tube, None)
        if not (steps.claim or steps.give_back or leaving or tick.free) and claims.keys() == tick.mine:
            self._settled[tube] = tick
        for partition in steps.give_back:
            claims[partition].withdraw(SHARED)
        for partition in steps.claim:
            claims[partition] = claim = LeaseClaim(tube, partition)
            self._room.add(claim)
            self.claims.put_nowait(claim)
