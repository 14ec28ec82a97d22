"""Makes the elections that the configuration asks for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from pytube.config import Config
from pytube.db.session import Queries
from pytube.election import Election
from pytube.election.lease import LeaseElection
from pytube.election.share import LeaseTick
from pytube.errors import ConfigError
from pytube.sources import queries
from pytube.worker.database import Database
from pytube.worker.tube import Tube


def build_elections(
    config: Config, tubes: Sequence[Tube], database: Database, instance_id: UUID
) -> Sequence[Election]:
    """The elections of all tubes in this process: one by leases or with a shared group, or one for each tube.

    Who can't reach the database for the session timeout is no use to anybody: a lease runs out by itself, and
    under neli the process leaves the group.

    Raises:
        ConfigError: there is no broker, or no Kafka client.
    """
    if config.election_kind == "lease":
        return [_lease(config, tubes, database.pool, instance_id)]
    return [_neli(config, tube, database) for tube in tubes]


def _lease(config: Config, tubes: Sequence[Tube], pool: Queries, instance_id: UUID) -> Election:
    ttl = timedelta(seconds=config.worker.session_timeout)
    arguments = {
        "tubes": [tube.name for tube in tubes],
        "instance_id": instance_id,
        "client_id": config.worker.client_id,
        "ttl": ttl,
    }

    async def tick() -> dict[str, LeaseTick]:
        rows = await pool.rows(queries.LEASE_TICKS, arguments)
        return {
            tube: LeaseTick(partitions, instances, frozenset(free), frozenset(mine), rank)
            for tube, partitions, instances, free, mine, rank in rows
        }

    async def leave() -> None:
        await pool.execute(queries.LEASE_LEAVE, {"instance_id": instance_id})

    return LeaseElection(tick=tick, leave=leave, drain_limit=max(map(_drain_limit, tubes)))


def _neli(config: Config, tube: Tube, database: Database) -> Election:
    try:
        from pytube.election.neli import NeliElection
    except ImportError as error:
        raise ConfigError(
            f"the election neli needs the Kafka client ({error}); "
            'install pytube-pg[kafka], or set worker.election = "lease"'
        ) from None
    kafka, worker = config.kafka, config.worker
    if kafka is None:
        raise ConfigError("the election neli needs a section [kafka]")
    return NeliElection(
        tube.name,
        installation=worker.installation,
        client_id=worker.client_id,
        bootstrap_servers=kafka.bootstrap_servers,
        partitions=lambda: tube.partitions,
        able=lambda: database.down_for < worker.session_timeout,
        options=kafka.options,
        receive_deadline=worker.receive_deadline,
        session_timeout=worker.session_timeout,
        heartbeat=worker.heartbeat,
        drain_limit=_drain_limit(tube),
        topic=config.tube(tube.name).topic,
        group=config.tube(tube.name).group,
    )


def _drain_limit(tube: Tube) -> float:
    """Seconds that claims may take to be handed over: a drain, and a last write waited out."""
    return tube.limits.drain_limit + tube.limits.request_timeout
