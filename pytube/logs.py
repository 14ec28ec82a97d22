"""Structured logs: for people on a terminal, JSON otherwise; always to stderr."""

from __future__ import annotations

import logging
import sys
from typing import Literal, TextIO

import structlog
from structlog.typing import Processor

Format = Literal["auto", "human", "json"]
LEVELS = ("debug", "info", "warning", "error")


def configure(level: str = "info", log_format: Format = "auto", stream: TextIO | None = None) -> None:
    """Set up the process's logging, the standard library's included.

    Args:
        level: one of `LEVELS`; what is below it is dropped.
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
