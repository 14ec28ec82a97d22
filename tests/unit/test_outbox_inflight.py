"""The in-flight machine of an outbox against a model of its table, its topics and its operator."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pytube.outbox.inflight import InFlight, Rules
from pytube.outbox.records import NO_ANSWER, Chunk, Failure, Fault, Letter, Record

STRICT = Rules(window=1)
WINDOWED = Rules(window=4)
SILENT = Failure(Fault.UNANSWERED, "no broker")
DOWN = Failure(Fault.TOPIC, "the topic takes nothing")
REFUSED = Failure(Fault.BATCH, "the broker refuses a record")
POISON = Failure(Fault.POISON, "too large")
UNSENT = Failure(Fault.UNSENT, "purged")


def record(number: int, key: str | None = "k", topic: str = "t", partition_key: str | None = None) -> Record:
    return Record(number, 0.0, topic, key, b"v", partition_key=partition_key)


def ids(chunk: Chunk | None) -> list[int]:
    return [] if chunk is None else [one.id for one in chunk.records()]


def take(machine: InFlight, now: float = 0.0) -> Chunk:
    chunk = machine.take(now)
    assert chunk is not None, "nothing waits"
    return chunk


def loaded(rules: Rules, *keys: str | None, topic: str = "t") -> InFlight:
    """A machine that holds a record of each key, with ids from 1 on."""
    machine = InFlight(rules)
    machine.add([record(number, key, topic) for number, key in enumerate(keys, 1)])
    return machine


def done(machine: InFlight) -> list[int]:
    """What is finished; it is purged at once."""
    finished = sorted(machine.finished())
    machine.confirm_purged()
    return finished


# --- back-off -----------------------------------------------------------------------------------


def resting(rules: Rules) -> tuple[InFlight, float]:
    """A machine whose only record has failed alone, and when it may be sent again."""
    machine = loaded(rules, "k")
    machine.settle(take(machine), {1: REFUSED}, 0.0)
    until = machine.next_at()
    assert until is not None
    return machine, until


def test_a_new_record_does_not_cut_the_back_off_of_its_key_short() -> None:
    machine, until = resting(STRICT)
    machine.add([record(2)])
    assert machine.take(0.0) is None
    assert ids(machine.take(until)) == [1]


def test_a_newer_record_that_replaces_one_waits_for_its_back_off() -> None:
    machine, until = resting(Rules(window=1, compact=True))
    machine.add([record(2)])
    assert machine.take(0.0) is None
    machine.settle(take(machine, until), {}, until)
    assert done(machine) == [1, 2]


# --- order --------------------------------------------------------------------------------------


def test_strict_one_record_of_a_key_flies() -> None:
    machine = loaded(STRICT, "a", "a", "b", None, None)
    first = take(machine)
    assert sorted(ids(first)) == [1, 3, 4, 5]
    assert machine.take(0.0) is None
    machine.settle(first, {}, 0.0)
    assert done(machine) == [1, 3, 4, 5]
    assert ids(machine.take(0.0)) == [2]


def test_what_a_crash_would_have_sent_again_counts_as_if_it_flew() -> None:
    machine = loaded(WINDOWED, *"aaaaaa")
    machine.settle(take(machine), {}, 0.0)
    assert sorted(machine.finished()) == [1, 2, 3, 4]
    assert machine.take(0.0) is None, "a crash before the purge repeats a window's worth already"
    machine.confirm_purged()
    assert ids(machine.take(0.0)) == [5, 6]


def test_in_transactions_a_crash_repeats_nothing_and_nothing_waits_for_a_purge() -> None:
    machine = loaded(Rules(window=4, repeats=False), *"aaaaaa")
    machine.settle(take(machine), {}, 0.0)
    assert ids(machine.take(0.0)) == [5, 6]


def test_windowed_as_many_fly_as_the_window_has() -> None:
    machine = loaded(WINDOWED, *"aaaaaa")
    first = take(machine)
    assert ids(first) == [1, 2, 3, 4]
    machine.settle(first, {}, 0.0)
    assert done(machine) == [1, 2, 3, 4]
    assert ids(machine.take(0.0)) == [5, 6]


def test_after_a_failure_the_rest_of_the_key_is_sent_again_in_order() -> None:
    machine = InFlight(Rules(window=4, chunk=2))
    machine.add([record(number) for number in range(1, 6)])
    first, second = take(machine), take(machine)
    machine.settle(second, {}, 0.0)
    assert done(machine) == [], "what was sent before it may still fail"
    machine.settle(first, {2: UNSENT}, 0.0)
    assert done(machine) == [1]
    assert ids(machine.take(0.0)) == [2, 3]
    assert ids(machine.take(0.0)) == [4, 5]


def test_nothing_of_a_failed_key_is_sent_while_some_of_it_flies() -> None:
    machine = InFlight(Rules(window=4, chunk=2))
    machine.add([record(number) for number in range(1, 6)])
    first, second = take(machine), take(machine)
    machine.settle(first, {1: UNSENT}, 0.0)
    assert machine.take(0.0) is None
    machine.settle(second, {3: UNSENT, 4: UNSENT}, 0.0)
    assert ids(machine.take(0.0)) == [1, 2]


def test_the_partition_key_orders_where_there_is_one() -> None:
    machine = InFlight(STRICT)
    machine.add([record(1, "a", partition_key="p"), record(2, "b", partition_key="p"), record(3, "a")])
    assert ids(machine.take(0.0)) == [1, 3]


# --- topics -------------------------------------------------------------------------------------


def test_a_topic_cools_down_alone_and_for_longer_each_time() -> None:
    machine = loaded(WINDOWED, "a", topic="bad")
    machine.add([record(2, "a", "good")])
    bad, good = take(machine), take(machine)
    machine.settle(good, {}, 0.0)
    now = 0.0
    pauses = []
    for _ in range(10):
        machine.settle(bad, {1: DOWN}, now)
        assert machine.take(now) is None
        at = machine.next_at()
        assert at is not None
        pauses.append(at - now)
        now = at
        bad = take(machine, now)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    machine.settle(bad, {}, now)
    assert machine.newly_down() == [("bad", DOWN.reason)]
    assert machine.resting() == {}


def test_a_topic_that_was_down_is_sent_carefully_at_first() -> None:
    machine = InFlight(Rules(window=4, chunk=4, cooldown=1))
    machine.add([record(number, f"k{number}") for number in range(1, 20)])
    chunk = take(machine)
    machine.settle(chunk, dict.fromkeys(ids(chunk), DOWN), 0.0)
    sizes = []
    for _ in range(4):
        chunk = take(machine, 1.0)
        sizes.append(chunk.size)
        assert chunk.careful is (chunk.size < 4 or len(sizes) == 3)
        if chunk.careful:
            assert machine.take(1.0) is None, "one chunk at a time"
        machine.settle(chunk, {}, 1.0)
    assert sizes == [1, 2, 4, 4]


def unanswered(machine: InFlight, now: float) -> None:
    """The one record that waits is tried, and there is no answer."""
    machine.settle(take(machine, now), {1: SILENT}, now)


def test_what_had_no_answer_goes_on_as_soon_as_a_broker_answers() -> None:
    machine = loaded(Rules(window=4, cooldown=600, cooldown_limit=600), "a")
    unanswered(machine, 1.0)
    assert machine.newly_down() == []
    assert machine.rests() == []
    machine.reached(0.9, 2.0)
    assert machine.take(2.0) is None, "that question was asked before"
    machine.reached(1.1, 2.0)
    machine.settle(take(machine, 2.0), {}, 2.0)
    assert not machine.waits_for_answer
    assert done(machine) == [1]
    assert machine.newly_down() == []


def test_a_topic_that_has_no_answer_while_a_broker_answers_rests() -> None:
    """As one does whose partition has no leader."""
    machine = loaded(Rules(window=4, cooldown=600, cooldown_limit=600), "a")
    unanswered(machine, 1.0)
    machine.reached(1.1, 2.0)
    unanswered(machine, 3.0)
    machine.reached(2.9, 3.1)
    assert machine.rests() == []
    machine.reached(3.1, 4.0)
    (rest,) = machine.rests()
    assert rest.reason == f"{NO_ANSWER}: {SILENT.reason}"
    assert [topic for topic, _ in machine.newly_down()] == ["t"]
    machine.reached(5.0, 5.0)
    assert machine.take(5.0) is None, "it is not tried with each answer"


def test_an_outage_after_an_answer_says_nothing_of_the_topic() -> None:
    machine = loaded(Rules(window=4, cooldown=600, cooldown_limit=600), "a")
    unanswered(machine, 1.0)
    machine.reached(1.1, 2.0)
    unanswered(machine, 3.0)
    machine.unreachable()
    machine.reached(4.0, 4.0)
    assert machine.rests() == []
    machine.settle(take(machine, 4.0), {1: DOWN}, 4.0)
    assert [rest.reason for rest in machine.rests()] == [DOWN.reason], "a refusal is an answer"
    assert not machine.waits_for_answer


# --- records that can't be sent -----------------------------------------------------------------


def send_all(machine: InFlight, poison: set[int]) -> list[Letter]:
    """Deliver until nothing is left, where the broker refuses what is sent together with poison."""
    letters: list[Letter] = []
    now = 0.0
    while machine.held:
        while (chunk := machine.take(now)) is not None:
            bad = not poison.isdisjoint(ids(chunk))
            machine.settle(chunk, dict.fromkeys(ids(chunk), REFUSED) if bad else {}, now)
        posted = machine.letters()
        letters += posted
        machine.park(posted, [letter.record.id for letter in posted])
        now += 0.05
        assert now < 1000, "it goes on for ever"
    return letters


def test_a_record_that_the_broker_refuses_is_parked_alone() -> None:
    machine = InFlight(Rules(window=4, attempts=3, repeats=False))
    machine.add([record(number, f"k{number % 7}") for number in range(1, 100)])
    (letter,) = send_all(machine, {50})
    assert (letter.record.id, letter.attempts, letter.behind) == (50, 3, False)
    assert done(machine) == [number for number in range(1, 100) if number != 50]


def test_hold_parks_what_follows_of_the_key() -> None:
    machine = InFlight(Rules(window=1, hold=True, repeats=False))
    machine.add([record(1), record(2), record(3, "other")])
    letters = send_all(machine, {1})
    assert [(letter.record.id, letter.behind) for letter in letters] == [(1, False), (2, True)]
    machine.add([record(4)])
    (letter,) = machine.letters()
    assert (letter.record.id, letter.behind) == (4, True)
    # Meanwhile an operator has told to send the key again, so that the database refuses.
    machine.park([letter], [])
    assert machine.has_refused
    assert machine.take(9.0) is None, "records 1 and 2 come first"
    machine.add([record(1), record(2)])
    machine.resume()
    for number in (1, 2, 4):
        chunk = take(machine, 9.0)
        assert ids(chunk) == [number]
        machine.settle(chunk, {}, 9.0)


def test_a_key_whose_waiting_record_was_parked_with_its_topic_is_in_order_afterwards() -> None:
    machine = InFlight(Rules(window=1, hold=True, repeats=False))
    machine.add([record(1), record(2)])
    send_all(machine, {1})
    machine.add([record(number, "other") for number in range(3, 23)])
    send_all(machine, set())  # else the topic would be sent record by record
    machine.add([record(23), record(24, "another")])
    machine.park(machine.letters(), [])
    assert sorted(machine.waiting_of("t") or ()) == [23, 24], "23 waits for what an operator has retried"
    machine.forget("t", [23])
    machine.add([record(25)])
    machine.resume()
    machine.add([record(26)])
    assert ids(take(machine, 9.0)) == [24, 25]
    assert machine.take(9.0) is None, "a record of the key flies"


def test_a_key_that_another_term_has_held() -> None:
    machine = InFlight(Rules(window=4, hold=True))
    machine.add([record(7)._replace(held=True), record(8, "other")])
    assert ids(machine.take(0.0)) == [8]
    assert [letter.record.id for letter in machine.letters()] == [7]


def test_a_record_that_somebody_deleted_meanwhile_is_done() -> None:
    machine = loaded(STRICT, "k", "k")
    machine.settle(take(machine), {1: POISON}, 0.0)
    machine.park(machine.letters(), [])
    assert ids(machine.take(0.0)) == [2]


# --- compaction ---------------------------------------------------------------------------------


def test_compaction_keeps_the_newest_of_those_that_wait() -> None:
    machine = InFlight(Rules(window=1, compact=True))
    machine.add([record(1), record(2), record(3), record(4, None), record(5, None)])
    chunk = take(machine)
    assert ids(chunk) == [3, 4, 5]
    assert done(machine) == []
    machine.settle(chunk, {}, 0.0)
    assert done(machine) == [1, 2, 3, 4, 5]
    assert machine.compacted == 2


def test_a_chunk_names_what_its_records_have_replaced() -> None:
    machine = loaded(Rules(window=2, compact=True), "a", "b", "a", "a")
    chunk = take(machine)
    assert (sorted(ids(chunk)), sorted(chunk.done())) == ([2, 4], [1, 2, 3, 4])


def test_compaction_goes_by_the_key_not_the_partition_key() -> None:
    machine = InFlight(Rules(window=9, compact=True))
    machine.add([record(n, key, partition_key="p") for n, key in enumerate("abab", 1)])
    assert ids(machine.take(0.0)) == [3, 4]


def test_what_was_replaced_is_sent_when_its_replacement_is_parked() -> None:
    machine = InFlight(Rules(window=1, compact=True))
    machine.add([record(1), record(2)])
    machine.settle(take(machine), {2: POISON}, 0.0)
    letters = machine.letters()
    assert [letter.record.id for letter in letters] == [2]
    machine.park(letters, [2])
    assert ids(machine.take(0.0)) == [1]


# --- all of it ----------------------------------------------------------------------------------


class Delivery(RuleBasedStateMachine):
    """Kafka writes, of each lane, a prefix of what flies; of what it wrote it acknowledges a prefix."""

    @initialize(
        window=st.sampled_from([1, 2, 5]),
        chunk=st.integers(1, 5),
        compact=st.booleans(),
        hold=st.booleans(),
        attempts=st.integers(1, 2),
    )
    def begin(self, window: int, chunk: int, compact: bool, hold: bool, attempts: int) -> None:
        self.keeps = Rules(window=window, chunk=chunk, compact=compact, hold=hold, attempts=attempts)
        self.machine = InFlight(self.keeps)
        self.rows: dict[int, Record] = {}
        self.rows_ever: dict[int, Record] = {}
        self.marked: set[int] = set()
        self.parked: dict[int, bool] = {}
        """Whether each parked record is behind another."""
        self.retried: list[int] = []
        self.poison: set[int] = set()
        self.flights: list[Chunk] = []
        self.cut: dict[tuple[str, object], int] = {}
        """Lanes of which a record has failed, and how many of it still fly."""
        self.log: dict[tuple[str, object], list[int]] = defaultdict(list)
        self.stashed: dict[tuple[str, object], list[int]] = defaultdict(list)
        self.purging: list[int] = []
        """What a purge is under way for."""
        self.purged: set[int] = set()
        self.crashed = False
        self.now = 0.0
        self.next = 1

    def lane(self, one: Record) -> tuple[str, object]:
        return one.topic, one.partition_key or one.key or one.id

    @rule(
        keys=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=6),
        topic=st.sampled_from(["t", "u"]),
        apart=st.booleans(),
        poison=st.integers(0, 12),
    )
    def stash(self, keys: list[str | None], topic: str, apart: bool, poison: int) -> None:
        for number, key in enumerate(keys):
            one = record(self.next, key, topic, "p" if apart and key == "c" else None)
            self.rows[one.id] = self.rows_ever[one.id] = one
            self.stashed[self.lane(one)].append(one.id)
            if number == poison:
                self.poison.add(one.id)
            self.next += 1

    @rule(limit=st.integers(1, 8))
    def mark(self, limit: int) -> None:
        found, self.retried = self.retried[:limit], self.retried[limit:]
        fresh = (
            n for n in self.rows if n not in self.marked and n not in self.parked and n not in self.retried
        )
        found += [n for n in fresh if n not in found][: limit - len(found)]
        self.marked.update(found)
        assert self.machine.add([self.rows[n] for n in found]) == len(found)

    @precondition(lambda self: self.machine.has_refused and not self.retried)
    @rule()
    def resume(self) -> None:
        self.machine.resume()

    @rule()
    def take(self) -> None:
        chunk = self.machine.take(self.now)
        if chunk is not None:
            self.flights.append(chunk)

    @rule(seconds=st.sampled_from([0.0, 0.2, 5.0, 100.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: bool(self.flights))
    @rule(data=st.data(), how=st.sampled_from(["well", "well", "down", "unsent"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        # Of one lane the chunks are settled in order; of different topics in any.
        topic = data.draw(st.sampled_from(sorted({chunk.topic for chunk in self.flights})))
        of_topic = [chunk for chunk in self.flights if chunk.topic == topic]
        chunk = data.draw(st.sampled_from(of_topic)) if self.keeps.window == 1 else of_topic[0]
        self.flights.remove(chunk)
        bad = not self.poison.isdisjoint(ids(chunk))
        self.machine.settle(chunk, self.outcome(chunk, data, "refused" if bad else how), self.now)

    def outcome(self, chunk: Chunk, data: st.DataObject | None, how: str) -> dict[int, Failure]:
        failure = {"down": DOWN, "unsent": UNSENT, "refused": REFUSED}.get(how, UNSENT)
        failures: dict[int, Failure] = {}
        lanes: dict[tuple[str, object], list[int]] = defaultdict(list)
        for one in chunk.records():
            lanes[self.lane(one)].append(one.id)
        for lane, part in lanes.items():
            landed = acked = len(part)
            if how == "refused":
                landed = acked = 0
            elif how != "well" and data is not None:
                landed = data.draw(st.integers(0, len(part)))
                acked = data.draw(st.integers(0, landed))
            if lane in self.cut:
                landed = acked = 0
            self.log[lane] += part[:landed]
            failures |= dict.fromkeys(part[acked:], failure)
            flying = sum(self.lane(one) == lane for other in self.flights for one in other.records())
            if flying and (acked < len(part) or lane in self.cut):
                self.cut[lane] = flying
            else:
                self.cut.pop(lane, None)
        return failures

    @rule()
    def park(self) -> None:
        letters = self.machine.letters()
        answer = []
        for letter in letters:
            one = letter.record
            lane = self.lane(one)
            heads = [n for n, behind in self.parked.items() if not behind and self.lane(self.rows[n]) == lane]
            if letter.behind and not heads:
                continue
            assert letter.behind or not heads or one.key is None or not self.keeps.hold
            self.parked[one.id] = letter.behind
            self.marked.discard(one.id)
            answer.append(one.id)
        self.machine.park(letters, answer)

    @precondition(lambda self: self.keeps.hold and bool(self.parked))
    @rule(data=st.data(), cured=st.booleans())
    def retry(self, data: st.DataObject, cured: bool) -> None:
        lane = self.lane(self.rows[data.draw(st.sampled_from(sorted(self.parked)))])
        again = sorted(n for n in self.parked if self.lane(self.rows[n]) == lane)
        for number in again:
            del self.parked[number]
            if cured:
                self.poison.discard(number)
        self.retried += again

    @precondition(lambda self: not self.purging)
    @rule()
    def begin_purge(self) -> None:
        self.purging = list(self.machine.finished())
        for number in self.purging:
            assert number in self.marked
            assert number not in self.parked

    @precondition(lambda self: bool(self.purging))
    @rule()
    def end_purge(self) -> None:
        self.commit_purge()
        self.machine.confirm_purged()

    def commit_purge(self) -> None:
        for number in self.purging:
            del self.rows[number]
            self.marked.discard(number)
            self.purged.add(number)
        self.purging = []

    @rule(data=st.data(), commits=st.booleans())
    def crash(self, data: st.DataObject, commits: bool) -> None:
        """The worker dies; the purge under way is committed or not. The next term has all that is left."""
        for chunk in self.flights:
            bad = not self.poison.isdisjoint(ids(chunk))
            self.outcome(chunk, data, "refused" if bad else "unsent")
        if commits:
            self.commit_purge()
        self.flights, self.purging, self.retried = [], [], []
        self.crashed = True
        self.cut.clear()
        self.marked.clear()
        self.machine = InFlight(self.keeps)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        if not hasattr(self, "machine"):
            return
        unfinished = set(self.machine.unfinished())
        assert unfinished <= self.marked
        assert self.machine.held == len(unfinished)
        flying = [n for chunk in self.flights for n in ids(chunk)]
        assert len(set(flying)) == len(flying), "a record flies twice"
        assert unfinished >= set(flying) or self.keeps.window > 1

    @invariant()
    def the_window_is_kept(self) -> None:
        flying: dict[tuple[str, object], int] = defaultdict(int)
        for chunk in getattr(self, "flights", []):
            for one in chunk.records():
                flying[self.lane(one)] += 1
            if chunk.careful:
                assert len({self.lane(one) for one in chunk.records()}) == chunk.size
                assert sum(other.topic == chunk.topic for other in self.flights) == 1
        assert max(flying.values(), default=0) <= getattr(self, "keeps", WINDOWED).window

    def teardown(self) -> None:
        """With all well from now on, everything is purged or parked, and order was kept."""
        if not hasattr(self, "machine"):
            return
        for _ in range(10_000):
            if not (self.machine.held or self.retried or self.rows.keys() - self.parked.keys()):
                break
            self.now += 100.0
            self.mark(8)
            if self.machine.has_refused and not self.retried:
                self.machine.resume()
            self.take()
            if self.flights:
                chunk = self.flights.pop(0)
                bad = not self.poison.isdisjoint(ids(chunk))
                self.machine.settle(chunk, self.outcome(chunk, None, "refused" if bad else "well"), self.now)
            self.park()
            if not self.purging:
                self.begin_purge()
            self.end_purge()
        assert not self.machine.held
        assert self.rows.keys() == self.parked.keys()
        assert {n for numbers in self.stashed.values() for n in numbers} == self.purged | self.parked.keys()
        for lane, log in self.log.items():
            self.check_order(lane, log)

    def check_order(self, lane: tuple[str, object], log: list[int]) -> None:
        if self.keeps.compact and self.crashed:
            # The next term may mark fewer, and send what a newer one had replaced; the newest follows again.
            last = {self.rows_ever[number].key: number for number in log}
            assert all(number <= last[self.rows_ever[number].key] for number in log), (
                "the last is not the newest"
            )
            return
        seen: list[int] = []
        for number in log:
            if number in seen:
                assert len(seen) - seen.index(number) <= self.keeps.window, "a repeat from beyond the window"
            else:
                assert not seen or number > seen[-1], "a first occurrence out of order"
                seen.append(number)
        delivered = [n for n in self.stashed[lane] if n in self.purged]
        if not self.keeps.compact:
            assert set(seen) >= set(delivered)


Delivery.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestDelivery = Delivery.TestCase


# --- what operators and locks ask for -------------------------------------------------------------


def test_what_somebody_has_locked_keeps_its_place_in_the_window() -> None:
    machine = loaded(Rules(window=2), "a", "b", "a", "b", "a", "b")
    machine.settle(take(machine), {}, 0.0)
    assert sorted(machine.finished()) == [1, 2, 3, 4]
    machine.confirm_purged({1})
    assert ids(machine.take(0.0)) == [5, 6], "one more of a, which is not all of its window"
    machine.add([record(7, "a")])
    assert machine.take(0.0) is None
    machine.confirm_purged()
    assert ids(machine.take(0.0)) == [7], "the other one is purged now"


def test_letters_that_are_postponed_come_again_in_front() -> None:
    machine = loaded(Rules(window=1), "a", "b")
    machine.settle(take(machine), {1: POISON, 2: POISON}, 0.0)
    letters = machine.letters()
    machine.postpone(letters[:1])
    machine.park(letters[1:], [2])
    assert machine.letters() == letters[:1]


def test_a_topic_that_rests_is_forgotten_with_what_was_parked_of_it() -> None:
    machine = loaded(Rules(window=10, compact=True), "a", "a", "b", None)
    chunk = take(machine)
    assert machine.waiting_of("t") is None, "something of it flies"
    machine.settle(chunk, dict.fromkeys(ids(chunk), DOWN), 0.0)
    (rest,) = machine.rests()
    assert (rest.topic, rest.reason, rest.since) == ("t", DOWN.reason, 0.0)
    assert machine.waiting_of("t") is not None
    assert sorted(machine.waiting_of("t") or ()) == [1, 2, 3, 4], "with what is replaced"
    machine.forget("t", [2, 3])
    assert machine.unfinished() == [1, 4]
    assert [one.records for one in machine.rests()] == [2]
    machine.forget("t", [1, 4])
    assert machine.rests() == []
    assert machine.held == 0
    machine.add([record(9, "a")])
    assert ids(machine.take(100.0)) == [9]
    assert machine.waiting_of("other") == []
