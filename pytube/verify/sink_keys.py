"""The keys that a sink has in the shards of a tube's tables, and what of it can't be a row of the tube."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from pytube.model import Key, KeyType
from pytube.sinks.base import EVERY_SEQ, Overlooking, Scanning


class SinkKeys:
    """Scans a sink. Documents that no row can be are counted apart: workers never write their keys."""

    def __init__(self, sink: Scanning, tube: str, shards: Collection[int], keys: KeyType) -> None:
        """Args:
        sink: open.
        tube: its name.
        shards: those to look through.
        keys: the type of the tube's keys.
        """
        self._sink = sink
        self._tube = tube
        self._shards = sorted(shards)
        self._keys = keys
        self._strange = 0
        self._example: Key | None = None

    async def pages(self) -> AsyncIterator[list[Key]]:
        """All of them; a document that the sink has split comes once for each of its parts."""
        self._strange = 0
        for shard in self._shards:
            async for page in self._sink.scan(self._tube, shard, EVERY_SEQ):
                yield [(shard, key) for key in page if self._is_possible(shard, key)]

    def left_out(self) -> list[str]:
        """What the last scan has met and did not give, in sentences."""
        said = []
        if isinstance(self._sink, Overlooking) and (overlooked := self._sink.overlooked()) is not None:
            said.append(overlooked)
        if self._strange and self._example is not None:
            shard, key = self._example
            said.append(
                f"{self._strange} documents at the sink have ids that no row of this tube can have, e.g. "
                f"shard {shard} id {str(key)[:50]!r}; the tube had other keys, or `parts`, when they were "
                "written: see docs/transforms.md"
            )
        return said

    def _is_possible(self, shard: int, key: int | str) -> bool:
        if self._keys.has(key):
            return True
        self._strange += 1
        self._example = shard, key
        return False
