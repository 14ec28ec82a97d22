"""What an enricher is: it reads the rows of keys as they are now. And one that reads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pytube.model import Id


@dataclass(slots=True)
class Read:
    """What was found for the ids of one shard.

    An id that is in neither was not there: its document is to be deleted.
    """

    bodies: Mapping[Id, bytes]
    orphans: Sequence[Id] = field(default_factory=tuple)
    """Ids of a shard that no attached table has: nothing can be said about them."""
    table: str | None = None
    """The root table that was read, as `schema.table`; None when there is none."""


class Enricher(Protocol):
    """Reads documents. Called concurrently, always after the batch's token was drawn."""

    async def read(self, shard: int, ids: Sequence[Id], *, urgent: bool = True) -> Read:
        """The documents of `ids`, of one moment that is later than this call.

        `urgent=False` lets other reads go first.

        Raises:
            DatabaseUnavailable: the connection was lost.
            EnrichFailed: the source can't be read at all (a missing grant, a wrong query).
            EnrichTimeout: it took too long, which fewer ids at a time may not.
            EnrichDataError: the data of some row makes the query fail; smaller batches tell which.
        """


class TouchEnricher:
    """Each touched key becomes the document `null`, whether its row is still there or not."""

    async def read(self, shard: int, ids: Sequence[Id], *, urgent: bool = True) -> Read:
        """`null` for each id."""
        del shard, urgent
        return Read(dict.fromkeys(ids, b"null"))
