"""Where documents go: the contract, the registry, and the sinks that come with pytube."""

from pytube.sinks.base import Sink, SinkFactory
from pytube.sinks.registry import build_sink, find_sink, known_sinks

__all__ = ["Sink", "SinkFactory", "build_sink", "find_sink", "known_sinks"]
