"""Writers do anything, for however long, while a worker marks: each key comes in the order of its commits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from pytube.db.session import Session
from pytube.outbox.source import OutboxSource
from pytube.sources import settled as settling
from pytube.sources.settled import Settled
from pytube.sources.terms import Term
from tests.conftest import Connect
from tests.helpers.outbox_sql import OUTBOX, lead, make_outbox, stash, waiting_ids
from tests.helpers.terms import Conn

EXAMPLES = int(os.environ.get("PYTUBE_EXAMPLES", "15"))
PHASES = [Phase.explicit, Phase.generate] + ([Phase.shrink] if "PYTUBE_NO_SHRINK" not in os.environ else [])
WRITERS = 3

Answer = TypeVar("Answer")


@dataclass
class Writer:
    """A session that stashes."""

    conn: Conn
    stashed: dict[int, str] = field(default_factory=dict)
    """What its open transaction has: keys by id."""
    is_open: bool = False


class Sessions(RuleBasedStateMachine):
    """Writers, and the worker's side of marks. The class variables are set by the test."""

    conn: ClassVar[Conn]
    asking: ClassVar[Session]
    loop: ClassVar[asyncio.AbstractEventLoop]
    connections: ClassVar[list[Conn]]

    def run(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        return self.loop.run_until_complete(call)

    @initialize()
    def make(self) -> None:
        self.writers = [Writer(conn) for conn in self.connections]
        self.prepared: dict[str, dict[int, str]] = {}
        self.committed: dict[int, str] = {}
        self.before: dict[int, set[int]] = {}
        """What has to come before each record: that of its key which was committed when it was stashed."""
        self.held: list[int] = []
        self.purged: set[int] = set()
        self.conn.execute("SELECT outbox_ensure_absent(%s)", (OUTBOX,))
        make_outbox(self.conn)
        self.settled = Settled(self.asking)
        self.begin_term()

    def begin_term(self) -> None:
        """Another worker takes over; what it does not know is marked for nobody."""
        term = lead(self.conn)
        self.source = OutboxSource(self.asking, Term(OUTBOX, 1, 0, term.epoch, term.leader_id))
        self.run(self.source.load())
        self.held.clear()

    @rule(
        writes=st.lists(
            st.tuples(
                st.integers(0, WRITERS - 1),
                st.sampled_from(["a", "a", "a", "b", "undone"]),
                st.sampled_from(["", "", "COMMIT", "COMMIT", "COMMIT", "ROLLBACK", "PREPARE"]),
            ),
            max_size=4,
        ),
        ends=st.sampled_from(["", "", "COMMIT", "ROLLBACK"]),
        settles=st.sampled_from([0, 0, 1, 2]),
        limit=st.sampled_from([1, 2, 100, 100]),
        then=st.sampled_from(["", "", "", "purge", "reset", "begin_term", "ask_anew"]),
        share=st.sampled_from([0.0, 0.5, 1.0]),
    )
    def cycle(
        self,
        writes: list[tuple[int, str, str]],
        ends: str,
        settles: int,
        limit: int,
        then: str,
        share: float,
    ) -> None:
        """One rule for all: of several, Hypothesis leaves some out, and then next to nothing happens."""
        for number, key, end in writes:
            self.write(self.writers[number], key)
            self.end(self.writers[number], end)
        if ends and self.prepared:
            self.end_prepared(next(iter(self.prepared)), ends)
        for _ in range(settles):
            self.run(self.settled.advance())
        self.mark(limit, self.settled)
        at = int(share * len(self.held))
        match then:
            case "purge":
                self.purge(at)
            case "reset":
                self.run(self.source.reset(self.held[at:]))
                del self.held[at:]
            case "begin_term":
                self.begin_term()
            case "ask_anew":
                self.mark(limit, None)  # as long as nothing is known
                self.settled = Settled(self.asking)

    def write(self, writer: Writer, key: str) -> None:
        if not writer.is_open:
            writer.conn.execute("BEGIN")
            writer.is_open = True
        if key == "undone":
            writer.conn.execute("SAVEPOINT part")
            stash(writer.conn, key="a")
            writer.conn.execute("ROLLBACK TO part")
            return
        known = self.committed | writer.stashed
        id_ = stash(writer.conn, key=key)
        self.before[id_] = {earlier for earlier, of in known.items() if of == key}
        writer.stashed[id_] = key

    def end(self, writer: Writer, how: str) -> None:
        if not how:
            return
        if how == "PREPARE":
            name = uuid4().hex
            writer.conn.execute(f"PREPARE TRANSACTION '{name}'")
            self.prepared[name] = writer.stashed
        else:
            writer.conn.execute(how)
            if how == "COMMIT":
                self.committed |= writer.stashed
        writer.stashed = {}
        writer.is_open = False

    def end_prepared(self, name: str, how: str) -> None:
        stashed = self.prepared.pop(name)
        self.conn.execute(f"{how} PREPARED '{name}'")
        if how == "COMMIT":
            self.committed |= stashed

    def mark(self, limit: int, settled: Settled | None) -> int:
        records = self.run(self.source.mark(limit, settled))
        for record in records:
            assert record.id in self.committed
            assert record.id not in self.held
            missing = self.before[record.id] - self.purged - set(self.held)
            assert not missing, f"{record.id} comes before {missing}"
            self.held.append(record.id)
        return len(records)

    def purge(self, count: int) -> None:
        done = self.held[:count]
        assert self.run(self.source.purge(done)) == len(done)
        self.purged |= set(done)
        del self.held[:count]

    def teardown(self) -> None:
        """In the end all that was committed has come."""
        if not hasattr(self, "writers"):
            return
        for writer in self.writers:
            self.end(writer, "COMMIT" if writer.is_open else "")
        for name in list(self.prepared):
            self.end_prepared(name, "COMMIT")
        self.run(self.settled.advance())
        while self.mark(2, self.settled):
            pass
        self.purge(len(self.held))
        assert self.purged == set(self.committed)
        assert waiting_ids(self.conn) == []


def test_keys_come_in_the_order_of_their_commits(
    dsn: str, conn: Conn, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "_ASK_WRITERS_AFTER", 0.0)
    monkeypatch.setattr(settling, "_LONG_WRITER_AFTER", 0.0)
    Sessions.conn = conn
    Sessions.connections = [connect() for _ in range(WRITERS)]
    with closing(asyncio.new_event_loop()) as Sessions.loop:
        Sessions.asking = Sessions.loop.run_until_complete(Session.open(dsn, "tube", "worker"))
        try:
            run_state_machine_as_test(
                Sessions,
                settings=settings(
                    max_examples=EXAMPLES,
                    stateful_step_count=20,
                    deadline=None,
                    phases=PHASES,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            Sessions.loop.run_until_complete(Sessions.asking.close())
