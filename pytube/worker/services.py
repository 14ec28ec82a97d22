"""What the parts of a process share: its tasks, its refusals, and how late it is.

A task that ends on its own is a bug.

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
    from pytube.worker.database import Turns
    from pytube.worker.kafka import KafkaCluster
    from pytube.worker.worker import Worker

_log = Logger("pytube.worker")
REFUSED: Final = "refused"
UNFOLLOWED: Final = "unfollowed"
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
        return self._failed is not None

    async def wait(self) -> None:
        """Return when a service has ended on its own, and raise its error; or after `close`."""
        await self._ended.wait()
        if self._failed is not None:
            self._failed.result()

    async def end_those_of(self, owner: object) -> None:
        tasks = [task for task, (one, _) in self._tasks.items() if one is owner]
        for task in tasks:
            del self._tasks[task]
        await end(tasks)

    async def close(self) -> None:
        tasks, self._tasks = list(self._tasks), {}
        await end(tasks)
        self._ended.set()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if task not in self._tasks:
            return
        _, may_end = self._tasks[task]
        if may_end and not task.cancelled() and task.exception() is None:
            del self._tasks[task]
        elif self._failed is None:
            self._failed = task
            self._ended.set()


class Refusals:
    """By name, why each is refused, or not followed. Hosts report it, so that `status` can say it."""

    def __init__(self, use: str = REFUSED) -> None:
        self._use = use
        self._found: dict[str, tuple[str, float]] = {}
        """The latest reason, and since when the name is refused."""

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def reasons(self) -> dict[str, str]:
        return {name: reason for name, (reason, _) in self._found.items()}

    def note(self, reasons: Mapping[str, str]) -> None:
        now = time.monotonic()
        self._found = {
            name: (reason, self._found[name][1] if name in self._found else now)
            for name, reason in reasons.items()
        }

    def keep(self, names: Collection[str]) -> None:
        self._found = {name: found for name, found in self._found.items() if name in names}

    def report(self) -> list[dict[str, Any]]:
        """The report, as `tube_kafka_report` takes it."""
        now = time.monotonic()
        return [
            {
                "tube": name,
                "use": self._use,
                "bootstrap_servers": "",
                "reason": reason,
                "seconds": now - since,
            }
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
    turns: Turns = field(default_factory=dict)


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
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# --- lateness ------------------------------------------------------------------------------------


_INTERVAL = 0.1
"""Seconds between two looks at the clock, while there are requests."""
_WINDOW = 10.0
"""Seconds after which it is judged."""
_MUCH = 1 / 2
"""Of a window: a loop so late is reported, and one whose thread has worked so long counts as busy."""
_RECENT = 60.0
"""Seconds for which it is reported."""
_STANDSTILL = 1.0
"""Seconds, from which on a request has failed because of it, if they are most of its time."""


class Lateness:
    """How late the event loop is: this delay must not be held against a sink. Gates of a process share it.

    A loop is late where the process gets too little processor time, or was stopped, and where code in it
    blocks. An answer that has come then waits, and seems to have taken long. It is measured while `begin` was
    called more often than `end`.
    """

    def __init__(self) -> None:
        self._users = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due = float("inf")
        """When the next look is due, by `time.monotonic()`."""
        self._total = 0.0
        self._measured = self._late = self._worked = 0.0
        """Of the present window: its length, the lateness in it, and the work of the loop's thread."""
        self._worked_at = 0.0
        self._why = ""
        self._since = self._until = float("-inf")
        """From when to when it is reported."""

    def begin(self) -> None:
        self._users += 1
        if self._timer is None:
            self._await_next(time.monotonic())

    def end(self) -> None:
        self._users -= 1

    def total(self, now: float) -> float:
        """Seconds by which the loop was late so far, all together; only differences mean anything."""
        return self._total + max(0.0, now - self._due)

    def why(self) -> tuple[str, float] | None:
        """The reason to report, and since when; None: it has hardly been late for a minute."""
        return (self._why, self._since) if time.monotonic() < self._until else None

    def _await_next(self, now: float) -> None:
        self._due, self._worked_at = now + _INTERVAL, time.thread_time()
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._look)

    def _look(self) -> None:
        now, self._timer = time.monotonic(), None
        self.note(now - self._due, time.thread_time() - self._worked_at, now)
        if self._users:
            self._await_next(now)
        else:
            self._due = float("inf")

    def note(self, late: float, worked: float, now: float) -> None:
        """A look came so late, and the loop's thread has worked so long since the one before."""
        late = max(0.0, late)
        self._total += late
        self._late += late
        self._measured += _INTERVAL + late
        self._worked += worked
        if self._measured < _WINDOW:
            return
        if self._late >= _MUCH * self._measured:
            self._tell(now)
        self._measured = self._late = self._worked = 0.0

    def _tell(self, now: float) -> None:
        what = f"its event loop was late for {self._late:.1f} of {self._measured:.0f} s"
        if self._worked >= _MUCH * self._measured:
            self._why = (
                f"the worker has too much to do: {what}, at work for {self._worked:.1f} s; start another "
                "worker, or make transforms and other code of yours in it quicker"
            )
        else:
            self._why = (
                f"the worker gets too little processor time: {what}, at work for {self._worked:.1f} s; raise "
                "its CPU limit or its priority, or move it to a machine that is less busy; code of yours in "
                "it that waits without await has the same effect"
            )
        if now >= self._until:
            self._since = now - self._measured
            _log.warning("worker_late", reason=self._why)
        self._until = now + _RECENT

    def delays(self, since: float, total: float, now: float) -> bool:
        """Whether a request that began then, at that total, failed because of this process."""
        late = self.total(now) - total
        return late >= max(_STANDSTILL, (now - since) / 2)


# --- signals -------------------------------------------------------------------------------------


def run_until_signal(worker: Worker, on_hangup: Callable[[], None] | None = None) -> None:
    """Start the worker in a new event loop; at the first signal stop it in order, and return.

    A second signal ends the process at once, with exit code 128 and the signal's number. `on_hangup`: called
    at each SIGHUP; None: that ends the process, as is the rule.
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
