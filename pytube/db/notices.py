"""What Postgres says beside its answers goes to the log."""

from __future__ import annotations

import structlog
from psycopg.errors import Diagnostic

_log = structlog.get_logger("pytube.postgres")


def with_hint(notice: Diagnostic) -> str:
    """The message, and in parentheses what to do."""
    text = notice.message_primary or ""
    return f"{text} ({notice.message_hint})" if notice.message_hint else text


def log_notice(notice: Diagnostic) -> None:
    """Log one message by its severity; what only repeats that nothing was to be done, as debug."""
    text = with_hint(notice)
    if notice.severity_nonlocalized == "WARNING":
        _log.warning(text)
    elif "already exists, skipping" in text or "does not exist, skipping" in text:
        _log.debug(text)
    else:
        _log.info(text)
