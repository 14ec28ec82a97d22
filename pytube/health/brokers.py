"""The doctor's look at Kafka: the broker of the elections, and the brokers that outboxes are delivered to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytube.config import Config
from pytube.config.names import leader_name
from pytube.counts import say_count
from pytube.errors import ConfigError, how_to_install
from pytube.health.findings import Check, fail, ok, warn
from pytube.logs import Logger
from pytube.outbox.clients import outbox_clients, outbox_cluster

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from pytube.kafka.clients import Producers

_BROKER_TIMEOUT = 5.0
_COMMON = {"log_level": 0, "socket.timeout.ms": int(_BROKER_TIMEOUT * 1000)}

_log = Logger("pytube.kafka")


def check_brokers(
    config: Config, partitions: Mapping[str | None, Mapping[str, int]]
) -> Iterator[tuple[str | None, Check]]:
    """Whether the broker of the elections and those of the outboxes answer; each cluster is asked once.

    An outbox needs its broker whatever the election.

    Args:
        config: the configuration; under `neli` it has a section `[kafka]`.
        partitions: of each host, how many partitions each tube and outbox that is there has.

    Yields:
        The host, where a finding is of one, and the finding.
    """
    try:
        import confluent_kafka  # noqa: F401 # is it there?
    except ImportError:
        if config.election_kind != "lease":
            yield None, fail("broker", "confluent-kafka is not installed", how_to_install("kafka"))
        yield from ((None, check) for check in _check_outbox_brokers(config, {}))
        return
    answered: dict[str, str | None] = {}
    """Why a cluster, by bootstrap servers and options, does not answer; None: it does."""
    if config.election_kind == "lease":
        yield None, ok("election", "by leases in Postgres, without a broker")
    else:
        yield from _check_election(config, partitions, answered)
    yield from ((None, check) for check in _check_outbox_brokers(config, answered))


# --- for the election `neli` -------------------------------------------------------------


def _check_election(
    config: Config,
    partitions: Mapping[str | None, Mapping[str, int]],
    answered: dict[str, str | None],
) -> Iterator[tuple[str | None, Check]]:
    """Whether the broker can hold the elections of the configured tubes and outboxes."""
    from confluent_kafka import KafkaException

    from pytube.kafka.clients import Clients

    assert config.kafka is not None
    servers = config.kafka.bootstrap_servers
    clients = Clients(servers, config.kafka.options, where="[kafka] options", log=_log, common=_COMMON)
    try:
        admin = clients.admin()
    except ConfigError:
        # The error may repeat the value of an option, which may be a secret.
        remedy = "check the names and values in kafka.options against librdkafka's CONFIGURATION.md"
        yield None, fail("broker", "librdkafka refuses an option of [kafka]", remedy)
        return
    cluster = _cluster(servers, config.kafka.options)
    try:
        metadata = admin.list_topics(timeout=_BROKER_TIMEOUT)
    except KafkaException as error:
        answered[cluster] = text = clients.reason or error.args[0].str()
        remedy = "start it, or correct kafka.bootstrap_servers and kafka.options"
        yield None, fail("broker", f"{servers} does not answer: {text}", remedy)
        return
    answered[cluster] = None
    yield None, ok("broker", f"{servers} answers")
    for host, there in partitions.items():
        of_host = config.of_host(host)
        if config.kafka.shared_partitions is not None:
            shared = leader_name(of_host.worker.installation)
            yield host, _check_topic(admin, metadata, "all tubes", shared, config.kafka.shared_partitions)
            continue
        for name in (*config.tubes, *config.outboxes):
            if name in there:
                topic = of_host.leader_topic(name)
                yield host, _check_topic(admin, metadata, name, topic, there[name])
    yield None, _check_timeout(admin, metadata, config.worker.session_timeout)


def _cluster(servers: str, options: Mapping[str, Any]) -> str:
    return json.dumps([servers, options], sort_keys=True, default=str)


def _check_topic(admin: AdminClient, metadata: Any, name: str, topic: str, wanted: int) -> Check:
    """Whether the leader topic of a tube is there, wide enough, or could be made."""
    subject = f"topic of {name}"
    found = metadata.topics.get(topic)
    width = len(found.partitions) if found is not None else 0
    there = f"{topic} has {say_count(width, 'partition')}" if width else f"{topic} is missing"
    if width >= wanted:
        return ok(subject, there)
    if metadata.controller_id < 0:
        return warn(
            subject,
            f"{there}, and this broker makes topics of a width of its own",
            f"see that new topics have at least {say_count(wanted, 'partition')}",
        )
    refusal = _refusal(admin, topic, width, wanted)
    if refusal is None:
        return ok(subject, f"{there}; a worker will give it {wanted}")
    return fail(
        subject,
        f"{there}; it needs {wanted}, and we may not change it ({refusal})",
        f"give it {say_count(wanted, 'partition')}, or let our principal create and alter it",
    )


def _refusal(admin: AdminClient, topic: str, width: int, wanted: int) -> str | None:
    """Why the broker would not make or widen the topic; None when it would."""
    from confluent_kafka import KafkaException
    from confluent_kafka.cimpl import NewPartitions, NewTopic

    limits: dict[str, Any] = {"validate_only": True, "request_timeout": _BROKER_TIMEOUT}
    if width:
        futures = admin.create_partitions([NewPartitions(topic, wanted)], **limits)
    else:
        new = NewTopic(topic, num_partitions=wanted, replication_factor=-1)
        futures = admin.create_topics([new], **limits)
    for future in futures.values():
        try:
            future.result(timeout=2 * _BROKER_TIMEOUT)
        except KafkaException as error:
            return str(error.args[0].str())
    return None


def _check_timeout(admin: AdminClient, metadata: Any, ours: float) -> Check:
    """Whether the broker takes our session timeout of so many seconds."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin._config import ConfigResource

    subject = "session timeout"
    try:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(next(iter(metadata.brokers))))
        answers = admin.describe_configs([resource], request_timeout=_BROKER_TIMEOUT)
        settings = next(iter(answers.values())).result(timeout=2 * _BROKER_TIMEOUT)
        least = int(settings["group.min.session.timeout.ms"].value) / 1000
        most = int(settings["group.max.session.timeout.ms"].value) / 1000
    except (KafkaException, KeyError, StopIteration):
        return ok(subject, f"{ours:g} s; the broker does not tell which it takes")
    if least <= ours <= most:
        return ok(subject, f"{ours:g} s")
    return fail(
        subject,
        f"worker.session_timeout is {ours:g} s, and the broker takes {least:g} to {most:g} s",
        "change it, or the broker's group.min.session.timeout.ms and group.max.session.timeout.ms",
    )


# --- for outboxes ------------------------------------------------------------------------


def _check_outbox_brokers(config: Config, answered: dict[str, str | None]) -> Iterator[Check]:
    groups: dict[str, list[str]] = {}
    for name in config.outboxes:
        groups.setdefault(_cluster(*outbox_cluster(config, name)), []).append(name)
    for cluster, names in groups.items():
        subject = f"broker of {', '.join(names)}"
        try:
            kafka = outbox_clients(config, names[0])
            if cluster not in answered:
                answered[cluster] = _ask(kafka)
        except ConfigError as error:
            yield fail(subject, str(error), f'correct [outbox."{names[0]}"]')
            continue
        if (text := answered[cluster]) is None:
            yield ok(subject, f"{kafka.bootstrap_servers} answers; topics of records were not looked at")
        else:
            remedy = "start it, or correct bootstrap_servers and the options; records wait until it answers"
            yield fail(subject, f"{kafka.bootstrap_servers} does not answer: {text}", remedy)


def _ask(kafka: Producers) -> str | None:
    """Why the cluster does not answer; None: it does."""
    from confluent_kafka import KafkaException

    try:
        kafka.admin().list_topics(timeout=_BROKER_TIMEOUT)
    except KafkaException as error:
        return kafka.say(error.args[0])
    return None
