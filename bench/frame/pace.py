"""How fast the machine itself was, scenario by scenario: shared ones change while a run lasts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

_LOOPS = 300_000
_TRIES = 7


@dataclass(slots=True)
class Pace:
    """A fixed computation on one core, timed before and after each scenario."""

    taken: list[tuple[str, float, float, float]] = field(default_factory=list)
    """Scenario, its seconds, and milliseconds of the computation before and after it."""
    _name: str = ""
    _began: float = 0.0
    _before: float = 0.0

    def begin(self, name: str) -> None:
        """A scenario is about to run."""
        self._name, self._before, self._began = name, milliseconds(), time.monotonic()

    def end(self) -> None:
        """It has run."""
        seconds = time.monotonic() - self._began
        self.taken.append((self._name, seconds, self._before, milliseconds()))

    def plain(self) -> dict[str, Any]:
        """For JSON; the pace is that of the best moment of the run, divided by the time it took then."""
        best = min(min(before, after) for _, _, before, after in self.taken)
        rows = [
            [name, f"{seconds:.0f}", f"{best / before:.2f}", f"{best / after:.2f}"]
            for name, seconds, before, after in self.taken
        ]
        return {"best": f"{best:.2f}", "rows": rows}


def milliseconds() -> float:
    """The computation, the best of some tries, so that a moment's interruption does not count."""
    best = float("inf")
    for _ in range(_TRIES):
        began = time.perf_counter()
        sum(range(_LOOPS))
        best = min(best, time.perf_counter() - began)
    return best * 1e3
