"""The sink of one tube in this process, and how it is opened: one that is down keeps nothing else waiting."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from pytube.config import SinkConfig
from pytube.errors import ConfigError, PytubeError, SinkError, SinkTimeout, SinkUnavailable
from pytube.logs import Logger, Repeats, UserFaults
from pytube.pipeline.retry_queue import backoff
from pytube.sinks import Sink, build_sink
from pytube.worker.gate import SinkGate
from pytube.worker.services import end

PATIENCE = 10.0
"""Seconds for which a start waits for a sink. One that answers later is opened in the background."""
_LIMIT = 60.0
"""Seconds after which an attempt to open a sink is given up, and another one is made."""


class SharedSink:
    """One sink, for all partitions of its tube.

    A sink that can't be reached when the worker starts is tried again until it can.
    """

    def __init__(self, tube: str, settings: SinkConfig, backfill_share: float) -> None:
        """Opens nothing.

        Args:
            tube: its name.
            settings: of the sink.
            backfill_share: of what the sink is given, while its limits keep live changes waiting, too.

        Raises:
            ConfigError: the sink refuses its options.
        """
        self.log = Logger("pytube.worker", tube=tube)
        self.faults = UserFaults(self.log)
        self.gate = SinkGate.of(settings, backfill_share)
        """What each request passes. It is here because its limits are the sink's, for all that send to it."""
        self.why_closed: str | None = "the sink has not been opened yet"
        """Why nothing can be sent; None once the sink has been opened."""
        self._tube = tube
        self._repeats = Repeats()
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._is_starting = False
        self._tried = asyncio.Event()
        """Set when the first attempt has failed in a way that time may mend."""
        self.sink = self._build(settings)

    def _build(self, settings: SinkConfig) -> Sink:
        try:
            return build_sink(
                settings.type,
                settings.options,
                request_timeout=settings.request_timeout,
                parts=settings.parts,
            )
        except ConfigError as error:
            self.faults.log_sink("from_options", error)
            raise

    async def open(self) -> None:
        """Open the sink, or go on trying in the background if it can't be reached now.

        Raises:
            PytubeError: the sink can't be opened as configured; what else it raises is a `SinkError`.
        """
        self._is_starting = True
        self._opening = asyncio.create_task(self._keep_trying())
        tried = asyncio.create_task(self._tried.wait())
        try:
            await asyncio.wait({self._opening, tried}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tried.cancel()
            self._is_starting = False
        if self._opening.done():
            self._opening.result()
        elif not self._tried.is_set():
            self._note_closed(f"the sink has not opened within {PATIENCE:g} s")

    def want(self, *, is_wanted: bool) -> None:
        """Have the sink opened or closed in the background."""
        if self._closing is not None and not self._closing.done():
            return
        if is_wanted and self._opening is None:
            self._opening = asyncio.create_task(self._keep_trying())
        elif not is_wanted and self._opening is not None:
            self._closing = asyncio.create_task(self._close_unwanted())

    async def close(self) -> None:
        """Close the sink; raises what the sink raises."""
        opening, self._opening = self._opening, None
        await end([task for task in (opening, self._closing) if task is not None])
        self.why_closed = "the sink is closed"
        await self._close()

    async def _close_unwanted(self) -> None:
        opening, self._opening = self._opening, None
        assert opening is not None
        await end([opening])
        self.why_closed = "the sink is closed"
        with suppress(Exception):  # logged; the next attempt to open tells whether it matters
            await self._close()

    async def _close(self) -> None:
        try:
            await self.sink.close()
        except Exception as error:
            self.faults.log_sink("close", error)
            raise

    async def _keep_trying(self) -> None:
        tries = 0
        while (reason := await self._try_to_open()) is not None:
            await self._close_after_failure()
            self._note_closed(reason)
            self._tried.set()
            tries += 1
            await asyncio.sleep(backoff(tries) * random.uniform(0.75, 1.25))  # noqa: S311 # spreads load only
        if tries or not self._is_starting:
            self.gate.note_outage_over(0.0)  # no partition has met the sink yet, and all are about to
            self.log.info("sink_opened")
        self.why_closed = None

    async def _try_to_open(self) -> str | None:
        """Why the sink could not be opened; None: it is open.

        What time can't mend ends a start, before anything is led. Later it is retried like the rest: somebody
        may mend it at the sink, and the other tubes go on.
        """
        try:
            async with asyncio.timeout(_LIMIT):
                await self.sink.open()
        except (SinkUnavailable, SinkTimeout) as error:
            return str(error)
        except TimeoutError as error:
            return str(error) or f"the sink has not opened within {_LIMIT:g} s"
        except PytubeError as error:
            self.faults.log_sink("open", error)
            if self._is_starting:
                raise
            return str(error)
        except Exception as error:
            self.faults.log_sink("open", error)
            reason = f"the sink of tube {self._tube!r} can't be opened: {type(error).__name__}: {error}"
            if self._is_starting:
                raise SinkError(reason) from error
            return reason
        return None

    async def _close_after_failure(self) -> None:
        """What the attempt has left open is closed before the next one, as the contract of sinks has it."""
        with suppress(Exception):  # logged; the next attempt to open tells whether it matters
            await self._close()

    def _note_closed(self, reason: str) -> None:
        self.why_closed = reason
        if self._repeats.is_new(None, reason):
            self.log.warning("sink_not_open", reason=reason, remark="it is tried again")
