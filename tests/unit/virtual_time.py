"""An event loop whose time passes only while nothing else happens: an hour of timers takes a moment."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar
from unittest.mock import patch

T = TypeVar("T")


class _Clock(selectors.SelectSelector):
    """Goes forward where the loop would sleep."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        assert found or timeout is not None, "everybody waits, and for nothing that will come"
        self.now += 0 if found or timeout is None else timeout
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _Clock()
        self.clock.now = time.monotonic()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def run_in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns; meanwhile `time.monotonic()` is the loop's time, too."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        loop = runner.get_loop()
        with patch("time.monotonic", loop.time):
            return runner.run(work)
