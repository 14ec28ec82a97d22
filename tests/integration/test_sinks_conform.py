"""Every sink that comes with pytube, that of `pytube.testing`, and that of the tests pass the suite."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytube.model import OK, Batch, Key, Reject, Result
from pytube.sinks.base import Sink, Stored
from pytube.sinks.callable import CallableSink
from pytube.sinks.jsonl import JsonlSink, replay
from pytube.testing import Faults, MemorySink, MemoryStore, SinkContract
from tests.helpers.sweepable import SweepableSink


class TestJsonl(SinkContract):
    fsync = False

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.path = tmp_path / "documents.jsonl"
        self.lock = -1

    def make_sink(self) -> Sink:
        return JsonlSink(str(self.path), fsync=self.fsync)

    def unopenable_sink(self) -> Sink:
        return JsonlSink(str(self.path.parent))

    def read_back(self) -> dict[Key, Any]:
        # As a reader that does not compare: what a paused or late writer did would show.
        if not self.path.exists():
            return {}
        lines = replay([self.path], compare=False).values()
        return {(line.shard, line.id): line.doc for line in lines if not line.is_delete}

    def stall(self) -> bool:
        self.lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        return True

    def unstall(self) -> None:
        os.close(self.lock)


class TestJsonlSynced(TestJsonl):
    fsync = True


class TestSweepable(TestJsonl):
    """The tests' own sink that can be scanned, in pages of full length."""

    def make_sink(self) -> Sink:
        return SweepableSink(str(self.path), fsync=False)


class TestMemory(SinkContract):
    compares = False

    @pytest.fixture(autouse=True)
    def _store(self) -> None:
        self.store = MemoryStore()
        self.sinks: list[MemorySink] = []

    def make_sink(self) -> Sink:
        self.sinks.append(MemorySink(self.store, compares=self.compares))
        return self.sinks[-1]

    def unopenable_sink(self) -> Sink:
        return MemorySink(faults=Faults(down=True))

    def read_back(self) -> dict[Key, Any]:
        return self.store.values()

    def stall(self) -> bool:
        for sink in self.sinks:
            sink.faults = Faults(hang=True)
        return True

    def unstall(self) -> None:
        for sink in self.sinks:
            sink.faults = Faults()


class TestMemoryThatCompares(TestMemory):
    compares = True


class TestCallable(SinkContract):
    """A plain function, in threads, over a store that compares or does not."""

    compares = False

    @pytest.fixture(autouse=True)
    def _store(self) -> None:
        self.store = MemoryStore()
        self.lock = threading.Lock()
        self.go = threading.Event()
        self.go.set()

    def index(self, batch: Batch) -> list[Result]:
        self.go.wait()
        with self.lock:
            return [
                Reject("bad") if d.value() == "bad" else self.store.write(d, compare=self.compares)
                for d in batch
            ]

    def read(self, tube: str, keys: Sequence[Key]) -> dict[Key, bytes | Stored | None]:
        assert tube == "conformance"
        held = [self.store.held[key] for key in keys if key in self.store.held]
        return {d.key: Stored(d.body, d.token) if self.compares else d.body for d in held}

    def make_sink(self) -> Sink:
        return CallableSink(self.index, compares=self.compares, read=self.read)

    def rejected_value(self) -> Any:
        return "bad"

    def read_back(self) -> dict[Key, Any]:
        return self.store.values()

    def stall(self) -> bool:
        self.go.clear()
        return True

    def unstall(self) -> None:
        self.go.set()


class TestCallableThatCompares(TestCallable):
    compares = True


class TestCoroutine(SinkContract):
    """A coroutine function, which returns None and holds off its cancellation for a moment."""

    @pytest.fixture(autouse=True)
    def _store(self) -> None:
        self.store = MemoryStore()

    async def index(self, batch: Batch) -> None:
        try:
            await asyncio.sleep(0.001)
        finally:
            await asyncio.sleep(0.001)
            for document in batch:
                assert self.store.write(document, compare=False) == OK

    async def read(self, tube: str, keys: Sequence[Key]) -> dict[Key, bytes | None]:
        assert tube == "conformance"
        return {key: self.store.held[key].body for key in keys if key in self.store.held}

    def make_sink(self) -> Sink:
        return CallableSink(self.index, read=self.read)

    async def read_back(self) -> dict[Key, Any]:
        return self.store.values()
