"""How fast the sink `kafka` writes, beside the client's own producer with the same records."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial

from confluent_kafka import Producer

from bench.frame.page import Section
from bench.frame.rounds import interleave
from bench.frame.sends import show, target
from bench.frame.server import Server
from bench.sinks.batches import AT_ONCE, DOCUMENTS, EACH, at_once, batches, bodies, pieces
from pytube.embedded.kafka_real import RealKafka
from pytube.model import OK
from pytube.sinks.kafka import KafkaSink

ROUNDS = 5
TO_PRODUCER = 0.5
"""Of a producer that never waits: the sink waits for the reports of four batches."""
TOPIC = "bench"
WORDS = {
    "sink": "sink",
    "transactions": "sink, with transactions",
    "producer": "a producer, one flush at the end",
}


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "The sink `kafka`",
        f"{DOCUMENTS:,} documents of some {len(bodies()[-1])} bytes to a topic of a broker on this machine, "
        f"{EACH} a batch, {AT_ONCE} batches at once; and by the client's producer with the same settings, "
        "keys, values and headers, which were made before the clock ran, and nobody who waits for a batch.",
    )
    readings = server.readings(server.database("bench_sink_kafka"))
    with tempfile.TemporaryDirectory() as folder, RealKafka(folder) as kafka, asyncio.Runner() as runner:
        cases = Cases(kafka.bootstrap)
        runner.run(cases.sink({}))  # creates the topic
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "sink": partial(cases.sink, {}),
            "transactions": partial(cases.sink, {"transactional_id": "bench.{partition}"}),
            "producer": cases.producer,
        }

        def case(name: str) -> Callable[[], float]:
            async def work() -> float:
                await works[name]()
                return DOCUMENTS

            return lambda: runner.run(work())

        taken = interleave(readings, {name: case(name) for name in works}, ROUNDS)
    server.drop("bench_sink_kafka")
    show(section, taken, WORDS, to="producer")
    section.targets.append(
        target(taken, "Kafka: to a producer that never waits", "sink", "producer", TO_PRODUCER)
    )
    return section


class Cases:
    """The ways to produce."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._epoch = 0
        constant: list[tuple[str, str | bytes | None]] = [
            ("tube", b"bench"),
            ("shard", b"0"),
            ("op", b"upsert"),
            ("ts", b"1767225600.123456"),
        ]
        self._records = [
            (f"0:{n}", bodies()[n], [("token", b"472446402651"), ("seq", b"1"), *constant])
            for numbers in pieces()
            for n in numbers
        ]

    async def sink(self, options: dict[str, object]) -> None:
        """By the sink."""
        self._epoch += 1
        settings = {"bootstrap_servers": self._bootstrap, "topic": TOPIC, "create_topic": True}
        sink = KafkaSink.from_options({**settings, **options})
        await sink.open()

        async def send(numbers: range) -> None:
            assert await sink.send(next(batches(self._epoch, [numbers]))) == [OK] * EACH

        await at_once(send)
        await sink.close()

    async def producer(self) -> None:
        """By the client."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "partitioner": "murmur2",
            }
        )
        reports = 0

        def report(error: object, _: object) -> None:
            nonlocal reports
            assert error is None
            reports += 1

        for key, value, headers in self._records:
            producer.produce(TOPIC, value, key, headers=headers, on_delivery=report)
        producer.flush()
        assert reports == DOCUMENTS
