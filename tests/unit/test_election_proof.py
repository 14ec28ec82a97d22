"""What proves, and when: the book of proofs, and heartbeats on the wire."""

from __future__ import annotations

import math
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pytube.election.neli.claim import ProofBook, decode, encode
from pytube.model import Heartbeat

DEADLINE = 5.0


def test_nothing_is_proven_at_first() -> None:
    book = ProofBook(DEADLINE)
    number = book.sent(100.0)
    assert not book.observe(number, 100.1)
    assert book.proven_at == -math.inf


def test_a_heartbeat_proves_as_of_when_it_was_sent() -> None:
    book = ProofBook(DEADLINE)
    book.confirmed(100.0)
    number = book.sent(101.0)
    assert book.observe(number, 104.0)
    assert book.proven_at == 101.0
    assert not book.observe(number, 104.0)
    assert not book.observe(number + 1, 104.0)


def test_heartbeats_do_not_revive_a_lapsed_proof() -> None:
    book = ProofBook(DEADLINE)
    book.confirmed(100.0)
    number = book.sent(106.0)
    assert not book.observe(number, 106.1)
    assert book.lapsed(106.1)
    book.confirmed(106.2)
    assert book.observe(book.sent(106.3), 106.4)


def test_a_closed_book_proves_nothing() -> None:
    book = ProofBook(DEADLINE)
    book.confirmed(100.0)
    book.close()
    book.confirmed(101.0)
    assert book.proven_at == -math.inf


class Proofs(RuleBasedStateMachine):
    """Any order of sending, hearing, confirming and waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.book = ProofBook(DEADLINE)
        self.now = 0.0
        self.under_way: dict[int, float] = {}
        self.last = -math.inf
        self.moments: set[float] = set()

    @rule(seconds=st.floats(0.01, 8.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def send(self) -> None:
        self.under_way[self.book.sent(self.now)] = self.now
        self.moments.add(self.now)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def hear(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.under_way)))
        before = self.book.proven_at
        lapsed = self.now - before >= DEADLINE
        proved = self.book.observe(number, self.now)
        sent_at = self.under_way.pop(number)
        assert proved == (not lapsed and sent_at > before)
        assert self.book.proven_at == (sent_at if proved else before)

    @rule(ago=st.floats(0.0, 3.0))
    def confirm(self, ago: float) -> None:
        self.moments.add(self.now - ago)
        self.book.confirmed(self.now - ago)

    @invariant()
    def only_what_was_sent_proves_and_never_less(self) -> None:
        assert self.book.proven_at in self.moments | {-math.inf}
        assert self.last <= self.book.proven_at <= self.now
        self.last = self.book.proven_at


TestProofs = Proofs.TestCase


@given(
    st.builds(
        Heartbeat,
        client_id=st.text(st.characters(exclude_categories=["Cs"])),
        leader_id=st.uuids(),
        epoch=st.integers(0, 2**40),
        purged_seq=st.integers(0, 2**62),
        lag=st.floats(0, 1e9),
    ),
    st.integers(1, 2**40),
)
def test_heartbeats_survive_the_wire(heartbeat: Heartbeat, number: int) -> None:
    assert decode(encode(heartbeat, number)) == (heartbeat, number)


@given(st.binary(max_size=60))
def test_rubbish_is_no_heartbeat(value: bytes) -> None:
    assert decode(value) is None


def test_later_versions_are_not_understood() -> None:
    value = encode(Heartbeat("c", uuid.uuid4(), 1, 2, 0.5), 1)
    assert decode(value.replace(b'"version":1', b'"version":2')) is None
    assert decode(None) is None


@pytest.mark.parametrize("field", [b'"epoch":1', b'"leader_id":"', b'"lag":0.5'])
def test_a_heartbeat_with_a_broken_field(field: bytes) -> None:
    value = encode(Heartbeat("c", uuid.uuid4(), 1, 2, 0.5), 1)
    assert decode(value.replace(field, b'"x":"')) is None
