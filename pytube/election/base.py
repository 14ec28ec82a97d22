"""Election: who may lead a partition, and what keeps proving it.

An election hands out *claims*. A claim is the right to begin a term; the term itself is in the
database, and is fenced there whatever an election believes. Times are `pytube.clock`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from pytube.model import Heartbeat


class Claim(Protocol):
    """The right to lead one partition of one tube, until it is revoked or lost."""

    partition: int

    revoked: asyncio.Event
    """Set when the right is to be given back in order: stop, reset, release, then `handed_over()`."""

    lost: asyncio.Event
    """Set when the right is gone already: distrust at once, and do not count on a release."""

    async def prove(self) -> None:
        """Ask the authority whether the right is ours now.

        Called after the epoch was read and before a term is acquired with it.

        Raises:
            ClaimLost: it is not. The claim is over (`lost` is set); another may be offered later.
            BrokerUnavailable: no answer in time. The claim stands: ask again a little later.
        """

    def proven_at(self) -> float:
        """When the last proof that has come back was *sent*; minus infinity when there is none.

        Plus infinity where the election knows no proof beyond the renewal in the database.
        """

    def beat(self, heartbeat: Heartbeat | None) -> None:
        """What the term says of itself from now on (the election repeats it); None: no term."""

    def handed_over(self) -> None:
        """The term is over and released: the right may go to another worker.

        On a claim that is not revoked: the worker gives it up by itself (it could not acquire the
        term, say). The election then offers the partition anew a little later, here or elsewhere.
        """


class Election(Protocol):
    """The claims of one tube in this process."""

    kind: str
    """`neli` or `lease`: what `tube_leader_acquire` is told."""

    lease: float | None
    """Seconds for which a renewal in the database keeps others out; None: it does not."""

    async def start(self) -> None:
        """Take part. Raises `BrokerUnavailable` or `DatabaseUnavailable` when it can't be begun."""

    def claims(self) -> AsyncIterator[Claim]:
        """Claims, as they are granted; ends after `stop`."""

    async def stop(self) -> None:
        """Take part no more: revoke all claims, wait until each was handed over or lost, leave."""
