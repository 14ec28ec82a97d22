"""Fault points: named places at which a test makes the process die, stop, fail or wait.

`PYTUBE_FAULT=after_mark:kill` ends the process the first time that pods were marked;
`after_mark:kill:3` the third time. Without the variable a point costs one look at a global.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from pytube.errors import ConfigError

VARIABLE: Final = "PYTUBE_FAULT"
FILE_VARIABLE: Final = "PYTUBE_FAULT_FILE"
_POLL = 0.01


class Point(StrEnum):
    """The places, in the order in which a term comes to them."""

    AFTER_ACQUIRE = "after_acquire"
    """The term is in the database, and nobody has heard of it."""
    AFTER_MARK = "after_mark"
    """Pods are marked, and not yet held."""
    BEFORE_ENRICH = "before_enrich"
    """A token is drawn, and nothing read."""
    BEFORE_SEND = "before_send"
    """The right to send was looked at, and nothing sent."""
    AFTER_SEND = "after_send"
    """The sink has answered, and nobody has looked at it."""
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
    """Sends under way have ended; what came of them is not written down."""
    BEFORE_RESET = "before_reset"
    """What is done was purged, and the rest not given back."""
    BEFORE_RELEASE = "before_release"
    """The worker has ended; its term has not."""
    AFTER_RELEASE = "after_release"
    """The term has ended; the election does not know yet."""
    AFTER_TAKE = "after_take"
    """A scheduled backfill has taken the place of its control pod, and nobody runs it yet."""
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


class Action(StrEnum):
    """What may happen there."""

    KILL = "kill"
    """SIGKILL to the process itself."""
    STOP = "stop"
    """SIGSTOP; somebody else sends SIGCONT."""
    RAISE = "raise"
    """`InjectedFault`, which nobody expects."""
    WAIT = "wait"
    """Wait until the file that `PYTUBE_FAULT_FILE` names is there."""


class InjectedFault(RuntimeError):
    """What a fault point raises."""


@dataclass(slots=True)
class Fault:
    """One fault; `left` passes of its point from now it happens, once."""

    point: Point
    action: Action
    left: int = 1
    file: Path | None = None

    @classmethod
    def parse(cls, text: str, file: str | None = None) -> Fault:
        """The fault that `point:action[:nth]` means.

        Raises:
            ConfigError: says what was expected.
        """
        point, _, rest = text.partition(":")
        action, _, nth = rest.partition(":")
        try:
            fault = cls(Point(point), Action(action), int(nth or 1), Path(file) if file else None)
        except ValueError as error:
            raise ConfigError(
                f"{VARIABLE}={text}: {error}; expected POINT:ACTION[:NTH] with one of the points "
                f"{', '.join(Point)}, and one of the actions {', '.join(Action)}"
            ) from None
        if fault.left < 1:
            raise ConfigError(f"{VARIABLE}={text}: expected a pass of 1 or more")
        if fault.action is Action.WAIT and file is None:
            raise ConfigError(
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


_fault: Fault | None = None


def arm(environment: Mapping[str, str]) -> None:
    """Set the fault that the environment asks for, or none.

    Raises:
        ConfigError: there is no such point or action.
    """
    global _fault  # noqa: PLW0603 # one per process, as the environment is
    text = environment.get(VARIABLE)
    _fault = Fault.parse(text, environment.get(FILE_VARIABLE)) if text else None


async def fault(point: Point) -> None:
    """Do what is to happen at `point`: nothing, unless a test asked for it."""
    if _fault is not None:
        await _fault.passed(point)
