"""The queued pods of a tube: count, list, show with documents, retry, remove."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import LiteralString

import psycopg

from pytube.config import Config
from pytube.errors import PodGone
from pytube.tubes.calls import AT_ONCE, in_pieces, rows_of, value_of
from pytube.verify import Explanation, explain

_LIST = """
    SELECT * FROM {s}.tube_pods_list(
        %(tube)s, %(partition)s, %(first)s, %(last)s, %(shard)s, %(key)s, %(limit)s, %(keys)s)
"""
_COUNT = """
    SELECT * FROM {s}.tube_pods_count(
        %(tube)s, %(partition)s, %(first)s, %(last)s, %(shard)s, %(key)s)
"""
_RETRY = """
    SELECT {s}.tube_pods_retry(
        %(tube)s, %(partition)s, %(first)s, %(last)s, %(shard)s, %(key)s, %(limit)s)
"""
_ACK = """
    SELECT {s}.tube_pods_ack(
        %(tube)s, %(partition)s, %(first)s, %(last)s, %(shard)s, %(key)s, %(limit)s)
"""
_RESET = "SELECT {s}.tube_attempts_reset(%(tube)s, %(partition)s, %(shard)s, %(key)s)"
_EVERY = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Pods:
    """Which pods of a tube are meant; None does not filter."""

    tube: str
    partition: int | None = None
    first: int | None = None
    """The least seq."""
    last: int | None = None
    """The greatest seq, included."""
    shard: int | None = None
    key: str | None = None
    """An id, as text. Where something is done with it, the other keys of its pods stay."""


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod of a tube."""

    seq: int
    partition: int
    op: str
    shard: int
    keys: Sequence[str]
    """Its ids, the first ones."""
    key_count: int
    control: str | None
    """The type of a control pod."""
    ts: datetime
    state: str
    """`waiting`; `in flight`: a live worker has it; `left` by a term that is over, for the next one."""
    client_id: str | None
    """Who has it in flight."""
    failures: int
    """Of how many of its keys attempts have failed."""


@dataclass(frozen=True, slots=True)
class PodsCount:
    """How many pods are meant."""

    pods: int
    in_flight: int
    control: int
    newest: int | None
    """The greatest seq among them."""


def list_pods(
    connection: psycopg.Connection, chosen: Pods, schema: str = "tube", limit: int = 100, keys: int = 100
) -> list[WaitingPod]:
    """The first `limit` pods, in processing order, with the first `keys` ids of each.

    To look for a key is to look at all pods of the range.
    """
    return rows_of(WaitingPod, connection, schema, _LIST, **asdict(chosen), limit=limit, keys=keys)


def count_pods(connection: psycopg.Connection, chosen: Pods, schema: str = "tube") -> PodsCount:
    """How many pods are meant. It looks at each of them."""
    (found,) = rows_of(PodsCount, connection, schema, _COUNT, **asdict(chosen))
    return found


def retry_pods(connection: psycopg.Connection, chosen: Pods, schema: str = "tube") -> int:
    """Move the pods that are there now to the end of the queue.

    Their keys get new pods, as old seqs may lie below a worker's floor. Control pods and pods in flight are
    left alone; a single key is touched again even while it is in flight. After an interruption some pods
    have been moved, and the others are unchanged. Returns how many pods there were.
    """
    if chosen.key is not None:
        return int(value_of(connection, schema, _RETRY, **asdict(chosen), limit=_EVERY))
    return _in_pieces(connection, chosen, schema, _RETRY)


def ack_pods(connection: psycopg.Connection, chosen: Pods, schema: str = "tube") -> int:
    """Take the pods that are there now away as done; nothing is sent. Control pods are left alone.

    Returns how many pods there were. Raises `PodsInFlight` if a worker has some of them.
    """
    return _in_pieces(connection, chosen, schema, _ACK)


def _in_pieces(connection: psycopg.Connection, chosen: Pods, schema: str, query: LiteralString) -> int:
    """Act on the present pods, not on ones made meanwhile; returns their number."""
    newest = count_pods(connection, chosen, schema).newest
    if newest is None:
        return 0
    arguments = asdict(replace(chosen, last=newest))
    return in_pieces(lambda: int(value_of(connection, schema, query, **arguments, limit=AT_ONCE)))


def reset_attempts(
    connection: psycopg.Connection,
    tube: str,
    schema: str = "tube",
    *,
    partition: int | None = None,
    shard: int | None = None,
    key: str | None = None,
) -> int:
    """Forget the failures of keys that are to be sent again: they have all their attempts, and no back-off.

    A worker remembers them until its partition is paused or its term ends. Returns the number of keys.
    """
    arguments = {"tube": tube, "partition": partition, "shard": shard, "key": key}
    return int(value_of(connection, schema, _RESET, **arguments))


# --- with documents ---------------------------------------------------------------------------

_MOST = 10
"""Keys of a pod whose documents are shown."""


def show(
    connection: psycopg.Connection, config: Config, chosen: Pods
) -> tuple[Sequence[WaitingPod], Sequence[Explanation]]:
    """Show pods, and the documents of the key, or of the first pod's first keys. Not within an event loop.

    `chosen` are the pods of a key, or a single one by its seq. Documents are read as the worker's
    configuration says. Raises `PodGone` if no such pod waits.
    """
    rows = list_pods(connection, chosen, config.postgres.schema_name)
    if not rows:
        raise PodGone(f"tube {chosen.tube!r} has no such pods; `pytube pods list` lists the queued pods")
    first = rows[0]
    keys = [chosen.key] if chosen.key is not None else list(first.keys[:_MOST])
    return rows, [document(config, chosen.tube, first.shard, key) for key in keys]


def document(config: Config, tube: str, shard: int, key: str) -> Explanation:
    """The document of one key on both sides."""
    return asyncio.run(explain(config, tube, key, shard=shard))
