"""Calls that outlive the `send` that began them. Most are in a daemon thread.

A daemon thread, because a hanging call must not keep the process from exiting, as the threads of
an executor do.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from pytube.errors import SinkError, SinkUnavailable
from pytube.model import Batch

T = TypeVar("T")


class Flag:
    """An event of the event loop that another thread may set: that a call is over, or answered."""

    def __init__(self, then: Callable[[], None] | None = None) -> None:
        """`then` is called in the event loop once the flag is set."""
        self.is_set = False
        self._then = then
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Set it; from any thread."""
        self.is_set = True
        # The loop may be closed when something that was left to itself ends.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)
            if self._then is not None:
                self._loop.call_soon_threadsafe(self._then)

    async def wait(self) -> None:
        """Wait until it is set."""
        await self._event.wait()


class ThreadCall(Generic[T]):
    """One call of a function in a daemon thread, which can be called off until it begins.

    The function is given `begin`, asks it right before it has an effect, and leaves when it says
    False.
    """

    def __init__(
        self,
        function: Callable[[Callable[[], bool]], T],
        name: str,
        then: Callable[[], None] | None = None,
    ) -> None:
        """`then` is called in the event loop once the call is over, unless it could not be begun."""
        self._function = function
        self._future: Future[T] = Future()
        self._lock = threading.Lock()
        self._begun = False
        self.over = Flag(then)
        """Whether the function has returned or raised, or the call was called off."""
        self._future.add_done_callback(lambda _: self.over.set())
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError as error:
            raise SinkUnavailable(f"no thread could be started for the sink: {error}") from error

    async def over_by(self, moment: float) -> bool:
        """Wait until the call is over, or the monotonic `moment` has come; whether it is over."""
        limit = None if moment == float("inf") else max(0.0, moment - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self.over.wait()
        return self.over.is_set

    def result(self) -> T:
        """The function's result; raises its error. Only when the call is over."""
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


class Abandoned:
    """What still runs for batches whose `send` was cancelled."""

    def __init__(self) -> None:
        self._calls: list[tuple[Batch, Flag]] = []

    def __len__(self) -> int:
        self._forget()
        return len(self._calls)

    def add(self, batch: Batch, over: Flag) -> None:
        """Remember that a write of a batch is in progress until it is `over`: can have no effect any more."""
        self._forget()
        self._calls.append((batch, over))

    async def over(self, batch: Batch) -> None:
        """Wait until everything that was begun for this very batch is over."""
        for over in [over for known, over in self._calls if known is batch]:
            await over.wait()
        self._forget()

    def _forget(self) -> None:
        self._calls = [(batch, over) for batch, over in self._calls if not over.is_set]
