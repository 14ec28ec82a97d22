"""Runs a worker until SIGINT or SIGTERM asks it to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from typing import Protocol

from pytube.errors import UsageError
from pytube.logs import Logger

_log = Logger("pytube.worker")


class Service(Protocol):
    """What is run: a worker."""

    async def start(self) -> None:
        """Begin."""

    async def wait(self) -> None:
        """Return when it is stopped; raises the fault that ended it."""

    async def stop(self) -> None:
        """End in order."""


def run_until_signal(service: Service) -> None:
    """Start the service in an event loop of its own; at the first signal stop it in order, and return.

    A second signal ends the process at once, with exit code 128 and the signal's number.

    Raises:
        UsageError: this is not the main thread, or an event loop runs in it.
        Others: what the service raises when it starts, or fails.
    """
    if threading.current_thread() is not threading.main_thread() or _loop_runs():
        raise UsageError(
            "run_until_signal needs the main thread, without a running event loop; "
            "elsewhere call `await worker.start()`, `wait` and `stop`"
        )
    asyncio.run(_serve(service))


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _serve(service: Service) -> None:
    stop = _stop_on_signals()
    stopping = asyncio.create_task(stop.wait())
    try:
        starting = asyncio.create_task(service.start())
        if await _first(starting, stopping):
            waiting = asyncio.create_task(service.wait())
            await _first(waiting, stopping)
    finally:
        stopping.cancel()
        await service.stop()


async def _first(work: asyncio.Task[None], stopping: asyncio.Task[bool]) -> bool:
    """Wait for `work` and raise what it raises; False when we are to stop before it is done."""
    await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        work.result()
        return True
    work.cancel()
    await asyncio.wait({work})
    return False


def _stop_on_signals() -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets; the second ends the process at once."""
    stop = asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            _log.warning("worker_ended_at_once", signal=number.name)
            sys.stderr.flush()
            os._exit(128 + number)
        _log.info("worker_stopping", signal=number.name, remark="a second signal ends it at once")
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return stop
