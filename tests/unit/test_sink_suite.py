"""The conformance suite finds what it says it finds: a broken sink fails the check of its fault."""

from __future__ import annotations

import asyncio
import threading
import time
import unittest
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from pytube.model import OK, Batch, Document, Key, Result, Token
from pytube.sinks.base import Sink, Stored
from pytube.testing import MemorySink, MemoryStore, SinkContract, document


class Swapped(MemorySink):
    """Answers in the wrong order."""

    async def send(self, batch: Batch) -> Sequence[Result]:
        return list(reversed(await super().send(batch)))


class Forgetful(MemorySink):
    """Answers one too few."""

    async def send(self, batch: Batch) -> Sequence[Result]:
        return list(await super().send(batch))[:-1]


class Comparing(MemorySink):
    """Says that it compares, and does not."""

    async def send(self, batch: Batch) -> Sequence[Result]:
        self.compares = False
        try:
            return await super().send(batch)
        finally:
            self.compares = True


class Late(MemorySink):
    """Writes whenever it likes."""

    async def send(self, batch: Batch) -> Sequence[Result]:
        return await super().send(Batch(batch.tube, batch.partition, batch.token, batch.documents))


class Lingering(MemorySink):
    """Writes in the background, whatever becomes of the send."""

    async def send(self, batch: Batch) -> Sequence[Result]:
        started = asyncio.get_running_loop().create_future()
        delay = 0.1 if batch.token.counter == 1 else 0.0
        asyncio.get_running_loop().call_later(delay, self._write, batch, started)
        await asyncio.shield(started)
        return [OK] * len(batch)

    def _write(self, batch: Batch, started: asyncio.Future[None]) -> None:
        for each in batch:
            self.store.write(each, compare=False)
        started.set_result(None)


class Eager(MemorySink):
    """Answers before it writes, in any order."""

    async def send(self, batch: Batch) -> Sequence[Result]:
        for each in batch:
            delay = 0.03 if each.token.counter % 2 else 0.001
            asyncio.get_running_loop().call_later(delay, self._write, each)
        return [OK] * len(batch)

    def _write(self, each: Document) -> None:
        self.store.write(each, compare=False)


class Rounding(MemorySink):
    """Keeps ids as doubles."""

    async def send(self, batch: Batch) -> Sequence[Result]:
        rounded = [
            document((d.shard, int(float(d.id))), d.body, token=d.token, seq=d.seq) for d in batch.documents
        ]
        return await super().send(Batch(batch.tube, batch.partition, batch.token, rounded, batch.send_before))


class Closed(MemorySink):
    """Can be used only once."""

    async def close(self) -> None:
        if not self._is_open:
            raise RuntimeError("it is closed")
        await super().close()


class Blocking(MemorySink):
    """Waits for its store in the event loop."""

    go = threading.Event()

    async def send(self, batch: Batch) -> Sequence[Result]:
        self.go.wait()
        return await super().send(batch)


class Scribbling(MemorySink):
    """Changes what it was given."""

    async def send(self, batch: Batch) -> Sequence[Result]:
        results = await super().send(batch)
        for each in batch:
            each.token = Token(0, 0)
        return results


class Rereading(MemorySink):
    """Reads what somebody has written, but not of this key."""

    async def read(self, tube: str, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        found = await super().read(tube, keys)
        return dict(zip(found, reversed(list(found.values())), strict=True))


BROKEN: list[tuple[Callable[..., MemorySink], bool, str, str]] = [
    (Swapped, True, "test_one_result_per_document_in_order", "of [100, 1, 2, 3]"),
    (Forgetful, False, "test_upsert_delete_upsert", "1 results for 2 documents"),
    (Comparing, True, "test_lower_token_does_not_win", "expected Stale"),
    (Late, False, "test_send_before", "instead of SinkUnavailable"),
    (Lingering, False, "test_abandoned_send_has_no_later_effect", "send cancelled after"),
    (Eager, False, "test_acknowledged_writes_keep_their_order", "after 26 writes of each key"),
    (Rounding, False, "test_odd_documents", "odd documents"),
    (Closed, False, "test_open_and_close_can_be_repeated", "it is closed"),
    (Blocking, False, "test_event_loop_goes_on_while_the_store_hangs", "the event loop stood still"),
    (Rereading, False, "test_read_gives_what_was_written", "is read as"),
    (Scribbling, False, "test_leaves_the_batch_alone", "send changed the batch"),
]


class Suite(SinkContract):
    """The suite over a memory sink of any class."""

    limit = 5.0
    grace = 0.15

    def __init__(self, kind: Callable[..., MemorySink], compares: bool) -> None:
        self.kind = kind
        self.compares = compares
        self.store = MemoryStore()

    def make_sink(self) -> Sink:
        return self.kind(self.store, compares=self.compares)

    def read_back(self) -> dict[Key, Any]:
        return self.store.values()

    def stall(self) -> bool:
        Blocking.go.clear()
        return self.kind is Blocking

    def unstall(self) -> None:
        Blocking.go.set()


@pytest.mark.parametrize(("kind", "compares", "check", "says"), BROKEN, ids=[b[0].__name__ for b in BROKEN])
def test_broken_sink_fails(kind: Callable[..., MemorySink], compares: bool, check: str, says: str) -> None:
    with pytest.raises((AssertionError, RuntimeError)) as caught:
        getattr(Suite(kind, compares), check)()
    assert says in str(caught.value)


@pytest.mark.parametrize("check", sorted({check for _, _, check, _ in BROKEN}))
@pytest.mark.parametrize("compares", [False, True])
def test_sound_sink_passes_the_same_checks(check: str, compares: bool) -> None:
    getattr(Suite(MemorySink, compares), check)()


class Unscannable(MemorySink):
    """Says why it can't be scanned."""

    def cannot_scan(self) -> str | None:
        return "it keeps no stamps"


class Unreadable(MemorySink):
    """Says why it can't be read."""

    def cannot_read(self) -> str | None:
        return "it forgets"


NOT_TESTED = [
    *(
        (Suite(Unreadable, False), check, "no reading: it forgets")
        for check in dir(Suite)
        if check.startswith("test_read")
    ),
    *(
        (Suite(Unscannable, False), check, "it keeps no stamps")
        for check in dir(Suite)
        if "test_scan" in check
    ),
    (Suite(MemorySink, False), "test_lower_token_does_not_win", "does not compare tokens"),
    (Suite(MemorySink, False), "test_rejected_document", "no value that the sink rejects"),
    (Suite(MemorySink, False), "test_close_after_open_failed", "unopenable_sink"),
    (
        Suite(MemorySink, False),
        "test_event_loop_goes_on_while_the_store_hangs",
        "a send that blocks would not be noticed",
    ),
    (Suite(MemorySink, False), "test_abandoned_send_has_no_later_effect", "before it could be cancelled"),
    (Suite(MemorySink, False), "test_close_while_a_send_runs", "before the sink could be closed"),
    (Suite(MemorySink, False), "test_concurrent_sends_of_different_keys", "never waits in the event loop"),
]


@pytest.mark.parametrize(("suite", "check", "why"), NOT_TESTED, ids=[check for _, check, _ in NOT_TESTED])
def test_what_can_not_be_tested_is_skipped(suite: Suite, check: str, why: str) -> None:
    with pytest.raises(unittest.SkipTest, match=why):
        getattr(suite, check)()


def test_a_check_that_hangs_is_ended() -> None:
    class Hanging(MemorySink):
        async def open(self) -> None:
            await asyncio.Event().wait()

    suite = Suite(Hanging, False)
    suite.limit = 0.1
    began = time.monotonic()
    with pytest.raises(AssertionError, match=r"did not end within 0\.1 s"):
        suite.test_empty_batch()
    assert time.monotonic() - began < 5
