"""When a worker leaves a tube to others: how it judges its partitions, and what it asks of its peers."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.worker.metrics import Reading
from pytube.worker.shedding import CYCLES, Absences, Complaint, Place, TubeHealth

ME, PEER = UUID(int=1), UUID(int=2)
CYCLE = 10.0
TERM = uuid4()
REFUSED = Reading(TERM, None, 0, sink_is_up=False, refused_at=9.0)


class Partition:
    """One partition of ours, cycle by cycle; its term began at the moment 0."""

    def __init__(self) -> None:
        self.health = TubeHealth(ME)
        self.now = 0.0
        self.documents = 0
        self.down_at = self.refused_at = float("-inf")
        self.observe(None)

    def observe(self, waits: float | None, *, documents: int = 0, up: bool = True) -> Complaint | None:
        """`waits`: for how long its first key has waited; `documents`: what the sink took in the cycle."""
        self.documents += documents
        if not up:
            self.down_at, self.refused_at = self.now, self.now - 1.0
        first = None if waits is None else self.now - waits
        reading = Reading(TERM, first, self.documents, up, self.down_at, self.refused_at)
        complaint = self.health.observe({0: reading}, self.now)
        self.now += CYCLE
        return complaint

    def fall_behind(self, cycles: int = CYCLES, by: float = 5.0) -> Complaint | None:
        """What the worker complains of after so many cycles, in each of which the wait grows by `by`."""
        complaint = self.observe(1.0, documents=9)
        for number in range(1, cycles + 1):
            complaint = self.observe(1.0 + number * by, documents=9)
        return complaint

    def hang(self, cycles: int = CYCLES) -> Complaint | None:
        complaint = None
        for _ in range(cycles):
            complaint = self.observe(None, up=False)
        return complaint


def place(
    partition: int, instance: UUID | None, lag: float = 0.0, *, works: bool = True, first: int | None = None
) -> Place:
    return Place(partition, instance, works, lag, first)


def test_a_worker_that_falls_behind_complains_of_the_partition_and_for_how_long() -> None:
    assert Partition().fall_behind() == Complaint(0, "behind", CYCLES, CYCLES * CYCLE)


def test_a_backlog_that_shrinks_or_stays_is_no_complaint() -> None:
    """Also one that is worked off slowly: more is delivered than comes in."""
    assert Partition().fall_behind(by=-0.1) is None
    assert Partition().fall_behind(by=0.5) is None


def test_one_good_cycle_ends_a_complaint() -> None:
    ours = Partition()
    assert ours.fall_behind(CYCLES - 1) is not None
    assert ours.observe(2.0, documents=9) is None
    late = ours.observe(9.0, documents=9)
    assert late is not None
    assert late.cycles == 1


def test_a_backlog_that_the_term_has_inherited_is_not_held_against_it() -> None:
    """So it moves once, from the worker that fell behind to one that is given the time to catch up."""
    ours = Partition()
    for number in range(2 * CYCLES):
        assert ours.observe(1000.0 + 10.0 * number, documents=9) is None


def test_a_new_term_is_judged_anew() -> None:
    health = TubeHealth(ME)
    for number in range(3 * CYCLES):
        reading = Reading(uuid4(), None, 0, sink_is_up=False)
        assert health.observe({0: reading}, number * CYCLE) is None


def test_a_sink_that_is_down_and_takes_nothing_is_a_complaint() -> None:
    assert Partition().hang() == Complaint(0, "stuck", CYCLES, CYCLES * CYCLE)


def test_a_sink_that_takes_documents_between_failures_is_none() -> None:
    ours = Partition()
    for _ in range(CYCLES):
        assert ours.observe(None, documents=1, up=False) is None


# --- what is asked of the peers ---


def why(complaint: Complaint | None, *places: Place, processes: int | None = None) -> str | None:
    assert complaint is not None
    return TubeHealth(ME).why_shed(complaint, places, processes)


def test_it_takes_several_cycles() -> None:
    peers = place(0, ME, 60.0), place(1, PEER)
    assert why(Partition().fall_behind(CYCLES - 1), *peers) is None
    assert why(Partition().fall_behind(), *peers) == (
        "partition 0 has fallen behind for 60 s, to a lag of 60 s, and 1 other worker keeps up"
    )


@pytest.mark.parametrize(
    "peer",
    [
        pytest.param(place(1, PEER, 40.0), id="it lags itself"),
        pytest.param(place(1, PEER, works=False), id="its sink or source is down"),
        pytest.param(place(1, None), id="it is lost"),
        pytest.param(place(1, ME), id="it is this one"),
    ],
)
def test_nothing_is_given_up_when_no_peer_would_do_better(peer: Place) -> None:
    assert why(Partition().fall_behind(), place(0, ME, 60.0), peer) is None


def test_a_process_that_leads_nothing_may_take_over() -> None:
    ours = place(0, ME, 60.0)
    assert why(Partition().fall_behind(), ours, processes=1) is None
    told = why(Partition().fall_behind(), ours, processes=2)
    assert told is not None
    assert told.endswith("and 1 worker leads nothing of the tube")
    busy = place(1, PEER, 59.0)
    assert why(Partition().fall_behind(), ours, busy, processes=2) is None, "that is the one that leads"


def test_all_partitions_of_a_peer_must_be_well() -> None:
    places = place(0, ME, 60.0), place(1, PEER), place(2, PEER, 55.0)
    assert why(Partition().fall_behind(), *places) is None


def test_a_stuck_partition_is_given_up_when_a_peer_is_seen_to_deliver() -> None:
    ours = Partition()
    complaint = ours.hang()
    assert complaint is not None
    before = [place(0, ME, 60.0, works=False), place(1, PEER, first=7)]
    after = [before[0], place(1, PEER, first=8)]
    ours.health.look(before, ours.now - 5)
    assert ours.health.why_shed(complaint, before, 2) is None
    ours.health.look(after, ours.now)
    assert ours.health.why_shed(complaint, after, 2) is None, "the sink has not refused us since"
    complaint = ours.observe(None, up=False)
    ours.health.look(after, ours.now)
    assert complaint is not None
    assert ours.health.why_shed(complaint, after, 2) is None, "that request began before the look"
    complaint = ours.observe(None, up=False)
    assert complaint is not None
    assert ours.health.why_shed(complaint, after, 2) == (
        "the sink has taken nothing of partition 0 for 80 s, and takes documents of 1 other worker"
    )


def test_a_backlog_that_an_outage_has_left_says_nothing() -> None:
    """All were down; a peer that had less to deliver has caught up, and we have not yet."""
    ours = Partition()
    ours.observe(1.0, documents=9)
    for number in range(1, CYCLES + 1):
        ours.observe(1.0 + number * CYCLE, up=False)
    for number in range(1, 3 * CYCLES):
        waits = 1.0 + (CYCLES + number) * CYCLE
        assert ours.observe(waits, documents=9) is None, "the pod is older than the outage's end"
    assert ours.observe(15.0, documents=9) is None
    for cycles in range(1, CYCLES + 1):  # what came after the outage is our own fault
        complaint = ours.observe(15.0 + cycles * 5.0, documents=9)
        assert complaint == Complaint(0, "behind", cycles, cycles * CYCLE)


def test_the_end_of_an_outage_does_not_turn_its_length_into_falling_behind() -> None:
    ours = Partition()
    ours.down_at = ours.now
    ours.hang()
    ours.down_at = float("-inf")
    complaint = ours.observe(None)
    assert complaint is None
    assert ours.fall_behind(1) == Complaint(0, "behind", 1, CYCLE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(place(1, PEER), place(1, PEER), id="idle: nobody knows whether its sink is up"),
        pytest.param(place(1, PEER, first=7), place(1, PEER, first=7), id="nothing was delivered"),
        pytest.param(place(1, PEER, first=7), place(1, PEER, works=False), id="its sink is down now"),
    ],
)
def test_a_sink_that_may_be_down_for_all_makes_nobody_give_up_anything(before: Place, after: Place) -> None:
    ours = Partition()
    complaint = ours.hang()
    assert complaint is not None
    ours.health.look([before], ours.now - 25)
    ours.health.look([after], ours.now - 15)
    assert ours.health.why_shed(complaint, [place(0, ME, works=False), after], 3) is None


def test_what_a_peer_delivered_in_an_earlier_trouble_counts_no_more() -> None:
    ours = Partition()
    ours.hang(1)
    ours.health.look([place(1, PEER, first=7)], 1.0)
    ours.health.look([place(1, PEER, first=8)], 2.0)
    assert ours.observe(None, documents=1) is None
    complaint = ours.hang()
    assert complaint is not None
    assert ours.health.why_shed(complaint, [place(0, ME, works=False), place(1, PEER)], 2) is None


def leaders(draw: st.DrawFn) -> Iterator[Place]:
    number = draw(st.integers(1, 5))
    for partition in range(draw(st.integers(number, 8))):
        yield place(
            partition,
            UUID(int=1 + partition % number),
            draw(st.floats(0, 1000)),
            works=draw(st.booleans()),
            first=draw(st.none() | st.integers(1, 3)),
        )


@st.composite
def looks(draw: st.DrawFn) -> tuple[list[Place], list[Place]]:
    return list(leaders(draw)), list(leaders(draw))


@given(looks())
def test_never_do_all_give_up_at_once(seen: tuple[list[Place], list[Place]]) -> None:
    """All lead something, see the same, and complain of their worst partition: one at least keeps its own."""
    before, after = seen
    shed: list[bool] = []
    processes = {one.instance for one in after if one.instance is not None}
    for process in processes:
        health = TubeHealth(process)
        health.observe({one.partition: REFUSED for one in after}, 0.0)
        health.look(before, 0.0)
        health.look(after, 1.0)
        led = [one for one in after if one.instance == process]
        worst = max(led, key=lambda one: (not one.works, one.lag))
        complaint = Complaint(worst.partition, "behind" if worst.works else "stuck", CYCLES, 60.0)
        shed.append(health.why_shed(complaint, after, len(processes)) is not None)
    assert not all(shed)


# --- how long it stays away ---


def test_each_absence_is_twice_as_long_until_the_worker_stays_well() -> None:
    absences = Absences(60.0)
    now = 0.0
    for seconds in (60, 120, 240):
        assert absences.begin(now) == seconds
        assert not absences.end_if_due(now + seconds - 1)
        now += seconds
        assert absences.end_if_due(now)
        assert absences.until is None
        now += 30
    now += 240
    assert absences.begin(now) == 60


def test_absences_do_not_grow_without_end() -> None:
    absences = Absences(60.0)
    now = longest = 0.0
    for _ in range(20):
        longest = absences.begin(now)
        now += longest
        assert absences.end_if_due(now)
    assert longest == 32 * 60
