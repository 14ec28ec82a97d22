"""The in-flight machine against a small model that keeps every touch by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from pytube.model import Id, Key, Pod, PodClass
from pytube.pipeline.inflight import Flight, InFlight


def land(machine: InFlight, flight: Flight) -> None:
    """All keys of a flight are done."""
    machine.land_keys(flight, flight.by_shard())


def pod(seq: int, *ids: int, shard: int = 0, op: str = "U") -> Pod:
    return Pod(seq, op, shard, list(ids))


def take(machine: InFlight, limit: int = 100, pod_class: PodClass = PodClass.INCREMENTAL) -> Flight:
    flight = machine.take(pod_class, limit)
    assert flight is not None, "nothing waits"
    return flight


def keys_of(flight: Flight) -> list[Key]:
    return [(shard, key) for shard, ids in flight.by_shard().items() for key in ids]


def seqs(machine: InFlight) -> list[int]:
    return sorted(machine.finished())


def test_a_pod_is_done_when_all_its_keys_are() -> None:
    machine = InFlight()
    machine.add([pod(1, 10, 11, 12)])
    first, second = take(machine, 2), take(machine, 2)
    land(machine, first)
    assert seqs(machine) == []
    land(machine, second)
    assert seqs(machine) == [1]


def test_ten_touches_of_a_key_that_waits_are_one_key() -> None:
    machine = InFlight()
    machine.add([pod(seq, 7) for seq in range(1, 11)])
    flight = take(machine)
    assert keys_of(flight) == [(0, 7)]
    land(machine, flight)
    assert seqs(machine) == list(range(1, 11))


def test_a_touch_after_the_flight_began_waits_for_a_flight_of_its_own() -> None:
    machine = InFlight()
    machine.add([pod(1, 7)])
    flight = take(machine)
    machine.add([pod(2, 7)])
    assert machine.take(PodClass.INCREMENTAL, 10) is None
    land(machine, flight)
    assert seqs(machine) == [1]
    land(machine, take(machine))
    assert seqs(machine) == [2]


def test_a_key_that_is_put_back_takes_up_what_came_while_it_flew() -> None:
    machine = InFlight()
    machine.add([pod(1, 7, 8)])
    flight = take(machine)
    machine.add([pod(2, 7)])
    machine.put_back(flight, {0: [7]})
    land(machine, flight)
    again = take(machine)
    assert (keys_of(again), machine.keys) == ([(0, 7)], 1)
    land(machine, again)
    assert seqs(machine) == [1, 2]


def test_the_same_id_of_two_shards_is_two_keys() -> None:
    machine = InFlight()
    machine.add([pod(1, 7, shard=1), pod(2, 7, shard=2)])
    assert sorted(keys_of(take(machine))) == [(1, 7), (2, 7)]


def test_ids_that_stand_twice_in_a_pod_are_one_key() -> None:
    machine = InFlight()
    machine.add([pod(1, 7, 7, 7)])
    land(machine, take(machine))
    assert seqs(machine) == [1]


def test_a_seq_that_is_held_is_ignored() -> None:
    machine = InFlight()
    machine.add([pod(1, 7)])
    machine.add([pod(1, 7)])
    land(machine, take(machine))
    assert seqs(machine) == [1]
    assert machine.keys == 0


def test_an_incremental_touch_draws_a_waiting_backfill_key_with_it() -> None:
    machine = InFlight()
    machine.add([pod(1, 7, 8, op="B"), pod(2, 7)])
    flight = take(machine, pod_class=PodClass.INCREMENTAL)
    assert keys_of(flight) == [(0, 7)]
    land(machine, flight)
    assert seqs(machine) == [2]
    land(machine, take(machine, pod_class=PodClass.BACKFILL))
    assert seqs(machine) == [1]


def test_the_longest_wait_is_that_of_keys_that_nobody_works_on() -> None:
    machine = InFlight()
    assert machine.longest_waiting(PodClass.INCREMENTAL) is None
    machine.add([Pod(seq, "U", seq % 2, [seq], None, float(seq)) for seq in range(1, 5)])
    machine.add([Pod(5, "U", 1, [3], None, 5.0), Pod(6, "B", 1, [9], None, 0.5)])
    assert machine.longest_waiting(PodClass.INCREMENTAL) == 1.0
    assert machine.longest_waiting(PodClass.BACKFILL) == 0.5
    flight = take(machine, 1)
    assert keys_of(flight) == [(1, 1)]
    assert machine.longest_waiting(PodClass.INCREMENTAL) == 2.0
    take(machine, 1)
    assert machine.longest_waiting(PodClass.INCREMENTAL) == 3.0, "since its first touch"
    take(machine)
    assert machine.longest_waiting(PodClass.INCREMENTAL) is None, "all fly"


def test_shards_take_turns() -> None:
    machine = InFlight()
    machine.add([pod(1, *range(10), shard=1), pod(2, *range(10), shard=2)])
    first, second = take(machine, 4), take(machine, 4)
    assert {shard for shard, _ in keys_of(first)} == {1}
    assert {shard for shard, _ in keys_of(second)} == {2}


def test_a_control_pod_is_held_until_it_was_acted_upon() -> None:
    machine = InFlight()
    control = Pod(1, "T", 3, [], {"type": "backfill_start"})
    assert machine.add([control]) == [control]
    assert (machine.unfinished(), machine.pods, machine.control) == ([1], 1, 1)
    machine.finish_control(control)
    assert (seqs(machine), machine.pods, machine.control) == ([1], 0, 0)


def test_landing_a_key_that_is_not_in_the_flight_is_an_error() -> None:
    machine = InFlight()
    machine.add([pod(1, 7)])
    flight = take(machine)
    with pytest.raises(KeyError):
        machine.land_keys(flight, {0: [8]})


# --- the machine against the model ----------------------------------------------------------------


@dataclass
class Model:
    """Each touch on its own: (seq, key) still owed, and what flies since when."""

    owed: dict[int, set[Key]] = field(default_factory=dict)
    control: set[int] = field(default_factory=set)
    flying: dict[Key, set[int]] = field(default_factory=dict)
    """A key in a flight, and the pods that owed it when the flight began."""


class InFlightMachine(RuleBasedStateMachine):
    """Adds, takes and lands at random; the model says what must be held, flying and finished."""

    flights: Bundle[Flight] = Bundle("flights")

    def __init__(self) -> None:
        super().__init__()
        self.machine = InFlight()
        self.model = Model()
        self.seq = 0
        self.collected: set[int] = set()

    @rule(
        shapes=st.lists(
            st.tuples(
                st.sampled_from("UUUDB"),
                st.integers(0, 2),
                st.lists(st.integers(-2, 6), max_size=5),
            ),
            max_size=4,
        )
    )
    def add(self, shapes: list[tuple[str, int, list[int]]]) -> None:
        pods = []
        for op, shard, ids in shapes:
            self.seq += 1
            pods.append(Pod(self.seq, op, shard, ids))
            if ids:
                self.model.owed[self.seq] = {(shard, key) for key in ids}
            else:
                self.model.control.add(self.seq)
        control = self.machine.add(pods)
        assert [p.seq for p in control] == [p.seq for p in pods if not p.ids]
        for control_pod in control:
            self.machine.finish_control(control_pod)
            self.model.control.discard(control_pod.seq)
            self.model.owed[control_pod.seq] = set()

    @rule(seq=st.integers(1, 20))
    def add_again(self, seq: int) -> None:
        """A mark may return what is held; it changes nothing."""
        if self.model.owed.get(seq):
            shard = next(iter(self.model.owed[seq]))[0]
            self.machine.add([Pod(seq, "U", shard, [99])])

    @rule(target=flights, pod_class=st.sampled_from(PodClass), limit=st.integers(1, 6))
    def take(self, pod_class: PodClass, limit: int) -> Flight | MultipleResults[Flight]:
        flight = self.machine.take(pod_class, limit)
        if flight is None:
            return multiple()
        keys = keys_of(flight)
        assert 1 <= len(keys) <= limit
        for key in keys:
            assert key not in self.model.flying, f"{key} is in two flights"
            owing = {seq for seq, owed in self.model.owed.items() if key in owed}
            assert owing, f"{key} flies though no pod owes it"
            self.model.flying[key] = owing
        return flight

    @rule(flight=consumes(flights))
    def land(self, flight: Flight) -> None:
        for key in keys_of(flight):
            self._landed(key)
        land(self.machine, flight)

    @rule(target=flights, flight=consumes(flights), data=st.data())
    def land_some(self, flight: Flight, data: st.DataObject) -> Flight | MultipleResults[Flight]:
        keys = keys_of(flight)
        if not keys:
            return multiple()
        some = data.draw(st.lists(st.sampled_from(keys), unique=True, max_size=len(keys)))
        by_shard: dict[int, list[Id]] = {}
        for shard, key in some:
            by_shard.setdefault(shard, []).append(key)
            self._landed((shard, key))
        self.machine.land_keys(flight, by_shard)
        return flight

    @rule(target=flights, flight=consumes(flights), data=st.data())
    def put_back_some(self, flight: Flight, data: st.DataObject) -> Flight | MultipleResults[Flight]:
        """Nothing of these was sent: each waits again, with what was blocked behind it."""
        if not (keys := keys_of(flight)):
            return multiple()
        keys = data.draw(st.lists(st.sampled_from(keys), unique=True))
        groups: dict[int, list[Id]] = {}
        for shard, key in keys:
            groups.setdefault(shard, []).append(key)
            del self.model.flying[shard, key]
        self.machine.put_back(flight, groups)
        return flight if len(flight) else multiple()

    def _landed(self, key: Key) -> None:
        for seq in self.model.flying.pop(key):
            self.model.owed[seq].discard(key)

    @rule()
    def collect(self) -> None:
        finished = set(self.machine.finished())
        assert not finished & self.collected, "a pod finished twice"
        for seq in finished:
            assert not self.model.owed[seq], f"pod {seq} finished before its keys"
        self.collected |= finished
        done = {seq for seq, owed in self.model.owed.items() if not owed}
        assert done == self.collected, "a pod whose keys are done was not told"

    @invariant()
    def nothing_is_lost(self) -> None:
        open_pods = {seq for seq, owed in self.model.owed.items() if owed}
        assert set(self.machine.unfinished()) == open_pods
        waiting_or_blocked = {
            key
            for seq, owed in self.model.owed.items()
            for key in owed
            if key not in self.model.flying or seq not in self.model.flying[key]
        }
        assert self.machine.flying == len(self.model.flying)
        assert self.machine.keys == len(self.model.flying) + len(waiting_or_blocked)

    def teardown(self) -> None:
        """Whatever happened, what is held can still be brought to its end."""
        for key in list(self.model.flying):
            self._landed(key)
        # flights that are still under way land through the machine's own records
        for shard in list(self.machine._shards.values()):
            for group in list(shard.flights):
                flight = Flight(PodClass.INCREMENTAL)
                flight.groups = {shard.number: group}
                land(self.machine, flight)
        for pod_class in (PodClass.INCREMENTAL, PodClass.BACKFILL) * 2:
            while (last := self.machine.take(pod_class, 3)) is not None:
                for key in keys_of(last):
                    self.model.flying[key] = {s for s, owed in self.model.owed.items() if key in owed}
                    self._landed(key)
                land(self.machine, last)
        assert self.machine.unfinished() == []
        assert self.machine.keys == 0


TestInFlightMachine = InFlightMachine.TestCase
TestInFlightMachine.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
