"""Waiting for conditions, never for time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator

POLL = 0.005
_SHARE = 10
"""The pause is so many times as long as the look was: looking leaves the machine to what is waited for."""
_LONGEST = 0.5
LIMIT = float(os.environ.get("PYTUBE_TEST_LIMIT", "120"))
"""Seconds after which a test that waits fails. It ends one that hangs; a slow machine stays far below. Where
a test has to fail, because a bug was planted, less is enough."""

What = str | Callable[[], str]
"""What is waited for; a function is asked when the time is over, and so can tell how things stand then."""


def wait_until(predicate: Callable[[], object], timeout: float = LIMIT, what: What = "the condition") -> None:
    """Poll `predicate` until it is true; fail after `timeout` seconds, naming `what`."""
    for pause in _looks(predicate, timeout, what):
        time.sleep(pause)


async def wait_until_async(
    predicate: Callable[[], object], timeout: float = LIMIT, what: What = "the condition"
) -> None:
    """`wait_until` that lets the event loop run meanwhile."""
    for pause in _looks(predicate, timeout, what):
        await asyncio.sleep(pause)


def _looks(predicate: Callable[[], object], timeout: float, what: What) -> Iterator[float]:
    """Look until it is true; the pauses between."""
    timeout = min(timeout, LIMIT)  # of a planted bug, also where a test allows more
    deadline = time.monotonic() + timeout
    began = time.monotonic()
    while not predicate():
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(_late(timeout, what))
        yield min(_LONGEST, max(POLL, _SHARE * (now - began)))
        began = time.monotonic()


def _late(timeout: float, what: What) -> str:
    return f"not within {timeout:g} s: {what if isinstance(what, str) else what()}"
