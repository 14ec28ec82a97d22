"""Logs: named events with fields, through the loggers `pytube.…` of the standard library.

Only the command line sets logging up (`configure`). Within another program, that program does.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal, TextIO
from uuid import UUID

from pytube.counts import harmless
from pytube.errors import OUTAGES, PytubeError
from pytube.events import Event, MeterRead

Format = Literal["auto", "human", "json"]
_FIRST = ("host", "tube", "partition")
"""Fields that lead, in this order."""
_LONGEST_TRACE = 8_000
"""Characters of a stack trace; of a longer one the beginning and the end are kept."""
_QUIET = 60.0
"""Seconds for which the same fault of user code is not logged again."""
_NOT_USERS = frozenset(
    {
        *sys.stdlib_module_names,
        *("pytube", "aiohttp", "confluent_kafka", "orjson", "psycopg", "pydantic"),
        *("redis", "urllib3", "yarl"),
    }
)
"""Packages that run user code, or that pytube's sinks call: a stack with frames of these alone has none."""
_COLORS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "31"}


# --- logging -----------------------------------------------------------------------------


@contextmanager
def heard(name: str) -> Iterator[list[tuple[str, Mapping[str, object]]]]:
    """What loggers of that name and below warn of in the block: events and fields, and no lines.

    For a program that has nothing else under way that might warn.
    """
    found: list[tuple[str, Mapping[str, object]]] = []

    class Hearing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if isinstance(event := getattr(record, "event", None), str):
                found.append((event, getattr(record, "fields", {})))

    logger, handler = logging.getLogger(name), Hearing(logging.WARNING)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


class Logger:
    """Logs events: a stable identifier, and fields.

    The message of a record is both as text; its attributes `event` and `fields` have them separately.
    """

    def __init__(self, name: str, **fields: object) -> None:
        """Args:
        name: the logger of the standard library.
        fields: the fields of all events.
        """
        self._logger = logging.getLogger(name)
        self._fields = fields

    def bind(self, **fields: object) -> Logger:
        """This logger with more fields."""
        return Logger(self._logger.name, **self._fields, **fields)

    def debug(self, event: str, **fields: object) -> None:
        """Log what helps to find a fault."""
        self.write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Log a normal event."""
        self.write(logging.INFO, event, fields)

    def warning(self, event: str, *, exc_info: BaseException | None = None, **fields: object) -> None:
        """Log what an operator may have to act upon; `exc_info` is shown with its stack."""
        self.write(logging.WARNING, event, fields, exc_info)

    def error(self, event: str, *, exc_info: BaseException | None = None, **fields: object) -> None:
        """Log what an operator has to act upon; `exc_info` is shown with its stack."""
        self.write(logging.ERROR, event, fields, exc_info)

    def write(
        self, level: int, event: str, fields: Mapping[str, object], error: BaseException | None = None
    ) -> None:
        """Log an event at a level of the standard library."""
        if not self._logger.isEnabledFor(level):
            return
        given = {**self._fields, **fields}
        shown = {name: given.pop(name) for name in _FIRST if name in given} | given
        self._logger.log(
            level,
            " ".join([event, *_pairs(shown)]),
            exc_info=error,
            stacklevel=3,
            extra={"event": event, "fields": shown},
        )


def host_fields(host: str | None) -> dict[str, object]:
    """The fields of a logger for one Postgres host; none for the only one, which has no name."""
    return {} if host is None else {"host": host}


def log_event(log: Logger, event: Event) -> None:
    """Log an event: its name (`leader_acquired`), its fields, and a level; idle readings at debug level."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
    fields = {field.name: _plain(getattr(event, field.name)) for field in dataclasses.fields(event)}
    if event.host is None:
        del fields["host"]
    is_idle = isinstance(event, MeterRead) and not (event.touches or event.pods or event.waiting)
    level = logging.DEBUG if is_idle else event.level
    log.write(level, name, fields)


def _plain(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    return value if isinstance(value, int | str | tuple | Mapping | None) else str(value)


def is_news(told: dict[object, str], subject: object, message: str) -> bool:
    """Whether `message` is another one than the last about `subject`, so that trouble is logged once.

    Args:
        told: the last message about each troubled subject.
        subject: what the message is about.
        message: is stored there.
    """
    if told.get(subject) == message:
        return False
    told[subject] = message
    return True


class UserFaults:
    """Logs what user code raised, with its stack trace; the same fault once a minute at most."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._quiet_until: dict[tuple[str, type[BaseException], str, int], float] = {}

    def log(self, call: str, error: BaseException, **fields: object) -> None:
        """Log `error`.

        Args:
            call: the function that user code provides, such as `send`.
            error: the error that it raised.
            fields: where, such as the partition.
        """
        cause = _first_of_user(error) or error
        place = traceback.extract_tb(cause.__traceback__)[-1]
        which = call, type(cause), place.filename, place.lineno or 0
        now = time.monotonic()
        if now >= self._quiet_until.get(which, now):
            self._quiet_until[which] = now + _QUIET
            reason = f"{type(cause).__name__}: {cause}"
            self._log.warning("user_code_raised", **fields, call=call, reason=reason, exc_info=error)

    def log_sink(self, call: str, error: Exception, **fields: object) -> None:
        """Log `error`, unless it is one of pytube's without a cause in user code: it says it all.

        The same goes for outages, whatever the cause: they are raised on purpose, and `sink_down` has the
        reason.
        """
        if not isinstance(error, OUTAGES) and _first_of_user(error) is not None:
            self.log(call, error, **fields)


def _first_of_user(error: BaseException | None) -> BaseException | None:
    """The first of an error and its causes that is not pytube's; None without one, or without user code."""
    first = error
    while isinstance(error, PytubeError):
        error = error.__cause__
    if error is None or error is first:
        return error
    frames = traceback.walk_tb(error.__traceback__)
    modules = {str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in frames}
    return error if modules - _NOT_USERS else None


# --- how the command line shows it --------------------------------------------------------------


def configure(level: str = "info", log_format: Format = "auto", stream: TextIO | None = None) -> None:
    """Set up the logging of the process.

    Args:
        level: debug, info, warning or error; lower levels are dropped.
        log_format: `auto` is `human` on a terminal and `json` elsewhere.
        stream: where to; stderr by default.
    """
    stream = stream or sys.stderr
    human = log_format == "human" or (log_format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        _Human(colors=stream.isatty() and not os.environ.get("NO_COLOR")) if human else _Json()
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Alembic logs its context at every start; only warnings are of interest.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # Spark's bridge to its JVM logs every connection that it closes.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if level != "debug":
        # It logs every try to connect; events report an outage once.
        logging.getLogger("psycopg").setLevel(logging.ERROR)


class _Formatter(logging.Formatter):
    def formatException(self, ei: object) -> str:  # noqa: N802 # the standard library's name
        """The stack trace, bounded: a message or a recursion may be of any length."""
        assert isinstance(ei, tuple)
        text = "".join(traceback.format_exception(*ei)).rstrip()
        left_out = len(text) - _LONGEST_TRACE
        if left_out <= 0:
            return text
        half = _LONGEST_TRACE // 2
        return f"{text[:half]}\n… {left_out} characters left out …\n{text[-half:]}"


class _Json(_Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record; records of other libraries have their message as the event."""
        ours = record.name.startswith("pytube.")
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "") if ours else record.getMessage(),
            **(getattr(record, "fields", {}) if ours else {}),
            "logger": record.name,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Human(_Formatter):
    """`14:03:07.123 warning sink_down tube=es-live partition=3 reason="no answer"`."""

    def __init__(self, *, colors: bool) -> None:
        super().__init__()
        self._colors = colors

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, and below it the stack trace, if it has one."""
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]  # people's
        level = f"{record.levelname.lower():7}"
        if self._colors:
            level = f"\x1b[{_COLORS.get(record.levelname, '0')}m{level}\x1b[0m"
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return f"{at} {level} {harmless(text)}"


def _pairs(fields: Mapping[str, object]) -> Iterator[str]:
    """`name=value` for each field; quoted where it could be misread, and harmless to a terminal."""
    for name, value in fields.items():
        plain = isinstance(value, str | UUID)
        text = str(value) if plain else json.dumps(value, default=str)
        if not text or not text.isprintable() or (plain and set(text) & set(' "=')):
            text = json.dumps(text, ensure_ascii=not text.isprintable())
        yield f"{name}={text}"
