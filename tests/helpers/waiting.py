"""Waiting for conditions, never for time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

POLL = 0.005
LIMIT = 120.0
"""Seconds after which a test that waits fails. It ends one that hangs; a slow machine stays far below."""

What = str | Callable[[], str]
"""What is waited for; a function is asked when the time is over, and so can tell how things stand then."""


def wait_until(predicate: Callable[[], object], timeout: float = LIMIT, what: What = "the condition") -> None:
    """Poll `predicate` until it is true; fail after `timeout` seconds, naming `what`."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(_late(timeout, what))
        time.sleep(POLL)


async def wait_until_async(
    predicate: Callable[[], object], timeout: float = LIMIT, what: What = "the condition"
) -> None:
    """`wait_until` that lets the event loop run meanwhile."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(_late(timeout, what))
        await asyncio.sleep(POLL)


def _late(timeout: float, what: What) -> str:
    return f"not within {timeout:g} s: {what if isinstance(what, str) else what()}"
