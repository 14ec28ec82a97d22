"""Makes the election that the configuration asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from pytube.config import Config
from pytube.election import Election
from pytube.election.lease import LeaseElection
from pytube.election.share import LeaseTick
from pytube.errors import ConfigError, DatabaseUnavailable
from pytube.sources import queries
from pytube.sources.session import Session


def build_election(
    config: Config,
    tube: str,
    instance_id: UUID,
    *,
    partitions: Callable[[], int],
    session: Callable[[], Session | None],
    down_for: Callable[[], float],
) -> Election:
    """The election of one tube in this process.

    Args:
        config: the whole of it.
        tube: its name.
        instance_id: of this process.
        partitions: the tube's partition count, as it is known at present.
        session: the session for terms; None while the database is down.
        down_for: for how many seconds it has been. Who can't reach it for the session timeout is no use
            to anybody: a lease runs out by itself, and under neli the process leaves the group.
    """
    if config.election_kind == "lease":
        register = _Register(tube, instance_id, config, session)
        return LeaseElection(
            tube,
            tick=register.tick,
            leave=register.leave,
            lease=config.worker.session_timeout,
            drain_limit=_drain_limit(config, tube),
        )
    return _neli(config, tube, partitions, able=lambda: down_for() < config.worker.session_timeout)


@dataclass(frozen=True, slots=True)
class _Register:
    """The database's list of the processes that share a tube."""

    tube: str
    instance_id: UUID
    config: Config
    session: Callable[[], Session | None]

    def _session(self) -> Session:
        session = self.session()
        if session is None:
            raise DatabaseUnavailable("the session for terms is down")
        return session

    async def tick(self) -> LeaseTick:
        """Say that we are there; what there is to lead."""
        row = await self._session().row(
            queries.LEASE_TICK,
            {
                "tube": self.tube,
                "instance_id": self.instance_id,
                "client_id": self.config.worker.client_id,
                "ttl": timedelta(seconds=self.config.worker.session_timeout),
            },
        )
        if row is None:
            raise DatabaseUnavailable("the database gave no answer to a tick")
        partitions, instances, free, mine, rank = row
        return LeaseTick(partitions, instances, frozenset(free), frozenset(mine), rank)

    async def leave(self) -> None:
        """Say that we are gone."""
        await self._session().execute(
            queries.LEASE_LEAVE, {"tube": self.tube, "instance_id": self.instance_id}
        )


def _neli(config: Config, tube: str, partitions: Callable[[], int], able: Callable[[], bool]) -> Election:
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
        tube,
        installation=worker.installation,
        client_id=worker.client_id,
        bootstrap_servers=kafka.bootstrap_servers,
        partitions=partitions,
        able=able,
        options=kafka.options,
        receive_deadline=worker.receive_deadline,
        session_timeout=worker.session_timeout,
        heartbeat=worker.heartbeat,
        drain_limit=_drain_limit(config, tube),
        topic=config.tube(tube).topic,
        group=config.tube(tube).group,
    )


def _drain_limit(config: Config, tube: str) -> float:
    """Seconds that claims may take to be handed over: a drain, and a last write waited out."""
    return config.worker.drain_limit + config.tube(tube).sink.request_timeout
