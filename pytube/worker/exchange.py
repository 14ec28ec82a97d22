"""What the worker of a partition exchanges with Postgres: it purges what is done, and marks more.

One exchange is under way at a time. Postgres works on it while the worker handles what the one before has
marked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, TypeVar

from pytube.faults import Point, fault

Item = TypeVar("Item")
"""A pod, or a record of an outbox."""


class Exchange(Generic[Item]):
    """The exchanges of one term, one after the other."""

    def __init__(
        self,
        attention: asyncio.Event,
        *,
        purge: Callable[[Sequence[int]], Awaitable[object]],
        mark: Callable[[int, Sequence[int]], Awaitable[list[Item]]],
        on_purged: Callable[[Mapping[int, float]], None],
        on_marked: Callable[[list[Item]], None],
    ) -> None:
        """Begins nothing.

        Args:
            attention: is set when an exchange has ended.
            purge: purges items, by number.
            mark: purges items and marks up to so many others, in one message.
            on_purged: receives what is purged for sure: when each was written, by number.
            on_marked: receives the items that were marked, if there are any.
        """
        self._attention = attention
        self._purge = purge
        self._mark = mark
        self._on_purged = on_purged
        self._on_marked = on_marked
        self._task: asyncio.Task[list[Item]] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether one was begun, and `take` has not returned what it has marked."""
        return self._task is not None

    async def begin(self, exchange: Coroutine[Any, Any, list[Item]]) -> None:
        """Begin one: what `purge_and_mark` returned, or a wrapper of it. None may be under way."""
        self._task = asyncio.create_task(exchange)
        self._task.add_done_callback(self._on_done)
        for _ in range(2):  # the task, and the one in it that sends: Postgres is at work when we go on
            await asyncio.sleep(0)

    def _on_done(self, _: asyncio.Task[object]) -> None:
        self._attention.set()

    def take(self) -> Sequence[Item] | None:
        """The items of an exchange that has ended; None when none has since the last call.

        Raises:
            NotLeader: the term is over.
            DatabaseUnavailable: the session was lost.
        """
        if self._task is None or not self._task.done():
            return None
        task, self._task = self._task, None
        return task.result()

    async def finish(self) -> Sequence[Item] | None:
        """Wait for the one under way, and take its items. Raises as `take` does."""
        if self._task is not None:
            await asyncio.wait([self._task])
        return self.take()

    async def cancel(self) -> None:
        """End the one under way; what it was doing may be done or not."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def purge_and_mark(self, done: Mapping[int, float], limit: int) -> list[Item]:
        """Purge these (when each was written, by number), and mark up to `limit` others; 0: none."""
        items: list[Item] = []
        if done:
            await fault(Point.BEFORE_PURGE)
        if limit:
            items = await self._mark(limit, list(done))
        else:
            await self._purge(list(done))
        if done:
            await fault(Point.AFTER_PURGE)
            self._on_purged(done)
        if items:
            await fault(Point.AFTER_MARK)
            self._on_marked(items)
        return items
