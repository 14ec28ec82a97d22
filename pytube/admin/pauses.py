"""Pauses: a paused partition keeps its leader, which marks and sends nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg

from pytube.admin.session import rows_of, value_of

_PAUSE = "SELECT {s}.tube_pause(%(tube)s, %(partition)s, %(lasts)s, %(reason)s)"
_RESUME = "SELECT {s}.tube_resume(%(tube)s, %(partition)s)"
_LIST = """
    SELECT p.*, l.client_id AS leader, l.lost FROM {s}.tube_pause_list(%(tube)s) AS p
    LEFT JOIN {s}.tube_leaders(%(tube)s) AS l ON l.tube = p.tube AND l.partition = p.partition
"""
_POLL_INTERVAL = 0.1


@dataclass(frozen=True, slots=True)
class Pause:
    """A partition that is paused."""

    tube: str
    partition: int
    kind: str
    """`operator`, or why a worker has stopped the tube: `poison` or `park_limit`."""
    reason: str
    until: datetime | None
    """None: until somebody resumes it."""
    halted_since: datetime | None
    """When its leader came to rest; None while it has not, or nobody leads."""
    leader: str | None
    lost: bool | None
    """Whether the leader renews its term no more."""

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is in flight: its leader has come to rest, or there is none."""
        return self.leader is None or self.halted_since is not None


def pause(
    connection: psycopg.Connection,
    tube: str,
    schema: str = "tube",
    *,
    partition: int | None = None,
    lasts: timedelta | None = None,
    reason: str | None = None,
) -> None:
    """Pause a tube, or one of its partitions; its leaders come to rest within about a second.

    Args:
        connection: autocommit.
        tube: its name.
        schema: of our SQL.
        partition: None: all.
        lasts: None: until it is resumed.
        reason: for people; `pytube status` shows it.
    """
    value_of(connection, schema, _PAUSE, tube=tube, partition=partition, lasts=lasts, reason=reason)


def resume(
    connection: psycopg.Connection, tube: str, schema: str = "tube", *, partition: int | None = None
) -> int:
    """End the pauses of a tube, and stops of workers; or those that were made for one partition.

    Returns:
        How many were ended.
    """
    return int(value_of(connection, schema, _RESUME, tube=tube, partition=partition))


def pauses(connection: psycopg.Connection, tube: str | None = None, schema: str = "tube") -> list[Pause]:
    """The partitions that are paused."""
    return rows_of(Pause, connection, schema, _LIST, tube=tube)


def wait_until_halted(
    connection: psycopg.Connection,
    tube: str,
    schema: str = "tube",
    *,
    partition: int | None = None,
    timeout: float = 30.0,
) -> list[Pause]:
    """Wait until nothing of what is paused is in flight any more.

    Returns:
        The pauses whose leader has not come to rest by then; none as a rule.
    """
    deadline = time.monotonic() + timeout
    while True:
        left = [
            one
            for one in pauses(connection, tube, schema)
            if not one.is_at_rest and partition in (None, one.partition)
        ]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(_POLL_INTERVAL)
