"""The clients of Kafka that an outbox is delivered by, as the configuration asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytube.config import Config
from pytube.errors import ConfigError, how_to_install

if TYPE_CHECKING:  # from the extra `kafka`
    from pytube.kafka.clients import Producers

_ALL = ("all", "-1", -1)
"""Ways to write that all replicas have to acknowledge."""


def outbox_clients(config: Config, name: str) -> Producers:
    """The clients of the outbox `name`; none is connected yet.

    Raises:
        ConfigError: the outbox is not configured, librdkafka refuses an option, or there is no Kafka client.
    """
    settings = config.outbox(name)
    try:
        from pytube.kafka.clients import Producers
    except ModuleNotFoundError as missing:
        if missing.name != "confluent_kafka":
            raise
        raise ConfigError(f"the outbox {name!r} needs the Kafka client: {how_to_install('kafka')}") from None
    bootstrap, found = outbox_cluster(config, name)
    options = dict(found)
    options.pop("acks", None)
    return Producers(
        bootstrap,
        settings.message_timeout,
        options,
        where=f"outbox {name!r}: kafka_options",
        defaults={
            "linger.ms": settings.linger_ms,
            # A step of strict order is a small request for each partition, and the next step waits for all.
            "socket.nagle.disable": settings.mode == "strict",
            # Half of it passes between connections: to a bootstrap server, then to the broker that it names.
            "reconnect.backoff.ms": 20,
            # A topic that is not there is to cool down, not to hold its records for half a minute.
            "topic.metadata.propagation.max.ms": 3000,
            "queue.buffering.max.messages": 2 * settings.in_flight,
        },
        partitioners=(
            "murmur2_random",
            "murmur2",
            "consistent",
            "consistent_random",
            "fnv1a",
            "fnv1a_random",
        ),
        settings=_settings_of_producers(config, name),
    )


def _settings_of_producers(config: Config, name: str) -> dict[str, Any]:
    """Settings for other acks than all, with which librdkafka has no idempotent producers."""
    settings = config.outbox(name)
    acks = settings.kafka_options.get("acks", "all")
    if acks in _ALL:
        return {}
    if settings.transactions:
        raise ConfigError(f'outbox {name!r}: kafka_options: transactions need acks = "all"; take acks out')
    return {"acks": acks, "enable.idempotence": False}


def outbox_cluster(config: Config, name: str) -> tuple[str, dict[str, Any]]:
    """Bootstrap servers and options; the options of `[kafka]` are for its cluster only."""
    settings = config.outbox(name)
    if settings.bootstrap_servers is not None:
        return settings.bootstrap_servers, dict(settings.kafka_options)
    assert config.kafka is not None, "the configuration was checked"
    return config.kafka.bootstrap_servers, {**config.kafka.options, **settings.kafka_options}
