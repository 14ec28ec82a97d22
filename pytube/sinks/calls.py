"""Calls that outlive the `send` that began them: in a daemon thread, or in a task.

A daemon thread, because one that hangs must not keep the process from exiting, as the threads of
an executor do.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from pytube.errors import SinkError, SinkUnavailable
from pytube.model import Batch

T = TypeVar("T")


class Running(Protocol):
    """Something that was begun for a batch."""

    def is_over(self) -> bool:
        """Whether it can have no effect any more."""

    async def over(self) -> None:
        """Wait until it can have no effect any more."""


class ThreadCall(Generic[T]):
    """One call of a function in a daemon thread, which can be called off until it begins.

    The function is given `begin`, asks it right before it has an effect, and leaves when it says
    False.
    """

    def __init__(self, function: Callable[[Callable[[], bool]], T], name: str) -> None:
        self._function = function
        self._future: Future[T] = Future()
        self._lock = threading.Lock()
        self._begun = False
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError as error:
            raise SinkUnavailable(f"no thread could be started for the sink: {error}") from error

    def on_over(self, callback: Callable[[], None]) -> None:
        """Have `callback` called in the running event loop when the call is over."""
        loop = asyncio.get_running_loop()

        def tell(_: Future[T]) -> None:
            # The loop may be closed when a call that was left to itself ends.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(callback)

        self._future.add_done_callback(tell)

    def is_over(self) -> bool:
        """Whether the function has returned or raised, or the call was called off."""
        return self._future.done()

    async def over(self) -> None:
        """Wait until the call is over."""
        await self.over_by(float("inf"))

    async def over_by(self, moment: float) -> bool:
        """Wait until the call is over, or the monotonic `moment` has come; whether it is over."""
        over = asyncio.Event()
        self.on_over(over.set)
        limit = None if moment == float("inf") else max(0.0, moment - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await over.wait()
        return self.is_over()

    def result(self) -> T:
        """What the function returned; raises what it raised. Only when the call is over."""
        return self._future.result(timeout=0)

    def call_off(self, error: SinkError) -> bool:
        """End the call with `error` unless it has begun; whether that was still possible."""
        with self._lock:
            if self._begun or self._future.done():
                return False
            self._future.set_exception(error)
            return True

    def _begin(self) -> bool:
        with self._lock:
            self._begun = not self._future.done()
            return self._begun

    def _run(self) -> None:
        try:
            result = self._function(self._begin)
        except Exception as error:  # noqa: BLE001  # carried to `result`
            self._finish(error=error)
        except BaseException as error:  # noqa: BLE001  # carried to `result`
            # SystemExit and the like would stop the event loop, and with it the worker.
            self._finish(error=SinkError(f"the sink's thread raised {error!r}"))
        else:
            self._finish(result=result)

    def _finish(self, *, result: Any = None, error: Exception | None = None) -> None:
        with self._lock:
            if self._future.done():
                return
            if error is not None:
                self._future.set_exception(error)
            else:
                self._future.set_result(result)


class TaskCall:
    """One coroutine in a task of its own."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        # Its error is nobody's concern once it was abandoned, and should not be logged as lost.
        task.add_done_callback(lambda t: None if t.cancelled() else t.exception() and None)

    def is_over(self) -> bool:
        """Whether the task is done."""
        return self._task.done()

    async def over(self) -> None:
        """Wait until the task is done: it may hold off its cancellation for a while."""
        await asyncio.wait({self._task})


class Abandoned:
    """What still runs for batches whose `send` was cancelled."""

    def __init__(self) -> None:
        self._calls: list[tuple[Batch, Running]] = []

    def __len__(self) -> int:
        self._forget()
        return len(self._calls)

    def add(self, batch: Batch, call: Running) -> None:
        """Remember a call that goes on after its `send` was cancelled."""
        self._forget()
        self._calls.append((batch, call))

    async def over(self, batch: Batch) -> None:
        """Wait until everything that was begun for this very batch is over."""
        for call in [call for known, call in self._calls if known is batch]:
            await call.over()
        self._forget()

    def _forget(self) -> None:
        self._calls = [(batch, call) for batch, call in self._calls if not call.is_over()]
