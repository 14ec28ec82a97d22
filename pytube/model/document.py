"""What goes to a sink: documents, in batches that share one token."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytube import clock
from pytube.model.token import Token


@dataclass(slots=True)
class Document:
    """The state of one key: its JSON text, or None when the source has no such row (delete)."""

    shard: int
    id: int
    body: bytes | None
    token: Token
    seq: int
    """Stamp for the sweep: at least the highest seq among the touches that caused this document."""

    @property
    def key(self) -> tuple[int, int]:
        """`(shard, id)`: names the document at every sink."""
        return self.shard, self.id

    @property
    def is_delete(self) -> bool:
        """Whether the document is to be removed at the sink."""
        return self.body is None

    def value(self) -> Any:
        """The body, decoded; None for a delete."""
        return None if self.body is None else json.loads(self.body)


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
