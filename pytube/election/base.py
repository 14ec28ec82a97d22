"""Election: who may lead a partition, and what keeps proving it.

An election hands out *claims*. A claim is the right to begin a term; the term itself is in the
database, and is fenced there whatever an election believes. Times are `pytube.clock`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Protocol, runtime_checkable

from pytube.model import Heartbeat


class Claim(ABC):
    """The right to lead one partition of one tube, until it is revoked or lost."""

    def __init__(self, tube: str, partition: int) -> None:
        self.tube = tube
        self.partition = partition
        self.revoked = asyncio.Event()
        """Set when the right is to be given back in order: stop, reset, release, then `handed_over()`."""
        self.lost = asyncio.Event()
        """Set when the right is gone already: distrust at once, and do not count on a release."""
        self._on_change: Callable[[], None] = _ignore

    def watch(self, on_change: Callable[[], None]) -> None:
        """Have `on_change` called, in the event loop, when the claim is revoked or lost; at once if it is."""
        self._on_change = on_change
        if self.revoked.is_set() or self.lost.is_set():
            on_change()

    def _set_revoked(self) -> None:
        self.revoked.set()
        self._on_change()

    def _set_lost(self) -> None:
        self.lost.set()
        self._on_change()

    @abstractmethod
    async def prove(self) -> None:
        """Ask the authority whether the right is ours now.

        Called after the epoch was read and before a term is acquired with it.

        Raises:
            ClaimLost: it is not. The claim is over (`lost` is set); another may be offered later.
            BrokerUnavailable: no answer in time. The claim stands: ask again a little later.
        """

    @abstractmethod
    def proven_at(self) -> float:
        """When the last proof that has come back was *sent*; minus infinity when there is none.

        Plus infinity where the election knows no proof beyond the renewal in the database.
        """

    @abstractmethod
    def beat(self, heartbeat: Heartbeat | None) -> None:
        """What the term says of itself from now on (the election repeats it); None: no term."""

    @abstractmethod
    def handed_over(self) -> None:
        """The term is over and released: the right may go to another worker.

        On a claim that is not revoked: the worker gives it up by itself (it could not acquire the
        term, say). The election then offers the partition again a little later, here or elsewhere.
        """


class Election(Protocol):
    """The claims of one or more tubes in this process."""

    async def start(self) -> None:
        """Take part. Raises `BrokerUnavailable` or `DatabaseUnavailable` when it can't be begun."""

    def claims(self) -> AsyncIterator[Claim]:
        """Claims, as they are granted; ends after `stop`."""

    async def stop(self) -> None:
        """Take part no more: revoke all claims, wait until each was handed over or lost, leave."""


@runtime_checkable
class Sheds(Protocol):
    """What an election offers in addition to `Election` if a process can leave a tube to the others.

    Who leaves one group for all tubes leaves all of them, whichever is named.
    """

    def serves(self, tube: str) -> bool:
        """Whether the claims of this tube come from here."""

    def processes(self, tube: str) -> int | None:
        """How many processes share the tube, this one included, as last heard; None: that is not known."""

    def give_up(self, tube: str) -> None:
        """Hand over all partitions of the tube, and leave it to the others until `come_back`.

        Returns at once; the claims are revoked, so the partitions end in order.
        """

    def come_back(self, tube: str) -> None:
        """Take part again."""


def _ignore() -> None:
    """Nobody watches the claim."""
