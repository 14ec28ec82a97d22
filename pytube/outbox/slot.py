"""The partition of an outbox that a record is in, as `sql/outbox/indexes.sql` has it."""

from __future__ import annotations

import hashlib

_BITS = 0x7FFFFFFF


def slot_of(topic: str, ordering_key: str | None, record_id: int) -> int:
    """The slot of a record; modulo the partitions of its outbox, its partition.

    Holds for databases whose encoding is UTF-8: Postgres digests the bytes of the texts.

    Args:
        topic: of the message.
        ordering_key: its partition key, else its key; None where it has neither.
        record_id: of the record, which then stands for itself.
    """
    text = f"{topic}\x1f{record_id if ordering_key is None else ordering_key}"
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") & _BITS
