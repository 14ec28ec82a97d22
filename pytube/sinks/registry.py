"""Finds a sink by the type that the configuration names, among the installed distributions."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from pydantic import ValidationError

from pytube.errors import ConfigError
from pytube.sinks.base import Sink, SinkFactory
from pytube.sinks.options import option_errors

GROUP = "pytube.sinks"


def known_sinks() -> list[str]:
    """The types that are installed, sorted."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def find_sink(sink_type: str) -> SinkFactory:
    """The class behind `sink_type`; `ConfigError` lists the known types when there is none."""
    points = {point.value: point for point in entry_points(group=GROUP, name=sink_type)}
    if not points:
        known = ", ".join(known_sinks()) or "none: is pytube installed?"
        raise ConfigError(f'unknown sink type "{sink_type}"; the installed ones are: {known}')
    if len(points) > 1:
        raise ConfigError(
            f'sink type "{sink_type}" is offered twice: {", ".join(sorted(points))}; '
            "uninstall one of the two distributions"
        )
    return _load(next(iter(points.values())))


def build_sink(sink_type: str, options: Mapping[str, object]) -> Sink:
    """A sink, not yet open; `ConfigError` for an unknown type or bad options."""
    factory = find_sink(sink_type)
    try:
        sink = factory.from_options(options)
    except ConfigError:
        raise
    except ValidationError as error:
        raise ConfigError(option_errors(sink_type, None, error)) from None
    except Exception as error:
        raise ConfigError(
            f'sink "{sink_type}" refused its options: {type(error).__name__}: {error}'
        ) from error
    if not isinstance(sink, Sink):
        raise ConfigError(
            f'sink "{sink_type}" gave a {type(sink).__name__}, which is no sink: '
            "it needs compares, open, send, abandon and close"
        )
    return sink


def _load(point: EntryPoint) -> SinkFactory:
    """The object that the entry point names."""
    try:
        factory = point.load()
    except Exception as error:
        raise ConfigError(
            f'sink type "{point.name}" can\'t be loaded from {point.value}: {type(error).__name__}: {error}'
        ) from error
    if not callable(getattr(factory, "from_options", None)):
        raise ConfigError(f'sink type "{point.name}": {point.value} has no from_options(options) to build it')
    checked: SinkFactory = factory
    return checked
