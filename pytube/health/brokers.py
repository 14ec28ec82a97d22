"""The doctor's look at Kafka: the broker of the elections, and the brokers that outboxes are delivered to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytube.config import Config, KafkaConfig
from pytube.config.names import leader_name
from pytube.counts import say_count
from pytube.errors import ConfigError, how_to_install
from pytube.health.findings import Check, fail, ok, warn
from pytube.outbox.clients import outbox_clients

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_BROKER_TIMEOUT = 5.0


# --- for the election `neli` -------------------------------------------------------------


def check_election(config: Config, partitions: Mapping[str, int]) -> Iterator[Check]:
    """Whether the broker can hold the elections of the configured tubes and outboxes.

    Args:
        config: the configuration; under `neli` it has a section `[kafka]`.
        partitions: how many partitions each tube and outbox that is there has.
    """
    if config.election_kind == "lease":
        yield ok("election", "by leases in Postgres, without a broker")
        return
    try:
        from confluent_kafka import KafkaException
    except ImportError:
        yield fail("broker", "confluent-kafka is not installed", how_to_install("kafka"))
        return
    assert config.kafka is not None
    errors: list[str] = []
    try:
        admin = _admin(config.kafka, errors)
    except (KafkaException, TypeError, ValueError):
        # The error may repeat the value of an option, which may be a secret.
        yield fail(
            "broker",
            "librdkafka refuses an option of [kafka]",
            "check the names and values in kafka.options against librdkafka's CONFIGURATION.md",
        )
        return
    try:
        metadata = admin.list_topics(timeout=_BROKER_TIMEOUT)
    except KafkaException as error:
        text = errors[-1] if errors else error.args[0].str()
        yield fail(
            "broker",
            f"{config.kafka.bootstrap_servers} does not answer: {text}",
            "start it, or correct kafka.bootstrap_servers and kafka.options",
        )
        return
    yield ok("broker", f"{config.kafka.bootstrap_servers} answers")
    if config.kafka.shared_partitions is not None:
        shared = leader_name(config.worker.installation)
        yield _check_topic(admin, metadata, "all tubes", shared, config.kafka.shared_partitions)
    else:
        for name in (*config.tubes, *config.outboxes):
            if name in partitions:
                yield _check_topic(admin, metadata, name, config.leader_topic(name), partitions[name])
    yield _check_timeout(admin, metadata, config.worker.session_timeout)


def _admin(kafka: KafkaConfig, errors: list[str]) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    options: dict[str, Any] = {
        "log_level": 0,
        "socket.timeout.ms": int(_BROKER_TIMEOUT * 1000),
        **kafka.options,
        "bootstrap.servers": kafka.bootstrap_servers,
        "error_cb": lambda error: errors.append(error.str()),
    }
    return AdminClient(options)


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


def check_outbox_brokers(config: Config) -> Iterator[Check]:
    """Whether the brokers answer that get the records of outboxes; each is asked once, with the same options.

    An outbox needs its broker whatever the election.
    """
    groups: list[tuple[tuple[str | None, Mapping[str, Any]], list[str]]] = []
    for name, outbox in config.outboxes.items():
        settings = outbox.bootstrap_servers, outbox.kafka_options
        for known, names in groups:
            if known == settings:
                names.append(name)
                break
        else:
            groups.append((settings, [name]))
    for _, names in groups:
        yield _check_outbox_broker(config, names)


def _check_outbox_broker(config: Config, names: list[str]) -> Check:
    subject = f"broker of {', '.join(names)}"
    try:
        kafka = outbox_clients(config, names[0])
        admin = kafka.clients.admin()
    except ConfigError as error:
        return fail(subject, str(error), f'correct [outbox."{names[0]}"]')
    from confluent_kafka import KafkaException

    try:
        admin.list_topics(timeout=_BROKER_TIMEOUT)
    except KafkaException as error:
        text = kafka.clients.say(error.args[0])
        return fail(
            subject,
            f"{kafka.bootstrap_servers} does not answer: {text}",
            "start it, or correct bootstrap_servers and the options; records wait until it answers",
        )
    return ok(subject, f"{kafka.bootstrap_servers} answers; topics of records were not looked at")
