"""The delivery of declared documents, step by step and in one thread: whatever has been done stays done.

It is made of the worker's parts: how pods are marked and purged, which keys may be on their way together, and
what reads documents and resolves relations. When each of them acts is for a test to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeVar
from uuid import uuid4

from psycopg import sql

from pytube.config import Config, TubeConfig
from pytube.db.session import Session, SessionPool
from pytube.documents.resolve import RELATIONS
from pytube.enrich.rows import Enricher
from pytube.errors import EnrichFailed, EnrichTimeout, SinkError
from pytube.model import Batch, Document, Ok, Pod, PodClass, Result, Stale, Token
from pytube.pipeline.inflight import Flight, InFlight
from pytube.sinks import Sink
from pytube.sinks.registry import build_sink
from pytube.sources import terms
from pytube.sources.pods import TubeSource
from pytube.sources.terms import Candidate
from pytube.testing.memory import MemorySink, MemoryStore
from tests.helpers.documents_shop import Conn

Answer = TypeVar("Answer")
Stage = Literal["mark", "read", "send", "purge"]
STAGES: tuple[Stage, ...] = ("mark", "read", "send", "purge")
_MOST = 100
"""Pods that one mark gives, and keys of a flight."""
_PASSES = 50
"""From relations to documents it takes three."""
_LOCK_TIMEOUT = 0.03
"""Seconds; then what waits is tried again later."""


@dataclass
class Line:
    """One partition of a tube under one term. What the process that leads it knows goes with the term."""

    tube: str
    sink: Sink
    enricher: Enricher
    source: TubeSource
    term: terms.Term
    held: InFlight = field(default_factory=InFlight)
    control: list[Pod] = field(default_factory=list)
    """Those that ask for all documents."""
    under_way: list[tuple[Flight, Batch]] = field(default_factory=list)
    """What was read and not sent."""
    late: list[Batch] = field(default_factory=list)
    """What earlier terms had read: it is sent after something newer."""
    tokens: int = 0

    async def mark(self) -> None:
        """Take pods."""
        self.control += self.held.add(await self.source.mark(_MOST, None))

    async def read(self) -> None:
        """Draw a token, and read the documents of all keys that wait."""
        for pod_class in PodClass:
            flight = self.held.take(pod_class, _MOST)
            if flight is None:
                continue
            groups = flight.by_shard()
            self.tokens += 1
            token = Token(self.term.epoch, self.tokens)
            try:
                found = await self.enricher.read(groups)
            except (EnrichFailed, EnrichTimeout):  # somebody has locked a table
                self.held.put_back(flight, groups)
                continue
            documents = [
                Document(shard, id_, found[shard].bodies.get(id_), token, flight.stamp)
                for shard, ids in groups.items()
                for id_ in ids
            ]
            self.under_way.append((flight, Batch(self.tube, self.term.partition, token, documents)))

    async def send(self) -> None:
        """Send what was read, and then what an earlier term still had in its hands."""
        while self.under_way:
            flight, batch = self.under_way[0]
            try:
                results = await self.sink.send(batch)
            except SinkError:
                return
            _refuse_others(results)
            if not all(isinstance(result, Ok) for result in results):
                return  # a path waits for a lock: it is sent again
            del self.under_way[0]
            self.held.land_keys(flight, flight.by_shard())
        late, self.late = self.late, []
        for batch in late:
            with suppress(SinkError):
                await self.sink.send(batch)

    async def purge(self) -> None:
        """Delete the pods that are done."""
        if done := self.held.finished():
            await self.source.purge(list(done))


def _refuse_others(results: Sequence[Result]) -> None:
    assert not any(isinstance(result, Stale) for result in results), "a newer document is there"


class Delivery:
    """All lines of a configuration's documents, each with a term; their copies are in memory."""

    def __init__(self, dsn: str, config: Config) -> None:
        """`config`: as `documents_rounds.apply_documents` gives it."""
        self._dsn, self._config = dsn, config
        self._stack = ExitStack()
        self._loop = asyncio.new_event_loop()
        self.tubes = list(config.tubes)
        self.stores: dict[str, MemoryStore] = {}
        """By tube."""
        self.lines: list[Line] = []
        """Those of companions are the first."""

    def __enter__(self) -> Self:
        self._stack.callback(self._loop.close)
        self._pool = SessionPool(self._open, 4)
        self._stack.callback(lambda: self._run(self._pool.close()))
        companions = {name for name, tube in self._config.tubes.items() if tube.sink.type == RELATIONS}
        for name, tube in sorted(self._config.tubes.items(), key=lambda one: one[0] not in companions):
            self._add(name, tube)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def do(self, stage: Stage, tubes: Sequence[str]) -> None:
        """One step of each line of the tubes."""
        for line in self.lines:
            if line.tube in tubes:
                self._run(getattr(line, stage)())

    def abandon(self, tubes: Sequence[str]) -> None:
        """Whoever leads these tubes is gone, between any two steps; what it had read may still be sent."""
        for place, line in enumerate(self.lines):
            if line.tube in tubes:
                late = line.late + [batch for _, batch in line.under_way]
                self.lines[place] = self._run(self._led(line.tube, line.term, line.sink, line.enricher))
                self.lines[place].late = late

    def drain(self, session: Conn) -> None:
        """Deliver all that is committed; who asks for all documents gets them, which nobody may write to."""
        for _ in range(_PASSES):
            tubes = self._waiting(session, "true")
            if not tubes:
                return
            for stage in STAGES:
                self.do(stage, tubes)
            self._send_all(session)
        raise AssertionError("it never ends: somebody holds a table")

    def is_asked_for_all(self, session: Conn) -> bool:
        """Whether a writer that has committed could not see which rows it took away."""
        return bool(self._waiting(session, "ids = '{}'"))

    def _waiting(self, session: Conn, which: str) -> list[str]:
        """The tubes that have such pods."""
        asked = " UNION ALL ".join(
            f"(SELECT '{tube}' FROM tube.{tube} WHERE {which} LIMIT 1)" for tube in self.tubes
        )
        return [tube for (tube,) in session.execute(asked.encode())]

    def restore(self, held: Mapping[str, Mapping[Any, Document]]) -> None:
        """Have the copies of another time, and lines that know of nothing."""
        for tube, documents in held.items():
            self.stores[tube].held = dict(documents)
        for line in self.lines:
            line.held, line.control, line.under_way, line.late = InFlight(), [], [], []

    def _add(self, name: str, tube: TubeConfig) -> None:
        """The lines of a tube."""
        if tube.sink.type == RELATIONS:
            options = {**tube.sink.options, "lock_timeout": _LOCK_TIMEOUT}
            sink = build_sink(RELATIONS, options)
        else:
            self.stores[name] = MemoryStore()
            sink = MemorySink(self.stores[name], compares=True)
        self._run(sink.open())
        self._stack.callback(lambda: self._run(sink.close()))
        enricher = Enricher(self._pool, name, tube.enrich, 10.0)
        partitions = self._run(terms.read_partitions(self._pool, [name]))[name]
        for partition in range(partitions):
            term = terms.Term(name, partitions, partition, 0)
            self.lines.append(self._run(self._led(name, term, sink, enricher)))

    async def _led(self, name: str, before: terms.Term, sink: Sink, enricher: Enricher) -> Line:
        """The line with a new term."""
        where = name, before.partitions, before.partition
        epoch = await terms.read_epoch(self._pool, *where)
        term = await terms.acquire(
            self._pool, *where, epoch, Candidate(uuid4(), "a test", "neli", hold=0.001, lease=None)
        )
        return Line(name, sink, enricher, TubeSource(self._pool, term), term)

    def _send_all(self, session: Conn) -> None:
        for line in self.lines:
            for pod in line.control:
                self._touch_all(session, line.tube)
                line.held.finish_control(pod)
            line.control = []

    def _touch_all(self, session: Conn, tube: str) -> None:
        """What a backfill and its sweep do, in one."""
        copied = [str(document.id) for document in self.stores[tube].held.values()]
        statement = sql.SQL(
            "SELECT tube.tube_document_touch({tube}, 'B', (SELECT array_agg(id) FROM ("
            "SELECT id FROM shop.{table} UNION SELECT unnest(%s::text[])::{keys}) AS k))"
        )
        keys = next(line.term.keys for line in self.lines if line.tube == tube)
        session.execute(
            statement.format(tube=sql.Literal(tube), table=sql.Identifier(tube), keys=sql.SQL(keys.value)),
            (copied,),
        )

    async def _open(self) -> Session:
        settings = {"row_security": "off", "lock_timeout": f"{_LOCK_TIMEOUT}s"}
        return await Session.open(self._dsn, "tube", "worker", settings=settings)

    def _run(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        return self._loop.run_until_complete(call)
