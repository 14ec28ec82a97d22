"""What is logged, in tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Handler(logging.Handler):
    def __init__(self, lines: list[dict[str, Any]]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        line = {"event": getattr(record, "event", None), "log_level": record.levelname.lower()}
        error = record.exc_info[1] if record.exc_info else None
        raised = {} if error is None else {"error": error}
        self._lines.append(line | getattr(record, "fields", {}) | raised)


@contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    """The events that pytube logs inside the block, of all levels: name, level, fields, and the `error`."""
    lines: list[dict[str, Any]] = []
    logger, handler = logging.getLogger("pytube"), _Handler(lines)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
