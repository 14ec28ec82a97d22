"""Structured logs: for people on a terminal, JSON otherwise; always to stderr."""

from __future__ import annotations

import dataclasses
import logging
import re
import sys
from typing import Literal, TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor

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

Format = Literal["auto", "human", "json"]
_WARNINGS = (DatabaseDown, LeaderFenced, Parked, SinkDown, SourceDown, SweepFailed, TrustLapsed)


def configure(level: str = "info", log_format: Format = "auto", stream: TextIO | None = None) -> None:
    """Set up the process's logging, the standard library's included.

    Args:
        level: debug, info, warning or error; what is below it is dropped.
        log_format: `auto` is `human` on a terminal and `json` elsewhere.
        stream: where to; stderr by default.
    """
    stream = stream or sys.stderr
    human = log_format == "human" or (log_format == "auto" and stream.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if human else "iso", utc=not human),
        structlog.processors.StackInfoRenderer(),
    ]
    ending: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=stream.isatty())]
        if human
        else [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ]
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *ending,
        ],
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Alembic tells of its context at every start; only what goes wrong is of interest.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    if level != "debug":
        # It tells of every try to connect; events tell of an outage once.
        logging.getLogger("psycopg").setLevel(logging.ERROR)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        cache_logger_on_first_use=False,
    )


class Repeats:
    """Tells which messages were logged last, so that trouble that goes on is logged once."""

    def __init__(self) -> None:
        self._last: dict[object, str] = {}

    def is_new(self, subject: object, message: str) -> bool:
        """Whether `message` is another one than the last about `subject`."""
        if self._last.get(subject) == message:
            return False
        self._last[subject] = message
        return True

    def forget(self, subject: object) -> None:
        """All is well with `subject`: the next message about it is new."""
        self._last.pop(subject, None)


def log_event(log: FilteringBoundLogger, event: Event) -> None:
    """Log an event: its name (`leader_acquired`), its fields, and a level; idle readings at debug level."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
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
