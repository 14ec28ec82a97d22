"""Pauses, and steps: a paused partition delivers single documents, each because an operator says so."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg

from pytube.errors import PytubeError
from pytube.tubes.calls import rows_of, value_of

_PAUSE = "SELECT {s}.tube_pause(%(tube)s, %(partition)s, %(lasts)s, %(reason)s)"
_RESUME = "SELECT {s}.tube_resume(%(tube)s, %(partition)s)"
_LIST = """
    SELECT p.*, l.client_id AS leader, l.lost FROM {s}.tube_pause_list(%(tube)s) AS p
    LEFT JOIN {s}.tube_leaders(%(tube)s) AS l ON l.tube = p.tube AND l.partition = p.partition
"""
_COMPANIONS = """
    SELECT coalesce(array_agg(DISTINCT d.tube ORDER BY d.tube), '{{}}')
    FROM {s}.tube_documents() AS d WHERE d.companion_of = %(tube)s
"""
_POLL_INTERVAL = 0.05


@dataclass(frozen=True, slots=True)
class Pause:
    """A partition that is paused."""

    tube: str
    partition: int
    kind: str
    """`operator`, or why a worker has stopped the tube: `poison` or `park_limit`."""
    reason: str
    until: datetime | None
    """None: until it is resumed."""
    halted_since: datetime | None
    """When its leader came to rest; None while it has not, or without a leader."""
    leader: str | None
    lost: bool | None
    """Whether the leader has stopped renewing its term."""

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
    """Pause a tube with its companions, or one of its partitions; leaders come to rest within about a second.

    Without `lasts`, until it is resumed. `pytube status` shows the reason.
    """
    value_of(connection, schema, _PAUSE, tube=tube, partition=partition, lasts=lasts, reason=reason)


def resume(
    connection: psycopg.Connection, tube: str, schema: str = "tube", *, partition: int | None = None
) -> int:
    """End the pauses of a tube with its companions, and stops by workers; or only of a partition."""
    return int(value_of(connection, schema, _RESUME, tube=tube, partition=partition))


def pauses(connection: psycopg.Connection, tube: str | None = None, schema: str = "tube") -> list[Pause]:
    """The partitions that are paused."""
    return rows_of(Pause, connection, schema, _LIST, tube=tube)


def pauses_of(
    connection: psycopg.Connection, tube: str, schema: str = "tube", *, partition: int | None = None
) -> list[Pause]:
    """What of a tube and its companions is paused, or of one of its partitions."""
    if partition is not None:
        return [one for one in pauses(connection, tube, schema) if one.partition == partition]
    companions = value_of(connection, schema, _COMPANIONS, tube=tube)
    return [one for name in (tube, *companions) for one in pauses(connection, name, schema)]


def wait_until_halted(
    connection: psycopg.Connection,
    tube: str,
    schema: str = "tube",
    *,
    partition: int | None = None,
    timeout: float = 30.0,
) -> list[Pause]:
    """Wait until nothing of the paused partitions is in flight; the pauses of which something still is."""
    deadline = time.monotonic() + timeout
    while True:
        left = [one for one in pauses_of(connection, tube, schema, partition=partition) if not one.is_at_rest]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(_POLL_INTERVAL)


# --- steps ------------------------------------------------------------------------------------

_ASK = "SELECT {s}.tube_step_ask(%(tube)s, %(seq)s, %(shard)s, %(key)s, %(lasts)s * interval '1 second')"
_STATE = "SELECT * FROM {s}.tube_step_state(%(step)s)"
_CANCEL = "SELECT {s}.tube_step_cancel(%(step)s)"


@dataclass(frozen=True, slots=True)
class Stepped:
    """What became of a step."""

    outcome: str
    """`delivered`; `skipped`: a transform wants nothing to be sent; or, for `reason`, `failed`, `unsent` or
    `unknown`: then the key is still in the tube."""
    reason: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether the key has left the tube."""
        return self.outcome in ("delivered", "skipped")


def step(
    connection: psycopg.Connection,
    tube: str,
    seq: int,
    shard: int,
    key: str,
    schema: str = "tube",
    *,
    timeout: float = 60.0,
) -> Stepped:
    """Have the leader of a paused partition deliver one key of one pod, and wait for the outcome.

    The leader does it, under its own term: a term for the command would have to take the partition from an
    entitled worker, or would be fenced by it. Interrupted before a worker has taken the step, nothing is
    sent; after that, this one document is.

    Raises:
        NotPaused: the partition is not paused, or no worker rests there.
        StepBusy: another operator steps through this partition.
        PodGone: the pod is gone, or does not have the key.
    """
    number = value_of(connection, schema, _ASK, tube=tube, seq=seq, shard=shard, key=key, lasts=timeout)
    deadline = time.monotonic() + timeout
    try:
        while True:
            (state,) = rows_of(dict, connection, schema, _STATE, step=number)
            if state["outcome"] is not None:
                return Stepped(state["outcome"], state["error"])
            if state["over"] and not state["taken"]:
                return Stepped("unsent", "no worker took the step in time")
            if state["over"] or time.monotonic() >= deadline:
                why = "its term is over" if state["over"] else "it has not answered in time"
                return Stepped(
                    "unknown", f"the worker that took the step does not say what became of it: {why}"
                )
            time.sleep(_POLL_INTERVAL)
    except BaseException:
        with suppress(PytubeError, psycopg.Error):  # it runs out on its own
            value_of(connection, schema, _CANCEL, step=number)
        raise
