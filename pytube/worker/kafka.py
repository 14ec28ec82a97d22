"""Whether this process reaches the Kafka clusters that it needs: for elections, for outboxes and for sinks.

A dedicated client asks each cluster, apart from the clients that elect and deliver. So its state is known
while nothing is led and nothing is sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

import orjson

from pytube.config import Config
from pytube.db.session import Queries
from pytube.election.base import Silence
from pytube.errors import RECOVERABLE, ConfigError
from pytube.logs import Logger
from pytube.outbox.clients import outbox_cluster
from pytube.sources import queries
from pytube.sources.terms import reason_for_people
from pytube.threads import in_thread

if TYPE_CHECKING:  # from the extra `kafka`
    from confluent_kafka.admin import AdminClient

Use = Literal["election", "delivery"]

_PAUSE: Final = 3.0
"""Seconds between two questions while all is well."""
_PAUSE_DOWN: Final = 1.0
_PATIENCE: Final = 5.0
"""Seconds after which a cluster that has not answered can't be reached."""
_NO_TOPIC: Final = "no topic"
"""A name that no topic can have: brokers answer that it is not valid, in a few bytes, and make nothing."""
_REPORT_PAUSE: Final = 2.0
"""Seconds between two reports to the database; it believes one for 30 s."""

_log = Logger("pytube.worker")


class KafkaCluster:
    """One cluster, and why it can't be reached."""

    def __init__(
        self, bootstrap_servers: str, options: Mapping[str, Any], like: KafkaCluster | None = None
    ) -> None:
        """Connects to nothing yet. `like`: one of the same servers, with other options."""
        self.bootstrap_servers = bootstrap_servers
        self.options = options
        self.down_since: dict[KafkaCluster, float] = {} if like is None else like.down_since
        """Clusters of the same servers that are down, and since when: an outage is logged once, even where
        their options differ."""
        self.uses: set[tuple[str, Use]] = set()
        """The queues that need it, and what for."""
        self.reason: str | None = None
        """Why it did not answer the last question; None when it did."""
        self.outages = 0
        """How often it was found that it can't be reached."""
        self.answered_at = float("-inf")
        """When the last question was asked that it has answered, by `time.monotonic`."""
        self.back_at = float("-inf")
        """When the last outage was found to be over, by `time.monotonic`."""
        self._since = 0.0

    def is_as(self, other: KafkaCluster) -> bool:
        return (self.bootstrap_servers, self.options) == (other.bootstrap_servers, other.options)

    @property
    def down_for(self) -> float:
        """Seconds since it was found that it can't be reached; 0 while it can."""
        return 0.0 if self.reason is None else time.monotonic() - self._since

    async def watch(self) -> None:
        """Ask again and again, until cancelled; not at all with options that librdkafka refuses."""
        from pytube.kafka.clients import Clients

        clients = Clients(self.bootstrap_servers, self.options, where="options", log=_log)
        try:
            admin = clients.admin()
        except ConfigError:
            return  # the clients that elect and deliver report it
        while True:
            asked_at = time.monotonic()
            problem = await self._ask(admin)
            if problem is None:
                clients.reason = ""
                self.answered_at = asked_at
            self._note(
                None if problem is None else reason_for_people(clients.reason or clients.hide(problem))
            )
            await asyncio.sleep(_PAUSE if self.reason is None else _PAUSE_DOWN)

    async def _ask(self, admin: AdminClient) -> str | None:
        """Why the cluster does not answer; None when it does, whatever the answer is."""
        from confluent_kafka import KafkaException

        from pytube.kafka.errors import is_answer

        # Not by `describe_cluster`: librdkafka 2.16 ends the process when a broker answers that has just
        # started and knows no broker yet (an assertion in rd_kafka_admin_response_parse).
        try:
            async with asyncio.timeout(_PATIENCE + 1):
                await in_thread(admin.list_topics, _NO_TOPIC, _PATIENCE)
        except TimeoutError:
            return f"no answer within {_PATIENCE:g} s"
        except KafkaException as error:
            return None if is_answer(error.args[0]) else str(error.args[0].str())
        else:
            return None
        finally:
            admin.poll(0)  # what librdkafka has to say of it

    def _note(self, reason: str | None) -> None:
        before, self.reason = self.reason, reason
        if (reason is None) == (before is None):
            return
        now = time.monotonic()
        if reason is not None:
            self._since = now
            self.outages += 1
            if not self.down_since:
                _log.warning("kafka_down", bootstrap_servers=self.bootstrap_servers, reason=reason)
            self.down_since[self] = min(self.down_since.values(), default=now)
            return
        self.back_at = now
        since = self.down_since.pop(self)
        if not self.down_since:
            _log.info("kafka_up", bootstrap_servers=self.bootstrap_servers, seconds=round(now - since, 1))


def needed_clusters(config: Config, tubes: Collection[str], outboxes: Collection[str]) -> list[KafkaCluster]:
    """The clusters that a worker of these needs; those with the same servers and options are one."""
    found: list[KafkaCluster] = []
    for bootstrap_servers, options, name, use in _needs(config, tubes, outboxes):
        for cluster in found:
            if (cluster.bootstrap_servers, cluster.options) == (bootstrap_servers, options):
                break
        else:
            like = next((one for one in found if one.bootstrap_servers == bootstrap_servers), None)
            found.append(cluster := KafkaCluster(bootstrap_servers, options, like))
        cluster.uses.add((name, use))
    return found


def cluster_of(clusters: Iterable[KafkaCluster], config: Config, outbox: str) -> KafkaCluster | None:
    """The cluster that an outbox is delivered to."""
    wanted = KafkaCluster(*outbox_cluster(config, outbox))
    return next(filter(wanted.is_as, clusters), None)


def kept(before: Sequence[KafkaCluster], cluster: KafkaCluster) -> KafkaCluster:
    """The earlier cluster in its place; itself where there was none."""
    return next(filter(cluster.is_as, before), cluster)


def kept_clusters(before: Sequence[KafkaCluster], needed: Sequence[KafkaCluster]) -> list[KafkaCluster]:
    """The needed clusters; an earlier cluster stays, with its present uses."""
    clusters = [kept(before, cluster) for cluster in needed]
    for cluster, wanted in zip(clusters, needed, strict=True):
        cluster.uses = wanted.uses
    return clusters


def _needs(
    config: Config, tubes: Collection[str], outboxes: Collection[str]
) -> Iterator[tuple[str, Mapping[str, Any], str, Use]]:
    """Bootstrap servers, options, a queue, and the use that it has for them."""
    if config.election_kind == "neli" and config.kafka is not None:
        for name in (*tubes, *outboxes):
            yield config.kafka.bootstrap_servers, config.kafka.options, name, "election"
    for name in outboxes:
        yield *outbox_cluster(config, name), name, "delivery"
    for name in tubes:
        sink = config.tube(name).sink
        if sink.type == "kafka":
            yield sink.options["bootstrap_servers"], sink.options.get("client_options", {}), name, "delivery"


async def report_problems(
    problems: Callable[[], list[dict[str, Any]]],
    session: Queries,
    instance_id: UUID,
    client_id: str,
) -> None:
    """Say in one database, until cancelled, why this process serves queues of it in part or not at all.

    Terms can't say so, where that is why nothing is led. `problems`: as `tube_kafka_report` takes them.
    """
    process = {"instance_id": instance_id, "client_id": client_id}
    is_told = False
    """Whether the database believes, or may believe, something of that."""
    try:
        while True:
            down = problems()
            if down or is_told:
                is_told = True
                with suppress(*RECOVERABLE):  # the renewals report it
                    await session.execute(queries.KAFKA_REPORT, process | {"unreachable": _json(down)})
                    is_told = bool(down)
            await asyncio.sleep(_REPORT_PAUSE)
    finally:
        if is_told:
            with suppress(*RECOVERABLE):  # the last report is believed for half a minute
                await session.execute(queries.KAFKA_REPORT, process | {"unreachable": _json([])})


def unreachable(clusters: Iterable[KafkaCluster]) -> list[dict[str, Any]]:
    """For each queue that needs them, the clusters that don't answer."""
    down: dict[tuple[str, Use, str], dict[str, Any]] = {}
    for cluster in clusters:
        if cluster.reason is not None:
            for tube, use in cluster.uses:
                down[tube, use, cluster.bootstrap_servers] = _problem(
                    tube, use, cluster, cluster.reason, cluster.down_for
                )
    return list(down.values())


def silent_groups(
    clusters: Iterable[KafkaCluster], silences: Mapping[str, Silence], patience: float
) -> list[dict[str, Any]]:
    """For each queue whose election was silent for `patience` seconds, the cluster, if that answers."""
    now = time.monotonic()
    return [
        _problem(tube, use, cluster, silences[tube].reason, silences[tube].seconds)
        for cluster in clusters
        if cluster.reason is None and now - cluster.back_at > patience
        for tube, use in cluster.uses
        if use == "election" and tube in silences and silences[tube].seconds > patience
    ]


def _problem(tube: str, use: Use, cluster: KafkaCluster, reason: str, seconds: float) -> dict[str, Any]:
    return {
        "tube": tube,
        "use": use,
        "bootstrap_servers": cluster.bootstrap_servers,
        "reason": reason,
        "seconds": seconds,
    }


def _json(down: Sequence[Mapping[str, Any]]) -> str:
    return orjson.dumps(down).decode()
