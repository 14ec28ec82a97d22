"""A sink that can be scanned, as third parties install one: a file of JSON lines that reads itself back."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from pytube.model import Id
from pytube.sinks.base import PAGE
from pytube.sinks.jsonl import JsonlSink, Replay
from tests.helpers.database import ROOT


class OfOneShard(Replay):
    """What the keys of one shard hold.

    Lines of other shards are not parsed: of millions of lines that would keep Python from all else, and the
    worker would lose its terms, one after the other, before any scan has ended.
    """

    def __init__(self, path: str | Path, shard: int) -> None:
        super().__init__([path])
        self._may_be = re.compile(rb'"shard": ?%d\b' % shard).search

    def _take(self, raw: bytes) -> None:
        if self._may_be(raw):
            super()._take(raw)


class SweepableSink(JsonlSink):
    """The sink `jsonl`, which each scan replays in memory: for as many documents as a test has."""

    def cannot_scan(self) -> str | None:
        """Return None: it can."""
        return None

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        """The documents of the shard that the file holds with a lower stamp."""
        held = OfOneShard(self.path, shard)
        await asyncio.to_thread(held.finish)
        old = [
            line.id
            for line in held.lines.values()
            if (line.tube, line.shard) == (tube, shard) and line.seq < below_seq and not line.is_delete
        ]
        for start in range(0, len(old), PAGE):
            yield old[start : start + PAGE]


def offer_sweepable(folder: Path) -> None:
    """Offer the sink as the type `sweepable` to processes that have `folder` on their path."""
    info = folder / "sweepable-1.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(f"[pytube.sinks]\nsweepable = {__name__}:SweepableSink\n")


def install_sweepable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offer the sink to this process, and to those that it starts, until the test is over."""
    offer_sweepable(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(folder))))
