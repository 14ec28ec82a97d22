"""The sink of one tube in this process: who may send to it, and how it is opened.

Each request to the sink passes a gate, whose limits all partitions of this process share: at most `rate`
documents a second, and as many requests at a time, of as many documents, as `CongestionControl` finds that
the sink bears. A request that waits here holds the documents of one batch, and one of the `sends` of its
partition, so memory stays within its bound however long it waits.

Live changes go before backfill. Backfill has its share of the documents all the same, as it has within each
partition: a batch of backfill that waited for ever would keep its partition's send from live changes, too.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from pytube.config import SinkConfig
from pytube.errors import ConfigError, PytubeError, SinkError, SinkTimeout, SinkUnavailable
from pytube.logs import Logger, UserFaults
from pytube.model import PodClass
from pytube.pipeline.limits import CongestionControl, Sent, TokenBucket, Verdict
from pytube.pipeline.retry_queue import backoff
from pytube.sinks import (
    Marked,
    Noting,
    Sink,
    build_sink,
    finished,
    open_existing,
    place_of,
    why_no_mark,
    why_no_note,
)
from pytube.turns import BackfillShare
from pytube.worker.services import Lateness, end


def batch_documents(sink: SinkConfig) -> int:
    """Of one batch: with a limit on the rate, no more than pass in a second, so that they pass evenly.

    A document that is split counts as all its parts, since the limits are limits of the sink.
    """
    most = sink.batch_documents if sink.rate is None else min(sink.batch_documents, int(sink.rate))
    return max(1, most // sink.writes)


# --- the gate ------------------------------------------------------------------------------------


_LOG = Logger("pytube.worker")
_RECENT = 60.0
"""Seconds after its last slow answer in which a sink is still called slow."""
_EXCUSED = 60.0
"""Seconds without an answer, from which on requests that fail are held against the sink, however late this
process is: else it would not notice that the sink is down, and ask it again and again without a pause."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """A request that wants to begin."""

    pod_class: PodClass
    documents: int
    more: bool
    came: float
    granted: asyncio.Future[Sent] = field(repr=False)


class SinkGate:
    """Lets requests pass, in the order of their coming within a class. To be used in one event loop."""

    def __init__(
        self,
        control: CongestionControl,
        *,
        rate: float | None,
        backfill_share: float,
        log: Logger = _LOG,
        lateness: Lateness | None = None,
    ) -> None:
        """`rate`: documents a second; `backfill_share`: of the requests while both classes wait; `lateness`:
        of the process.
        """
        self.control = control
        self._bucket = None if rate is None else TokenBucket(rate)
        self._share = BackfillShare(backfill_share)
        self._log = log
        self._waiting: tuple[deque[_Waiting], deque[_Waiting]] = (deque(), deque())
        self._timer: asyncio.TimerHandle | None = None
        self.in_flight = 0
        """Requests under way."""
        self._lateness = lateness or Lateness()
        self._excused_since = float("-inf")
        """When the first request since the last answer failed because of this process."""
        self._slow_since = 0.0
        """When the sink became slow, by `time.monotonic()`."""
        self.waited = 0.0
        """Seconds that requests have waited here, all together."""

    @classmethod
    def of(
        cls, sink: SinkConfig, backfill_share: float, log: Logger = _LOG, lateness: Lateness | None = None
    ) -> Self:
        """The gate of a configured sink; a document that is split counts as all its parts."""
        control = CongestionControl(
            documents=batch_documents(sink),
            requests=sink.requests,
            first=sink.ramp,
            timeout=sink.request_timeout,
        )
        rate = None if sink.rate is None else sink.rate / sink.writes
        return cls(control, rate=rate, backfill_share=backfill_share, log=log, lateness=lateness)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting))

    def is_open(self, documents: int) -> bool:
        """Whether a request with so many documents would begin at once."""
        if self.waiting or self.in_flight >= self.control.requests:
            return False
        return self._bucket is None or self._bucket.wait(documents, time.monotonic()) <= 0

    async def enter(self, pod_class: PodClass, documents: int, *, more: bool = False) -> Sent:
        """Wait until a request with so many documents may begin; `leave` says that it has ended.

        `more`: whether others of the class wait behind it, elsewhere.
        """
        loop = asyncio.get_running_loop()
        wanted = _Waiting(pod_class, documents, more, time.monotonic(), loop.create_future())
        self._waiting[pod_class].append(wanted)
        self._grant()
        try:
            return await wanted.granted
        except asyncio.CancelledError:
            if not wanted.granted.cancelled():  # granted and cancelled at the same time
                self.turn_back(wanted.granted.result())
            with suppress(ValueError):  # `_next` has dropped it already, or it was granted
                self._waiting[pod_class].remove(wanted)
            self._grant()
            raise

    def leave(self) -> None:
        self.in_flight -= 1
        self._lateness.end()
        self._grant()

    def turn_back(self, granted: Sent) -> None:
        if self._bucket is not None:
            self._bucket.give_back(granted.documents)
        self.leave()

    # --- what the sink says ---------------------------------------------------------------

    def note_answer(self, sent: Sent, *, put_off: int) -> None:
        """The sink has answered, and has put so many of the documents off."""
        was_slow, now = self.control.slow, time.monotonic()
        if 2 * put_off >= sent.documents:
            self.control.push_back(sent, now)
        else:
            self.control.answer(sent, now, self._lateness.total(now))
        self._tell_change(was_slow is not None)

    def note_timeout(self, sent: Sent) -> Verdict:
        """The outcome of the request is unknown: returns what that says of the sink."""
        was_slow = self.control.slow
        now = time.monotonic()
        verdict = self.control.time_out(sent, now, self._lateness.total(now))
        if verdict == "late" and not self._is_excused(now):
            verdict = self.control.time_out(sent, now, sent.late)
        self._tell_change(was_slow is not None)
        return verdict

    def was_late(self, sent: Sent) -> bool:
        """Whether this process stood still for most of a request, so that its failure says nothing."""
        now = time.monotonic()
        return self._lateness.delays(sent.at, sent.late, now) and self._is_excused(now)

    def _is_excused(self, now: float) -> bool:
        """Whether the sink is not to blame yet for a request that failed while this process was late."""
        if self.control.answered_at >= self._excused_since:
            self._excused_since = now
        return now - self._excused_since < _EXCUSED

    def why_late(self) -> tuple[str, float] | None:
        """Why the worker itself delays answers, and since when."""
        return self._lateness.why()

    def note_outage_over(self, seconds: float) -> None:
        """The sink takes documents of a partition again, after so many seconds.

        It was not down if it took documents of other partitions lately; then they are not slowed. Lately, not
        now: requests under way when the outage began may have been answered a moment after that.
        """
        now = time.monotonic()
        if self.control.answered_at <= now - seconds / 2:
            self.control.restart(now)

    def why_slow(self) -> tuple[str, float] | None:
        """Why the sink is sent less at a time, and since when; None: it is not, or is well with that.

        Limits that were lowered stay so while they suffice, and the sink may be quick for hours.
        """
        control, lately = self.control, time.monotonic() - _RECENT
        is_silent = self.in_flight > 0 and control.answered_at < lately
        if control.why_slow is None or not (control.slow_at >= lately or is_silent):
            return None
        sent = f"the worker sends batches of {control.documents}, {control.requests} at a time"
        remedy = f"relieve the sink, or lower its {control.setting}"
        if control.slow != "pushback":  # smaller batches may take as long
            remedy += "; if that does not help, raise its request_timeout, and worker.session_timeout with it"
        return f"{control.why_slow}; {sent}; {remedy}", self._slow_since

    def _tell_change(self, was_slow: bool) -> None:
        """Log once that the sink has become slow, and once that it is not any more."""
        control = self.control
        if (control.slow is not None) == was_slow:
            return
        self._slow_since = time.monotonic()
        if control.slow is None:
            self._log.info("sink_not_slow", batch_documents=control.documents, requests=control.requests)
            return
        remark = (
            "the worker sends less at a time, see pytube_sink_batch_limit and pytube_sink_requests_limit; "
            f"set {control.setting} of the sink to the value it settles at"
            + ("" if control.slow == "pushback" else ", or raise request_timeout")
        )
        self._log.warning(
            "sink_slow",
            reason=control.why_slow,
            batch_documents=control.documents,
            requests=control.requests,
            setting=control.setting,
            remark=remark,
        )

    # --- who passes -----------------------------------------------------------------------

    def _grant(self) -> None:
        """Let requests pass as far as the limits allow, and look again when the next one may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while (chosen := self._next()) is not None and self.in_flight < self.control.requests:
            now = time.monotonic()
            pause = self._pause(chosen, now)
            if pause > 0:
                self._timer = asyncio.get_running_loop().call_later(pause, self._grant)
                return
            self._let_pass(chosen, now)

    def _next(self) -> _Waiting | None:
        for queue in self._waiting:
            while queue and queue[0].granted.cancelled():
                queue.popleft()
        incremental, backfill = (len(queue) for queue in self._waiting)
        pod_class = self._share.choose(incremental=incremental, backfill=backfill)
        return None if pod_class is None else self._waiting[pod_class][0]

    def _pause(self, chosen: _Waiting, now: float) -> float:
        return 0.0 if self._bucket is None else self._bucket.wait(chosen.documents, now)

    def _let_pass(self, chosen: _Waiting, now: float) -> None:
        self._waiting[chosen.pod_class].popleft()
        incremental, backfill = map(len, self._waiting)
        incremental += chosen.more and chosen.pod_class is PodClass.INCREMENTAL
        self._share.record(chosen.pod_class, incremental=incremental, backfill=backfill)
        if self._bucket is not None:
            self._bucket.take(chosen.documents, now)
        self.in_flight += 1
        self.waited += now - chosen.came
        self._lateness.begin()
        late = self._lateness.total(now)
        chosen.granted.set_result(self.control.send(now, chosen.documents, self.in_flight, late))


# --- how it is opened ----------------------------------------------------------------------------


PATIENCE = 10.0
"""Seconds for which a start waits for a sink. A sink that answers later is opened in the background."""
_LIMIT = 60.0
"""Seconds after which an attempt to open a sink is given up, and another one is made."""


class SharedSink:
    """One sink, for all partitions of its tube.

    A sink that can't be reached when the worker starts is tried again until it can.
    """

    def __init__(
        self,
        tube: str,
        settings: SinkConfig,
        backfill_share: float,
        given: Sink | None = None,
        lateness: Lateness | None = None,
    ) -> None:
        """Opens nothing. `given`: an instance, to use instead of building one; `lateness`: of the process."""
        self.is_given = given is not None
        """Whether it is an instance of the caller's, which is not to be opened twice."""
        self._backfill_share = backfill_share
        self.log = Logger("pytube.worker", tube=tube)
        self.faults = UserFaults(self.log)
        self.gate = SinkGate.of(settings, backfill_share, self.log, lateness)
        """What each request passes. It is here because its limits are the sink's, for all that send to it."""
        self.why_closed: str | None = "the sink has not been opened yet"
        """Why nothing can be sent; None once the sink has been opened."""
        self.refused_at = float("-inf")
        """When the last attempt to open it began that failed: a Unix time."""
        self.may_make = True
        """Whether to make missing parts at the sink. Not for a tube that has delivered documents there: a
        deleted index would be back, empty, before readers."""
        self._tube = tube
        self._is_missing = False
        """Whether the sink is not open because there is something to be made."""
        self._settings = settings
        self._told = ""
        """Why it is not open, as it was logged last."""
        self._opening: asyncio.Task[Any] | None = None
        """What opens it, or has opened it; None while it is not wanted."""
        self._closing: asyncio.Task[None] | None = None
        self.sink = self._build(settings, given)
        self._place = place_of(self.sink)

    def is_as(self, settings: SinkConfig, backfill_share: float) -> bool:
        return (self._settings, self._backfill_share) == (settings, backfill_share)

    def _build(self, settings: SinkConfig, given: Sink | None) -> Sink:
        timeout, parts = settings.request_timeout, settings.parts
        try:
            if given is None:
                return build_sink(settings.type, settings.options, request_timeout=timeout, parts=parts)
            if settings.options:
                raise ConfigError(
                    f'sink "{settings.type}": the worker was given an instance of it, so the options '
                    f"{', '.join(sorted(settings.options))} would do nothing; take them out"
                )
            return finished(settings.type, given, request_timeout=timeout, parts=parts)
        except ConfigError as error:
            self.faults.log_sink("from_options", error)
            raise

    async def open(self) -> None:
        """Open the sink, or keep trying in the background if it can't be reached now.

        Raises:
            PytubeError: the sink can't be opened as configured; what else it raises is a `SinkError`.
        """
        self._opening = attempt = asyncio.create_task(self._try_to_open())
        await asyncio.wait([attempt], timeout=PATIENCE)
        if attempt.done() and attempt.result():
            self.why_closed = None
            return
        if not attempt.done():
            self._note_closed(f"the sink has not opened within {PATIENCE:g} s")
        self._opening = asyncio.create_task(self._keep_trying(attempt))

    def want(self, *, is_wanted: bool) -> None:
        if self._closing is not None and not self._closing.done():
            return
        if is_wanted and self._opening is None:
            self._opening = asyncio.create_task(self._keep_trying(None))
        elif not is_wanted and self._opening is not None:
            self._closing = asyncio.create_task(self._close_unwanted())

    async def close(self) -> None:
        """Close the sink; raises what the sink raises."""
        opening, self._opening = self._opening, None
        await end([task for task in (opening, self._closing) if task is not None])
        self.why_closed = "the sink is closed"
        await self._close()

    # --- the mark -------------------------------------------------------------------------

    @property
    def has_mark(self) -> bool:
        """Whether the sink can now be checked for the loss of its documents."""
        return why_no_mark(self._place) is None and (self.why_closed is None or self._is_missing)

    async def read_mark(self) -> str | None:
        """See `Marked.read_mark`; None, too, while there is something to be made. Only if `has_mark`."""
        assert isinstance(self._place, Marked)
        return None if self.why_closed is not None else await self._place.read_mark(self._tube)

    async def leave_mark(self, mark: str) -> str | None:
        """Make missing parts, and leave the mark; the mark that is there then. Only if `has_mark`."""
        assert isinstance(self._place, Marked)
        if self.why_closed is not None:
            self.may_make = True  # it is about to be opened again
            return None
        await self._place.write_mark(self._tube, mark)
        return await self._place.read_mark(self._tube)

    @property
    def notes(self) -> Noting | None:
        """The sink, if a note can be read and left there now."""
        is_noting = why_no_note(self._place) is None and self.why_closed is None
        return self._place if is_noting and isinstance(self._place, Noting) else None

    # --- how it opens ---------------------------------------------------------------------

    async def _close_unwanted(self) -> None:
        opening, self._opening = self._opening, None
        assert opening is not None
        await end([opening])
        self.why_closed = "the sink is closed"
        await self._close_quietly()

    async def _close_quietly(self) -> None:
        """What an attempt has left open is closed before the next one, as the contract of sinks has it."""
        with suppress(Exception):  # logged; the next attempt to open shows whether it matters
            await self._close()

    async def _close(self) -> None:
        try:
            await self.sink.close()
        except Exception as error:
            self.faults.log_sink("close", error)
            raise

    async def _keep_trying(self, attempt: asyncio.Task[bool] | None) -> None:
        """Try again until it is open, at first after an attempt that was begun.

        Errors that time can't fix are retried like the rest: an operator may fix them at the sink, and the
        other tubes continue.
        """
        tries = 0
        while True:
            try:
                if await (attempt or self._try_to_open()):
                    break
            except PytubeError as error:
                await self._close_quietly()
                self._note_closed(str(error))
            attempt = None
            tries += 1
            await asyncio.sleep(backoff(tries) * random.uniform(0.75, 1.25))  # noqa: S311 # spreads load only
        self.gate.note_outage_over(0.0)  # no partition has met the sink yet, and all are about to
        self.log.info("sink_opened")
        self.why_closed = None

    async def _try_to_open(self) -> bool:
        """Make one attempt; whether it is open now."""
        began = time.time()
        try:
            async with asyncio.timeout(_LIMIT):
                missing = await (self.sink.open() if self.may_make else open_existing(self.sink))
        except (SinkUnavailable, SinkTimeout) as error:
            reason = str(error)
        except TimeoutError as error:
            reason = str(error) or f"the sink has not opened within {_LIMIT:g} s"
        except Exception as error:
            self.faults.log_sink("open", error)
            self.refused_at = began
            if isinstance(error, PytubeError):
                raise
            reason = f"the sink of tube {self._tube!r} can't be opened: {type(error).__name__}: {error}"
            raise SinkError(reason) from error
        else:
            self._is_missing = missing is not None
            if missing is None:
                return True
            reason = f"{missing}, and there was one: restore it, or run `pytube backfill start {self._tube}`"
        self.refused_at = began
        await self._close_quietly()
        self._note_closed(reason)
        return False

    def _note_closed(self, reason: str) -> None:
        self.why_closed = reason
        if self._told != reason:
            self._told = reason
            self.log.warning("sink_not_open", reason=reason, remark="it is tried again")
