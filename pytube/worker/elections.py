"""Makes the elections that the configuration asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from functools import partial
from uuid import UUID

from pytube.config import Config
from pytube.config.names import leader_name
from pytube.db.session import Queries
from pytube.election import Election
from pytube.election.lease import LeaseElection
from pytube.election.share import LeaseTick
from pytube.errors import ConfigError
from pytube.sources import queries
from pytube.worker.database import Database
from pytube.worker.queue import Queue


def build_elections(
    config: Config, queues: Sequence[Queue], database: Database, instance_id: UUID
) -> Sequence[Election]:
    """The elections of all queues in this process: one by leases or with a shared group, or one each.

    Who can't reach the database for the session timeout is no use to anybody: a lease runs out by itself, and
    under neli the process leaves the group.

    Raises:
        ConfigError: there is no broker, or no Kafka client.
    """
    if config.election_kind == "lease":
        return [_lease(config, queues, database.pool, instance_id)]
    try:
        from pytube.election.neli import NeliElection, SharedElection
    except ImportError as error:
        raise ConfigError(
            f"the election neli needs the Kafka client ({error}); "
            'install pytube-pg[kafka], or set worker.election = "lease"'
        ) from None
    kafka, worker = config.kafka, config.worker
    if kafka is None:
        raise ConfigError("the election neli needs a section [kafka]")

    def neli(
        name: str, topic: str, group: str, partitions: Callable[[], int], drain_limit: float
    ) -> NeliElection:
        return NeliElection(
            name,
            installation=worker.installation,
            client_id=worker.client_id,
            bootstrap_servers=kafka.bootstrap_servers,
            partitions=partitions,
            able=lambda: database.down_for < worker.session_timeout,
            options=kafka.options,
            receive_deadline=worker.receive_deadline,
            session_timeout=worker.session_timeout,
            heartbeat=worker.heartbeat,
            drain_limit=drain_limit,
            topic=topic,
            group=group,
        )

    if kafka.shared_partitions is None:
        return [
            neli(
                queue.name,
                config.leader_topic(queue.name),
                config.leader_group(queue.name),
                partial(getattr, queue, "partitions"),
                _drain_limit(queue),
            )
            for queue in queues
        ]
    slots, name = kafka.shared_partitions, leader_name(worker.installation)
    shared = neli("all tubes", name, name, lambda: slots, max(map(_drain_limit, queues)))
    return [
        SharedElection(shared, slots, worker.client_id, lambda: {one.name: one.partitions for one in queues})
    ]


def _lease(config: Config, queues: Sequence[Queue], pool: Queries, instance_id: UUID) -> Election:
    ttl = timedelta(seconds=config.worker.session_timeout)
    arguments = {
        "instance_id": instance_id,
        "client_id": config.worker.client_id,
        "ttl": ttl,
    }

    async def tick(names: Collection[str]) -> dict[str, LeaseTick]:
        rows = await pool.rows(queries.LEASE_TICKS, arguments | {"tubes": list(names)})
        return {
            tube: LeaseTick(partitions, instances, frozenset(free), frozenset(mine), rank)
            for tube, partitions, instances, free, mine, rank in rows
        }

    async def leave(name: str | None) -> None:
        await pool.execute(queries.LEASE_LEAVE, {"tube": name, "instance_id": instance_id})

    return LeaseElection(
        tubes=[queue.name for queue in queues],
        tick=tick,
        leave=leave,
        most=config.worker.partitions,
        drain_limit=max(map(_drain_limit, queues)),
    )


def _drain_limit(queue: Queue) -> float:
    """Seconds that claims may take to be handed over: a drain, and a last write waited out."""
    return queue.limits.drain_limit + queue.limits.request_timeout
