"""The clock that trust rests on, monotonic also while the machine is suspended; and lengths of time in words.

The wall clock is set forwards and backwards, so no worker asks it whether it may write. (Leases end by
the wall clock of the database's server.)
`time.monotonic()` stands still on Linux while the machine sleeps (a lid that is closed, a suspended
guest that knows of it), and others take over meanwhile. Timers may be late by that; a deadline may not.
"""

from __future__ import annotations

import re
import sys
import time
from datetime import timedelta

if sys.platform == "linux":
    _SLEPT_BEFORE = -time.monotonic() + time.clock_gettime(time.CLOCK_BOOTTIME)

    def now() -> float:
        """Seconds: `time.monotonic()`, and how long the machine has slept since this process began."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - _SLEPT_BEFORE

else:

    def now() -> float:
        """Seconds: `time.monotonic()`; what else there is differs by the system."""
        return time.monotonic()


def on_monotonic(moment: float) -> float:
    """When `moment` of `now()` comes by `time.monotonic()`, if the machine does not sleep before."""
    monotonic = time.monotonic()  # read first: should this thread lose its turn here, it is sooner
    return moment - (now() - monotonic)


def for_people(seconds: float) -> str:
    """A length of time in the unit that suits it."""
    if seconds < 0.9995:  # from there on it is rounded to a second
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}


def length_of(text: str) -> timedelta:
    """The length of time that people write as `90s`, `10m`, `2h` or `1d`; else `ValueError`."""
    found = re.fullmatch(r"([0-9]{1,6})\s*(s|min|m|h|d)", text.strip())
    if found is None or int(found[1]) == 0:
        raise ValueError(f"{text!r} is not a valid duration; write 90s, 10m, 2h or 1d")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
