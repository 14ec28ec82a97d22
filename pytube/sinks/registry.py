"""Finds a sink by the type that the configuration names, and builds it from its options.

Errors name the option and what was expected, never a value, because it may be a secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from pytube.errors import ConfigError
from pytube.model import KeyType
from pytube.sinks.base import Bounded, Keyed, Sink, SinkFactory
from pytube.sinks.parts import Parts, PartsSink

GROUP = "pytube.sinks"


class SinkOptions(BaseModel):
    """Base of the options of a sink. The description of a field is what its error says."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @classmethod
    def parse(cls, sink: str, options: Mapping[str, object]) -> Self:
        """The options of a sink of type `sink`; `ConfigError` lists everything that is wrong."""
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            raise ConfigError(_option_errors(sink, cls, error)) from None


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


def build_sink(
    sink_type: str,
    options: Mapping[str, object],
    *,
    request_timeout: float = float("inf"),
    parts: Sequence[str] | int | None = None,
) -> Sink:
    """A sink, not yet open; `ConfigError` for an unknown type or bad options.

    Args:
        sink_type: the name of the entry point.
        options: of the sink.
        request_timeout: seconds after which the worker gives a send up.
        parts: what each document is split into; None: it is sent as it is.
    """
    factory = find_sink(sink_type)
    try:
        sink = factory.from_options(options)
    except ConfigError:
        raise
    except ValidationError as error:
        raise ConfigError(_option_errors(sink_type, None, error)) from None
    except Exception as error:
        raise ConfigError(
            f'sink "{sink_type}" refused its options: {type(error).__name__}: {error}'
        ) from error
    if not isinstance(sink, Sink):
        raise ConfigError(
            f'sink "{sink_type}" gave a {type(sink).__name__}, which is no sink: '
            "it needs compares, open, send, abandon and close"
        )
    if isinstance(sink, Bounded) and sink.write_timeout > request_timeout:
        raise ConfigError(
            f'sink "{sink_type}": a write may go on for {sink.write_timeout:g} s, and request_timeout is '
            f"{request_timeout:g} s; raise request_timeout, or lower the timeout of the sink"
        )
    if parts is None:
        return sink
    if isinstance(sink, Keyed) and (why := sink.cannot_hold(KeyType.TEXT)) is not None:
        raise ConfigError(f'sink "{sink_type}": the ids of `parts` are texts, and {why}')
    return PartsSink(sink, Parts(parts))


def _load(point: EntryPoint) -> SinkFactory:
    """The object that the entry point names."""
    try:
        factory = point.load()
    except ConfigError:
        raise  # it says which package is missing
    except Exception as error:
        raise ConfigError(
            f'sink type "{point.name}" can\'t be loaded from {point.value}: {type(error).__name__}: {error}'
        ) from error
    if not callable(getattr(factory, "from_options", None)):
        raise ConfigError(f'sink type "{point.name}": {point.value} has no from_options(options) to build it')
    checked: SinkFactory = factory
    return checked


def _option_errors(sink: str, model: type[BaseModel] | None, error: ValidationError) -> str:
    """What is wrong with the options of `sink`, one clause per key, without their values."""
    fields = model.model_fields if model is not None else {}
    clauses = []
    for item in error.errors(include_input=False, include_url=False):
        key = ".".join(str(part) for part in item["loc"])
        field = fields.get(str(item["loc"][0])) if item["loc"] else None
        expected = field.description if field is not None else None
        expected = expected or item["msg"].removeprefix("Input should be ")
        if not item["loc"]:  # of options that do not fit together
            clauses.append(item["msg"].removeprefix("Value error, "))
        elif item["type"] == "extra_forbidden":
            known = ", ".join(sorted(fields)) or "none"
            clauses.append(f'option "{key}" is unknown (known: {known})')
        elif item["type"] == "missing":
            clauses.append(f'option "{key}" is missing: expected {expected}')
        else:
            clauses.append(f'option "{key}": expected {expected}')
    return f'sink "{sink}": ' + "; ".join(clauses)
