"""Writes that continue although their `send` was cancelled, and calls of functions that block.

Each call has a daemon thread, because a hanging call must not keep the process from exiting, as the threads
of an executor do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pytube.errors import SinkError, SinkUnavailable
from pytube.model import Batch
from pytube.threads import Handed

T = TypeVar("T")


class ThreadCall(Generic[T]):
    """One call of a function in a daemon thread, which can be called off until it begins.

    The function is given `begin`, asks it right before it has an effect, and leaves when it says False.
    """

    def __init__(self, function: Callable[[Callable[[], bool]], T], name: str) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._begun = self._called_off = False
        self._outcome = Handed[T]()
        self.over = self._outcome.future
        """The function's result or error; or why it was called off."""
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError as error:
            raise SinkUnavailable(f"no thread could be started for the sink: {error}") from error

    def call_off(self, error: SinkError) -> bool:
        """End the call with `error` unless it has begun; whether that was still possible."""
        with self._lock:
            if self._begun or self.over.done():
                return False
            self._called_off = True
        self.over.set_exception(error)
        self.over.exception()  # retrieved: it may have no reader
        return True

    def _begin(self) -> bool:
        with self._lock:
            self._begun = not self._called_off
            return self._begun

    def _run(self) -> None:
        try:
            self._outcome.end(self._function(self._begin))
        except BaseException as raised:  # noqa: BLE001  # carried to who waits
            # SystemExit and the like would stop the event loop, and with it the worker.
            can_pass = isinstance(raised, Exception) and not isinstance(raised, StopIteration)
            error = raised if can_pass else SinkError(f"the sink's thread raised {raised!r}")
            self._outcome.end(error=error)


class Abandoned:
    """What still runs for batches whose `send` was cancelled."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Future[Any], Batch] = {}

    def __len__(self) -> int:
        return len(self._running)

    def add(self, batch: Batch, running: asyncio.Future[Any]) -> None:
        """Remember that a write of a batch can have an effect until it has ended."""
        self._running[running] = batch
        running.add_done_callback(self._forget)

    async def over(self, batch: Batch) -> None:
        """Wait until everything that was begun for this very batch is over."""
        running = [one for one, known in self._running.items() if known is batch]
        if running:
            await asyncio.wait(running)

    def _forget(self, ended: asyncio.Future[Any]) -> None:
        del self._running[ended]
        if not ended.cancelled():
            ended.exception()  # retrieved, or asyncio would log it
