"""Fault points: named places at which the tests make a worker die, freeze, fail or wait.

Nothing in the package sets `handler`, so no setting and no environment variable can make a worker act
on a point. The tests set it (`tests/helpers/armed.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum


class Point(StrEnum):
    """The places, in the order in which a term comes to them."""

    AFTER_ACQUIRE = "after_acquire"
    """The term is in the database, and nothing has acted on it."""
    AFTER_MARK = "after_mark"
    """Pods are marked, and not yet held."""
    BEFORE_ENRICH = "before_enrich"
    """A token is drawn, and nothing read."""
    BEFORE_SEND = "before_send"
    """The right to send was looked at, and nothing sent."""
    AFTER_HANDOVER = "after_handover"
    """Records of an outbox are librdkafka's; nothing is known of them."""
    BEFORE_COMMIT = "before_commit"
    """A transaction at Kafka has its records and its receipt, and is not committed."""
    AFTER_COMMIT = "after_commit"
    """It is committed, and its records are still in the outbox."""
    AFTER_SEND = "after_send"
    """The sink has answered, and the answer was not handled yet."""
    BEFORE_PARK = "before_park"
    """Documents were given up, and not set aside."""
    AFTER_PARK = "after_park"
    """They are set aside; their pods are still there."""
    BEFORE_PURGE = "before_purge"
    """Pods are done, and still there."""
    AFTER_PURGE = "after_purge"
    """They are gone."""
    ON_REVOKE = "on_revoke"
    """The election wants the partition back; the worker does not know yet."""
    DURING_DRAIN = "during_drain"
    """Sends under way have ended; their outcomes are not recorded."""
    BEFORE_RESET = "before_reset"
    """Finished items were purged, and the rest not given back."""
    BEFORE_RELEASE = "before_release"
    """The worker has ended; its term has not."""
    AFTER_RELEASE = "after_release"
    """The term has ended; the election does not know yet."""
    AFTER_TAKE = "after_take"
    """A scheduled backfill has taken the place of its control pod, and no process runs it yet."""
    BEFORE_COLLECT = "before_collect"
    """All transactions are over that a backfill waits for; no id is collected."""
    AFTER_COLLECT = "after_collect"
    """Its ids are stored; none is in the tube."""
    AFTER_CHUNK = "after_chunk"
    """Some of its pods are in the tube."""
    DURING_SWEEP = "during_sweep"
    """Some of the keys that a scan has found are touched."""
    BEFORE_SWEEP_END = "before_sweep_end"
    """All are; the control pod is still there."""


handler: Callable[[Point], Awaitable[None]] | None = None
"""What a test does at the points; None, the default, costs a point one look at a global."""


async def fault(point: Point) -> None:
    """The process is at `point`: call the handler, if a test has set one."""
    if handler is not None:
        await handler(point)


def fault_in_thread(point: Point, loop: asyncio.AbstractEventLoop) -> None:
    """As `fault`, called in a thread beside the event loop."""
    if handler is not None:
        asyncio.run_coroutine_threadsafe(fault(point), loop).result()
