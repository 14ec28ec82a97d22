"""The clock that trust rests on: monotonic, and it goes on while the machine is suspended.

The wall clock is set forwards and backwards, so nothing that decides who may write looks at it.
`time.monotonic()` stands still on Linux while the machine sleeps (a lid that is closed, a suspended
guest that knows of it), and others take over meanwhile. Timers may be late by that; a deadline may not.
"""

from __future__ import annotations

import sys
import time

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
