"""The worker: any number of tubes in one process, to be run by the command line or embedded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import uuid4

import structlog

from pytube.config import Config
from pytube.db.connect import connect_async
from pytube.db.errors import translated
from pytube.db.timeouts import wait_for_answer
from pytube.db.version import check_async
from pytube.errors import ConfigError
from pytube.events import Event, EventCallback
from pytube.worker.event_log import log_event
from pytube.worker.runner import TubeRunner


class Worker:
    """Serves tubes until it is stopped.

    Use it within one event loop: `start`, then `wait` or your own work, then `stop`.
    """

    def __init__(
        self, config: Config, tubes: Sequence[str] | None = None, on_event: EventCallback | None = None
    ) -> None:
        """Args:
            config: as `pytube.config.load` gives it.
            tubes: names of configured tubes; all of them by default.
            on_event: receives every event, in order; see `EventCallback`.

        Raises:
            ConfigError: a tube is not configured, or none is; a sink refuses its options.
        """
        names = list(dict.fromkeys(tubes if tubes is not None else config.tubes))
        if not names:
            raise ConfigError('no tube is configured; add a section [tube."NAME"] with its sink')
        self._config = config
        self._on_event = on_event
        self._log = structlog.get_logger("pytube.worker")
        self._state = "new"
        self._runners = {name: TubeRunner(config, name, uuid4(), self._emit) for name in names}

    @property
    def state(self) -> str:
        """`new`, `running`, `stopping` or `stopped`."""
        return self._state

    def leads(self, tube: str) -> set[int]:
        """The partitions of `tube` that this worker leads and works on now."""
        return self._runners[tube].led_partitions

    async def start(self) -> None:
        """Open databases, brokers and sinks, and begin.

        Raises:
            SchemaMismatch: the installed SQL is not the one that this version needs.
            PytubeError: what is down or wrong; nothing is left open.
        """
        await self._check_version()
        self._state = "running"
        try:
            for runner in self._runners.values():
                await runner.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End in order: sends under way finish, the rest is given back, terms are released."""
        if self._state in ("stopping", "stopped"):
            return
        self._state = "stopping"
        try:
            outcomes = await asyncio.gather(
                *(runner.stop() for runner in self._runners.values()), return_exceptions=True
            )
        finally:
            self._state = "stopped"
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def wait(self) -> None:
        """Return when the worker is stopped; raises the fault that ended a service."""
        waits = [asyncio.create_task(runner.wait()) for runner in self._runners.values()]
        try:
            await asyncio.gather(*waits)
        finally:
            for wait in waits:
                wait.cancel()

    async def _check_version(self) -> None:
        postgres = self._config.postgres
        connection = await connect_async(postgres.dsn, postgres.schema_name, "pytube start")
        try:
            checking = check_async(connection, postgres.schema_name)
            with translated():
                await wait_for_answer(connection, postgres.answer_timeout, checking)
        finally:
            await connection.close()

    def _emit(self, event: Event) -> None:
        log_event(self._log, event)
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:  # noqa: BLE001 # a fault of the caller's must not end a partition's worker
            self._log.exception("on_event failed", event_type=type(event).__name__)
