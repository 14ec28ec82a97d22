"""Reads nothing: for copies that only need to know *that* a row changed, such as a cache."""

from __future__ import annotations

from collections.abc import Sequence

from pytube.enrich.base import Read
from pytube.model import Id


class TouchEnricher:
    """Each touched key becomes the document `null`, whether its row is still there or not."""

    async def read(self, shard: int, ids: Sequence[Id], *, urgent: bool = True) -> Read:
        """`null` for each id."""
        del shard, urgent
        return Read(dict.fromkeys(ids, b"null"))
