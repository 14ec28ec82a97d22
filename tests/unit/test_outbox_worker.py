"""What the worker of a partition of an outbox sends, holds, purges, parks and tells."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any
from uuid import uuid4

import pytest

from pytube.config import parse
from pytube.errors import BrokerUnavailable, ConfigError, Fenced
from pytube.events import RecordParked, SinkDown, SinkUp, TopicDown, TopicUp
from pytube.outbox.clients import outbox_clients
from pytube.outbox.inflight import Rules
from pytube.outbox.records import Failure, Fault, Record, Sent
from pytube.worker import outbox_worker, pace
from pytube.worker.database import Database
from pytube.worker.kafka import KafkaCluster
from pytube.worker.metrics import METRICS
from pytube.worker.queues import Outbox
from tests.docs.pages import BY_NAME, table_rows
from tests.docs.rule_tests import fed, shape
from tests.unit.outbox_rig import POISON, UNANSWERED, Rig

DOWN = Failure(Fault.TOPIC, "the broker refuses the topic")


async def test_all_is_sent_and_purged() -> None:
    rig = Rig()
    ids = rig.table.stash(*"abcabc" * 100)
    async with rig.running():
        await rig.until_empty()
    assert sorted(rig.kafka.written) == ids
    assert (
        rig.worker.counters.pods == rig.worker.counters.touches[0] == rig.worker.counters.documents[0] == 600
    )


async def test_a_hand_over_does_not_wait_for_an_attempt_to_take_an_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that answers late may take minutes for it."""
    monkeypatch.setattr(outbox_worker, "_OPEN_PAUSE", 0.01)
    rig = Rig()
    is_asked, is_given_up = asyncio.Event(), asyncio.Event()

    async def hang(*_: object) -> list[Sent]:
        is_asked.set()
        try:
            return await asyncio.Future()
        finally:
            is_given_up.set()

    rig.kafka.open = hang  # type: ignore[method-assign,assignment]
    async with rig.running():
        await rig.until(is_asked.is_set, "the id is asked for")
        rig.claim.revoke()
        await rig.until(lambda: rig.task is None or rig.task.done(), "the worker has ended")
        await rig.until(is_given_up.is_set, "the attempt is given up")
    assert rig.table.limits == [], "nothing was marked"


async def test_nothing_is_purged_before_kafka_has_it() -> None:
    rig = Rig()
    ids = rig.table.stash(*"abc")
    rig.kafka.paused = True
    async with rig.running():
        await rig.until(lambda: rig.kafka.under_way, "it is sent")
        assert rig.table.left == set(ids)
        rig.kafka.paused = False
        await rig.until_empty()


async def test_what_is_held_is_bounded_by_number_and_by_size() -> None:
    rig = Rig(in_flight=150)
    rig.table.stash(*"abc" * 200)
    rig.kafka.paused = True
    async with rig.running():
        await rig.until(lambda: rig.worker.machine.held == 150, "there is no more room")
        rig.kafka.paused = False
        await rig.until_empty()
    assert max(rig.table.limits) <= 100
    rig = Rig(in_flight_bytes=10_000)
    rig.table.stash(*map(str, range(300)), size=1000)
    async with rig.running():
        await rig.until_empty()
    assert rig.table.limits[0] == 100, "it is not known yet how large they are"
    assert max(rig.table.limits[1:]) <= 10


def mark_only_what_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """In strict order."""
    monkeypatch.setattr(outbox_worker, "_MARK_SHARE_APART", float("inf"))
    monkeypatch.setattr(outbox_worker, "_MARK_PAUSE_APART", float("inf"))


async def test_purges_do_not_mark_while_there_is_enough_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark of an adopted table looks at all that is held, and what is purged is its price."""
    mark_only_what_pays(monkeypatch)
    rig = Rig(Rules(window=1))
    ids = rig.table.stash(*"a" * 50)
    async with rig.running():
        await rig.until_empty()
        assert rig.kafka.written == ids, "one by one"
        assert rig.table.limits[0] == 100
        assert not any(rig.table.marked_before), "of 50 purges only the last marks: nothing is held then"
        ids += rig.table.stash("a")
        rig.active_term.wake()
        await rig.until_empty()
    assert rig.kafka.written == ids


async def test_in_strict_order_no_key_waits_for_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks come between purges, and so while records fly; the purge of all that is held marks, too."""
    monkeypatch.setattr(outbox_worker, "_MARK_SHARE_APART", 0.0)
    rig = Rig(Rules(window=1))
    ids = rig.table.stash(*"a" * 50)
    async with rig.running():
        await rig.until_empty()
    assert rig.kafka.written == ids
    purged = [count for count in rig.table.purged_with_marks if count]
    assert purged == [1], "the last one of all"
    assert len(rig.table.purged_with_marks) >= 50, "each other purge was followed by one"


async def test_in_strict_order_a_step_takes_two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One purges what is written, one sends what follows: another one at once would find nothing."""
    mark_only_what_pays(monkeypatch)
    rig = Rig(Rules(window=1), needs_poll=False)
    rig.table.stash(*"a" * 50)
    async with rig.running():
        await rig.until_empty()
    assert rig.kafka.looks <= 2 * 50 + 10, "and some at the beginning and the end"


async def test_in_strict_order_what_a_round_leaves_undone_follows_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four chunks are handed over before the event loop has its turn; nothing tells of the others."""
    mark_only_what_pays(monkeypatch)
    monkeypatch.setattr(pace, "_HELD_UP_PAUSE", 1000.0)
    rig = Rig(Rules(window=1, chunk=10), needs_poll=False)
    ids = rig.table.stash(*map(str, range(95)))
    rig.kafka.paused = True
    async with rig.running():
        await rig.until(lambda: rig.worker.machine.flying == len(ids), "all are handed over")
        await rig.until(lambda: len(rig.kafka.decided) == 10, "all are written")
        rig.kafka.paused = False
        rig.kafka.on_settled()
        await rig.until_empty()


def test_in_strict_order_a_slow_exchange_puts_marks_off_for_a_moment_only() -> None:
    pacer = Rig(Rules(window=1)).worker._pacer
    pacer.begin(0.0)
    pacer.end_exchange(5.0, 1, full=False)
    assert 0.0 < pacer.next_at <= 1.0


async def test_marks_that_are_full_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_worker, "_MARK_SHARE", float("inf"))
    rig = Rig(in_flight=40, mark_limit=10)
    rig.table.stash(*map(str, range(300)))
    rig.kafka.paused = True
    async with rig.running():
        await rig.until(lambda: rig.worker.machine.held == 40, "there is no more room")
        rig.kafka.paused = False
        await rig.until_empty()
    assert rig.table.limits[:30] == [10] * 30, "each of them is full"


async def test_a_mark_that_was_too_soon_comes_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nothing else happens, as the topic of what is held takes nothing."""
    rig = Rig()
    rig.table.stash("a")
    rig.kafka.paused = True
    async with rig.running():
        await rig.until(lambda: rig.worker.machine.held == 1, "it is held")
        monkeypatch.setattr(rig.worker._pacer, "next_at", time.monotonic() + 0.01)
        rig.table.stash("b")
        rig.active_term.wake()
        await rig.until(lambda: rig.worker.machine.held == 2, "the other one, too")


async def test_a_look_that_is_due_waits_for_the_exchange_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its moment is over by then; to wait until it would be no wait."""
    rig = Rig()
    answers = asyncio.Event()
    rounds = 0
    wait, mark = rig.worker._poller.wait, rig.table.held_rows

    async def counted(*args: Any, **options: Any) -> None:
        nonlocal rounds
        rounds += 1
        await wait(*args, **options)

    async def slow(*args: Any, **options: Any) -> list[tuple[Any, ...]]:
        await answers.wait()
        return await mark(*args, **options)

    monkeypatch.setattr(rig.worker._poller, "wait", counted)
    monkeypatch.setattr(rig.table, "held_rows", slow)
    async with rig.running():
        await rig.until(lambda: rig.worker._exchange is not None, "a mark is under way")
        monkeypatch.setattr(rig.worker, "_everywhere_at", 0.0)
        rig.active_term.wake()
        for _ in range(100):
            await asyncio.sleep(0)
        assert rounds < 10
        answers.set()
        ids = rig.table.stash("a")
        rig.active_term.wake()
        await rig.until_empty()
    assert rig.kafka.written == ids


async def test_without_trust_nothing_is_sent() -> None:
    rig = Rig()
    rig.table.stash("a")
    rig.active_term._renewed_at = float("-inf")
    async with rig.running():
        rig.active_term._renewed_at = float("inf")
        await rig.until_empty()
        rig.active_term._renewed_at = float("-inf")
        sent = len(rig.kafka.written)
        rig.table.stash("b")
        rig.active_term.wake()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(rig.kafka.written) == sent


async def test_what_is_held_when_trust_lapses_waits() -> None:
    rig = Rig()
    rig.worker.machine.add([Record(1, 1.0, "t", "a", b"x")])
    rig.active_term._renewed_at = float("-inf")
    async with rig.running():
        for _ in range(20):
            await asyncio.sleep(0)
        assert rig.kafka.most == 0


async def test_a_record_that_can_never_be_sent_is_parked() -> None:
    rig = Rig()
    ids = rig.table.stash(*"aab")
    rig.kafka.failing[ids[0]] = POISON
    async with rig.running():
        await rig.until_empty()
    assert rig.table.parked == {ids[0]: False}
    (event,) = rig.emitted(RecordParked)
    assert (event.id, event.key, event.reason) == (ids[0], "a", "too large")
    assert sorted(rig.kafka.written) == ids[1:]


async def test_records_that_are_parked_together_are_told_of_together() -> None:
    rig = Rig(Rules(window=100, chunk=100))
    ids = rig.table.stash(*map(str, range(100)))
    rig.kafka.failing |= {n: Failure(Fault.POISON, f"it has {n} bytes") for n in ids[:60]}
    async with rig.running():
        await rig.until_empty()
    told = rig.emitted(RecordParked)
    assert sum(event.records for event in told) == len(rig.table.parked) == 60
    assert len(told) <= 2
    assert (told[0].id, told[0].reason) == (ids[0], f"it has {ids[0]} bytes")


async def test_a_key_that_an_operator_frees_goes_on_in_order() -> None:
    rig = Rig(Rules(window=10, hold=True))
    ids = rig.table.stash(*"aa")
    rig.kafka.failing[ids[0]] = POISON
    async with rig.running():
        await rig.until(lambda: rig.table.parked == {ids[0]: False, ids[1]: True}, "the key is held")
        rig.table.parked.clear()  # an operator retries, while a record of the key comes
        rig.kafka.failing.clear()
        rig.table.retried += ids
        ids += rig.table.stash("a")
        await rig.until_empty()
    assert rig.kafka.written == ids


async def test_what_an_earlier_term_has_sent_is_purged_and_not_sent() -> None:
    rig = Rig()
    ids = rig.table.stash(*"abc")
    rig.kafka.sent_before = frozenset({ids[0], 99})
    async with rig.running():
        await rig.until_empty()
    assert sorted(rig.kafka.written) == ids[1:]


async def test_an_outage_is_told_of_once() -> None:
    rig = Rig(Rules(window=10, cooldown=0.001, cooldown_limit=0.002))
    ids = rig.table.stash(*"ab")
    rig.kafka.failing |= dict.fromkeys(ids, UNANSWERED)
    async with rig.running():
        await rig.until(lambda: rig.worker.counters.retries[0] > 4, "it is tried again")
        assert [rig.worker.sink_is_up] == [False]
        assert "sink" in rig.active_term.troubles.as_json()
        rig.kafka.failing.clear()
        await rig.until_empty()
    for kind in (SinkDown, SinkUp):
        assert len(rig.emitted(kind)) == 1
    assert rig.emitted(TopicDown) == [], "no broker has refused it"
    assert rig.worker.sink_is_up
    assert rig.worker.counters.parked == [0, 0]


async def test_a_broker_that_is_back_ends_the_wait_of_all_topics() -> None:
    rig = Rig(Rules(window=10, cooldown=600, cooldown_limit=600))
    rig.cluster = cluster = KafkaCluster("kafka:9092", {})
    rig.another_worker()
    ids = rig.table.stash(*"ab")
    rig.kafka.failing |= dict.fromkeys(ids, UNANSWERED)
    async with rig.running():
        await rig.until(lambda: rig.worker.machine.waits_for_answer, "it has failed")
        cluster._note("no broker")
        rig.kafka.failing.clear()
        cluster.answered_at = time.monotonic()
        cluster._note(None)
        await rig.until_empty()
    assert rig.emitted(TopicDown) == []


async def test_renewals_tell_the_latest_reason_of_an_outage() -> None:
    rig = Rig(Rules(window=10, cooldown=0.001, cooldown_limit=0.002))
    ids = rig.table.stash(*"ab")
    async with rig.running():
        for reason in ("no broker answers", "authentication failed"):
            rig.kafka.failing |= dict.fromkeys(ids, Failure(Fault.UNANSWERED, reason))
            await rig.until(lambda: rig.active_term.troubles.reason("sink") == reason, reason)  # noqa: B023
    assert [event.reason for event in rig.emitted(SinkDown)] == ["no broker answers"]


async def test_an_outage_that_lasted_into_a_pause_is_told_of_once_and_so_is_its_end() -> None:
    rig = Rig(Rules(window=10, cooldown=0.001, cooldown_limit=0.002))
    ids = rig.table.stash(*"ab")
    rig.kafka.failing |= dict.fromkeys(ids, UNANSWERED)
    for _ in range(2):
        retries = rig.worker.counters.retries[0]
        async with rig.running():
            await rig.until(lambda: rig.worker.counters.retries[0] > retries + 4, "it is tried again")  # noqa: B023
            assert rig.active_term.troubles.reason("sink")
        rig.active_term.troubles.end("sink")  # nobody asks Kafka in a pause
        rig.another_worker()
    assert rig.worker.sink_is_up
    rig.kafka.failing.clear()
    async with rig.running():
        await rig.until_empty()
    for kind in (SinkDown, SinkUp):
        assert len(rig.emitted(kind)) == 1, kind


async def test_a_refusal_that_lasted_into_a_pause_is_told_of_once_and_so_is_its_end() -> None:
    rig = Rig(Rules(window=10, cooldown=0.001, cooldown_limit=0.002))
    ids = rig.table.stash(*"ab")
    rig.kafka.failing |= dict.fromkeys(ids, DOWN)
    for _ in range(2):
        retries = rig.worker.counters.retries[0]
        async with rig.running():
            await rig.until(lambda: rig.worker.counters.retries[0] > retries + 4, "it is tried again")  # noqa: B023
        rig.another_worker()
    rig.kafka.failing.clear()
    async with rig.running():
        await rig.until_empty()
    for kind in (TopicDown, TopicUp):
        assert len(rig.emitted(kind)) == 1, kind


async def test_its_metrics_are_those_on_the_page() -> None:
    rig = Rig()
    rig.table.stash(*"abc")
    rig.kafka.paused = True
    async with rig.running():
        await rig.until(lambda: rig.kafka.under_way, "it is sent")
        of_outboxes = {one.name: one for one in METRICS if one.of == "outbox"}
        families = {name: one.family() for name, one in of_outboxes.items()}
        of_host = {name: one.family(("host",)) for name, one in of_outboxes.items()}
        for name, labels, value in rig.worker.gauges():
            if name in of_outboxes:
                families[name].add_metric(("orders", "0", *labels), value)
                of_host[name].add_metric(("one", "orders", "0", *labels), value)
        named = {shape(sample.name, sample.labels) for one in of_host.values() for sample in one.samples}
    fed_in = {one for one in fed(of_hosts=True) if one[0].startswith("pytube_outbox_")}
    assert fed_in - named == set(), "the tests of the alerts feed in what is not printed"
    found = {
        (one.name, one.type, frozenset(label for sample in one.samples for label in sample.labels))
        for one in families.values()
    }
    rows = table_rows(BY_NAME["docs/metrics.md"].section("Metrics of outboxes"))
    assert found == {(row[0].strip("`"), row[1], frozenset(re.findall(r"`(\w+)`", row[2]))) for row in rows}
    assert [sample.value for sample in families["outbox_records"].samples] == [0, 3], "waiting, and in flight"
    meter = rig.worker.read_metrics()
    assert meter is not None
    assert (meter.touches, meter.in_flight, meter.waiting) == (3, 3, 0)


OUTBOX = """
[postgres]
dsn = "host=/nowhere"
[kafka]
bootstrap_servers = "127.0.0.1:1"
options = { "socket.timeout.ms" = 1000 }
[outbox.o]
"""


def made(settings: str) -> Outbox:
    config = parse(OUTBOX + settings)
    database = Database(config.postgres, [], receive_deadline=1.0, emit=lambda _: None)
    return Outbox(config, "o", database, uuid4())


def test_settings_are_tried_when_a_worker_is_made() -> None:
    assert made('kafka_options = { "compression.type" = "lz4" }').limits.hold == 14.0
    with pytest.raises(ConfigError, match="outbox 'o': kafka_options: No such configuration property"):
        made('kafka_options = { "compresion.type" = "lz4" }')
    with pytest.raises(ConfigError, match=r"kafka_options: transactional\.id can't be set there"):
        made('kafka_options = { "transactional.id" = "x" }')


def test_fewer_acknowledgements_take_the_idempotence_away() -> None:
    config = parse(OUTBOX + 'kafka_options = { "acks" = 1 }')
    settings = outbox_clients(config, "o").settings
    assert settings["enable.idempotence"] is False
    assert settings["max.in.flight.requests.per.connection"] == 1
    with pytest.raises(ConfigError, match="transactions need acks"):
        made('transactions = true\nkafka_options = { "acks" = 1 }')


async def test_a_client_of_kafka_that_hangs_ends_the_term() -> None:
    rig = Rig()
    rig.kafka.paused = True
    rig.table.stash("a")
    async with rig.running():
        await rig.until(lambda: rig.kafka.under_way, "it is sent")
        rig.kafka.answer_due = time.monotonic() + 0.05
        rig.active_term.attention.set()
        with pytest.raises(BrokerUnavailable, match="hangs"):
            await rig.until(lambda: False, "the worker ends")


async def test_the_end_of_a_term_ends_its_worker() -> None:
    rig = Rig()
    rig.table.stash("a")
    rig.table.fenced = True
    with pytest.raises(Fenced):
        await rig.worker.run()


@pytest.mark.parametrize("answered", [True, False])
async def test_drained_the_rest_is_given_back(answered: bool) -> None:
    """A record that is not answered may be written late: then the term is not released."""
    rig = Rig()
    ids = rig.table.stash(*"abc")
    rig.kafka.paused = True
    async with rig.running():
        await rig.until(lambda: rig.kafka.under_way, "it is sent")
        rig.claim.revoke()
        assert rig.task is not None
        await rig.task
        more = rig.table.stash("d")
        rig.kafka.paused = not answered
        await rig.worker.drain(0.01)
    assert rig.kafka.stopped
    assert rig.table.left == ({*more} if answered else {*ids, *more})
    assert sorted(rig.table.reset) == ([] if answered else ids)
    assert bool(rig.active_term.unanswered) is not answered
