"""Shards that two hosts have: rows would overwrite each other at the sink, whose keys are `(shard, id)`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

Shards = Mapping[str, Sequence[range]]
"""The shards of each tube, as far as tables are attached to it."""


@dataclass(frozen=True, slots=True)
class SharedShard:
    """One shard of a tube that two hosts have."""

    tube: str
    shard: int
    hosts: tuple[str, str]

    @property
    def finding(self) -> str:
        """What is wrong, and what to do."""
        one, other = self.hosts
        return (
            f"tube {self.tube!r} has shard {self.shard} on host {one} and on host {other}, so rows of one id "
            "would overwrite each other at the sink; attach the tables of each host to shards of its own "
            "(pytube tube attach --shard)"
        )


def shards_of(attached: Iterable[tuple[str, int, int]]) -> Shards:
    """The shards of attached tables, each given as its tube, the first shard, and their number."""
    shards: dict[str, list[range]] = {}
    for tube, first, count in attached:
        shards.setdefault(tube, []).append(range(first, first + count))
    return shards


def shared_shards(hosts: Mapping[str | None, Shards]) -> Iterator[SharedShard]:
    """The first shard that each two hosts have in common, for each tube; the only host has no name."""
    named = [(name, shards) for name, shards in hosts.items() if name is not None]
    for (one, mine), (other, theirs) in combinations(named, 2):
        for tube in sorted(mine.keys() & theirs.keys()):
            starts = (
                max(some.start, others.start)
                for some in mine[tube]
                for others in theirs[tube]
                if some.start < others.stop and others.start < some.stop
            )
            first = min(starts, default=None)
            if first is not None:
                yield SharedShard(tube, first, (one, other))
