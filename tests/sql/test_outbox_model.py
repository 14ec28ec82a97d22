"""A worker, writers and operators do anything: no record is lost, and keys are sent in the order of ids.

The worker is the least one that keeps to the contract of `outbox_records_mark` and `outbox_records_park`: it
keeps a floor, holds a key whose record fails, and parks the key's later records behind it.
"""

from __future__ import annotations

import os
from typing import ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.helpers.outbox_sql import (
    OUTBOX,
    Record,
    drop_parked,
    lead,
    make_outbox,
    mark,
    park,
    parked_ids,
    purge,
    reset,
    retry,
    stash,
    waiting_ids,
)
from tests.helpers.terms import Conn, Term, scalar

EXAMPLES = int(os.environ.get("PYTUBE_EXAMPLES", "20"))
PHASES = [Phase.explicit, Phase.generate] + ([Phase.shrink] if "PYTUBE_NO_SHRINK" not in os.environ else [])


class Outbox(RuleBasedStateMachine):
    """One session for all of them; `conn` is set by the test."""

    conn: ClassVar[Conn]

    @initialize()
    def make(self) -> None:
        self.conn.execute("SELECT outbox_ensure_absent(%s)", (OUTBOX,))
        make_outbox(self.conn)
        self.keys: dict[int, str | None] = {}
        """Of all records that are neither sent nor dropped."""
        self.sent: dict[str | None, list[int]] = {}
        self.begin_term()

    @rule(
        keys=st.lists(st.sampled_from(["a", "b", None]), max_size=3),
        limit=st.sampled_from([1, 2, 100]),
        fails=st.booleans(),
        data=st.data(),
        then=st.sampled_from(["", "begin_term", "reset", "retry", "drop"]),
    )
    def cycle(self, keys: list[str | None], limit: int, fails: bool, data: st.DataObject, then: str) -> None:
        """One rule for all: of several, Hypothesis leaves some out, and then next to nothing happens."""
        for key in keys:
            self.keys[stash(self.conn, key=key)] = key
        self.park_behind()
        self.mark(limit)
        self.send(fails=fails)
        match then:
            case "begin_term":
                self.begin_term()
            case "reset":
                self.reset()
            case "retry" | "drop":
                self.operate(then, data)

    def begin_term(self) -> None:
        """Another worker takes over; this one's memory is gone."""
        self.term: Term = lead(self.conn)
        self.floor = 0
        self.memory: dict[int, Record] = {}
        self.held: set[str] = set()
        self.freed: set[str] = set()
        """Keys whose earlier records marks are yet to return."""

    def mark(self, limit: int) -> None:
        settled = int(scalar(self.conn, "SELECT tube_settle_seq()"))
        records = mark(self.conn, self.term, limit, self.floor)
        ids = [record.id for record in records]
        assert ids == sorted(ids)
        assert [record.retried for record in records] == [id_ <= self.floor for id_ in ids]
        assert not {record.id for record in records} & self.memory.keys()
        beyond = [record.id for record in records if not record.retried]
        if len(records) < limit:
            self.floor = settled
        elif beyond:
            self.floor = min(settled, beyond[-1])
        self.freed = {key for key in self.freed if len(records) == limit and ids[-1] < self._first(key)}
        self.memory |= {record.id: record for record in records}
        self.held |= {record.kafka_key for record in records if record.held and record.kafka_key is not None}

    def send(self, fails: bool) -> None:
        """Send the first record of each key that is neither held nor waits for earlier ones."""
        for key in {record.kafka_key for record in self.memory.values()} - self.held - self.freed:
            first = self._first(key)
            del self.memory[first]
            if fails:
                assert park(self.conn, self.term, first, hold=True) == [first]
                if key is not None:
                    self.held.add(key)
            else:
                assert purge(self.conn, self.term, [first]) == 1
                del self.keys[first]
                self.sent.setdefault(key, []).append(first)

    def _first(self, key: str | None) -> int:
        """The first record of a key that the worker has."""
        return min(id_ for id_, record in self.memory.items() if record.kafka_key == key)

    def park_behind(self) -> None:
        """Records of held keys go behind the first of theirs, unless an operator has freed the key."""
        for id_, record in sorted(self.memory.items()):
            key = record.kafka_key
            if key is None or key not in self.held:
                continue
            if park(self.conn, self.term, id_, behind=True):
                del self.memory[id_]
            else:
                self.held.discard(key)
                self.freed.add(key)

    def reset(self) -> None:
        """The worker gives back what it has."""
        assert reset(self.conn, self.term, list(self.memory)) == len(self.memory)
        self.floor = min([self.floor, *(id_ - 1 for id_ in self.memory)])
        self.memory.clear()
        self.freed.clear()  # it has no later record that would have to wait

    def operate(self, what: str, data: st.DataObject) -> None:
        """An operator has parked records sent again, one or all; or gives one up."""
        parked = parked_ids(self.conn)
        if not parked:
            assert retry(self.conn) == 0
            return
        chosen = data.draw(st.sampled_from(parked))
        if what == "drop":
            assert drop_parked(self.conn, chosen) == 1
            del self.keys[chosen]
        else:
            one = data.draw(st.booleans())
            assert retry(self.conn, [chosen] if one else None) >= (1 if one else len(parked))

    @invariant()
    def nothing_is_lost(self) -> None:
        assert set(waiting_ids(self.conn)) == self.keys.keys()

    @invariant()
    def each_key_is_sent_in_the_order_of_its_ids(self) -> None:
        for key, ids in self.sent.items():
            assert key is None or ids == sorted(ids)

    def teardown(self) -> None:
        """Without failures, and once operators have retried everything, all of it is sent."""
        if not hasattr(self, "keys"):
            return
        retry(self.conn)
        while self.keys:
            before = len(self.keys)
            self.park_behind()
            retry(self.conn)
            self.mark(100)
            self.held.clear()  # what is held was retried, and is in memory by now
            self.send(fails=False)
            assert len(self.keys) < before or any(record.held for record in self.memory.values())
        self.each_key_is_sent_in_the_order_of_its_ids()
        assert waiting_ids(self.conn) == []


def test_nothing_is_lost_and_keys_stay_in_order(conn: Conn) -> None:
    Outbox.conn = conn
    run_state_machine_as_test(
        Outbox,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=20,
            deadline=None,
            phases=PHASES,
            suppress_health_check=list(HealthCheck),
        ),
    )
