"""Waiting for conditions, never for time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

POLL = 0.005


def wait_until(predicate: Callable[[], object], timeout: float = 10, what: str = "the condition") -> None:
    """Poll `predicate` until it is true; fail after `timeout` seconds, naming `what`."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(_late(timeout, what))
        time.sleep(POLL)


async def wait_until_async(
    predicate: Callable[[], object], timeout: float = 10, what: str = "the condition"
) -> None:
    """`wait_until` that lets the event loop run meanwhile."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(_late(timeout, what))
        await asyncio.sleep(POLL)


def _late(timeout: float, what: str) -> str:
    return f"not within {timeout:g} s: {what}"
