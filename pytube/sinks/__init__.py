"""Where documents go: the contract, the registry, and the sinks that come with pytube."""

from pytube.sinks.base import (
    Bounded,
    Making,
    Marked,
    Noting,
    Reading,
    Scanning,
    Sink,
    SinkFactory,
    Stored,
    why_no_mark,
    why_no_note,
    why_no_read,
    why_no_scan,
)
from pytube.sinks.parts import open_existing, place_of
from pytube.sinks.registry import SinkOptions, build_sink, find_sink, finished, known_sinks

__all__ = [
    "Bounded",
    "Making",
    "Marked",
    "Noting",
    "Reading",
    "Scanning",
    "Sink",
    "SinkFactory",
    "SinkOptions",
    "Stored",
    "build_sink",
    "find_sink",
    "finished",
    "known_sinks",
    "open_existing",
    "place_of",
    "why_no_mark",
    "why_no_note",
    "why_no_read",
    "why_no_scan",
]
