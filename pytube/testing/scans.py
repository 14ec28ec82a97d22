"""How a sink is looked through, where it can be; see `pytube.sinks.base.Scanning`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol, runtime_checkable

from pytube.sinks.base import PAGE, Scanning, Sink, why_no_scan
from pytube.testing.batches import batch
from pytube.testing.harness import SinkHarness, expect
from pytube.testing.odd import ODD_TEXTS

_TUBE = "conformance"


@runtime_checkable
class _ScanningSink(Sink, Scanning, Protocol):
    """Both."""


class ScanChecks(SinkHarness):
    """A sink that can't be looked through passes: it says so."""

    def test_scan_finds_what_is_older(self) -> None:
        """Documents of the shard with a lower stamp; not what is newer, deleted, or of another shard."""

        async def check() -> None:
            async with self._scanning() as sink:
                if sink is None:
                    return
                await self.write_ok(
                    sink,
                    batch({(0, 1): {"v": 1}, (0, 2): {"v": 1}, (0, 3): {"v": 1}, (1, 4): {"v": 1}}, seq=5),
                    batch({(0, 5): {"v": 1}}, token=(1, 2), seq=10),
                    batch({(0, 2): {"v": 2}}, token=(1, 3), seq=11),
                    batch({(0, 3): None}, token=(1, 4), seq=6),
                )
                await self._expect(sink, 0, 10, {1})
                await self._expect(sink, 0, 11, {1, 5})
                await self._expect(sink, 1, 10, {4})
                await self._expect(sink, 2, 10, set())

        self.run(check())

    def test_scan_after_more_was_written(self) -> None:
        """A second look sees what was written since the first."""

        async def check() -> None:
            async with self._scanning() as sink:
                if sink is None:
                    return
                await self.write_ok(sink, batch({1: {"v": 1}, 2: {"v": 1}}, seq=5))
                await self._expect(sink, 0, 10, {1, 2})
                await self.write_ok(sink, batch({1: {"v": 2}, 7: {"v": 1}}, token=(1, 2), seq=6))
                await self._expect(sink, 0, 6, {2})
                await self._expect(sink, 0, 7, {1, 2, 7})

        self.run(check())

    def test_scan_sees_what_another_sink_wrote(self) -> None:
        """Whoever sweeps need not be the one who wrote."""

        async def check() -> None:
            async with self.opened() as first:
                await self.write_ok(first, batch({1: {"v": 1}}, seq=5))
            async with self._scanning() as sink:
                if sink is not None:
                    await self._expect(sink, 0, 10, {1})

        self.run(check())

    def test_scan_of_many_comes_in_pages(self) -> None:
        """None is left out between two pages, and none is too long; least and greatest ids are found."""

        async def check() -> None:
            ids = {*range(PAGE * 2 + 1), -(2**63), 2**63 - 1}
            async with self._scanning() as sink:
                if sink is None:
                    return
                wanted = sorted(ids)
                for start in range(0, len(wanted), 1000):
                    part = wanted[start : start + 1000]
                    documents: dict[int, object] = {key: {} for key in part}
                    await self.write_ok(sink, batch(documents, token=(1, start + 1), seq=1))
                await self._expect(sink, 0, 2, ids)

        self.run(check())

    def test_scan_of_keys_that_are_texts(self) -> None:
        """They are found as they were written, over the end of a page, too."""

        async def check() -> None:
            texts = sorted({*ODD_TEXTS, *(f"k{number}" for number in range(PAGE))})
            async with self._scanning() as sink:
                if sink is None:
                    return
                for start in range(0, len(texts), 1000):
                    documents: dict[str, object] = {key: {} for key in texts[start : start + 1000]}
                    await self.write_ok(sink, batch(documents, token=(1, start + 1), seq=1))
                await self.write_ok(sink, batch({"k1": None}, token=(2, 1), seq=1))
                await self._expect(sink, 0, 2, {*texts} - {"k1"})

        self.run(check())

    @asynccontextmanager
    async def _scanning(self) -> AsyncIterator[_ScanningSink | None]:
        async with self.opened() as sink:
            if why_no_scan(sink) is None and isinstance(sink, _ScanningSink):
                yield sink
            else:
                yield None

    async def _expect(self, sink: _ScanningSink, shard: int, below_seq: int, ids: set[Any]) -> None:
        found: list[Any] = []
        async for page in sink.scan(_TUBE, shard, below_seq):
            expect(len(page) <= PAGE, f"a page of {len(page)} ids, and {PAGE} are allowed")
            found += page
        missing, strange = ids - set(found), set(found) - ids
        where = f"scan of shard {shard} below {below_seq}"
        expect(not missing, f"{where}: {sorted(missing)[:5]} are missing")
        expect(not strange, f"{where}: {sorted(strange)[:5]} should not be found")
