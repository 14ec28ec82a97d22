"""What does not fit together in a sample of the fleet, for `status --fleet`, `top` and the pages. Pure.

A moment of it is normal while workers start, stop or hand over; what stays for longer is a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pytube.clock import for_people
from pytube.health.fleet import FleetSample, HostSample, Queue, Worker, place

FRESH: Final = 30.0
"""Seconds: a process that was seen longer ago does not count as there. The default session timeout, twice."""


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
        workers = host.workers
        for queue in queues:
            found += _elections(queue, host)
            found += _free(queue, host)
            found += _shares(queue, host)
        found += _silent(workers)
        found += _versions(host, version)
    return found


def _candidates(queue: Queue, host: HostSample) -> frozenset[UUID]:
    """The processes that take part in the lease election of a queue now."""
    return frozenset(
        one.instance_id for one in host.candidacies if one.tube == queue.name and one.seen_ago < FRESH
    )


def _elections(queue: Queue, host: HostSample) -> Iterator[Disagreement]:
    kinds = {one.election for one in queue.partitions if one.is_led}
    if _candidates(queue, host):
        kinds.add("lease")
    if len(kinds) > 1:
        yield Disagreement(
            f"{queue.kind} {queue.name}",
            f"workers hold two kinds of election ({', '.join(sorted(map(str, kinds)))}): "
            "give all of them the same `worker.election` and the same Kafka",
            queue.host,
        )


def _free(queue: Queue, host: HostSample) -> Iterator[Disagreement]:
    there = _candidates(queue, host) | {one.instance_id for one in queue.partitions if one.is_led}
    if not there or any(one.tube == queue.name and one.use == "election" for one in host.complaints):
        return  # another line reports Kafka
    for one in queue.partitions:
        if not one.is_led:
            yield Disagreement(
                f"{queue.name} partition {one.partition}",
                f"no worker leads it, though workers serve {queue.name}: {len(there)}; if this lasts, see "
                "their logs",
                queue.host,
            )


def _shares(queue: Queue, host: HostSample) -> Iterator[Disagreement]:
    """Under the lease election only: who shares what under neli, the broker alone knows."""
    candidates = _candidates(queue, host)
    if not candidates:
        return
    share = -(-len(queue.partitions) // len(candidates))
    labels = {one.instance_id: one.client_id for one in host.candidacies}
    for instance_id in sorted(candidates):
        led = sum(one.is_led and one.instance_id == instance_id for one in queue.partitions)
        if led > share:
            yield Disagreement(
                f"worker {labels[instance_id]}",
                f"leads {led} partitions of {queue.name}, and its share is {share}",
                queue.host,
            )


def _silent(workers: Collection[Worker]) -> Iterator[Disagreement]:
    for worker in workers:
        if worker.hangs:
            yield Disagreement(f"worker {worker.client_id}", hanging(worker), worker.host)
        elif worker.seen_ago is not None and worker.seen_ago >= FRESH:
            yield Disagreement(
                f"worker {worker.client_id}",
                f"gave its last sign of life {worker.seen_ago:.0f} s ago: it was killed, or hangs",
                worker.host,
            )


def hanging(worker: Worker) -> str:
    """Of one whose terms were taken over, and whose sessions are there."""
    ago = "" if worker.seen_ago is None else f" for {for_people(worker.seen_ago)}"
    return (
        f"is alive, but has renewed nothing{ago}: other workers have taken over its partitions, and its "
        f"sessions are still open (application_name: … {worker.instance} …); it hangs, or was stopped"
    )


def _versions(host: HostSample, version: str) -> Iterator[Disagreement]:
    others = Counter(one.version for one in host.processes if one.version != version)
    for other, count in sorted(others.items(), key=str):
        yield Disagreement(
            "workers",
            f"{count} of them run pytube {other or 'of an older version'}, and this is {version}",
            host.host,
        )
