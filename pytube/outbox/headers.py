"""The headers that each record has at Kafka, for consumers that deduplicate or look how late a record is."""

from __future__ import annotations

from typing import Final

OUTBOX_ID: Final = "pytube-outbox-id"
"""The record's id in the outbox, as a decimal number. It stays the same however often the record is sent."""

EPOCH: Final = "pytube-epoch"
"""The epoch of the term that sent the record, as a decimal number. It tells repeats of two leaders apart."""

ENQUEUED: Final = "pytube-enqueued"
"""When the record was written to the outbox, by the database's clock: Unix seconds with three decimals."""
