"""A message on its way into an outbox, and the headers that Kafka gets beside its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

OUTBOX_ID: Final = "pytube-outbox-id"
"""The record's id in the outbox, as a decimal number. It stays the same however often the record is sent."""

EPOCH: Final = "pytube-epoch"
"""The epoch of the term that sent the record, as a decimal number. It tells repeats of two leaders apart."""

ENQUEUED: Final = "pytube-enqueued"
"""When the record was written to the outbox, by the database's clock: Unix seconds with three decimals."""

Headers = Mapping[str, str] | Sequence[tuple[str, str | None]]
"""By name; or pairs, where a name may stand more than once."""


@dataclass(frozen=True, slots=True)
class Message:
    """What Kafka shall get.

    Two messages of one topic with the same partition key, or else the same key, are delivered in order.
    """

    topic: str
    key: str | None
    """None: no other message is ordered with this one, unless it has a partition key."""
    value: str | bytes | None
    """None is a tombstone: Kafka's compaction forgets the key."""
    headers: Headers = ()
    partition_key: str | None = None
    """Chooses the partition, in Kafka as in the outbox, and the order, in place of the key."""

    @property
    def ordering_key(self) -> str | None:
        """What orders it within its topic; None: nothing does."""
        return self.key if self.partition_key is None else self.partition_key

    @property
    def header_pairs(self) -> list[tuple[str, str | None]]:
        """Names and values of the headers, in order."""
        return list(self.headers.items() if isinstance(self.headers, Mapping) else self.headers)
