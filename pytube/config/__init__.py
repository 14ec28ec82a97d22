"""Configuration: one TOML file with environment variables inside, as immutable values."""

from pytube.config.loader import load, masked, parse
from pytube.config.models import (
    BackfillConfig,
    Config,
    DocumentConfig,
    EnrichConfig,
    HostConfig,
    KafkaConfig,
    OutboxConfig,
    PostgresConfig,
    SinkConfig,
    TubeConfig,
    WorkerConfig,
    split_address,
)

__all__ = [
    "BackfillConfig",
    "Config",
    "DocumentConfig",
    "EnrichConfig",
    "HostConfig",
    "KafkaConfig",
    "OutboxConfig",
    "PostgresConfig",
    "SinkConfig",
    "TubeConfig",
    "WorkerConfig",
    "load",
    "masked",
    "parse",
    "split_address",
]
