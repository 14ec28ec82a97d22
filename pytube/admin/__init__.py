"""Operators' actions, over one session: each act stands in the audit, by the transaction that does it.

The functions take an autocommit connection and the schema of pytube's SQL, and raise `UsageError` for calls
that make no sense or are not allowed, with nothing changed, and `DatabaseUnavailable` when the session is
lost.
"""

from pytube.admin.acts import accept_sink, audit, touch, touch_query
from pytube.admin.park import (
    Parked,
    Parking,
    Seen,
    drop_parked,
    list_parked,
    parked_document,
    retry_parked,
    see_parked,
)
from pytube.admin.pausing import pause, pauses, pauses_of, resume, step, wait_until_halted
from pytube.admin.pods import (
    Pods,
    WaitingPod,
    ack_pods,
    count_pods,
    list_pods,
    reset_attempts,
    retry_pods,
    show,
)

__all__ = [
    "Parked",
    "Parking",
    "Pods",
    "Seen",
    "WaitingPod",
    "accept_sink",
    "ack_pods",
    "audit",
    "count_pods",
    "drop_parked",
    "list_parked",
    "list_pods",
    "parked_document",
    "pause",
    "pauses",
    "pauses_of",
    "reset_attempts",
    "resume",
    "retry_parked",
    "retry_pods",
    "see_parked",
    "show",
    "step",
    "touch",
    "touch_query",
    "wait_until_halted",
]
