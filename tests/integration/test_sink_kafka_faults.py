"""The sink `kafka` and what goes wrong: brokers that die or hang, late records, zombies, poison, secrets."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from pytube.embedded.kafka_real import RealKafka
from pytube.errors import ConfigError, SinkError, SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Reject, Result, Retry
from pytube.sinks.kafka import KafkaSink
from pytube.testing import batch
from tests.helpers.frozen import freeze, frozen
from tests.helpers.kafka_reader import PARTITIONS, Reader
from tests.helpers.logs import capture_logs
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.waiting import wait_until_async

topics = (f"faults-{number}" for number in itertools.count())
TRANSACTIONS = {"transactional_id": "faults.{tube}.{partition}"}


@pytest.fixture
def topic() -> str:
    return next(topics)


@pytest.fixture
def reader(kafka_real: RealKafka, topic: str) -> Iterator[Reader]:
    reader = Reader(kafka_real.bootstrap, topic)
    yield reader
    reader.close()


@asynccontextmanager
async def opened(bootstrap: str, topic: str, **options: object) -> AsyncIterator[KafkaSink]:
    settings = {"bootstrap_servers": bootstrap, "topic": topic, "key_format": "json", "create_topic": True}
    sink = KafkaSink.from_options({**settings, "partitions": PARTITIONS, **options})
    try:
        await sink.open()
        yield sink
    finally:
        await sink.close()


async def sent(sink: KafkaSink, make: Callable[[], Batch]) -> list[Result]:
    """Send until the broker is there, as a worker does."""
    while True:
        with suppress(SinkUnavailable, SinkTimeout):
            what = make()
            try:
                return list(await sink.send(what))
            finally:
                await sink.abandon(what)
        await asyncio.sleep(0.02)


both = pytest.mark.parametrize("options", [{}, TRANSACTIONS], ids=["records", "transactions"])


# --- records ------------------------------------------------------------------------------------


async def test_headers_and_tombstones(kafka_real: RealKafka, topic: str, reader: Reader) -> None:
    before = time.time()
    async with opened(kafka_real.bootstrap, topic) as sink:
        assert await sink.send(batch({(3, 7): {"v": 1}, (3, "ä"): None}, token=(2, 5), seq=41)) == [OK, OK]
    reader.read()
    found = {key: (value, headers) for key, value, headers in reader.records}
    common = {"token": str(2 << 28 | 5), "seq": "41", "shard": "3", "tube": "conformance"}
    for _, headers in found.values():
        assert before <= float(headers.pop("ts")) <= time.time()
    assert found == {
        (3, 7): ({"v": 1}, common | {"op": "upsert"}),
        (3, "ä"): (None, common | {"op": "delete"}),
    }


async def test_a_poison_document_costs_itself_alone(
    kafka_real: RealKafka, topic: str, reader: Reader
) -> None:
    limit = {"topic_options": {"max.message.bytes": "20000"}}
    documents = {key: {"x": "y" * (30_000 if key == 50 else 1000)} for key in range(100)}
    async with opened(kafka_real.bootstrap, topic, **limit) as sink:
        results = await sink.send(batch(documents))
        assert [key for key, result in enumerate(results) if isinstance(result, Reject)] == [50]
        assert results.count(OK) == 99
    assert len(reader.read()) == 99


@both
async def test_a_record_that_only_the_broker_refuses(
    kafka_real: RealKafka, topic: str, options: dict[str, object]
) -> None:
    """Which one is at fault is not known, so the batch fails as a whole, and its halves come again."""
    limit = {
        "topic_options": {"max.message.bytes": "20000"},
        "client_options": {"message.max.bytes": 100_000},
    }
    async with opened(kafka_real.bootstrap, topic, **limit, **options) as sink:
        with pytest.raises(SinkError, match="the broker refuses a record") as raised:
            await sink.send(batch({1: {"x": "y" * 30_000}, 2: {}}))
        assert not isinstance(raised.value, SinkUnavailable | SinkTimeout)
        assert await sink.send(batch({2: {}}, token=(1, 2))) == [OK]


async def test_a_full_queue_holds_the_sender_up(kafka_real: RealKafka, topic: str, reader: Reader) -> None:
    options = {"client_options": {"queue.buffering.max.messages": 100}}
    async with opened(kafka_real.bootstrap, topic, **options) as sink:
        assert set(await sink.send(batch({key: {"n": key} for key in range(1000)}))) == {OK}
        with frozen(kafka_real.pid):
            lapsing = batch({key: {} for key in range(300)}, token=(1, 2), send_before=time.monotonic() + 0.5)
            sending = asyncio.create_task(sink.send(lapsing))
            await wait_until_async(lapsing.has_lapsed)
        results = await sending
        assert results == [OK] * 100 + [Retry(0.0, "the right to send had lapsed")] * 200
    assert len(reader.read()) == 1000


@both
async def test_the_event_loop_goes_on(kafka_real: RealKafka, topic: str, options: dict[str, object]) -> None:
    """Of a batch of 20,000 documents, no turn of the loop computes for half of the time that all take."""
    async with opened(kafka_real.bootstrap, topic, **options) as sink:
        await sink.send(batch({1: {}}))
        documents = batch({key: {"n": key} for key in range(20_000)}, token=(1, 2))
        gc.freeze()  # the collector would look through all that the tests before have left
        turns, last = [0.0], time.thread_time()  # without the time for which others have the core
        sending = asyncio.create_task(sink.send(documents))
        while not sending.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            turns.append(now - last)
            last = now
        gc.unfreeze()
        assert set(await sending) == {OK}
    assert max(turns) < sum(turns) / 2


# --- the broker is gone -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, pytest.param(TRANSACTIONS, marks=pytest.mark.soak)], ids=["records", "transactions"]
)
async def test_broker_killed_and_restarted(
    kafka_real: RealKafka, topic: str, reader: Reader, options: dict[str, object]
) -> None:
    async with opened(kafka_real.bootstrap, topic, timeout=2, **options) as sink:
        assert await sink.send(batch({1: {"v": 0}, 2: {"v": 0}})) == [OK, OK]
        freeze(kafka_real.pid)
        hanging = batch({1: {"v": 1}}, token=(1, 2))
        sending = asyncio.create_task(sink.send(hanging))
        await asyncio.wait([sending], timeout=0.1)
        kafka_real.kill()
        with pytest.raises((SinkTimeout, SinkUnavailable)):
            await sending
        await asyncio.to_thread(kafka_real.start)
        await sink.abandon(hanging)
        counter = itertools.count(3)
        answers = await sent(sink, lambda: batch({1: {"v": 2}, 2: None}, token=(1, next(counter))))
        assert answers == [OK, OK]
    assert reader.read() == {(0, 1): {"v": 2}}


@both
async def test_a_record_that_is_late_on_the_wire_does_not_overtake(
    kafka_proxy: Proxy, topic: str, reader: Reader, options: dict[str, object]
) -> None:
    """After the time-out a new connection is quicker than what is still under way in the old one."""
    async with opened(kafka_proxy.address, topic, timeout=1, **options) as sink:
        assert await sent(sink, lambda: batch({1: {"v": 0}})) == [OK]
        kafka_proxy.switch(Mode.SLOW, delay=4.0)
        late = batch({1: {"v": "late"}}, token=(1, 2))
        with pytest.raises((SinkTimeout, SinkUnavailable)):
            await sink.send(late)
        ended = kafka_proxy.accepted - kafka_proxy.connections
        kafka_proxy.switch(Mode.PASS)
        await sink.abandon(late)
        counter = itertools.count(3)
        assert await sent(sink, lambda: batch({1: {"v": "new"}}, token=(1, next(counter)))) == [OK]
        assert reader.read() == {(0, 1): {"v": "new"}}
        # The connection ends once it has delivered what was under way.
        await wait_until_async(lambda: kafka_proxy.accepted - kafka_proxy.connections > ended)
        assert reader.read() == {(0, 1): {"v": "new"}}


async def test_open_without_a_broker(kafka_proxy: Proxy, topic: str) -> None:
    kafka_proxy.switch(Mode.CUT)
    with pytest.raises(SinkUnavailable, match=r"last error: .*refused"):
        async with opened(kafka_proxy.address, topic, timeout=1):
            pass


async def test_missing_topic(kafka_real: RealKafka, topic: str) -> None:
    with pytest.raises(
        SinkUnavailable, match="create it with cleanup.policy=compact, or set create_topic = true"
    ):
        async with opened(kafka_real.bootstrap, topic, create_topic=False):
            pass
    assert (
        topic not in AdminClient({"bootstrap.servers": kafka_real.bootstrap}).list_topics(timeout=10).topics
    )


async def test_a_topic_that_is_not_compacted_is_warned_of(kafka_real: RealKafka, topic: str) -> None:
    with capture_logs() as logs:
        async with opened(kafka_real.bootstrap, topic, topic_options={"cleanup.policy": "delete"}):
            pass
        async with opened(kafka_real.bootstrap, f"{topic}-compacted"):
            pass
    told = [(log["event"], log["topic"]) for log in logs if log["log_level"] == "warning"]
    assert told == [("kafka_topic_not_compacted", topic)]


# --- zombies ------------------------------------------------------------------------------------


async def test_a_deposed_leader_is_fenced(kafka_real: RealKafka, topic: str, reader: Reader) -> None:
    """It may have the right to send, as far as it knows, since it was stopped after it had checked that."""
    async with (
        opened(kafka_real.bootstrap, topic, **TRANSACTIONS) as zombie,
        opened(kafka_real.bootstrap, topic, **TRANSACTIONS) as successor,
    ):
        assert await zombie.send(batch({1: {"v": 1}, 2: {"v": 1}}, token=(1, 1))) == [OK, OK]
        assert await successor.send(batch({1: {"v": 2}, 2: None}, token=(2, 1))) == [OK, OK]
        late = batch({1: {"late": 1}, 2: {"late": 1}}, token=(1, 2))
        with pytest.raises(SinkTimeout):
            await zombie.send(late)
        await zombie.abandon(late)
        assert reader.read() == {(0, 1): {"v": 2}}
        # Other partitions have other ids.
        assert await zombie.send(batch({(1, 1): {}}, token=(1, 3), partition=1)) == [OK]


async def test_a_term_without_the_right_to_send_does_not_take_the_id(
    kafka_real: RealKafka, topic: str, reader: Reader
) -> None:
    async with (
        opened(kafka_real.bootstrap, topic, **TRANSACTIONS) as zombie,
        opened(kafka_real.bootstrap, topic, **TRANSACTIONS) as successor,
    ):
        assert await successor.send(batch({1: {"v": 2}}, token=(2, 1))) == [OK]
        with pytest.raises(SinkUnavailable):
            await zombie.send(batch({1: {"late": 1}}, token=(1, 2), send_before=time.monotonic()))
        assert await successor.send(batch({1: {"v": 3}}, token=(2, 2))) == [OK]
        # One that was stopped between the check and the call takes it, and is not a leader for all that.
        await zombie.send(batch({(9, 9): {}}, token=(1, 3)))
        with pytest.raises(SinkTimeout):
            await successor.send(batch({1: {"v": 4}}, token=(2, 3)))
        assert await successor.send(batch({1: {"v": 5}}, token=(2, 4))) == [OK]
    assert reader.read()[0, 1] == {"v": 5}


async def test_a_term_of_this_process_that_is_over_writes_nothing(
    kafka_real: RealKafka, topic: str, reader: Reader
) -> None:
    async with opened(kafka_real.bootstrap, topic, **TRANSACTIONS) as sink:
        assert await sink.send(batch({1: {"v": 2}}, token=(2, 1))) == [OK]
        with pytest.raises(SinkUnavailable, match="a later term"):
            await sink.send(batch({1: {"late": 1}}, token=(1, 1)))
    assert reader.read() == {(0, 1): {"v": 2}}


async def test_waiting_batches_share_a_transaction(kafka_real: RealKafka, topic: str, reader: Reader) -> None:
    limit = {
        "topic_options": {"max.message.bytes": "20000"},
        "client_options": {"message.max.bytes": 100_000},
    }
    async with opened(kafka_real.bootstrap, topic, **limit, **TRANSACTIONS) as sink:
        assert await sink.send(batch({0: {}})) == [OK]
        with frozen(kafka_real.pid):
            first = asyncio.create_task(sink.send(batch({1: {}}, token=(1, 2))))
            await asyncio.wait([first], timeout=0.1)
            good = asyncio.create_task(sink.send(batch({2: {}}, token=(1, 3))))
            bad = asyncio.create_task(sink.send(batch({3: {"x": "y" * 30_000}}, token=(1, 4))))
            await asyncio.wait([good, bad], timeout=0.1)
        assert await first == [OK]
        assert await good == [Retry(0.0, "another batch of the transaction failed")]
        with pytest.raises(SinkError, match="the broker refuses a record"):
            await bad
        assert reader.read() == {(0, 0): {}, (0, 1): {}}


# --- what is said -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"client_options": {"enable.idempotence": False}}, "enable.idempotence can't be set there"),
        ({"client_options": {"partitioner": "random"}}, "expected a partitioner of murmur2"),
        ({"client_options": {"no.such.option": 1}}, "no.such.option"),
        ({"key": "{shard}"}, 'option "key": expected a text with {id}'),
        ({"key": "{id.__class__}"}, 'option "key": expected'),
        ({"transactional_id": "x"}, 'option "transactional_id": expected a text with {partition}'),
        ({"timeout": 0.5}, 'option "timeout": expected'),
        ({"topic": "a b"}, 'option "topic": expected'),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        KafkaSink.from_options({"bootstrap_servers": "localhost:9", "topic": "t", **options})
    assert said in str(raised.value)


async def test_no_secret_is_told(kafka_real: RealKafka, topic: str) -> None:
    canary = "c4n4ry-pass"
    sasl = {"sasl.mechanism": "PLAIN", "security.protocol": "SASL_PLAINTEXT", "sasl.username": "u"}
    secrets: list[dict[str, object]] = [
        {**sasl, "sasl.password": canary},
        {"security.protocol": "ssl", "ssl.key.pem": canary},
        {"compression.type": canary},
    ]
    settings = {"bootstrap_servers": kafka_real.bootstrap, "topic": topic, "timeout": 1}
    with capture_logs() as logs:
        for options in secrets:
            with pytest.raises((ConfigError, SinkUnavailable)) as raised:
                await KafkaSink.from_options({**settings, "client_options": options}).open()
            assert canary not in repr(raised.value)
            with suppress(ConfigError):
                assert canary not in repr(
                    vars(KafkaSink.from_options({**settings, "client_options": options}))
                )
    assert canary not in repr(logs)
