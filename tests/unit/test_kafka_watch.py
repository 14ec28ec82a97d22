"""What watches a Kafka cluster ends when it is told to, whatever happens in the same moment."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pytube.worker import kafka
from pytube.worker.kafka import KafkaCluster


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
