"""What must hold between sends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import inf

from tests.crash.chaos.records import Call, Key, Window


def concurrent(window: Window) -> Iterator[str]:
    """Sends of one key that overlap.

    Within a term a send lasts until it has ended, however late. Over terms it counts for as long
    as a request may last: later the worker has given it up, or was stopped, and is out of trust.
    """
    by_key: dict[Key, list[Call]] = defaultdict(list)
    for call in window.calls:
        for key in call.versions:
            by_key[key].append(call)
    for key, calls in by_key.items():
        calls.sort(key=lambda call: call.began)
        for i, later in enumerate(calls):
            # Those that may still run began not long ago, or are of the same term.
            for earlier in calls[max(0, i - _LOOK_BACK) : i]:
                if later.began < _end(earlier, later, window.request_timeout):
                    yield (
                        f"key {key} is in a send of token {tuple(later.token)} from {later.began:.6f} on, "
                        f"and in one of {tuple(earlier.token)} from {earlier.began:.6f} to {earlier.ended}"
                    )


_LOOK_BACK = 20
"""Sends of one key that are looked back over; each takes some time, so no more can be under way."""


def _end(call: Call, other: Call, request_timeout: float) -> float:
    ended = inf if call.ended is None else call.ended
    if call.token.epoch == other.token.epoch:
        return ended
    return min(ended, call.began + request_timeout)
