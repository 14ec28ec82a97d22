"""A broker that has just started and knows no broker yet: over it, librdkafka 2.16 may end the process.

`describe_cluster` and `describe_topics` fail an assertion then (rd_kafka_admin_response_parse), and a cluster
without an id makes `describe_cluster` read at NULL. Each test would end pytest's process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pytube.errors import SinkUnavailable
from pytube.kafka.clients import Producers
from pytube.sinks.kafka import Topic
from pytube.worker.kafka import KafkaCluster
from tests.helpers.waiting import wait_until_async
from tests.helpers.young_broker import YoungBroker


@pytest.fixture
def broker() -> Iterator[YoungBroker]:
    with YoungBroker() as broker:
        yield broker


async def test_the_watch_of_a_cluster_says_that_it_is_not_there_yet(broker: YoungBroker) -> None:
    cluster = KafkaCluster(broker.bootstrap, {})
    watch = asyncio.create_task(cluster.watch())
    await wait_until_async(lambda: broker.answers >= 2)  # to the client that connects, and to the question
    broker.knows_itself = False
    await wait_until_async(lambda: cluster.reason is not None)
    broker.knows_itself = True
    await wait_until_async(lambda: cluster.reason is None)
    watch.cancel()


def test_the_sink_can_not_tell_whether_there_is_a_topic(broker: YoungBroker) -> None:
    topic = Topic(Producers(broker.bootstrap, 2.0, {}), "documents")
    topic._admin.list_topics(timeout=2.0)
    broker.knows_itself = False
    with pytest.raises(SinkUnavailable):
        topic.is_there()
