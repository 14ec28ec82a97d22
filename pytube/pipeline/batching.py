"""Cuts documents into batches of bounded size. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pytube.model import Documents, Id, Key


def by_shard(keys: Iterable[Key]) -> dict[int, list[Id]]:
    """The ids of `keys`, by shard; order is kept within a shard."""
    groups: dict[int, list[Id]] = {}
    last: int | None = None
    group: list[Id] = []
    for shard, key in keys:
        if shard != last:
            group = groups.setdefault(shard, [])
            last = shard
        group.append(key)
    return groups


def keys_of(groups: Mapping[int, Iterable[Id]]) -> list[Key]:
    """The `(shard, id)` of all ids, which are given by shard."""
    return [(shard, key) for shard, ids in groups.items() for key in ids]


def split(documents: Documents, max_documents: int, max_bytes: int) -> Iterator[Documents]:
    """Runs of `documents` of at most so many and so many bytes; a larger one stands alone."""
    if len(documents) <= max_documents and documents.size <= max_bytes:
        if documents:
            yield documents
        return
    start = size = 0
    for index, length in enumerate(documents.sizes):
        if index > start and (index - start >= max_documents or size + length > max_bytes):
            yield documents[start:index]
            start, size = index, 0
        size += length
    if start < len(documents):
        yield documents[start:]
