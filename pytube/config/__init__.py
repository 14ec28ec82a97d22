"""Configuration: one TOML file with environment variables inside, as immutable values."""

from pytube.config.documents import ChildSection, DocumentSection, TreeSection
from pytube.config.loader import from_values, load, masked, parse
from pytube.config.models import (
    Config,
    HostConfig,
    KafkaConfig,
    OutboxConfig,
    PostgresConfig,
    WorkerConfig,
    split_address,
)
from pytube.config.tubes import (
    BackfillConfig,
    DeclaredEnrich,
    DocumentConfig,
    EnrichConfig,
    SinkConfig,
    TubeConfig,
)

__all__ = [
    "BackfillConfig",
    "ChildSection",
    "Config",
    "DeclaredEnrich",
    "DocumentConfig",
    "DocumentSection",
    "EnrichConfig",
    "HostConfig",
    "KafkaConfig",
    "OutboxConfig",
    "PostgresConfig",
    "SinkConfig",
    "TreeSection",
    "TubeConfig",
    "WorkerConfig",
    "from_values",
    "load",
    "masked",
    "parse",
    "split_address",
]
