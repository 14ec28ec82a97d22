"""What in a sample of the fleet does not fit together. Pure.

A moment of it is normal while workers start, stop or hand over; what stays for longer than that is a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pytube.health.fleet import FleetSample, HostSample, Partition, Queue, Worker
from pytube.health.heartbeats import Beat, Heard

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
        host = "" if self.host is None else f"host {self.host}: "
        return f"{host}{self.subject}: {self.finding}"


def disagreements(sample: FleetSample, version: str) -> list[Disagreement]:
    """What does not fit.

    Args:
        sample: of the fleet.
        version: of this pytube, which workers should have.
    """
    found: list[Disagreement] = []
    for host in sample.hosts:
        queues = [queue for queue in sample.queues if queue.host == host.host]
        workers = host.workers
        for queue in queues:
            found += _elections(queue, host)
            found += _unled(queue, host)
            found += _shares(queue, host)
            found += _heartbeats(queue, host)
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


def _unled(queue: Queue, host: HostSample) -> Iterator[Disagreement]:
    there = _candidates(queue, host) | {one.instance_id for one in queue.partitions if one.is_led}
    if not there:
        return
    for one in queue.partitions:
        if not one.is_led:
            yield Disagreement(
                f"{queue.name} partition {one.partition}",
                f"nobody leads it, though workers that serve {queue.name} are there: {len(there)}; "
                "if it stays so, see their logs",
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


def _heartbeats(queue: Queue, host: HostSample) -> Iterator[Disagreement]:
    """Where the leaders of the database and those that are heard at Kafka are not the same."""
    heard = host.heard
    if heard is None or heard.problem is not None:
        return
    for one in queue.partitions:
        subject = f"{queue.name} partition {one.partition}"
        is_led = one.is_led and one.election == "neli"
        beats = heard.beating(queue.name, one.partition, host.read_at)
        if len(beats) > 1:
            yield Disagreement(
                subject, f"{len(beats)} send heartbeats as its leader: {_senders(beats, heard)}", queue.host
            )
        elif beats and not heard.is_shared and not heard.is_of(beats[0], one.leader, one.leader_id):
            known = f"has {one.leader} (epoch {one.epoch})" if one.leader is not None else "has no leader"
            yield Disagreement(
                subject,
                f"{_senders(beats, heard)} sends heartbeats as its leader, and the database {known}: that "
                "term is over, and its worker does not know yet, or it works for another database",
                queue.host,
            )
        if is_led and _is_silent(one, heard, host.read_at):
            yield Disagreement(
                subject,
                f"its leader {one.leader} renews its term in the database, and no heartbeat of it is heard "
                "at Kafka: its worker does not reach the broker, or uses another broker or leader topic",
                queue.host,
            )


def _senders(beats: Sequence[Beat], heard: Heard) -> str:
    return " and ".join(
        sorted(one.client_id if heard.is_shared else f"{one.client_id} (epoch {one.epoch})" for one in beats)
    )


def _is_silent(one: Partition, heard: Heard, read_at: float) -> bool:
    """Whether a leader had been listened to for longer than the deadline, in vain, when the host was read.

    Since then it may have handed over. After the last answer of the brokers, it may be we who don't hear.
    """
    since = heard.since_when(one.name, one.partition)
    if since is None:
        return False
    last = heard.last_of(one.name, one.partition, one.leader, one.leader_id)
    led_since = read_at - (one.leads_for or 0.0)
    return min(read_at, heard.until) - max(since, led_since, last or 0.0) > heard.deadline


def _silent(workers: Collection[Worker]) -> Iterator[Disagreement]:
    for worker in workers:
        if worker.seen_ago is not None and worker.seen_ago >= FRESH:
            yield Disagreement(
                f"worker {worker.client_id}",
                f"gave its last sign of life {worker.seen_ago:.0f} s ago: it was killed, or hangs",
                worker.host,
            )


def _versions(host: HostSample, version: str) -> Iterator[Disagreement]:
    others = Counter(one.version for one in host.processes if one.version != version)
    for other, count in sorted(others.items(), key=str):
        yield Disagreement(
            "workers",
            f"{count} of them run pytube {other or 'of an older version'}, and this is {version}",
            host.host,
        )
