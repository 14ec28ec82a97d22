"""Tasks that run as long as something is served; one that ends by itself is a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


class Services:
    """A set of tasks that end when they are told to."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._may_end: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    def add(self, service: Coroutine[Any, Any, None], *, may_end: bool = False) -> asyncio.Task[None]:
        """Run `service` from now on; `may_end`: it has an end, and is no fault unless it raises."""
        task = asyncio.create_task(service)
        self._tasks.add(task)
        if may_end:
            self._may_end.add(task)
        task.add_done_callback(self._on_done)
        return task

    @property
    def is_broken(self) -> bool:
        """Whether a service has ended by itself."""
        return self._failed is not None

    async def wait(self) -> None:
        """Return when a service has ended by itself, and raise what it raised; or after `close`."""
        await self._ended.wait()
        if self._failed is not None:
            self._failed.result()

    def release(self, task: asyncio.Task[None]) -> None:
        """This one may end."""
        self._tasks.discard(task)

    async def close(self) -> None:
        """End all services."""
        tasks, self._tasks = self._tasks, set()
        await end(tasks)
        self._ended.set()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if task not in self._tasks:
            return
        if task in self._may_end and not task.cancelled() and task.exception() is None:
            self._tasks.discard(task)
            self._may_end.discard(task)
        elif self._failed is None:
            self._failed = task
            self._ended.set()


async def first_to_end(*services: Coroutine[Any, Any, None]) -> None:
    """Run them until one ends, then end the others; raises what it raised.

    An `asyncio.TaskGroup` would raise the failure of a service in place of a cancellation that comes at
    the same time (Python 3.11, 3.12); this function passes the cancellation on, whatever becomes of them.
    """
    tasks = [asyncio.create_task(service) for service in services]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await end(tasks)


async def end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel the tasks, and wait until they are over; what they raise is nobody's concern any more."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
