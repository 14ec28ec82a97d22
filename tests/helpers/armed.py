"""pytube with a fault: `python -m tests.helpers.armed …` is `pytube …` that acts at one fault point.

`PYTUBE_FAULT=after_mark:kill` ends the process the first time that pods were marked, `after_mark:kill:3`
the third time. `PYTUBE_TRACE=FILE` has it write down each point that it comes to, for `tests/model`.
Without the variables it is pytube as it is.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from pytube import faults
from pytube.cli import main
from pytube.faults import Point

VARIABLE: Final = "PYTUBE_FAULT"
FILE_VARIABLE: Final = "PYTUBE_FAULT_FILE"
TRACE_VARIABLE: Final = "PYTUBE_TRACE"
_POLL = 0.01

OF_BACKFILLS: Final = frozenset(
    {
        Point.AFTER_TAKE,
        Point.BEFORE_COLLECT,
        Point.AFTER_COLLECT,
        Point.AFTER_CHUNK,
        Point.DURING_SWEEP,
        Point.BEFORE_SWEEP_END,
    }
)
"""Those that no process comes to without a backfill."""

OF_TRANSACTIONS: Final = frozenset({Point.BEFORE_COMMIT, Point.AFTER_COMMIT})
"""Those that no process comes to without an outbox in transactions."""

OF_TUBES: Final = frozenset(Point) - OF_BACKFILLS - OF_TRANSACTIONS - {Point.AFTER_HANDOVER}
"""Those that each worker of a tube comes to."""

OF_OUTBOXES: Final = OF_TUBES - {Point.BEFORE_ENRICH, Point.AFTER_SEND} | {Point.AFTER_HANDOVER}
"""Those that each worker of an outbox comes to."""


class Action(StrEnum):
    """What happens at a point."""

    KILL = "kill"
    """SIGKILL to the process itself."""
    STOP = "stop"
    """SIGSTOP; a test sends SIGCONT."""
    RAISE = "raise"
    """`InjectedFault`, which no code expects."""
    WAIT = "wait"
    """Wait until the file that `PYTUBE_FAULT_FILE` names exists."""


class InjectedFault(RuntimeError):
    """What a fault point raises."""


@dataclass(slots=True)
class Fault:
    """One fault; it happens once, when its point has been passed `left` more times."""

    point: Point
    action: Action
    left: int = 1
    file: Path | None = None

    @classmethod
    def parse(cls, text: str, file: str | None = None) -> Fault:
        """The fault that `point:action[:nth]` means.

        Raises:
            ValueError: says what was expected.
        """
        point, _, rest = text.partition(":")
        action, _, nth = rest.partition(":")
        try:
            fault = cls(Point(point), Action(action), int(nth or 1), Path(file) if file else None)
        except ValueError as error:
            raise ValueError(
                f"{VARIABLE}={text}: {error}; expected POINT:ACTION[:NTH] with one of the points "
                f"{', '.join(Point)}, and one of the actions {', '.join(Action)}"
            ) from None
        if fault.left < 1:
            raise ValueError(f"{VARIABLE}={text}: expected a pass of 1 or more")
        if fault.action is Action.WAIT and file is None:
            raise ValueError(
                f"{VARIABLE}={text}: the action wait needs the name of a file in {FILE_VARIABLE}"
            )
        return fault

    async def passed(self, point: Point) -> None:
        """The process is at `point`."""
        if point is not self.point:
            return
        self.left -= 1
        if self.left == 0:
            await self._happen()

    async def _happen(self) -> None:
        match self.action:
            case Action.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            case Action.STOP:
                os.kill(os.getpid(), signal.SIGSTOP)
            case Action.RAISE:
                raise InjectedFault(f"at {self.point}")
            case Action.WAIT:
                while self.file is not None and not self.file.exists():  # noqa: ASYNC110 # others make it
                    await asyncio.sleep(_POLL)


def arm(environment: Mapping[str, str]) -> None:
    """Set the fault and the trace that the environment asks for, or none.

    Raises:
        ValueError: there is no such point or action.
    """
    text, trace = environment.get(VARIABLE), environment.get(TRACE_VARIABLE)
    fault = Fault.parse(text, environment.get(FILE_VARIABLE)).passed if text else None
    faults.handler = fault if trace is None else traced(Path(trace), fault)


def traced(
    trace: Path, fault: Callable[[Point], Awaitable[None]] | None
) -> Callable[[Point], Awaitable[None]]:
    """A handler that appends each point and its time to the file before the fault; a kill loses none."""
    file = trace.open("ab", buffering=0)

    async def passed(point: Point) -> None:
        file.write(f"{time.monotonic_ns()} {point}\n".encode())
        if fault is not None:
            await fault(point)

    return passed


def module(environment: Mapping[str, str]) -> str:
    """What `python -m` runs: pytube itself, or armed where the environment asks for a fault or a trace."""
    return "tests.helpers.armed" if {VARIABLE, TRACE_VARIABLE} & environment.keys() else "pytube"


if __name__ == "__main__":
    arm(os.environ)
    main()
