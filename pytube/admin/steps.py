"""Steps: a paused partition delivers single documents, one at a time, each because an operator says so."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from pytube.admin.session import rows_of, value_of
from pytube.errors import PytubeError

_ASK = "SELECT {s}.tube_step_ask(%(tube)s, %(seq)s, %(shard)s, %(key)s, %(lasts)s * interval '1 second')"
_STATE = "SELECT * FROM {s}.tube_step_state(%(step)s)"
_CANCEL = "SELECT {s}.tube_step_cancel(%(step)s)"
_POLL_INTERVAL = 0.05


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


@dataclass(frozen=True, slots=True)
class _State:
    outcome: str | None
    error: str | None
    taken: bool
    over: bool


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
    """Have the leader of a paused partition deliver one key of one pod, and wait for what comes of it.

    The leader does it under its own term: see `docs/operations.md` for why. Interrupted before a worker has
    taken the step, nothing is sent; after that, this one document is.

    Args:
        connection: autocommit.
        tube: its name.
        seq: of the pod.
        shard: of the key.
        key: the id, as text.
        schema: of our SQL.
        timeout: seconds to wait for the worker.

    Raises:
        NotPaused: the partition is not paused, or no worker rests there.
        StepBusy: another operator steps through this partition.
        PodGone: the pod is gone, or does not have the key.
    """
    number = value_of(connection, schema, _ASK, tube=tube, seq=seq, shard=shard, key=key, lasts=timeout)
    deadline = time.monotonic() + timeout
    try:
        while True:
            (state,) = rows_of(_State, connection, schema, _STATE, step=number)
            if state.outcome is not None:
                return Stepped(state.outcome, state.error)
            if state.over and not state.taken:
                return Stepped("unsent", "no worker took the step in time")
            if state.over or time.monotonic() >= deadline:
                why = "its term is over" if state.over else "it has not answered in time"
                return Stepped(
                    "unknown", f"the worker that took the step does not say what became of it: {why}"
                )
            time.sleep(_POLL_INTERVAL)
    except BaseException:
        with suppress(PytubeError, psycopg.Error):  # it runs out by itself
            value_of(connection, schema, _CANCEL, step=number)
        raise
