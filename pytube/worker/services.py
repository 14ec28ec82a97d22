"""What the parts of a process share, and its tasks; a task that ends on its own is a bug.

A dedicated process runs them until SIGINT or SIGTERM asks it to stop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from pytube.election.lease import Room
from pytube.errors import UsageError
from pytube.events import Event
from pytube.logs import Logger
from pytube.pipeline.limits import TokenBucket
from pytube.worker.metrics import Tracing

if TYPE_CHECKING:
    from pytube.worker.kafka import KafkaCluster
    from pytube.worker.worker import Worker

REFUSED: Final = "refused"
"""Kafka clusters that can't be reached have other uses, in the same table of the database."""


class Services:
    """The tasks of a process, each with an owner who ends it."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], tuple[object, bool]] = {}
        """For whom each runs, and whether it may end."""
        self._failed: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    def add(
        self, owner: object, service: Coroutine[Any, Any, None], *, may_end: bool = False
    ) -> asyncio.Task[None]:
        """Run `service` until `end_those_of(owner)`; `may_end`: it may end without an error."""
        task = asyncio.create_task(service)
        self._tasks[task] = owner, may_end
        task.add_done_callback(self._on_done)
        return task

    @property
    def is_broken(self) -> bool:
        """Whether a service has ended on its own."""
        return self._failed is not None

    async def wait(self) -> None:
        """Return when a service has ended on its own, and raise its error; or after `close`."""
        await self._ended.wait()
        if self._failed is not None:
            self._failed.result()

    def release(self, task: asyncio.Task[None]) -> None:
        """This one may end."""
        self._tasks.pop(task, None)

    async def end_those_of(self, owner: object) -> None:
        """End what runs for `owner`."""
        tasks = [task for task, (one, _) in self._tasks.items() if one is owner]
        for task in tasks:
            self.release(task)
        await end(tasks)

    async def close(self) -> None:
        """End all services."""
        tasks, self._tasks = list(self._tasks), {}
        await end(tasks)
        self._ended.set()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if task not in self._tasks:
            return
        _, may_end = self._tasks[task]
        if may_end and not task.cancelled() and task.exception() is None:
            self.release(task)
        elif self._failed is None:
            self._failed = task
            self._ended.set()


class Refusals:
    """By name, why each is refused. The hosts of the process report it, so that `status` can say it."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, float]] = {}
        """The latest reason, and since when the name is refused."""

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def reasons(self) -> dict[str, str]:
        """By name."""
        return {name: reason for name, (reason, _) in self._found.items()}

    def note(self, reasons: Mapping[str, str]) -> None:
        """These are refused now, and no others."""
        now = time.monotonic()
        self._found = {
            name: (reason, self._found[name][1] if name in self._found else now)
            for name, reason in reasons.items()
        }

    def keep(self, names: Collection[str]) -> None:
        """No others than these are refused any more."""
        self._found = {name: found for name, found in self._found.items() if name in names}

    def report(self) -> list[dict[str, Any]]:
        """The report, as `tube_kafka_report` takes it."""
        now = time.monotonic()
        return [
            {"tube": name, "use": REFUSED, "bootstrap_servers": "", "reason": reason, "seconds": now - since}
            for name, (reason, since) in self._found.items()
        ]


@dataclass(frozen=True, slots=True)
class Process:
    """What the hosts of one process share."""

    emit: Callable[[Event], None]
    tracing: Tracing
    room: Room
    """Partitions that it may lead, of all hosts together."""
    claims: TokenBucket
    """New ones a second."""
    clusters: list[KafkaCluster]
    """Of Kafka, which it needs."""
    takes_up: bool = False
    """Whether queues need not exist, and are left as they go."""
    services: Services = field(default_factory=Services)
    refusals: Refusals = field(default_factory=Refusals)
    instance_id: UUID = field(default_factory=uuid4)


async def first_to_end(*services: Coroutine[Any, Any, None]) -> None:
    """Run them until one ends, then end the others; raises its error.

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
    """Cancel the tasks, and wait until they are over; their errors are ignored."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# --- signals -------------------------------------------------------------------------------------


_log = Logger("pytube.worker")


def run_until_signal(worker: Worker, on_hangup: Callable[[], None] | None = None) -> None:
    """Start the worker in a new event loop; at the first signal stop it in order, and return.

    A second signal ends the process at once, with exit code 128 and the signal's number. `on_hangup`: called
    at each SIGHUP; None: that ends the process, as is the rule.

    Raises:
        UsageError: this is not the main thread, or an event loop runs in it.
        Others: what the worker raises when it starts, or fails.
    """
    if threading.current_thread() is not threading.main_thread() or _loop_runs():
        raise UsageError(
            "run_until_signal needs the main thread, without a running event loop; "
            "elsewhere call `await worker.start()`, `wait` and `stop`"
        )
    asyncio.run(_serve(worker, on_hangup))


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _serve(worker: Worker, on_hangup: Callable[[], None] | None) -> None:
    stop = _stop_on_signals()
    if on_hangup is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, on_hangup)
    stopping = asyncio.create_task(stop.wait())
    try:
        starting = asyncio.create_task(worker.start())
        if await _first(starting, stopping):
            waiting = asyncio.create_task(worker.wait())
            await _first(waiting, stopping)
    finally:
        stopping.cancel()
        await worker.stop()


async def _first(work: asyncio.Task[None], stopping: asyncio.Task[bool]) -> bool:
    """Wait for `work` and raise its error; False if a stop is requested before it is done."""
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
