"""The sessions of one worker process with one database, and the services that run on them.

However many tubes the process serves, it has two dedicated sessions (the first renews all terms, the second
listens for all tubes) and a pool for all else. Each lost session is reopened on its own. Claims and terms
outlive that; trust runs out while nothing can be renewed.

Marks and purges do not wait for the disk. So a crash of the server may undo the last of them, unseen by a
partition that asked nothing meanwhile: when a new session finds that the server was restarted, or is another
one, all terms end, new ones mark again, and the old sessions, which may be with another server, are used
no more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, nullcontext, suppress
from operator import attrgetter
from typing import Any, TypeAlias
from uuid import UUID

from psycopg.conninfo import conninfo_to_dict

from pytube import clock
from pytube.config import PostgresConfig
from pytube.db.session import Queries, Session, SessionPool
from pytube.errors import (
    RECOVERABLE,
    DatabaseUnavailable,
    PooledSession,
    PytubeError,
    SequenceWentBack,
    StatementFailed,
    UsageError,
)
from pytube.events import DatabaseDown, DatabaseUp, Event, SourceChanged
from pytube.logs import Logger, host_fields, is_news
from pytube.pipeline.retry_queue import backoff
from pytube.sources import queries, terms
from pytube.sources.settled import Settled
from pytube.sources.wakeup import Heard, PodsArrived, listen
from pytube.worker.active_term import ActiveTerm
from pytube.worker.services import UNFOLLOWED, Refusals, first_to_end

_POOLED = {"synchronous_commit": "off", "row_security": "off"}
"""A crash may undo marks and purges, which are then repeated. A row that a policy hides would look deleted,
and would be deleted at the sink: with `row_security` off the statement fails instead."""

_SLEEPS = attrgetter("sleeps")
_SETTLE_INTERVAL = 0.1
_ASLEEP_INTERVAL = 0.4
"""Seconds until it is looked again whether one of hundreds of partitions is awake."""
_SETTLE_AT_LEAST = 5.0
"""Seconds; workers that sleep between pods advance their floors, too."""
_LONGEST_PAUSE = 2.0
_STEADY = 10.0
"""Seconds after which a session counts as having worked."""
_IDLE = 60.0
"""Seconds after which an unused session of the pool is closed."""

_OPENING = 8
"""Sessions that a process opens with one server at the same time. With dozens of databases of one server, all
at once would take it longer than the time limit, and again at each next try."""
Turns: TypeAlias = dict[tuple[Any, ...], asyncio.Semaphore]
"""By server; all tasks of a process that open sessions share them."""


class Database:
    """One database as this process uses it."""

    def __init__(
        self,
        postgres: PostgresConfig,
        tubes: Sequence[str],
        *,
        receive_deadline: float,
        emit: Callable[[Event], None],
        host: str | None = None,
        label: str = "",
        turns: Turns | None = None,
    ) -> None:
        """Opens nothing.

        Args:
            postgres: where it is, and how many sessions the pool may have.
            tubes: whose notifications are received.
            receive_deadline: seconds for which a renewal holds; a later answer is worth nothing.
            emit: receives the events of this host.
            host: its name, where there are several.
            label: what the names of the kept sessions end in: it identifies this process to others.
            turns: of the process, to open sessions.
        """
        self.host = host
        self.emit = emit
        self.pool = SessionPool(self._open_pooled, postgres.pool_size)
        """For all statements that need no dedicated session."""
        self.terms: dict[tuple[str, int], ActiveTerm] = {}
        """The terms led here, by tube and partition: they are renewed, and woken by notifications."""
        self.ddl = asyncio.Event()
        """Set when attached tables were changed."""
        self.unfollowed = Refusals(UNFOLLOWED)
        """By tube, changes of tables that this process was the last to look at, and can't follow."""
        self.settled: Settled | None = None
        """None while nothing is known of it."""
        self.seen_seq = 0
        """The greatest seq of a pod or record that was marked here. Where `tube_seq` is below, its commit is
        gone."""
        self._postgres = postgres
        self._tubes = tuple(tubes)
        self._tubes_changed = asyncio.Event()
        self._receive_deadline = receive_deadline
        self._turns = {} if turns is None else turns
        self.renews = False
        """Whether the last attempt to renew terms succeeded."""
        self._label = label
        self.notifications_work = False
        """Whether notifications arrive; until that is known, and where they don't, workers poll."""
        self._kept: set[Session] = set()
        """The sessions of the services."""
        self._incarnation: str | None = None
        self._down_since: float | None = None
        self._told: dict[object, str] = {}
        self.log = Logger("pytube.worker", **host_fields(host))
        """For all that concerns this host."""

    @property
    def down_for(self) -> float:
        """Seconds since terms could last be renewed; 0 while all is well."""
        return 0.0 if self._down_since is None else time.monotonic() - self._down_since

    # --- leadership ----------------------------------------------------------------------

    def led(self) -> set[str]:
        return {queue for queue, _ in self.terms}

    def works_on(self, queue: str, partition: int) -> bool:
        """Whether a partition is worked on here: it is led, and neither rests nor waits for its sink."""
        active_term = self.terms.get((queue, partition))
        return active_term is not None and active_term.worker is not None

    # --- sessions -------------------------------------------------------------------------

    async def open_session(self, purpose: str, settings: Mapping[str, str] | None = None) -> Session:
        """A session of the caller's own, whose commits are durable; `settings`: more of the session's."""
        return await self._open(purpose, self._postgres.answer_timeout, settings or {})

    async def _open_pooled(self) -> Session:
        return await self._open("pool", self._postgres.answer_timeout, _POOLED)

    async def _open(self, purpose: str, answer_timeout: float, settings: Mapping[str, str]) -> Session:
        dsn = self._postgres.only_dsn.get_secret_value()
        schema = self._postgres.schema_name
        given = conninfo_to_dict(dsn)
        server = tuple(given.get(key) for key in ("host", "hostaddr", "port", "service"))
        turn = self._turns.setdefault(server, asyncio.Semaphore(_OPENING))
        try:
            async with nullcontext() if purpose.startswith("renewals") else turn:  # terms rest on those
                session = await Session.open(
                    dsn, schema, f"pytube {purpose}", answer_timeout=answer_timeout, settings=settings
                )
        except PooledSession as error:
            # The error reports a failure at the start; from here on, Postgres has been reached before.
            if self._incarnation is not None and is_news(self._told, "session_refused", str(error)):
                self.log.error("session_refused", reason=str(error))  # noqa: TRY400 # the error says it all
            raise
        self._told.pop("session_refused", None)
        try:
            self._check_incarnation(await session.value(queries.INCARNATION))
        except BaseException:
            await session.close()
            raise
        return session

    def _check_incarnation(self, incarnation: str) -> None:
        """End all terms if the server may have lost their writes, and leave the old sessions."""
        if self._incarnation not in (None, incarnation):
            self._end_terms(DatabaseUnavailable("Postgres was restarted, and may have lost the last marks"))
            # After a failover that left them open they would continue with the old server.
            self.pool.discard()
            for session in self._kept:
                session.cut_off()
        self._incarnation = incarnation

    def _end_terms(self, reason: DatabaseUnavailable) -> None:
        """All that terms have seen of the database is void, and the settled seqs first of all."""
        self.settled = None
        for active_term in self.terms.values():
            active_term.end(reason)

    # --- services -------------------------------------------------------------------------

    async def run(self) -> None:
        await first_to_end(
            self._keep("renewals", min(self._postgres.answer_timeout, self._receive_deadline), self._renew),
            self._keep("listener", self._postgres.answer_timeout, self._listen),
            self._settle(),
        )

    async def close(self) -> None:
        await self.pool.close()

    async def _keep(
        self, purpose: str, answer_timeout: float, serve: Callable[[Session], Coroutine[Any, Any, None]]
    ) -> None:
        """Run a service over a dedicated session; after an outage, begin again with a new session."""
        tries = 0
        while True:
            began = time.monotonic()
            try:
                session = await self._open(f"{purpose} {self._label}".rstrip(), answer_timeout, {})
                self._kept.add(session)
                try:
                    await first_to_end(serve(session))  # whose loss must not stand in for a cancellation
                finally:
                    self._kept.remove(session)
                    await session.close()
            except RECOVERABLE as error:
                # A session that is lost as soon as it is opened is one outage, not many.
                tries = 1 if time.monotonic() - began > _STEADY else tries + 1
                if serve == self._renew:
                    self.note_down(str(error))
                    self._rouse_lapsed()
                else:
                    self._warn_once("listening_failed", error)
                await asyncio.sleep(min(_LONGEST_PAUSE, backoff(tries)))

    def _warn_once(self, event: str, error: PytubeError) -> None:
        if not isinstance(error, DatabaseUnavailable) and is_news(self._told, event, str(error)):
            self.log.warning(event, reason=str(error))

    @property
    def services(self) -> int:
        return len(self._kept)

    def note_down(self, reason: str) -> None:
        """Terms can't be renewed at present."""
        self.renews = False
        if self._down_since is None:
            self._down_since = time.monotonic()
            self.emit(DatabaseDown(reason))

    def note_up(self) -> None:
        if self._down_since is not None:
            self.emit(DatabaseUp(self.down_for))
            self._down_since = None

    async def _renew(self, session: Session) -> None:
        is_checked = False
        while True:
            await self._renew_all(session)
            self.renews = True
            self._rouse_lapsed()
            self.note_up()
            is_checked = is_checked or await self._check_source(session)
            await asyncio.sleep(self._receive_deadline / 5)

    async def _check_source(self, session: Queries, noted: int = 0, note: str | None = None) -> bool:
        """Record and report that the source was replaced or restored; returns whether that is known.

        `noted` is how far it was by a note at a sink, `note` what that names: they count for this look alone.
        """
        seen_seq = max(self.seen_seq, noted)
        try:
            change = await session.value(queries.SOURCE_CHECK, {"seen_seq": seen_seq or None, "note": note})
        except (StatementFailed, UsageError) as error:
            self._warn_once("source_unchecked", error)  # terms are renewed all the same
            return False
        self._told.pop("source_unchecked", None)
        if change is not None:
            self.seen_seq = 0
            self.emit(SourceChanged(change))
        return True

    async def compare_source(self, seq: int, note: str | None) -> bool:
        """Have it noted and logged if the source is behind a note at a sink, or without what that names.

        Returns whether that is known.
        """
        return await self._check_source(self.pool, seq, note)

    async def _renew_all(self, session: Session) -> None:
        """Renew all terms in one statement: over a slow network, one by one would be too late."""
        by_id: dict[UUID, ActiveTerm] = {one.term.leader_id: one for one in self.terms.values()}
        sent_at = clock.now()
        others = await terms.renew(session, {key: one.troubles for key, one in by_id.items()})
        over: list[ActiveTerm] = []
        for leader_id, active_term in by_id.items():
            renewal = others.get(leader_id, terms.RENEWED)
            if renewal.renewed:
                active_term.confirm_renewal(sent_at)
                active_term.note_pause(renewal.paused, renewal.step, sent_at)
            elif renewal.renewed is None:
                over.append(active_term)
        for active_term in over:  # after all others: a question for each takes long over a slow network
            reason = await terms.why_over(session, active_term.term)
            if reason is not None:
                active_term.end(reason)

    def _rouse_lapsed(self) -> None:
        """Have sleeping partitions notice, and report, that their trust has lapsed."""
        for active_term in self.terms.values():
            if not active_term.is_trusted:
                active_term.attention.set()

    def follow(self, tubes: Iterable[str]) -> None:
        """Receive the notifications of these tubes from now on."""
        if set(tubes) != set(self._tubes):
            self._tubes = tuple(tubes)
            self._tubes_changed.set()

    async def _listen(self, session: Session) -> None:
        """Until the tubes are others: then a new session begins, and all poll until it hears."""
        self._tubes_changed.clear()
        await first_to_end(self._hear(session), self._wait_for_tubes())

    async def _wait_for_tubes(self) -> None:
        await self._tubes_changed.wait()

    async def _hear(self, session: Session) -> None:
        try:
            async with aclosing(listen(session, self._tubes, self.log)) as heard:
                async for news in heard:
                    self._note(news)
        finally:
            self.notifications_work = False
            self._wake_all()

    def _note(self, news: PodsArrived | Heard) -> None:
        match news:
            case PodsArrived(tube, partition):
                if (active_term := self.terms.get((tube, partition))) is not None:
                    active_term.wake()
            case Heard.WORKS:
                self.notifications_work = True
                self._wake_all()
            case Heard.MISSING:
                self.notifications_work = False
            case Heard.DDL:
                self.ddl.set()

    def _wake_all(self) -> None:
        for active_term in self.terms.values():
            active_term.wake()

    async def _settle(self) -> None:
        due = 0.0
        version = 0
        while True:
            now = time.monotonic()
            settled = self.settled
            is_awake = self._is_awake()
            try:
                if settled is None:
                    # Put there first: a restart that is found meanwhile takes it away again.
                    self.settled = settled = Settled(self.pool)
                    version = settled.provisional_version
                    await settled.advance()
                elif now >= due or settled.long_writers or is_awake:
                    await settled.advance()
                if now >= due:
                    due = now + _SETTLE_AT_LEAST
                    await self.pool.close_idle(now - _IDLE)
            except SequenceWentBack as error:
                self._end_terms(error)  # their floors may be above pods that are yet to come
                with suppress(*RECOVERABLE):  # then the next session for renewals does it
                    await self._check_source(self.pool)
            except RECOVERABLE as error:
                self.settled = None
                self._warn_once("settling_failed", error)
            if settled is not None and settled.provisional_version != version:
                # A poll that its commit triggered may have run before we knew, and passed its pods.
                version = settled.provisional_version
                self._wake_all()
            await asyncio.sleep(_SETTLE_INTERVAL if is_awake else _ASLEEP_INTERVAL)

    def _is_awake(self) -> bool:
        """Whether any partition polls on its own; while none does, settling now and then is enough."""
        return not all(map(_SLEEPS, self.terms.values()))
