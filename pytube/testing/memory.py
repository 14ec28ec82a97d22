"""A sink that keeps documents in memory, and breaks in the ways that a test asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import Field

from pytube.errors import SinkError, SinkUnavailable
from pytube.model import OK, Batch, Document, Id, Key, Ok, Reject, Result, Retry, Stale, Token
from pytube.sinks import SinkOptions
from pytube.sinks.base import Stored


@dataclass(frozen=True, slots=True)
class Faults:
    """How a `MemorySink` misbehaves. A value: to change one, give the sink another."""

    down: bool = False
    """Takes nothing, and says so."""
    hang: bool = False
    """Neither writes nor answers, until this is taken away."""
    mute: bool = False
    """Writes, but does not answer, until this is taken away."""
    slow: float = 0.0
    """Seconds before each write."""
    short: int = 0
    """Answers that many results fewer than there are documents."""
    fail: Collection[Key] = ()
    """A batch with one of these keys fails as a whole."""
    reject: Collection[Key] = ()
    """These keys are rejected."""
    retry: Mapping[Key, float] = field(default_factory=dict)
    """These keys are to be sent again, after so many seconds."""


@dataclass(slots=True)
class MemoryStore:
    """What sinks have written; several sinks may share one, as processes share a server."""

    held: dict[Key, Document] = field(default_factory=dict)
    """The last write of each key; deletes stay as tombstones."""
    log: list[Document] = field(default_factory=list)
    """Every write that was taken, in order of arrival."""

    def write(self, document: Document, *, compare: bool) -> Ok | Stale:
        """Take the write, unless it is to be compared and a higher token is held."""
        held = self.held.get(document.key)
        if compare and held is not None and document.token < held.token:
            return Stale(int(held.token))
        self.held[document.key] = document
        self.log.append(document)
        return OK

    def values(self) -> dict[Key, Any]:
        """The decoded value of each document that is there."""
        return {key: d.value() for key, d in list(self.held.items()) if not d.is_delete}  # others may write

    def token(self, key: Key) -> Token | None:
        """The token of the last write of `key`; None when there was none."""
        held = self.held.get(key)
        return None if held is None else held.token


class MemoryOptions(SinkOptions):
    """Options of a `MemorySink`."""

    compares: bool = Field(default=False, description="true or false")


class MemorySink:
    """Keeps documents in a `MemoryStore`, and watches that no key is in two calls at once."""

    def __init__(
        self, store: MemoryStore | None = None, *, compares: bool = False, faults: Faults | None = None
    ) -> None:
        self.compares = compares
        self.store = MemoryStore() if store is None else store
        self.overlaps: list[Key] = []
        """Keys that were sent while another call had them: the caller's fault."""
        self.sends = 0
        """Calls of `send`."""
        self._faults = faults or Faults()
        self._changed: list[asyncio.Event] = []
        self._in_flight: set[Key] = set()
        self._is_open = False

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """A sink with a separate store."""
        return cls(compares=MemoryOptions.parse("memory", options).compares)

    @property
    def faults(self) -> Faults:
        """How it misbehaves now. To be set in the event loop that uses the sink."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._faults = faults
        self._wake()

    async def open(self) -> None:
        """Allow sends, unless it is down."""
        self._refuse_when_down()
        self._is_open = True

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Write the batch, as far as the faults let it."""
        self.sends += 1
        mine = [document.key for document in batch]
        self.overlaps += [key for key in mine if key in self._in_flight]
        self._in_flight.update(mine)
        try:
            return await self._send(batch)
        finally:
            self._in_flight.difference_update(mine)

    async def abandon(self, batch: Batch) -> None:
        """Return at once: a cancelled send has stopped."""

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        """The keys held, two a page; a store is one tube's."""
        del tube
        self._refuse_when_down()
        self._refuse_when_closed()
        found = [
            d.id
            for d in self.store.held.values()
            if d.shard == shard and not d.is_delete and d.seq < below_seq
        ]
        for start in range(0, len(found), 2):
            await asyncio.sleep(0)
            self._refuse_when_down()
            yield found[start : start + 2]

    async def read(self, tube: str, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        """The last write of each; a store is one tube's."""
        del tube
        self._refuse_when_down()
        self._refuse_when_closed()
        held = [(key, self.store.held.get(key)) for key in keys]
        return {key: Stored() if d is None else Stored(d.body, d.token, d.seq) for key, d in held}

    async def close(self) -> None:
        """Refuse sends, hanging ones too."""
        self._is_open = False
        self._wake()

    async def _send(self, batch: Batch) -> Sequence[Result]:
        self._refuse_when_down()
        self._refuse_when_closed()
        if self._faults.slow:
            await asyncio.sleep(self._faults.slow)
        while self._faults.hang and self._is_open:
            await self._change()
        self._refuse_when_down()
        self._refuse_when_closed()
        # On the loop's own clock, which a test may replace, and which is time.monotonic() else.
        if asyncio.get_running_loop().time() >= batch.send_before:
            raise SinkUnavailable("memory: not written, the right to send had lapsed")
        failing = [key for key in (d.key for d in batch) if key in self._faults.fail]
        if failing:
            raise SinkError(f"memory: fails on {failing[0]}")
        results = [self._take(document) for document in batch]
        while self._faults.mute and self._is_open:
            await self._change()
        return results[: max(0, len(results) - self._faults.short)]

    def _take(self, document: Document) -> Result:
        if document.key in self._faults.reject:
            return Reject(f"memory: rejects {document.key}")
        if document.key in self._faults.retry:
            return Retry(self._faults.retry[document.key], "memory: not now")
        return self.store.write(document, compare=self.compares)

    def _refuse_when_down(self) -> None:
        if self._faults.down:
            raise SinkUnavailable("memory: is down")

    def _refuse_when_closed(self) -> None:
        if not self._is_open:
            raise SinkUnavailable("memory: is not open")

    async def _change(self) -> None:
        """Wait until the faults change or the sink is closed."""
        changed = asyncio.Event()
        self._changed.append(changed)
        await changed.wait()

    def _wake(self) -> None:
        waiting, self._changed = self._changed, []
        for changed in waiting:
            changed.set()
