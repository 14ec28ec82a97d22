"""What goes to a sink: documents, in batches that share one token."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, overload

from pytube import clock
from pytube.model.key import Id, Key
from pytube.model.token import Token


@dataclass(slots=True)
class Document:
    """The state of one key: its JSON text, or None when the source has no such row (delete)."""

    shard: int
    id: Id
    """An int where the tube's keys are bigint; a str where they are uuid or text."""
    body: bytes | None
    token: Token
    seq: int
    """Stamp for the sweep: at least the highest seq among the touches that caused this document."""

    @property
    def key(self) -> Key:
        """`(shard, id)`: names the document at every sink."""
        return self.shard, self.id

    @property
    def is_delete(self) -> bool:
        """Whether the document is to be removed at the sink."""
        return self.body is None

    def value(self) -> Any:
        """The body, decoded; None for a delete."""
        return None if self.body is None else json.loads(self.body)


class Documents(Sequence[Document]):
    """Documents with one token and stamp, held as columns; an object is made of each that is looked at.

    Objects for all would take a worker longer than all else that it does for them. What is done to
    such an object changes nothing here.
    """

    __slots__ = ("_bodies", "_ids", "_shards", "seq", "token")

    def __init__(self, token: Token, seq: int) -> None:
        """None yet; `token` and `seq` as in `Document`."""
        self.token = token
        self.seq = seq
        self._shards: list[int] = []
        self._ids: list[Id] = []
        self._bodies: list[bytes | None] = []

    def add(self, shard: int, ids: Sequence[Id], bodies: Iterable[bytes | None]) -> None:
        """Put the documents of `ids` to the end; as many bodies, in their order."""
        self._shards += [shard] * len(ids)
        self._ids += ids
        self._bodies += bodies

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Document]:
        return map(Document, self._shards, self._ids, self._bodies, repeat(self.token), repeat(self.seq))

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Documents: ...
    def __getitem__(self, index: int | slice) -> Document | Documents:
        if isinstance(index, int):
            return Document(self._shards[index], self._ids[index], self._bodies[index], self.token, self.seq)
        part = Documents(self.token, self.seq)
        part._shards, part._ids, part._bodies = self._shards[index], self._ids[index], self._bodies[index]
        return part

    @property
    def keys(self) -> list[Key]:
        """The `(shard, id)` of each."""
        return list(zip(self._shards, self._ids, strict=True))

    def by_shard(self) -> dict[int, list[Id]]:
        """The ids of each shard."""
        if len(set(self._shards)) == 1:  # as a rule
            return {self._shards[0]: self._ids}
        groups: dict[int, list[Id]] = {}
        for shard, key in zip(self._shards, self._ids, strict=True):
            groups.setdefault(shard, []).append(key)
        return groups

    @property
    def sizes(self) -> list[int]:
        """Bytes of each body; 0 for a delete."""
        return [len(body or b"") for body in self._bodies]

    @property
    def size(self) -> int:
        """Bytes of all bodies."""
        return sum(map(len, filter(None, self._bodies)))


@dataclass(slots=True, eq=False)
class Batch:
    """Documents of one partition that are sent together; no key occurs twice.

    `send_before` is a moment of `time.monotonic()`: a sink that has not begun its write by then
    must not begin it, because another worker may lead the partition. `has_lapsed()` says whether it has
    come, and knows of a machine that has slept meanwhile, too.
    """

    tube: str
    partition: int
    token: Token
    documents: Sequence[Document]
    send_before: float = field(default=float("inf"))
    _trusted_until: float = field(default=float("inf"), init=False)

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    def trust_until(self, moment: float) -> None:
        """No write may begin from `moment` on, which is of `pytube.clock`."""
        self._trusted_until = moment
        self.send_before = clock.on_monotonic(moment)

    def has_lapsed(self) -> bool:
        """Whether the write must not begin any more."""
        return time.monotonic() >= self.send_before or clock.now() >= self._trusted_until

    @property
    def size(self) -> int:
        """Bytes of all bodies."""
        return sum(len(d.body) for d in self.documents if d.body is not None)
