"""What does not fit together in a sample of the fleet, for `status --fleet`, `top` and the pages. Pure.

A moment of it is normal while workers start, stop or hand over; what stays for longer is a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pytube.health.fleet import FleetSample, HostSample, Queue, Worker, place

FRESH: Final = 30.0
"""Seconds: a process that was seen longer ago does not count as there. The default session timeout, twice."""


_Found = tuple[str, str]
"""A subject, and the finding about it."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One thing that does not fit."""

    subject: str
    """Partition, tube or worker."""
    finding: str
    host: str | None = None

    def __str__(self) -> str:
        """A line for people."""
        return f"{place(self.host)}{self.subject}: {self.finding}"


def disagreements(sample: FleetSample, version: str) -> list[Disagreement]:
    """What does not fit; `version`: of this pytube, which workers should have."""
    found: list[Disagreement] = []
    for host in sample.hosts:
        queues = [queue for queue in sample.queues if queue.host == host.host]
        of_queues = (
            one for queue in queues for look in (_elections, _free, _shares) for one in look(queue, host)
        )
        for subject, finding in (*of_queues, *_silent(host.workers), *_versions(host, version)):
            found.append(Disagreement(subject, finding, host.host))
    return found


def _candidates(queue: Queue, host: HostSample) -> frozenset[UUID]:
    """The processes that take part in the lease election of a queue now."""
    return frozenset(
        one.instance_id for one in host.candidacies if one.tube == queue.name and one.seen_ago < FRESH
    )


def _elections(queue: Queue, host: HostSample) -> Iterator[_Found]:
    kinds = {one.election for one in queue.partitions if one.is_led}
    if _candidates(queue, host):
        kinds.add("lease")
    if len(kinds) > 1:
        finding = f"workers hold two kinds of election ({', '.join(sorted(map(str, kinds)))}): "
        finding += "give all of them the same `worker.election` and the same Kafka"
        yield f"{queue.kind} {queue.name}", finding


def _free(queue: Queue, host: HostSample) -> Iterator[_Found]:
    there = _candidates(queue, host) | {one.instance_id for one in queue.partitions if one.is_led}
    if not there or any(one.tube == queue.name and one.use == "election" for one in host.complaints):
        return  # another line reports Kafka
    for one in queue.partitions:
        if not one.is_led:
            served = f"workers serve {queue.name}: {len(there)}; if this lasts, see their logs"
            yield f"{queue.name} partition {one.partition}", f"no worker leads it, though {served}"


def _shares(queue: Queue, host: HostSample) -> Iterator[_Found]:
    """Under the lease election only: who shares what under neli, the broker alone knows."""
    candidates = _candidates(queue, host)
    if not candidates:
        return
    share = -(-len(queue.partitions) // len(candidates))
    labels = {one.instance_id: one.client_id for one in host.candidacies}
    for instance_id in sorted(candidates):
        led = sum(one.is_led and one.instance_id == instance_id for one in queue.partitions)
        if led > share:
            finding = f"leads {led} partitions of {queue.name}, and its share is {share}"
            yield f"worker {labels[instance_id]}", finding


def _silent(workers: Collection[Worker]) -> Iterator[_Found]:
    for worker in workers:
        if (standstill := worker.standstill) is not None:
            yield f"worker {worker.client_id}", standstill
        elif worker.seen_ago is not None and worker.seen_ago >= FRESH:
            ago = f"{worker.seen_ago:.0f} s ago"
            yield f"worker {worker.client_id}", f"gave its last sign of life {ago}: it was killed, or hangs"


def _versions(host: HostSample, version: str) -> Iterator[_Found]:
    others = Counter(one.version for one in host.processes if one.version != version)
    for other, count in sorted(others.items(), key=str):
        named = other or "of an older version"
        yield "workers", f"{count} of them run pytube {named}, and this is {version}"
