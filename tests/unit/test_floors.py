"""Floors against a model queue: nothing is missed, whatever the order of commits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pytube.model import Pod, PodClass
from pytube.sources.pods import Floors

INC, BACKFILL = PodClass.INCREMENTAL, PodClass.BACKFILL


def pods(*seqs: int, op: str = "U") -> list[Pod]:
    return [Pod(seq, op, 0, [1]) for seq in seqs]


def test_a_mark_that_found_all_raises_the_floor_to_the_settled_seq() -> None:
    floors = Floors()
    floors.advance(pods(3, 9), limit=10, settled=7, with_backfill=True)
    assert floors[INC] == 7
    assert floors[BACKFILL] == 7


def test_a_mark_that_was_cut_off_raises_the_floor_to_its_last_seq_at_most() -> None:
    floors = Floors()
    floors.advance(pods(3, 4), limit=2, settled=7, with_backfill=True)
    assert floors[INC] == 4
    assert floors[BACKFILL] == 0, "there was no room left to look for backfill"


def test_the_floor_never_passes_what_is_not_settled() -> None:
    floors = Floors()
    floors.advance(pods(8, 9), limit=2, settled=5, with_backfill=True)
    assert floors[INC] == 5


def test_a_mark_without_backfill_says_nothing_of_backfill() -> None:
    floors = Floors()
    floors.advance(pods(3), limit=10, settled=7, with_backfill=False)
    assert (floors[INC], floors[BACKFILL]) == (7, 0)


def test_the_room_for_backfill_is_what_incremental_pods_left() -> None:
    floors = Floors()
    floors.advance([*pods(6), *pods(2, op="B")], limit=2, settled=7, with_backfill=True)
    assert (floors[INC], floors[BACKFILL]) == (7, 2)


def test_an_older_settled_seq_lowers_no_floor() -> None:
    floors = Floors()
    floors.advance([], limit=2, settled=7, with_backfill=True)
    floors.advance([], limit=2, settled=5, with_backfill=True)
    assert (floors[INC], floors[BACKFILL]) == (7, 7)


def test_pods_that_are_given_back_are_beyond_the_floors_again() -> None:
    floors = Floors()
    floors.advance([], limit=2, settled=7, with_backfill=True)
    floors.lower([4, 6])
    assert (floors[INC], floors[BACKFILL]) == (3, 3)
    floors.lower([])
    assert (floors[INC], floors[BACKFILL]) == (3, 3)


def test_floors_follow_the_provisional_seq_until_its_version_changes() -> None:
    floors = Floors()
    floors.expire_provisional(1)
    floors.advance(pods(3), limit=10, settled=2, provisional=7, with_backfill=True)
    assert (floors[INC], floors[BACKFILL]) == (7, 7)
    floors.advance(pods(8), limit=10, settled=2, provisional=9, with_backfill=True)
    floors.expire_provisional(1)
    assert floors[INC] == 9
    floors.expire_provisional(2)
    assert (floors[INC], floors[BACKFILL]) == (2, 2), "what the long transactions wrote is above this"


def test_a_scan_from_above_raises_no_firm_floor() -> None:
    floors = Floors()
    floors.advance([], limit=10, settled=2, provisional=7, with_backfill=True)
    floors.advance([], limit=10, settled=6, provisional=9, with_backfill=True)
    floors.expire_provisional(2)
    assert floors[INC] == 2


# --- floors against a queue -----------------------------------------------------------------------


class Writer:
    """A transaction: it has its xid before it draws its first seq."""

    def __init__(self, xid: int) -> None:
        self.xid = xid
        self.pods: list[Pod] = []


class QueueMachine(RuleBasedStateMachine):
    """Writers draw and commit in any order; one reader settles, marks, purges and gives back.

    `Driven` is what is under test, so that a wrong one can be tried as well.
    """

    driven: type[Floors] = Floors

    def __init__(self) -> None:
        super().__init__()
        self.seq = 0
        self.xid = 0
        self.writers: list[Writer] = []
        self.queue: dict[int, Pod] = {}
        """Committed pods that were not purged."""
        self.marked: dict[int, Pod] = {}
        self.owed: set[int] = set()
        """Committed, and not returned by a mark (since the last reset)."""
        self.probe: tuple[int, int | None] | None = None
        self.settled = 0
        self.provisional = 0
        self.provisional_version = 0
        self.long: dict[Writer, int] = {}
        """Writers that are not waited for, and what was provisional when they became so."""
        self.floors = self.driven()

    # --- writers ---

    @rule(ops=st.lists(st.sampled_from("UB"), min_size=1, max_size=3))
    def begin(self, ops: list[str]) -> None:
        self.xid += 1
        self.writers.append(Writer(self.xid))
        self.draw(len(self.writers) - 1, ops)

    @precondition(lambda self: self.writers)
    @rule(which=st.integers(0, 9), ops=st.lists(st.sampled_from("UB"), min_size=1, max_size=3))
    def draw_more(self, which: int, ops: list[str]) -> None:
        self.draw(which % len(self.writers), ops)

    def draw(self, which: int, ops: list[str]) -> None:
        for op in ops:
            self.seq += 1
            self.writers[which].pods.append(Pod(self.seq, op, 0, [self.seq]))

    @precondition(lambda self: self.writers)
    @rule(which=st.integers(0, 9), rolls_back=st.sampled_from((False, False, False, True)))
    def end(self, which: int, rolls_back: bool) -> None:
        writer = self.writers.pop(which % len(self.writers))
        for pod in writer.pods:
            if not rolls_back:
                self.queue[pod.seq] = pod
                self.owed.add(pod.seq)
        if writer in self.long:
            del self.long[writer]
            self.provisional_version += 1
            self.reach(0)

    # --- the settled seq ---

    @rule()
    def settle(self) -> None:
        """The next step: read S; in a later transaction take X; wait for all that are older."""
        if self.probe is None:
            self.probe = (self.seq, None)
            return
        seq, xid = self.probe
        if xid is None:
            self.xid += 1
            self.probe = (seq, self.xid)
        elif all(writer.xid > xid or writer in self.long for writer in self.writers):
            self.probe = None
            self.reach(seq)

    @precondition(lambda self: self.probe is not None)
    @rule()
    def wait_no_longer(self) -> None:
        """Those who could draw up to S are not waited for any more."""
        assert self.probe is not None
        self.long |= dict.fromkeys((w for w in self.writers if w not in self.long), self.provisional)
        self.reach(self.probe[0])
        self.probe = None

    def reach(self, seq: int) -> None:
        self.provisional = max(self.provisional, seq)
        self.settled = max(self.settled, min(self.long.values(), default=self.provisional))

    # --- the reader ---

    @rule(limit=st.integers(1, 5), with_backfill=st.booleans())
    def mark(self, limit: int, with_backfill: bool) -> None:
        found: list[Pod] = []
        self.floors.expire_provisional(self.provisional_version)
        for pod_class in (INC, BACKFILL) if with_backfill else (INC,):
            found += [
                pod
                for seq, pod in sorted(self.queue.items())
                if pod.pod_class is pod_class and seq > self.floors[pod_class] and seq not in self.marked
            ][: limit - len(found)]
        for pod in found:
            assert pod.seq in self.owed, f"pod {pod.seq} was returned twice"
            self.owed.discard(pod.seq)
            self.marked[pod.seq] = pod
        self.floors.advance(
            found, limit, self.settled, with_backfill=with_backfill, provisional=self.provisional
        )

    @precondition(lambda self: self.marked)
    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        for seq in data.draw(st.lists(st.sampled_from(sorted(self.marked)), unique=True)):
            del self.queue[seq], self.marked[seq]

    @precondition(lambda self: self.marked)
    @rule(data=st.data())
    def give_some_back(self, data: st.DataObject) -> None:
        seqs = data.draw(st.lists(st.sampled_from(sorted(self.marked)), unique=True))
        for seq in seqs:
            del self.marked[seq]
            self.owed.add(seq)
        self.floors.lower(seqs)

    @rule()
    def new_term(self) -> None:
        """Pods of earlier terms are taken over, with new floors."""
        self.owed |= self.marked.keys()
        self.marked.clear()
        self.floors = self.driven()

    @invariant()
    def no_settled_floor_is_above_a_pod_of_a_long_writer(self) -> None:
        for writer in self.long:
            for pod in writer.pods:
                assert pod.seq > self.floors._floors[pod.pod_class].settled

    @invariant()
    def no_floor_is_above_a_pod_that_is_owed_or_may_come(self) -> None:
        coming = {pod.seq: pod for writer in self.writers if writer not in self.long for pod in writer.pods}
        for seq, pod in {**coming, **{seq: self.queue[seq] for seq in self.owed}}.items():
            # the next mark gets the new version before it begins
            current = self.floors._version == self.provisional_version
            floor = self.floors[pod.pod_class] if current else self.floors._floors[pod.pod_class].settled
            assert seq > floor, f"pod {seq} ({pod.op}) would never be seen: its floor is {floor}"

    def teardown(self) -> None:
        """When all writers are over, marks bring whatever is owed."""
        while self.writers:
            self.end(0, rolls_back=False)
        for _ in range(6):
            self.settle()
        for _ in range(len(self.owed) + 1):
            self.mark(2, with_backfill=True)
        assert not self.owed, f"pods that no mark returned: {sorted(self.owed)}"


class MisledFloors(Floors):
    """Wrong on purpose: the last seq returned, whatever is settled."""

    def advance(
        self, pods: Sequence[Pod], limit: int, settled: int, *, with_backfill: bool, provisional: int = 0
    ) -> None:
        del limit, settled, with_backfill, provisional
        for pod in pods:
            self._floors[pod.pod_class].value = pod.seq


class MisledMachine(QueueMachine):
    """The same queue, with floors that trust what they saw."""

    driven = MisledFloors


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_floors_that_ignore_the_settled_seq_lose_pods() -> None:
    """Two writers draw 1 and 2, and 2 commits first: the machine above must catch this."""
    machine = MisledMachine()
    machine.begin(["U"])
    machine.begin(["U"])
    machine.end(1, rolls_back=False)
    machine.mark(5, with_backfill=True)
    with pytest.raises(AssertionError, match=r"pod 1 \(U\) would never be seen"):
        machine.no_floor_is_above_a_pod_that_is_owed_or_may_come()
