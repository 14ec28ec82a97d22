"""Events as log lines: the event's name in words, its fields, and a level."""

from __future__ import annotations

import dataclasses
import re

from structlog.typing import FilteringBoundLogger

from pytube.events import (
    DatabaseDown,
    Event,
    LeaderFenced,
    MeterRead,
    Parked,
    SinkDown,
    SourceDown,
    SweepFailed,
    TrustLapsed,
)

_WARNINGS = (DatabaseDown, LeaderFenced, Parked, SinkDown, SourceDown, SweepFailed, TrustLapsed)


def log_event(log: FilteringBoundLogger, event: Event) -> None:
    """Log `event`: problems as warnings, idle meter readings at debug level."""
    name = re.sub(r"(?<!^)(?=[A-Z])", " ", type(event).__name__).lower()
    fields = {field.name: _plain(getattr(event, field.name)) for field in dataclasses.fields(event)}
    if isinstance(event, _WARNINGS):
        log.warning(name, **fields)
    elif isinstance(event, MeterRead) and not (event.touches or event.pods or event.waiting):
        log.debug(name, **fields)
    else:
        log.info(name, **fields)


def _plain(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    return value if isinstance(value, int | str | None) else str(value)
