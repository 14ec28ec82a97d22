"""Configuration: one TOML file with environment variables inside, as immutable values."""

from pytube.config.loader import load, parse
from pytube.config.models import (
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
