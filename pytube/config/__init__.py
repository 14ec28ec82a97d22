"""Configuration: one TOML file with environment variables inside, as immutable values."""

from pytube.config.loader import load, parse
from pytube.config.models import (
    BackfillConfig,
    Config,
    EnrichConfig,
    KafkaConfig,
    PostgresConfig,
    SinkConfig,
    TubeConfig,
    WorkerConfig,
)
from pytube.config.show import masked

__all__ = [
    "BackfillConfig",
    "Config",
    "EnrichConfig",
    "KafkaConfig",
    "PostgresConfig",
    "SinkConfig",
    "TubeConfig",
    "WorkerConfig",
    "load",
    "masked",
    "parse",
]
