"""Cuts documents into batches of bounded size. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pytube.model import Document
from pytube.pipeline.redelivery import Key


def by_shard(keys: Iterable[Key]) -> dict[int, list[int]]:
    """The ids of `keys`, by shard; order is kept within a shard."""
    groups: dict[int, list[int]] = {}
    last: int | None = None
    group: list[int] = []
    for shard, key in keys:
        if shard != last:
            group = groups.setdefault(shard, [])
            last = shard
        group.append(key)
    return groups


def split(documents: Sequence[Document], max_documents: int, max_bytes: int) -> Iterator[Sequence[Document]]:
    """Runs of `documents` of at most so many and so many bytes; a larger one stands alone."""
    if len(documents) <= max_documents and sum([len(d.body) for d in documents if d.body]) <= max_bytes:
        if documents:
            yield documents
        return
    start = size = 0
    for index, document in enumerate(documents):
        length = len(document.body or b"")
        if index > start and (index - start >= max_documents or size + length > max_bytes):
            yield documents[start:index]
            start, size = index, 0
        size += length
    if start < len(documents):
        yield documents[start:]
