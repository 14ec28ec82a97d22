"""What watches a Kafka cluster ends when it is told to, whatever happens in the same moment."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pytube.config import parse
from pytube.worker import kafka
from pytube.worker.host import Host
from pytube.worker.kafka import KafkaCluster, needed_clusters


async def test_a_cancellation_that_comes_with_the_answer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Python 3.12 `asyncio.wait_for` returns the answer: who was to stop went on for ever."""
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def asked(*_: object) -> None:
        await answer

    monkeypatch.setattr(kafka, "in_thread", asked)
    admin: Any = SimpleNamespace(list_topics=None, poll=lambda _: 0)
    asking = asyncio.create_task(KafkaCluster("kafka:9092", {})._ask(admin))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answer.set_result(None)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


def test_an_outage_of_the_same_servers_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be asked with different options, by an election and an outbox."""
    told: list[str] = []
    log = SimpleNamespace(
        warning=lambda what, **_: told.append(what), info=lambda what, **_: told.append(what)
    )
    monkeypatch.setattr(kafka, "_log", log)
    config = parse(
        '[postgres]\ndsn = "host=/nowhere"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
        '[outbox.o]\nkafka_options = { "socket.timeout.ms" = 1000 }\n'
        '[outbox.p]\nbootstrap_servers = "127.0.0.1:2"\n'
    )
    first, second, other = needed_clusters(config, (), ("o", "p"))
    for cluster, reason in (
        (first, "refused"),
        (second, "no answer"),
        (first, None),
        (first, "refused"),
        (second, None),
        (first, None),
    ):
        cluster._note(reason)
    assert told == ["kafka_down", "kafka_up"]
    other._note("refused")
    assert told[2:] == ["kafka_down"]


def test_a_group_answers_when_it_has_taken_the_worker_in_and_not_when_its_broker_goes() -> None:
    told: list[str] = []
    log = SimpleNamespace(
        warning=lambda what, **_: told.append(what), info=lambda what, **_: told.append(what)
    )
    host: Any = SimpleNamespace(_silent=set(), queues={"t": SimpleNamespace(log=log)})
    for silent, outside in (
        ({}, {"t"}),  # not for long
        ({"t": "no answer"}, {"t"}),
        ({}, {"t"}),  # the broker is down
        ({"t": "no answer"}, {"t"}),
    ):
        Host._tell_silent(host, silent, outside)
    assert told == ["group_silent"]
    Host._tell_silent(host, {}, set())
    assert told == ["group_silent", "group_answers"]
    Host._tell_silent(host, {"t": "no answer"}, {"t"})
    assert told[2:] == ["group_silent"]
