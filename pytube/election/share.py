"""What a process should do about its share of a tube's partitions. Pure."""

from __future__ import annotations

import random
from collections.abc import Set
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseTick:
    """What the database says of a tube, to one process."""

    partitions: int
    instances: int
    """Processes that share the tube, this one included."""

    free: Set[int]
    """Partitions whose lease nobody holds, or has run out."""

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
    processes round up: the shares then add up to the partitions, and nobody goes without while
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

    Args:
        tick: what the database says.
        held: partitions claimed and not being given back.
        leaving: partitions that are being given back.
        passed_over: partitions not to be claimed now (just tried, and refused).
        choice: picks among free partitions, so that processes seldom want the same.
        most: so many more partitions this process may lead; None: any number.

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
