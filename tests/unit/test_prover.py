"""What a commit's answers mean for those who asked."""

from __future__ import annotations

from concurrent.futures import Future
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from pytube.election.member import Prover
from pytube.errors import BrokerUnavailable, ClaimLost, Rebalancing


class FakeConsumer:
    """Keeps the offsets of the last commit; they number it."""

    def __init__(self) -> None:
        self.offsets: list[TopicPartition] = []

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:  # noqa: ARG002 # its signature
        self.offsets = offsets


def answered(code: int | None) -> Future[None]:
    """Ask once, with no time to try again, and answer with `code`."""
    prover, consumer = Prover("topic", limit=0.0), FakeConsumer()
    answer = prover.ask(0)
    prover.send(cast("Consumer", consumer))
    prover.on_commit(KafkaError(code) if code is not None else None, consumer.offsets)
    assert answer.done()
    return answer


def test_yes() -> None:
    answered(None).result()


@pytest.mark.parametrize("code", [KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS])
def test_a_slow_rebalance_takes_no_claim_away(code: int) -> None:
    with pytest.raises(Rebalancing):
        answered(code).result()


def test_no_answer_takes_no_claim_away() -> None:
    with pytest.raises(BrokerUnavailable, match="does not answer"):
        answered(KafkaError.NOT_COORDINATOR).result()


def test_a_member_that_was_removed_loses_its_claims() -> None:
    with pytest.raises(ClaimLost, match="does not know us"):
        answered(KafkaError.UNKNOWN_MEMBER_ID).result()
