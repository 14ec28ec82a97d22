"""What names a row, and with its shard a document: an integer, or a text.

A uuid is held as the text that Postgres writes for it. So there are two kinds of ids for sinks: integers
as they are, and texts.
"""

from __future__ import annotations

import enum
import re
from typing import TypeAlias

Id: TypeAlias = int | str
"""Of one row. All ids of a tube are of one kind."""

Key: TypeAlias = tuple[int, Id]
"""`(shard, id)`: names a document at every sink."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GREATEST = 2**63 - 1


class KeyType(enum.StrEnum):
    """The type of a tube's keys, by the name that Postgres has for it."""

    BIGINT = "bigint"
    UUID = "uuid"
    TEXT = "text"

    def has(self, value: object) -> bool:
        """Whether `value` can be the id of a row of such a tube, as a worker writes it."""
        match self:
            case KeyType.BIGINT:
                return type(value) is int and -_GREATEST - 1 <= value <= _GREATEST
            case KeyType.UUID:
                return isinstance(value, str) and _UUID.fullmatch(value) is not None
            case KeyType.TEXT:
                return isinstance(value, str) and "\0" not in value
