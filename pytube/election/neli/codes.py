# ruff: noqa: SLF001 -- librdkafka's own codes begin with an underscore
"""Codes of Kafka's errors, grouped by what they mean for leader election."""

from __future__ import annotations

from confluent_kafka import KafkaError

ALL_DOWN = KafkaError._ALL_BROKERS_DOWN
"""Says only that there is nobody; another error before it says why."""

UNUSABLE = frozenset({ALL_DOWN, KafkaError._AUTHENTICATION, KafkaError._RESOLVE})
"""Told by a client of itself: the cluster can't be used."""

REBALANCING = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS})
"""While the group rebalances its generation is ahead of the one that we know.

How long depends on the slowest member. One that was removed is told UNKNOWN_MEMBER_ID instead.
"""

PASSING = REBALANCING | {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
"""Answers to a commit that may be another one a moment later."""

NO_ANSWER = frozenset(
    {
        ALL_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""Results of a commit that say nothing of our membership."""
