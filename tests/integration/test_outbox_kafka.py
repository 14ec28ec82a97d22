"""Workers that bring outboxes to a real broker: order, headers, and what can't be sent."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import Config
from pytube.embedded.kafka_real import RealKafka
from pytube.events import Event, LeaderRevoked, RecordParked, SinkDown, SinkUp, TopicDown, TopicUp
from pytube.kafka.clients import Producers
from pytube.outbox.inflight import InFlight, Rules
from pytube.outbox.partitions import kafka_partition
from pytube.outbox.producer import REPORT_DELAY, PlainProducer
from pytube.outbox.records import Chunk, EarlierTerm, Fault, Record, Sent
from pytube.outbox.stash import ENQUEUED
from pytube.outbox.transactions import TransactionalProducer
from pytube.worker import Worker
from tests.helpers.armed import VARIABLE
from tests.helpers.forked import start
from tests.helpers.frozen import freeze, thaw
from tests.helpers.outbox import (
    OUTBOX,
    Seen,
    check_complete,
    check_exactly_once,
    check_strict,
    check_windowed,
    configured,
    create_topic,
    read,
    running,
    stash,
    topics,
    until_waiting,
    waiting,
)
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.waiting import LIMIT, wait_until_async

Conn = psycopg.Connection[Any]
MODES = {
    "windowed": "window = 100",
    "strict": 'mode = "strict"',
    "transactions": "transactions = true",
}
CHECKS: Mapping[str, Callable[[Sequence[Seen]], None]] = {
    "windowed": lambda seen: check_windowed(seen, 100),
    "strict": check_strict,
    "transactions": check_exactly_once,
}


@pytest.fixture
def topic(kafka_real: RealKafka) -> str:
    """It takes batches of 20 kB."""
    topic = next(topics)
    create_topic(kafka_real.bootstrap, topic, max_message_bytes="20000")
    return topic


@pytest.fixture
def large_topic(kafka_real: RealKafka) -> str:
    topic = next(topics)
    create_topic(kafka_real.bootstrap, topic)
    return topic


@pytest.fixture(autouse=True)
def _outbox(conn: Conn) -> None:
    conn.execute("SELECT outbox_ensure_exists(%s)", (OUTBOX,))


# --- order --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_order_with_partitions_and_workers(
    mode: str, tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, large_topic: str
) -> None:
    topic = large_topic
    conn.execute("SELECT outbox_ensure_exists(%s, 4)", (OUTBOX,))
    choice = random.Random(mode)
    keys = [choice.choice(["a", "b", "c", None, *map(str, range(50))]) for _ in range(4000)]
    stashed = stash(conn, topic, keys)
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap, MODES[mode]), workers=2):
        await until_waiting(conn)
        more = stash(conn, topic, ["a"] * 10)  # those that sleep are woken, or poll
        await until_waiting(conn)
    stashed["a"] += more["a"]
    seen = read(kafka_real.bootstrap, topic, committed=mode == "transactions")
    check_complete(seen, stashed)
    check_exactly_once(seen)


async def test_headers_keys_and_tombstones(
    tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    conn.execute(
        f"INSERT INTO tube.{OUTBOX} (kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
        " kafka_header_values, partition_key) VALUES (%(t)s, 'k', 'v', '{a,b,a}', '{1,NULL,3}', NULL),"
        " (%(t)s, 'k', NULL, '{}', '{}', NULL), (%(t)s, NULL, '', '{}', '{}', NULL),"
        " (%(t)s, '', 'ä', '{}', '{}', NULL), (%(t)s, 'x', 'apart', '{}', '{}', 'elsewhere')",
        {"t": topic},
    )
    rows = conn.execute(
        f"SELECT id, extract(epoch FROM create_time) FROM tube.{OUTBOX} ORDER BY id"
    ).fetchall()
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap)) as events:
        await until_waiting(conn)
    epochs = {getattr(event, "epoch", None) for event in events} - {None}
    seen = sorted(read(kafka_real.bootstrap, topic), key=lambda one: one.id)
    assert [(one.key, one.value) for one in seen] == [
        ("k", b"v"),
        ("k", None),
        (None, b""),
        ("", "ä".encode()),
        ("x", b"apart"),
    ]
    assert [(one.id, float(one.headers[ENQUEUED])) for one in seen] == [
        (number, round(float(at), 3)) for number, at in rows
    ]
    assert {one.epoch for one in seen} == epochs
    assert seen[0].headers["a"] == "3", "the last of that name; all are there"
    assert seen[4].partition == kafka_partition("elsewhere", 3)


async def test_our_hash_is_librdkafkas(
    tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    stash(conn, topic, [f"key-{number}" * (number % 5) for number in range(40)])
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap)):
        await until_waiting(conn)
    for one in read(kafka_real.bootstrap, topic):
        assert one.partition == kafka_partition(one.key or "", 3)


async def test_an_adopted_table_is_polled(
    tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    """Goharvest's writers go on: rows as they insert them, with ids of a sequence of their own."""
    conn.execute("SELECT outbox_drop(%s)", (OUTBOX,))
    conn.execute(
        "CREATE TABLE public.outbox (id bigserial PRIMARY KEY, create_time timestamptz NOT NULL,"
        " kafka_topic varchar(249) NOT NULL, kafka_key varchar(100) NOT NULL, kafka_value varchar(10000),"
        " kafka_header_keys text[] NOT NULL, kafka_header_values text[] NOT NULL, leader_id uuid)"
    )
    conn.execute("SELECT outbox_adopt(%s, 'public.outbox')", (OUTBOX,))
    insert = (
        "INSERT INTO public.outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
        " kafka_header_values) SELECT now(), %s, 'k' || n %% 3, 'v', '{}', '{}'"
        " FROM generate_series(1, 50) AS n"
    )
    left = "SELECT count(*) FROM public.outbox"
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap)):
        for _ in range(2):
            conn.execute(insert, (topic,))
            await wait_until_async(lambda: conn.execute(left).fetchone() == (0,), what="the table is empty")
    seen = read(kafka_real.bootstrap, topic)
    ids: dict[str | None, list[int]] = {
        f"k{rest}": [n for n in range(1, 101) if ((n - 1) % 50 + 1) % 3 == rest] for rest in range(3)
    }
    check_complete(seen, ids)
    check_exactly_once(seen)


# --- what can't be sent -------------------------------------------------------------------------


def parked(conn: Conn) -> list[tuple[int, bool]]:
    return conn.execute("SELECT id, behind FROM outbox_parked(%s) ORDER BY id", (OUTBOX,)).fetchall()


@pytest.mark.parametrize(
    ("mode", "limit"),
    [
        pytest.param("windowed", 1_000, id="windowed-client"),
        pytest.param("windowed", 1_000_000, id="windowed-broker"),
        pytest.param("transactions", 1_000, id="transactions-client"),
        pytest.param("transactions", 1_000_000, id="transactions-broker", marks=pytest.mark.soak),
        pytest.param("strict", 1_000, id="strict-client", marks=pytest.mark.soak),
        pytest.param("strict", 1_000_000, id="strict-broker"),
    ],
)
async def test_a_record_that_is_too_large_is_parked_alone(
    mode: str, limit: int, tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    stashed = stash(conn, topic, ["a", "b", "c"] * 30)
    poison = stash(conn, topic, ["a"], size=30_000)["a"]
    for key, ids in stash(conn, topic, ["a", "b", "c"] * 30).items():
        stashed[key] += ids
    client = f'[outbox.{OUTBOX}.kafka_options]\n"message.max.bytes" = {limit + 20_000}\n"batch.size" = 15000'
    options = f"attempts = 2\n{MODES[mode]}\n{client}"
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap, options)) as events:
        await until_waiting(conn, poison)
    assert parked(conn) == [(poison[0], False)]
    (event,) = (event for event in events if isinstance(event, RecordParked))
    assert (event.id, event.topic, event.key) == (poison[0], topic, "a")
    seen = read(kafka_real.bootstrap, topic, committed=mode == "transactions")
    check_complete(seen, stashed)
    CHECKS[mode](seen)


async def test_a_topic_that_takes_smaller_batches_than_librdkafka_makes(
    tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    stashed = stash(conn, topic, [str(number % 100) for number in range(3000)], size=100)
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap)):
        await until_waiting(conn)
    seen = read(kafka_real.bootstrap, topic)
    check_complete(seen, stashed)
    assert len(seen) < 4000, "it does not try the larger ones again and again"


async def test_a_held_key_waits_for_an_operator(
    tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    poison = stash(conn, topic, ["a"], size=30_000)["a"]
    stashed = stash(conn, topic, ["a", "b", "a"])
    options = 'on_poison = "hold"\n[outbox.orders.kafka_options]\n"message.max.bytes" = 20000'
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap, options)):
        held = [*poison, *stashed["a"]]
        await wait_until_async(
            lambda: parked(conn) == [(number, number != poison[0]) for number in held], what="a is held"
        )
        conn.execute(f"UPDATE tube.{OUTBOX} SET kafka_value = 'small' WHERE id = %s", poison)
        conn.execute("SELECT outbox_retry(%s)", (OUTBOX,))
        more = stash(conn, topic, ["a"])
        await until_waiting(conn)
    seen = read(kafka_real.bootstrap, topic)
    check_complete(seen, {"a": [*held, *more["a"]], "b": stashed["b"]})
    check_exactly_once(seen)


async def test_a_reload_takes_up_what_mends_a_parked_record(
    tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, large_topic: str
) -> None:
    """Both `kafka_options` and `on_poison`, in the same process."""

    def config(on_poison: str, largest: int) -> Config:
        options = f'on_poison = "{on_poison}"\n[outbox.orders.kafka_options]\n"message.max.bytes" = {largest}'
        return configured(tmp_path, dsn, kafka_real.bootstrap, options)

    large = stash(conn, large_topic, ["a"], size=30_000)["a"]
    worker = Worker(config("skip", 20_000))
    await worker.start()
    try:
        await wait_until_async(lambda: parked(conn) == [(large[0], False)], what="it is parked")
        await worker.take_up(config("hold", 40_000))
        conn.execute("SELECT outbox_retry(%s)", (OUTBOX,))
        await until_waiting(conn)
        more = stash(conn, large_topic, ["a"], size=50_000)["a"] + stash(conn, large_topic, ["a"])["a"]
        held = [(more[0], False), (more[1], True)]
        await wait_until_async(lambda: parked(conn) == held, what="the key is held")
    finally:
        await worker.stop()
    assert [one.id for one in read(kafka_real.bootstrap, large_topic)] == large


async def test_a_topic_that_is_not_there_cools_down_alone(
    tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    missing = next(topics)
    waits = stash(conn, missing, ["a", "b"])
    options = (
        "topic_cooldown_limit = 0.5\n[outbox.orders.kafka_options]\n"
        '"allow.auto.create.topics" = false\n"topic.metadata.propagation.max.ms" = 200'
    )
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap, options)) as events:
        await wait_until_async(lambda: any(isinstance(event, TopicDown) for event in events))
        stashed = stash(conn, topic, ["a"] * 100)
        await until_waiting(conn, [*waits["a"], *waits["b"]])
        create_topic(kafka_real.bootstrap, missing)
        await until_waiting(conn)
    told: list[Event] = [event for event in events if isinstance(event, TopicDown | TopicUp)]
    assert [(type(event), event.topic) for event in told] == [(TopicDown, missing), (TopicUp, missing)]  # type: ignore[attr-defined]
    for name, ids in ((topic, stashed), (missing, waits)):
        seen = read(kafka_real.bootstrap, name)
        check_complete(seen, ids)
        check_exactly_once(seen)


async def test_of_records_that_wait_the_newest_is_enough(
    tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    stashed = stash(conn, topic, ["a", "b"] * 40)  # fewer than the first mark takes
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap, "compact = true")):
        await until_waiting(conn)
    found = sorted((one.key or "", one.id) for one in read(kafka_real.bootstrap, topic))
    assert found == [("a", stashed["a"][-1]), ("b", stashed["b"][-1])]


# --- the broker is gone -------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("mode", MODES)
async def test_a_broker_that_is_away_for_longer_than_a_record_may_take(
    mode: str,
    killed: bool,
    tmp_path: Path,
    dsn: str,
    conn: Conn,
    kafka_real: RealKafka,
    large_topic: str,
) -> None:
    stashed = stash(conn, large_topic, [str(number % 20) for number in range(20_000)])
    settings = f"{MODES[mode]}\nmessage_timeout = 2\nin_flight = 4000\ntopic_cooldown_limit = 1"
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap, settings)) as events:
        await wait_until_async(lambda: len(waiting(conn)) < 19_000)
        freeze(kafka_real.pid)
        try:
            await wait_until_async(lambda: any(isinstance(event, SinkDown) for event in events))
            if killed:
                kafka_real.kill()
        finally:
            if killed:
                await asyncio.to_thread(kafka_real.start)
            else:
                thaw(kafka_real.pid)
        await until_waiting(conn)
    seen = read(kafka_real.bootstrap, large_topic, committed=mode == "transactions")
    check_complete(seen, stashed)
    CHECKS[mode](seen)


@pytest.mark.parametrize("mode", MODES)
async def test_when_the_broker_is_back_no_topic_rests(
    mode: str, tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    """Else its records would wait for ten minutes more."""
    stashed = stash(conn, topic, ["a", "b"])
    settings = f"{MODES[mode]}\nmessage_timeout = 5\ntopic_cooldown = 600\ntopic_cooldown_limit = 600"
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap, settings)) as events:
        await until_waiting(conn)
        kafka_real.kill()
        try:
            for key, ids in stash(conn, topic, ["a", "b", "a"]).items():
                stashed[key] += ids
            await wait_until_async(lambda: any(isinstance(event, SinkDown) for event in events))
        finally:
            await asyncio.to_thread(kafka_real.start)
        await until_waiting(conn)
        assert conn.execute("SELECT topic FROM outbox_resting()").fetchall() == []
    assert not [event for event in events if isinstance(event, TopicDown)]
    seen = read(kafka_real.bootstrap, topic, committed=mode == "transactions")
    check_complete(seen, stashed)
    CHECKS[mode](seen)


async def test_a_term_that_begins_while_no_broker_answers_tells_so_and_goes_on(
    tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    """As one does whose predecessor's transaction was under way when the broker went."""
    stashed = stash(conn, topic, ["a", "b"])
    config = configured(tmp_path, dsn, kafka_real.bootstrap, f"{MODES['transactions']}\nmessage_timeout = 2")
    freeze(kafka_real.pid)
    try:
        async with running(config) as events:

            def told(kind: type[Event]) -> bool:
                return any(isinstance(event, kind) for event in events)

            await wait_until_async(lambda: told(SinkDown), what="it says that no broker answers")
            thaw(kafka_real.pid)
            await until_waiting(conn)
            assert told(SinkUp)
            assert not told(LeaderRevoked), "the term went on"
    finally:
        thaw(kafka_real.pid)
    check_complete(read(kafka_real.bootstrap, topic, committed=True), stashed)


# --- zombies, and workers that are killed -------------------------------------------------------


def chunk_of(topic: str, *ids: int) -> Chunk:
    machine = InFlight(Rules(window=100))
    machine.add([Record(number, 0.0, topic, "k", b"v") for number in ids])
    chunk = machine.take(0.0)
    assert chunk is not None
    return chunk


async def outcome_of(producer: TransactionalProducer | PlainProducer, chunk: Chunk) -> Mapping[int, Any]:
    """Send a chunk; what of it failed."""
    producer.send(chunk)
    settled: list[tuple[Chunk, Mapping[int, Any]]] = []

    def is_settled() -> bool:
        settled.extend(producer.settled())
        return bool(settled)

    await wait_until_async(is_settled)
    ((_, failures),) = settled
    return failures


async def test_what_a_zombie_sends_is_never_committed(kafka_real: RealKafka, topic: str) -> None:
    clients = Producers(kafka_real.bootstrap, 8.0, {})
    producers = [
        TransactionalProducer(
            clients, f"zombie.{topic}.", 2, 1, epoch, may_send=lambda: True, on_settled=lambda: None
        )
        for epoch in (1, 2)
    ]
    zombie, successor = producers
    try:
        assert await zombie.open((), "orders/1") == []
        assert await outcome_of(zombie, chunk_of(topic, 1, 2)) == {}
        sent = await successor.open([EarlierTerm(2, 1, 1, -7.5)], "orders/1")
        assert sent == [Sent(frozenset({1, 2}), -7.5)], "what the zombie has sent, and perhaps not purged"
        failures = await outcome_of(zombie, chunk_of(topic, 3, 4))
        assert {number: failure.fault for number, failure in failures.items()} == {
            3: Fault.TOPIC,
            4: Fault.TOPIC,
        }
        assert await outcome_of(successor, chunk_of(topic, 3, 4)) == {}
    finally:
        for producer in producers:
            producer.stop()
    assert [(one.id, one.epoch) for one in read(kafka_real.bootstrap, topic, committed=True)] == [
        (1, 1),
        (2, 1),
        (3, 2),
        (4, 2),
    ]


@pytest.mark.parametrize(
    ("size", "fault"),
    [(50_000, Fault.BATCH), (999_990, Fault.POISON)],
    ids=["by the broker", "by the client"],
)
async def test_after_a_refused_record_the_next_transaction_is_committed(
    kafka_real: RealKafka, topic: str, size: int, fault: Fault
) -> None:
    """The producer has skipped the sequence numbers of what the broker refused."""
    producer = TransactionalProducer(
        Producers(kafka_real.bootstrap, 8.0, {}),
        f"refused.{topic}.",
        1,
        0,
        1,
        may_send=lambda: True,
        on_settled=lambda: None,
    )
    try:
        await producer.open((), "orders/1")
        for number in range(0, 30, 3):
            large, good = chunk_of(topic, number, number + 1), chunk_of(topic, number + 2)
            record = large.records()[0]
            large.parts = [(large.parts[0][0], [record._replace(value=b"v" * size), large.records()[1]])]
            failures = await outcome_of(producer, large)
            assert failures[number].fault is fault
            assert await outcome_of(producer, good) == {}
    finally:
        producer.stop()
    assert [one.id for one in read(kafka_real.bootstrap, topic, committed=True)] == list(range(2, 30, 3))


async def test_a_worker_that_stood_still_lets_no_record_overtake_an_older_one(
    kafka_real: RealKafka, kafka_proxy: Proxy, topic: str
) -> None:
    """Nothing may be given up by librdkafka itself: what is younger by its clock would be written alone."""
    timeout = 4.0
    producer = PlainProducer(Producers(kafka_proxy.address, timeout, {}), 1, strict=False)
    try:
        await producer.open((), "orders/1")
        assert await outcome_of(producer, chunk_of(topic, 1)) == {}
        kafka_proxy.switch(Mode.REQUESTS_LOST)
        producer.send(chunk_of(topic, 2))
        begun = time.monotonic()
        await until(begun + timeout - 0.1 * REPORT_DELAY)
        producer.send(chunk_of(topic, 3))
        await until(begun + timeout + 1.5 * REPORT_DELAY)  # the time of 2 is over, that of 3 is not
        kafka_proxy.switch(Mode.CUT)  # nobody has looked since; what was lost is sent again
        kafka_proxy.switch(Mode.PASS)
        await wait_until_async(lambda: ids_of(kafka_real, topic)[-1:] == [3])
    finally:
        producer.stop()
    assert ids_of(kafka_real, topic) == [1, 2, 3]


def ids_of(kafka: RealKafka, topic: str) -> list[int]:
    return [one.id for one in read(kafka.bootstrap, topic)]


async def until(due: float) -> None:
    """Until a moment: librdkafka's clock is what is tested."""
    await wait_until_async(lambda: time.monotonic() >= due)


@pytest.mark.parametrize("mode", ["windowed", "transactions", pytest.param("strict", marks=pytest.mark.soak)])
async def test_a_worker_is_killed_between_kafka_and_the_purge(
    mode: str, tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    """The records that its leader has sent and not purged come again, except in transactions."""
    stashed = stash(conn, topic, [str(number % 10) for number in range(500)])
    config = configured(
        tmp_path,
        dsn,
        kafka_real.bootstrap,
        MODES[mode] + "\nmessage_timeout = 2",
        session_timeout=4,
        receive_deadline=1,
    )
    (file,) = list(tmp_path.glob("*.toml"))  # noqa: ASYNC240 # nothing runs yet
    with (tmp_path / "log").open("wb") as log:
        doomed = start(
            "tests.helpers.armed",
            ["--config", str(file), "worker"],
            environment=os.environ | {VARIABLE: "before_purge:kill"},
            output=log,
        )
    assert await asyncio.to_thread(doomed.wait, LIMIT) == -9
    async with running(config):
        await until_waiting(conn)
    seen = read(kafka_real.bootstrap, topic, committed=mode == "transactions")
    check_complete(seen, stashed)
    CHECKS[mode](seen)
    assert (len(seen) > 500) is (mode != "transactions"), "it was killed after Kafka had some"
