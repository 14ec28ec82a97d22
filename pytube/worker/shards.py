"""Shards that two hosts have: rows would overwrite each other at the sink, whose keys are `(shard, id)`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from pytube.worker.host import Host


@dataclass(frozen=True, slots=True)
class SharedShard:
    """One shard of a tube that two hosts have."""

    tube: str
    shard: int
    hosts: tuple[str | None, str | None]

    @property
    def finding(self) -> str:
        """What is wrong, and what to do."""
        one, other = self.hosts
        return (
            f"tube {self.tube!r} has shard {self.shard} on host {one} and on host {other}, so rows of one id "
            "would overwrite each other at the sink; attach the tables of each host to shards of its own "
            "(pytube tube attach --shard)"
        )


def shared_shards(hosts: Sequence[Host]) -> Iterator[SharedShard]:
    """The first shard that each two hosts have in common, for each tube."""
    for one, other in combinations(hosts, 2):
        for tube in one.shards.keys() & other.shards.keys():
            starts = (
                max(mine.start, theirs.start)
                for mine in one.shards[tube]
                for theirs in other.shards[tube]
                if mine.start < theirs.stop and theirs.start < mine.stop
            )
            first = min(starts, default=None)
            if first is not None:
                yield SharedShard(tube, first, (one.name, other.name))
