"""The sessions that all partitions of one tube share, and the services that run on them.

When one session is lost, all are reopened. Claims and terms outlive that; trust runs out while nothing can
be renewed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from uuid import UUID

from pytube import clock
from pytube.errors import RECOVERABLE, DatabaseUnavailable
from pytube.events import DatabaseDown, DatabaseUp, Event
from pytube.pipeline.retry_queue import backoff
from pytube.sources import queries, terms
from pytube.sources.session import Session
from pytube.sources.settled import Settled
from pytube.sources.wakeup import Listener
from pytube.worker.active_term import ActiveTerm
from pytube.worker.tasks import first_to_end

_RENEWALS = "renewals"
_PURPOSES = ("terms", _RENEWALS, "settle", "listen")
"""Renewals have a session of their own: an acquire may wait for seconds on the other."""

_SETTLE_INTERVAL = 0.1
_SETTLE_AT_LEAST = 5.0
"""Seconds; workers that sleep between pods advance their floors, too."""
_GUARD_INTERVAL = 0.5
_LONGEST_PAUSE = 2.0
_STEADY = 10.0
"""Seconds after which sessions count as having worked."""


class Database:
    """Keeps the shared sessions of one tube open."""

    def __init__(
        self,
        dsn: str,
        schema: str,
        tube: str,
        *,
        renew_interval: float,
        answer_timeout: float,
        renewal_timeout: float,
        active_terms: Callable[[], Iterable[ActiveTerm]],
        on_wake: Callable[[int | None], None],
        awake: Callable[[], bool],
        emit: Callable[[Event], None],
    ) -> None:
        """Opens nothing before `run`.

        Args:
            dsn: libpq connection string or URI.
            schema: where our SQL is.
            tube: the name of the tube.
            renew_interval: seconds between renewals of each term.
            answer_timeout: seconds after which a session without an answer is dropped.
            renewal_timeout: the same for renewals, which are worthless when late.
            active_terms: the terms to be renewed.
            on_wake: receives the partition that pods arrived for; None: any.
            awake: whether any partition is; while none is, settling now and then is enough.
            emit: receives an event when the sessions are lost, and when they are back.
        """
        self._dsn = dsn
        self._schema = schema
        self._tube = tube
        self._renew_interval = renew_interval
        self._answer_timeout = answer_timeout
        self._renewal_timeout = min(answer_timeout, renewal_timeout)
        self._active_terms = active_terms
        self._on_wake = on_wake
        self._awake = awake
        self._emit = emit
        self.ddl = asyncio.Event()
        """Set when attached tables were changed."""
        self._up = asyncio.Event()
        self._down_since: float | None = None
        self._control: Session | None = None
        self._listener: Listener | None = None
        self.settled: Settled | None = None
        """None while the sessions are down."""

    @property
    def notifications_work(self) -> bool:
        """Whether notifications arrive."""
        return self._listener is not None and self._listener.works

    @property
    def down_for(self) -> float:
        """Seconds since sessions were lost or terms could not be renewed in time; 0 while all is well."""
        return 0.0 if self._down_since is None else time.monotonic() - self._down_since

    @property
    def control_now(self) -> Session | None:
        """The session for terms; None while it is down."""
        return self._control

    async def control(self) -> Session:
        """The session for terms; waits until there is one."""
        while self._control is None:
            await self._up.wait()
        return self._control

    async def open_session(self, purpose: str, *, durable: bool) -> Session:
        """A session of the caller's own. `DatabaseUnavailable` when it can't be had."""
        return await Session.open(
            self._dsn,
            self._schema,
            f"pytube {self._tube} {purpose}",
            durable=durable,
            answer_timeout=self._renewal_timeout if purpose == _RENEWALS else self._answer_timeout,
        )

    # --- services ---------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the sessions up until cancelled."""
        tries = 0
        began = time.monotonic()
        while True:
            try:
                async with AsyncExitStack() as stack:
                    sessions = [await self._open_shared(stack, purpose) for purpose in _PURPOSES]
                    await sessions[0].execute(queries.ALIVE)
                    began = time.monotonic()
                    await self._serve(*sessions)
            except RECOVERABLE as error:
                if self._down_since is None:
                    self._emit(DatabaseDown(self._tube, str(error)))
                    # sessions that are lost as soon as they are opened are one outage, not many
                    tries = 0 if time.monotonic() - began > _STEADY else tries
                    self._down_since = time.monotonic()
                tries += 1
                await asyncio.sleep(min(_LONGEST_PAUSE, backoff(tries)))

    async def _open_shared(self, stack: AsyncExitStack, purpose: str) -> Session:
        session = await self.open_session(purpose, durable=True)
        stack.push_async_callback(session.close)
        return session

    async def _serve(self, control: Session, renewals: Session, settle: Session, listen: Session) -> None:
        self._control = control
        self.settled = settled = Settled(settle, self._tube)
        self._listener = listener = Listener(listen, self._tube, self._on_wake, self.ddl.set)
        self._up.set()
        try:
            await first_to_end(_guard(control), self._renew(renewals), self._settle(settled), listener.run())
        finally:
            self._up.clear()
            self._control = self._listener = self.settled = None
            self._on_wake(None)

    async def _renew(self, renewals: Session) -> None:
        while True:
            await self._renew_all(
                renewals, {active_term.term.leader_id: active_term for active_term in self._active_terms()}
            )
            self._emit_up()
            await asyncio.sleep(self._renew_interval)

    def _emit_up(self) -> None:
        """The database is back if it was down: not before terms could be renewed in time."""
        if self._down_since is not None:
            self._emit(DatabaseUp(self._tube, self.down_for))
            self._down_since = None

    async def _renew_all(self, renewals: Session, active_terms: Mapping[UUID, ActiveTerm]) -> None:
        """Renew all terms in one statement: over a slow network, one by one would be too late."""
        if not active_terms:
            return
        sent_at = clock.now()
        present = await terms.renew(renewals, self._tube, list(active_terms))
        for leader_id, active_term in active_terms.items():
            if present.get(leader_id):
                active_term.deadline.confirm_renewal(sent_at)
        for leader_id in active_terms.keys() - present.keys():
            reason = await terms.why_over(renewals, active_terms[leader_id].term)
            if reason is not None:
                active_terms[leader_id].end(reason)

    async def _settle(self, settled: Settled) -> None:
        due = 0.0
        version = settled.provisional_version
        while True:
            now = time.monotonic()
            if now >= due or settled.has_long_writers or self._awake():
                await settled.advance()
                due = now + _SETTLE_AT_LEAST
            if settled.provisional_version != version:
                # A poll that its commit triggered may have run before we knew, and passed its pods.
                version = settled.provisional_version
                self._on_wake(None)
            await asyncio.sleep(_SETTLE_INTERVAL)


async def _guard(control: Session) -> None:
    """Detect the loss of a session that may be idle for long."""
    while not control.closed:  # noqa: ASYNC110 # no event announces a closed session
        await asyncio.sleep(_GUARD_INTERVAL)
    raise DatabaseUnavailable("the session for terms was lost")
