"""The sessions of a process: what renewals prove, who is woken, and what a restart of the server ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, cast
from uuid import UUID

import pytest

from pytube import clock
from pytube.config import PostgresConfig
from pytube.db.session import Session
from pytube.election.base import Broken, Lost
from pytube.errors import DatabaseUnavailable, Fenced, NotLeader, StatementFailed
from pytube.events import DatabaseDown, DatabaseUp, Event, SourceChanged
from pytube.logs import Logger
from pytube.sources import queries, terms, wakeup
from pytube.sources.settled import Settled
from pytube.sources.terms import Term
from pytube.sources.wakeup import Heard, PodsArrived
from pytube.worker import database as module
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database, Turns
from tests.helpers.logs import capture_logs
from tests.helpers.waiting import wait_until_async
from tests.unit.fakes import FakeClaim, FakeSession, FakeTube

LONG_AGO = -1000.0


class Server:
    """A server that sessions are opened at, as long as it is up; each is a `FakeSession`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.incarnation = "first"
        self.down = False
        self.opened: list[str] = []
        self.closed = 0
        self.settings: dict[str, dict[str, str]] = {}
        self.timeouts: dict[str, float] = {}
        self.tube = FakeTube()
        server = self

        class Opened(FakeSession):
            closed = False
            is_idle = True
            used_at = 0.0
            settings: ClassVar[Mapping[str, str]] = {}

            @property
            def is_usable(self) -> bool:
                return not self.closed

            async def rows(self, statement: str, arguments: Any = None) -> list[tuple[Any, ...]]:
                if statement == queries.INCARNATION:
                    return [(server.incarnation,)]
                return await super().rows(statement, arguments)

            async def switch(self, settings: Mapping[str, str]) -> None:
                assert settings == self.settings

            def cut_off(self) -> None:
                self.closed = True

            async def close(self) -> None:
                self.closed = True
                server.closed += 1

        async def open_session(
            _dsn: str, _schema: str, name: str, *, answer_timeout: float, settings: dict[str, str]
        ) -> Session:
            await asyncio.sleep(0)
            server.opened.append(name)
            server.settings[name] = dict(settings)
            server.timeouts[name] = answer_timeout
            if server.down:
                raise DatabaseUnavailable("nobody answers")
            return cast("Session", Opened(server.tube))

        monkeypatch.setattr(Session, "open", open_session)


class Renewal:
    """A term that is renewed as a test says, by a database of its own."""

    def __init__(self, receive_deadline: float = 3600.0) -> None:
        self.sent: list[float] = []
        self.answer = asyncio.Event()
        self.error: Exception | None = None
        self.over = False
        self.locked = False
        self.told: list[Event] = []
        self.active_term = term_of(0)
        self.session = FakeSession(FakeTube())
        self.database = make_database(self.told, receive_deadline=receive_deadline)
        self.database.terms["t", 0] = self.active_term

    async def renew(self, _session: Session, leader_ids: Sequence[UUID]) -> dict[UUID, terms.Renewal]:
        self.sent.append(clock.now())
        await self.answer.wait()
        if self.error is not None:
            raise self.error
        renewed = None if self.over else not self.locked
        return dict.fromkeys(leader_ids, terms.Renewal(renewed, None, None))

    async def why_over(self, _session: Session, _term: Term) -> NotLeader:
        return Fenced("over")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        session = cast("Session", self.session)
        async with task_of(self.database._renew(session)) as task:
            await wait_until_async(lambda: self.sent, what="a renewal is sent")
            yield task

    @property
    def renewed_at(self) -> float:
        """The deadline of the term's trust is nothing."""
        return self.active_term.trusted_until()


def make_database(
    told: list[Event] | None = None,
    *,
    receive_deadline: float = 3600.0,
    tubes: Sequence[str] = ("t",),
    turns: Turns | None = None,
) -> Database:
    postgres = PostgresConfig.model_validate({"dsn": "host=nowhere"})
    emit = (lambda _: None) if told is None else told.append
    return Database(postgres, tubes, receive_deadline=receive_deadline, emit=emit, turns=turns)


def term_of(partition: int, tube: str = "t") -> ActiveTerm:
    claim = FakeClaim(tube, partition)
    term = Term(tube, 4, partition, epoch=1)
    active_term = ActiveTerm(term, claim, deadline=0.0, sent_at=LONG_AGO, emit=lambda _: None)
    active_term.woken = False
    return active_term


@asynccontextmanager
async def task_of(work: Any) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def renewal(monkeypatch: pytest.MonkeyPatch) -> Renewal:
    return replaced(monkeypatch, Renewal())


def replaced(monkeypatch: pytest.MonkeyPatch, renewal: Renewal) -> Renewal:
    monkeypatch.setattr(terms, "renew", renewal.renew)
    monkeypatch.setattr(terms, "why_over", renewal.why_over)
    return renewal


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


# --- renewals ---


async def test_a_renewal_counts_from_when_it_was_sent(renewal: Renewal) -> None:
    async with renewal.running():
        assert renewal.renewed_at == LONG_AGO, "it counts before it is answered"
        renewal.answer.set()
        await wait_until_async(lambda: renewal.renewed_at != LONG_AGO, what="it counts")
    assert renewal.renewed_at <= renewal.sent[0]


async def test_a_renewal_without_an_answer_proves_nothing(renewal: Renewal) -> None:
    renewal.error = DatabaseUnavailable("cut")
    renewal.answer.set()
    async with renewal.running() as task:
        await asyncio.wait([task], timeout=5)
        assert isinstance(task.exception(), DatabaseUnavailable)
    assert renewal.renewed_at == LONG_AGO


async def test_the_database_is_back_when_terms_are_renewed_not_when_it_lets_us_in(renewal: Renewal) -> None:
    renewal.database._down_since = time.monotonic()
    async with renewal.running():
        assert renewal.database.down_for > 0
        assert renewal.told == []
        renewal.answer.set()
        await wait_until_async(lambda: renewal.told, what="the end of the outage is told")
    assert isinstance(renewal.told[0], DatabaseUp)
    assert renewal.database.down_for == 0


async def test_a_renewal_that_is_refused_ends_the_term(renewal: Renewal) -> None:
    renewal.over = True
    renewal.answer.set()
    async with renewal.running():
        await wait_until_async(lambda: renewal.active_term.stop, what="the term ends")
    assert isinstance(renewal.active_term.stop, Broken)
    assert renewal.active_term.stop.reason == "over"
    assert renewal.active_term.attention.is_set()


async def test_a_question_why_a_term_is_over_holds_up_no_other_term(
    monkeypatch: pytest.MonkeyPatch, renewal: Renewal
) -> None:
    ended = term_of(1)
    renewal.database.terms = {("t", 1): ended, ("t", 0): renewal.active_term}

    async def renew(_session: Session, _leader_ids: Sequence[UUID]) -> dict[UUID, terms.Renewal]:
        return {ended.term.leader_id: terms.Renewal(None, None, None)}

    async def why_over(_session: Session, _term: Term) -> NotLeader:
        raise DatabaseUnavailable("cut")

    monkeypatch.setattr(terms, "renew", renew)
    monkeypatch.setattr(terms, "why_over", why_over)
    with pytest.raises(DatabaseUnavailable):
        await renewal.database._renew_all(cast("Session", None))
    assert renewal.renewed_at != LONG_AGO


async def test_a_term_that_somebody_is_just_ending_is_neither_renewed_nor_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renewal = replaced(monkeypatch, Renewal(receive_deadline=0.05))
    renewal.locked = True
    renewal.answer.set()
    async with renewal.running():
        await wait_until_async(lambda: len(renewal.sent) > 2, what="it is tried again")
    assert renewal.renewed_at == LONG_AGO
    assert renewal.active_term.stop is None


async def test_another_source_is_told_once_after_a_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    renewal = replaced(monkeypatch, Renewal(receive_deadline=0.05))
    renewal.session.tube.source_changes = {7: "timeline 2, before 1"}
    renewal.database.seen_seq = 7
    renewal.answer.set()
    async with renewal.running():
        await wait_until_async(lambda: len(renewal.sent) > 2, what="terms are renewed")
    assert renewal.told == [SourceChanged("timeline 2, before 1")]
    assert renewal.database.seen_seq == 0, "it is no proof of another change"


async def test_a_note_counts_for_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    renewal = replaced(monkeypatch, Renewal(receive_deadline=0.05))
    monkeypatch.setattr(renewal.database, "pool", renewal.session)
    renewal.session.tube.source_changes = {9: "tube_seq is at 3, and a worker had read seq 9"}
    renewal.database.seen_seq = 7
    assert await renewal.database.compare_source(8, None)
    assert (renewal.told, renewal.database.seen_seq) == ([], 7), "no later look is to fail for what it says"
    assert await renewal.database.compare_source(9, None)
    assert renewal.told == [SourceChanged("tube_seq is at 3, and a worker had read seq 9")]


async def test_a_source_that_can_not_be_looked_at_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    renewal = replaced(monkeypatch, Renewal(receive_deadline=0.05))
    renewal.session.tube.source_changes = {None: "timeline 2, before 1"}
    renewal.session.refused[queries.SOURCE_CHECK] = StatementFailed("lock timeout")
    renewal.answer.set()
    async with renewal.running():
        await wait_until_async(lambda: len(renewal.sent) > 2, what="terms are renewed all the same")
        assert renewal.told == []
        del renewal.session.refused[queries.SOURCE_CHECK]
        await wait_until_async(lambda: renewal.told, what="it is told")


async def test_all_terms_of_all_tubes_are_renewed_by_one_statement(
    monkeypatch: pytest.MonkeyPatch, renewal: Renewal
) -> None:
    asked: list[Sequence[UUID]] = []

    async def renew(_session: Session, leader_ids: Sequence[UUID]) -> dict[UUID, terms.Renewal]:
        asked.append(leader_ids)
        return dict.fromkeys(leader_ids, terms.Renewal(True, None, None))

    monkeypatch.setattr(terms, "renew", renew)
    others = [term_of(partition, tube) for tube in ("t", "u") for partition in (1, 2)]
    renewal.database.terms |= {(one.term.tube, one.term.partition): one for one in others}
    await renewal.database._renew_all(cast("Session", None))
    assert [len(leader_ids) for leader_ids in asked] == [5]
    assert all(one.trusted_until() > LONG_AGO for one in (*others, renewal.active_term))


async def test_an_outage_is_told_once_with_its_reason_and_so_is_its_end(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setattr(module, "backoff", lambda _: 0.001)
    renewal = replaced(monkeypatch, Renewal())
    renewal.answer.set()
    server.down = True
    keeping = renewal.database._keep("renewals", 7.0, renewal.database._renew)
    async with task_of(keeping):
        await wait_until_async(lambda: len(server.opened) > 3, what="it is tried again")
        assert [type(event) for event in renewal.told] == [DatabaseDown]
        assert "nobody answers" in cast("DatabaseDown", renewal.told[0]).reason
        server.down = False
        await wait_until_async(lambda: len(renewal.told) > 1, what="it is back")
    assert [type(event) for event in renewal.told] == [DatabaseDown, DatabaseUp]
    assert server.timeouts["pytube renewals"] == 7.0
    assert server.closed == 1


async def test_only_what_keeps_terms_from_being_renewed_is_an_outage(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setattr(module, "backoff", lambda _: 0.001)
    told: list[Event] = []
    database = make_database(told)
    server.down = True
    async with task_of(database._keep("listener", 1.0, database._listen)):
        await wait_until_async(lambda: len(server.opened) > 3, what="it is tried again")
    assert told == []


# --- sessions ---


async def test_a_crash_may_undo_what_the_pool_did_and_nothing_else(server: Server) -> None:
    database = make_database()
    await database.open_session("start")
    await database.pool.rows(queries.SETTLE_SEQ)
    assert server.opened == ["pytube start", "pytube pool"]
    assert "synchronous_commit" not in server.settings["pytube start"]
    assert server.settings["pytube pool"] == {"synchronous_commit": "off", "row_security": "off"}


async def test_a_session_whose_server_cannot_be_asked_what_it_is_is_closed(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    def fail(*_: object) -> None:
        raise DatabaseUnavailable("lost at once")

    database = make_database()
    monkeypatch.setattr(database, "_check_incarnation", fail)
    with pytest.raises(DatabaseUnavailable):
        await database.open_session("start")
    assert (len(server.opened), server.closed) == (1, 1)


async def test_a_server_that_was_restarted_ends_all_terms_as_soon_as_a_session_finds_it(
    server: Server,
) -> None:
    """It may have lost marks of partitions that asked nothing meanwhile."""
    database = make_database(tubes=["t", "u"])
    await database.open_session("first")
    both = {("t", 0): term_of(0), ("u", 3): term_of(3, "u")}
    database.terms |= both
    database.settled = Settled(FakeSession(server.tube))
    await database.open_session("of the same server")
    assert not any(active_term.stop for active_term in both.values())
    assert database.settled is not None
    server.incarnation = "second"
    await database.open_session("of another")
    for active_term in both.values():
        assert isinstance(active_term.stop, Lost)
        assert active_term.attention.is_set()
        assert not active_term.is_trusted
    assert database.settled is None, "what was settled before the crash says nothing"


async def test_terms_that_begin_after_the_restart_are_not_ended_by_it_again(server: Server) -> None:
    database = make_database()
    await database.open_session("first")
    server.incarnation = "second"
    await database.open_session("of the new server")
    active_term = database.terms["t", 0] = term_of(0)
    await database.open_session("another")
    assert active_term.stop is None


async def test_a_session_of_the_pool_finds_a_restart_too(server: Server) -> None:
    database = make_database()
    await database.open_session("first")
    active_term = database.terms["t", 0] = term_of(0)
    server.incarnation = "second"
    with pytest.raises(DatabaseUnavailable, match="another server now"):
        await database.pool.rows(queries.SETTLE_SEQ)  # it was meant for the server of before
    assert active_term.stop is not None
    await database.pool.rows(queries.SETTLE_SEQ)


# --- wake-ups ---


async def test_a_notification_wakes_the_partition_that_it_is_for() -> None:
    database = make_database(tubes=["t", "u"])
    database.terms |= {(tube, number): term_of(number, tube) for tube in ("t", "u") for number in (0, 1)}
    database._note(PodsArrived("u", 1))
    database._note(PodsArrived("gone", 7))
    assert [key for key, active_term in database.terms.items() if active_term.woken] == [("u", 1)]


async def test_when_notifications_may_have_been_lost_all_are_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose(*_: object) -> AsyncGenerator[Heard, None]:
        for _number in [1]:
            raise DatabaseUnavailable("the listening session ended")
        yield Heard.WORKS

    monkeypatch.setattr(module, "listen", lose)
    database = make_database()
    database.terms |= {("t", number): term_of(number) for number in (0, 1)}
    assert not database.notifications_work
    with pytest.raises(DatabaseUnavailable):
        await database._listen(cast("Session", None))
    assert all(active_term.woken for active_term in database.terms.values())
    assert not database.notifications_work


async def test_notifications_work_while_the_listener_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    said: asyncio.Queue[Heard] = asyncio.Queue()

    async def say(*_: object) -> AsyncGenerator[Heard, None]:
        while True:
            yield await said.get()

    monkeypatch.setattr(module, "listen", say)
    database = make_database()
    database.terms["t", 0] = active_term = term_of(0)

    def works() -> bool:
        return database.notifications_work

    async with task_of(database._listen(cast("Session", None))):
        await asyncio.sleep(0)
        assert not works()
        said.put_nowait(Heard.WORKS)
        await wait_until_async(works, what="it is known")
        assert active_term.woken, "earlier ones were lost"
        said.put_nowait(Heard.DDL)
        await wait_until_async(database.ddl.is_set, what="tables were changed")
        assert works()
        said.put_nowait(Heard.MISSING)
        await wait_until_async(lambda: not works(), what="they do not arrive any more")
        said.put_nowait(Heard.WORKS)
        await wait_until_async(works, what="it is known again")
    assert not works()


async def test_that_notifications_are_missing_is_told_with_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    async def poll(_session: object, _tubes: object, log: Logger) -> AsyncGenerator[Heard, None]:
        wakeup._log_polling(log, wakes=True, has_room=True)
        yield Heard.MISSING

    monkeypatch.setattr(module, "listen", poll)
    postgres = PostgresConfig.model_validate({"dsn": "host=nowhere"})
    database = Database(postgres, ["t"], receive_deadline=1.0, emit=lambda _: None, host="north")
    with capture_logs() as lines:
        await database._listen(cast("Session", None))
    assert [(line["event"], line["host"]) for line in lines] == [("notifications_missing", "north")]


# --- the settled seq ---


@pytest.fixture
def _short_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SETTLE_INTERVAL", 0.001)
    monkeypatch.setattr(module, "_SETTLE_AT_LEAST", 0.002)


@pytest.mark.usefixtures("_short_settles")
async def test_while_all_partitions_sleep_the_settled_seq_still_moves_on(server: Server) -> None:
    """They may be woken pod by pod for hours; their floors follow what is settled."""
    database = make_database()
    active_term = database.terms["t", 0] = term_of(0)
    active_term.sleeps = True
    async with task_of(database._settle()):
        for number in (1, 2, 3):
            server.tube.insert(number)
            await wait_until_async(
                lambda: database.settled is not None and database.settled.seq == server.tube.seq,
                what="the pod is settled",
            )


@pytest.mark.usefixtures("_short_settles")
async def test_while_the_database_is_down_nothing_is_known_to_be_settled(server: Server) -> None:
    database = make_database()
    async with task_of(database._settle()):
        await wait_until_async(lambda: database.settled, what="it is known")
        before = database.settled
        server.tube.down = True
        await wait_until_async(lambda: database.settled is None, what="it is forgotten")
        server.tube.down = False
        await wait_until_async(lambda: database.settled, what="it is known again")
    assert database.settled is not before


@pytest.mark.usefixtures("_short_settles")
async def test_what_is_being_settled_while_a_restart_is_found_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    """After a failover numbers are drawn again: floors that follow the old ones would pass their pods."""
    database = make_database()
    advance, seen = Settled.advance, list[Settled]()

    async def advance_over_a_restart(settled: Settled) -> None:
        await advance(settled)
        seen.append(settled)
        if len(seen) == 1:
            server.incarnation = "second"
            await database.open_session("of another server")

    monkeypatch.setattr(Settled, "advance", advance_over_a_restart)
    async with task_of(database._settle()):
        await wait_until_async(lambda: len(seen) > 3, what="it is settled again")
    assert database.settled is seen[-1]
    assert seen[0] not in seen[1:]


@pytest.mark.usefixtures("_short_settles")
async def test_a_new_version_of_the_provisional_seq_wakes_all(server: Server) -> None:
    """A long writer has ended: a poll that its commit triggered may have passed its pods."""
    assert server.opened == []
    database = make_database()
    async with task_of(database._settle()):
        await wait_until_async(lambda: database.settled, what="it is known")
        active_term = database.terms["t", 0] = term_of(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not active_term.woken
        assert database.settled is not None
        database.settled.provisional_version += 1000
        await wait_until_async(lambda: active_term.woken, what="it is woken")


@pytest.mark.usefixtures("_short_settles")
async def test_sessions_that_nobody_uses_are_closed_after_a_while(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setattr(module, "_IDLE", -1.0)
    database = make_database()
    async with task_of(database._settle()):
        await wait_until_async(lambda: server.closed > 2, what="they are closed")


# --- its end ---


async def test_it_ends_though_a_session_is_lost_as_it_is_asked_to(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    """The loss must not stand in for the request: sessions would be opened anew, and nobody asks twice."""
    renewing = asyncio.Event()
    losses = [DatabaseUnavailable("cut")]

    async def renew(*_: object) -> None:
        renewing.set()
        try:
            await asyncio.Event().wait()
        finally:
            if losses:
                raise losses.pop()

    async def idle(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Database, "_renew", renew)
    monkeypatch.setattr(Database, "_settle", idle)
    monkeypatch.setattr(Database, "_listen", idle)
    running = asyncio.create_task(make_database().run())
    await asyncio.wait_for(renewing.wait(), 5)
    running.cancel()
    await asyncio.wait([running], timeout=5)
    assert running.cancelled()
    assert sorted(server.opened) == ["pytube listener", "pytube renewals"], "two sessions of its own"
    assert server.closed == 2


async def test_eight_sessions_are_opened_with_a_server_at_the_same_time_and_renewals_wait_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, gate = Server(monkeypatch), asyncio.Event()
    unhindered = Session.open
    asked: list[str] = []

    async def open_session(dsn: str, schema: str, name: str, **options: Any) -> Session:
        asked.append(name)
        if name != "pytube renewals":
            await gate.wait()
        return await unhindered(dsn, schema, name, **options)

    monkeypatch.setattr(Session, "open", open_session)
    turns: Turns = {}
    databases = [make_database(turns=turns) for _ in range(10)]
    opening = [asyncio.create_task(one.open_session("filling")) for one in databases]
    await wait_until_async(lambda: len(asked) == 8, what="eight are asked for")
    session = await databases[9].open_session("renewals")
    assert asked[8:] == ["pytube renewals"]
    gate.set()
    await asyncio.gather(*opening)
    assert len(server.opened) == 11
    await session.close()
