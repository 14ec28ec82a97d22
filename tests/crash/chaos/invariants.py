"""What must hold, each under a name that the report explains."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Invariant(StrEnum):
    """Each in plain words."""

    EQUAL = "The sink equals the source once all is quiet: by order of arrival, and by token."
    CAPTURED = "Every committed change of a row has a touch of the same transaction."
    EMPTY = "No touch is left, and none has vanished without a purge."
    ACKNOWLEDGED = (
        "A touch is purged only after the sink has answered for each of its keys. The answered send began "
        "after the touch and held that change or a later one: a delete only if the row was gone by then."
    )
    PURGED_IN_TERM = "A touch is purged only by the term that holds its partition at that moment."
    ALONE = "No key is in two sends at once, within a term or over terms."
    IN_ORDER = "Once a term has written to a shard, no earlier one does; and tokens of a key only grow."
    RECORDED = "Every term that wrote or spoke is in the database, for the shards that it wrote to."
    TRUSTED = "No send begins later than the receive deadline after the last renewal of its term before it."
    WAITED = "No term sends before each earlier one has released, or must have lost its right to send."
    PARKED = "The parked keys are exactly the ones whose last state the sink refused."
    DELIVERED = (
        "Once all is quiet, Kafka has each record that was committed to an outbox, and nothing that was "
        "rolled back. Records of a key that were committed before another was stashed come before it. "
        "Repeats stay within the bounds of the mode; with transactions there are none, and nothing is late."
    )
    SENDABLE = "No record of an outbox is parked."
    LED = "Each partition is led again, and its backlog gone, within a bound after the last fault."
    LIVING = "No worker ends, fails or logs an error without a fault that explains it."
    LEAN = "A worker that was never restarted does not grow."


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong."""

    invariant: Invariant
    what: str

    def __str__(self) -> str:
        return f"{self.invariant.name}: {self.what}"


class Stopped(Exception):
    """The run found something wrong."""

    def __init__(self, *violations: Violation) -> None:
        super().__init__("\n".join(map(str, violations)))
        self.violations = list(violations)
