"""Tasks that run side by side, and end together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def first_to_end(*services: Coroutine[Any, Any, None]) -> None:
    """Run them until one ends, then end the others; raises what it raised.

    An `asyncio.TaskGroup` would raise the failure of a service in place of a cancellation that comes at
    the same time (Python 3.11, 3.12); whoever is cancelled here is, whatever becomes of the services.
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
