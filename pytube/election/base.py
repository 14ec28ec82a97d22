"""Election: who should lead a partition.

An election is advice. It hands out *claims*: a claim is the right to begin a term, proved once for each. The
right to send comes from the term's renewals in the database alone, which fences whoever is overtaken.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pytube import clock
from pytube.errors import ClaimLost, PytubeError

_LOOK = 0.01
"""Seconds between looks whether claims were handed over."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the work on a partition stops."""

    reason: str


class Paused(Stop):
    """An operator paused the partition, or a worker stopped the tube: give all back, keep the term."""


class Revoked(Stop):
    """Another worker is to have the partition: finish the sends, give back, release, hand over."""


class Shutdown(Revoked):
    """This process ends. As `Revoked`, but no worker waits, so there is more time to drain."""


@dataclass(frozen=True, slots=True)
class Broken(Stop):
    """The work can't continue in order: write nothing more."""

    error: PytubeError


class Lost(Broken):
    """What Postgres did is unknown. The term is released, and another begins."""


class Ended(Broken):
    """The term is over in Postgres, or no other worker waits for its end any more."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Why an election has no answer, and for how many seconds that has been so."""

    reason: str
    seconds: float


class Claim(ABC):
    """The right to begin terms over one partition of one tube, until it is withdrawn.

    It outlives terms. Its election withdraws it, or the worker where its queue is served otherwise from then
    on; the worker hands it over.
    """

    def __init__(self, tube: str, partition: int) -> None:
        self.tube = tube
        self.partition = partition
        self.withdrawn: Stop | None = None
        """`Revoked`: the right is to be given back in order; then `handed_over()`. `Ended`: no one waits for
        that any more, so the worker ends at once."""
        self.over_at: float | None = None
        """When it was over for the election, by `pytube.clock`; None while it is not."""
        self.is_waiting = False
        """Whether it is on its way to the worker; see `Claims`."""
        self.news = asyncio.Event()
        """Set when one of these has changed, or something has happened to a term under the claim."""

    def withdraw(self, why: Revoked | Ended) -> None:
        """Ask for the right back; the first reason counts, but `Ended` counts more."""
        if self.withdrawn is None or (isinstance(why, Ended) and not isinstance(self.withdrawn, Ended)):
            self.withdrawn = why
            self._tell()
            if self.is_waiting:
                self.handed_over()

    def end_now(self) -> None:
        """End the claim without waiting for the worker."""
        if self.over_at is None:
            reason = "the election gave the partition to another worker"
            self.withdraw(Ended(reason, ClaimLost(reason)))
            self.handed_over()

    def handed_over(self) -> None:
        """The term is over and released: the right may go to another worker.

        On a claim that is not withdrawn: the worker gives it up on its own (it could not acquire the
        term, say). The election then offers the partition again a little later, here or elsewhere.
        """
        if self.over_at is None:
            self.over_at = clock.now()
            self._tell()

    async def wait_until_withdrawn(self, seconds: float | None = None) -> None:
        """Return when it is, or after so many seconds. No other task may wait for its news meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.withdrawn is None:
                    self.news.clear()
                    await self.news.wait()

    def _tell(self) -> None:
        self.news.set()

    @abstractmethod
    async def prove(self) -> None:
        """Ask the authority whether this process has the right now.

        Called after the epoch was read and before a term is acquired with it.

        Raises:
            ClaimLost: it is not. The claim is over; another may be offered later.
            BrokerUnavailable: no answer in time. The claim stands: ask again a little later.
        """

    def _refuse_when_over(self) -> None:
        if self.withdrawn is not None or self.over_at is not None:
            raise ClaimLost(f"the right to lead partition {self.partition} was taken away or given back")


class Claims(asyncio.Queue[Claim]):
    """Claims on their way to the worker.

    A claim that is withdrawn here is over at once, as no term has begun with it: another worker must not wait
    until it is this claim's turn. Threads may withdraw it meanwhile, so who takes one looks afterwards.
    """

    def put_nowait(self, claim: Claim) -> None:
        claim.is_waiting = True
        if claim.withdrawn is not None:
            claim.handed_over()
        super().put_nowait(claim)

    async def get(self) -> Claim:
        claim = await super().get()
        claim.is_waiting = False
        return claim


async def wait_until_over(claims: Collection[Claim], limit: float) -> None:
    """Wait until all are over, for at most so many seconds; claims that are not by then are ended."""
    ends_at = clock.now() + limit
    while any(one.over_at is None for one in claims) and clock.now() < ends_at:  # noqa: ASYNC110 # few, short
        await asyncio.sleep(_LOOK)
    for claim in claims:
        claim.end_now()


SHARED: Final = Revoked("others share the tube")
REPLACED: Final = Revoked("its configuration has changed")
"""By the worker, which serves it in another way from now on."""
STOPS: Final = Shutdown("the worker stops")


class Election(ABC):
    """The claims of one or more tubes in this process.

    A tube is left to others while the election has to stay away from it: the claims are revoked, so its
    partitions end in order. Who leaves one group for all tubes leaves all of them.
    """

    def __init__(self, claims: Claims | None = None) -> None:
        """`claims`: receives them, as they are granted; elections may share it."""
        self.claims = Claims() if claims is None else claims

    @abstractmethod
    async def start(self) -> None:
        """Take part. Raises `BrokerUnavailable` or `DatabaseUnavailable` when it can't be begun."""

    @abstractmethod
    async def stop(self, why: Revoked = STOPS) -> None:
        """Take part no more: withdraw all claims, wait until each was handed over or lost, leave."""

    @property
    def silence(self) -> Silence | None:
        """Why its authority does not give this process anything at present; None: it may."""
        return None

    @abstractmethod
    def processes(self, tube: str) -> int | None:
        """How many processes share the tube, this one included, as last heard; None: that is not known."""
