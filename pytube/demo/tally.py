"""What came to the sink, counted line by line."""

from __future__ import annotations

from collections import Counter

from pytube.demo.probe import Arrival, number_in
from pytube.demo.settings import PARTITIONS
from pytube.demo.source import TELLER_SHARD
from pytube.sinks.jsonl_replay import Line


class Tally:
    """Counts lines in order of arrival; the times are those that the lines say."""

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self._partitions = partitions
        self.documents = 0
        self.by_client: Counter[str] = Counter()
        self.first: dict[tuple[int, int], float] = {}
        """When each term, as (partition, epoch), first wrote; Unix time."""
        self.arrivals: list[Arrival] = []
        """Documents of the probe's row."""
        self._by_second: Counter[int] = Counter()

    def take(self, line: Line) -> None:
        """Count one line."""
        self.documents += 1
        self.by_client[line.client or "?"] += 1
        self._by_second[int(line.at)] += 1
        self.first.setdefault((line.shard % self._partitions, line.token.epoch), line.at)
        if line.shard == TELLER_SHARD and (number := number_in(line.doc)) is not None:
            self.arrivals.append(Arrival(number, line.at))

    @property
    def peak(self) -> int:
        """Documents in the best second."""
        return max(self._by_second.values(), default=0)

    def first_after(self, partition: int, epoch: int) -> float | None:
        """When a later term than `epoch` first wrote in the partition; None when none has yet."""
        times = [at for (p, e), at in self.first.items() if p == partition and e > epoch]
        return min(times, default=None)
