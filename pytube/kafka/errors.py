"""What librdkafka's errors mean."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

# ruff: noqa: SLF001 -- librdkafka's own codes begin with an underscore

ALL_DOWN = KafkaError._ALL_BROKERS_DOWN
"""Says only that no broker is there; another error before it says why."""

REBALANCING = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS})
"""While the group rebalances its generation is ahead of the one this member knows.

How long depends on the slowest member. A removed member gets UNKNOWN_MEMBER_ID instead.
"""

_COORDINATOR_AWAY = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)

PASSING = REBALANCING | _COORDINATOR_AWAY | {KafkaError.UNKNOWN_TOPIC_OR_PART}
"""Answers to a commit that may be another one a moment later."""

NO_ANSWER = _COORDINATOR_AWAY | {
    ALL_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
}
"""Results of a commit that say nothing of the membership."""

PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""The record was given up when its producer was."""

UNKNOWN = PURGED | {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.REQUEST_TIMED_OUT,
}
"""The record may be in the topic or not."""

_NOT_YET = _COORDINATOR_AWAY | {
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    # Of a producer's records some had no answer in time, and what follows can't be written by it any more.
    KafkaError.DUPLICATE_SEQUENCE_NUMBER,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
}
"""Answers of a broker that has just come, or is about to go, and what an outage leaves behind."""

_OF_METADATA = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError._FENCED})
"""What librdkafka says itself, because of what a broker has answered before."""

OF_RECORDS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
    }
)
"""The broker refuses a whole batch of records for one of them; it does not say which."""

BROKEN = frozenset({KafkaError._FATAL, KafkaError._GAPLESS_GUARANTEE})
"""The producer sends nothing more."""


def is_answer(error: KafkaError) -> bool:
    """Whether a broker has said it, and so is there; a refusal is an answer, too."""
    return error.code() >= 0 or error.code() == KafkaError._UNSUPPORTED_FEATURE


def is_refusal(error: KafkaError) -> bool:
    """Whether a broker refuses the request; else no broker may be there, or none that is ready."""
    return error.code() in _OF_METADATA or (error.code() >= 0 and error.code() not in _NOT_YET)


def text_of(error: Exception) -> str:
    """What an error says that was raised when a client was made or asked."""
    cause = error.args[0] if isinstance(error, KafkaException) else None
    return str(cause.str()) if isinstance(cause, KafkaError) else str(error)
