"""How a sink opens, closes, gives up, and keeps out of the way."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from pytube.errors import PytubeError, SinkError, SinkUnavailable
from pytube.model import Key
from pytube.sinks.base import Sink
from pytube.testing.batches import batch
from pytube.testing.harness import SinkHarness, begun, cancelled, expect


class LifetimeChecks(SinkHarness):
    """Opening, closing, late and cancelled sends."""

    def test_has_the_shape_of_a_sink(self) -> None:
        """It has every method, and says whether it compares."""
        sink = self.make_sink()
        expect(isinstance(sink, Sink), "it lacks one of compares, open, send, abandon, close")
        expect(isinstance(sink.compares, bool), f"compares is {sink.compares!r}, not a bool")

    def test_open_and_close_can_be_repeated(self) -> None:
        """Each does nothing the second time, close also before open; open works after close."""

        async def check() -> None:
            sink = self.make_sink()
            await sink.close()
            for round_ in (1, 2):
                await sink.open()
                await sink.open()
                await self.write_ok(sink, batch({1: {"round": round_}}, token=(1, round_)))
                await sink.close()
                await sink.close()
            await self.expect_values({(0, 1): {"round": 2}}, "after opening again")

        self.run(check())

    def test_close_after_open_failed(self) -> None:
        """A failed open says what is wrong, and close is quiet."""

        async def check() -> None:
            sink = self.unopenable_sink()
            if sink is None:
                return
            try:
                await sink.open()
            except PytubeError:
                pass
            except Exception as error:
                raise AssertionError(
                    f"open raised {error!r}, expected ConfigError or SinkUnavailable"
                ) from error
            else:
                raise AssertionError("open of the unopenable sink did not raise")
            await sink.close()
            await self.expect_refused(lambda: sink.send(batch({1: {}})), "after open failed")

        self.run(check())

    def test_send_needs_an_open_sink(self) -> None:
        """Before open and after close it refuses, and writes nothing."""

        async def check() -> None:
            sink = self.make_sink()
            await self.expect_refused(lambda: sink.send(batch({1: {}})), "before open")
            await sink.open()
            await sink.close()
            await self.expect_refused(lambda: sink.send(batch({2: {}})), "after close")
            await self.expect_values_stay({}, "after refused sends")

        self.run(check())

    def test_send_before(self) -> None:
        """After that moment it writes nothing, and says that it did not."""

        async def check() -> None:
            async with self.opened() as sink:
                await self.write_ok(sink, batch({1: {"v": 1}}, send_before=time.monotonic() + self.limit))
                late = batch({1: {"v": 2}, 2: {}}, token=(1, 2), send_before=time.monotonic())
                await self.expect_refused(lambda: sink.send(late), "after send_before")
                await self.expect_values_stay({(0, 1): {"v": 1}}, "after a send that came too late")

        self.run(check())

    def test_abandoned_send_has_no_later_effect(self) -> None:
        """After cancelling and `abandon`, a newer write stays."""

        async def check() -> None:
            async with self.opened() as sink:
                await sink.abandon(batch({1: {}}))  # never sent: returns at once
                text = "x" * min(200_000, self.largest // 2)
                for at, pause in enumerate((0.0, 0.0005, 0.002, 0.01, 0.05), start=1):
                    old = batch({1: {"old": at, "text": text}, 2: None}, token=(at, 1))
                    stalled = self.stall()
                    task = await begun(sink.send(old), pause)
                    unanswered = await cancelled(task)
                    abandon = asyncio.create_task(sink.abandon(old))
                    await asyncio.wait({abandon}, timeout=0.01)
                    self.unstall()
                    expect(unanswered or not stalled, "a send was answered while all stalled")
                    await abandon
                    new: dict[Key, Any] = {(0, 1): {"new": at}, (0, 2): {"new": at}}
                    await self.write_ok(sink, batch(new, token=(at, 2)))
                    await self.expect_values_stay(new, f"send cancelled after {pause} s")

        self.run(check())

    def test_event_loop_goes_on_while_the_store_hangs(self) -> None:
        """A send never holds up the event loop."""

        async def check() -> None:
            async with self.opened() as sink:
                if not self.stall():
                    return
                sent = batch({1: {}})
                ticking = threading.Event()
                asyncio.get_running_loop().call_later(0.05, ticking.set)
                watcher = threading.Thread(target=self._watch, args=(ticking,), daemon=True)
                watcher.start()
                await cancelled(await begun(sink.send(sent), 0.1))
                self.unstall()
                watcher.join()
                await sink.abandon(sent)
                expect(not self._stuck, "the event loop stood still while the store hung")

        self.run(check())

    _stuck = False

    def _watch(self, ticking: threading.Event) -> None:
        """Note that the loop stands still, and let the store go on so that the test can end."""
        self._stuck = not ticking.wait(self.limit / 4)
        if self._stuck:
            self.unstall()

    def test_close_while_a_send_runs(self) -> None:
        """Close returns, the send ends, and an answer Ok means that the write is there."""

        async def check() -> None:
            value = {"text": "x" * min(200_000, self.largest // 2)}
            for at, pause in enumerate((0.0, 0.001, 0.01), start=1):
                sink = self.make_sink()
                await sink.open()
                before = await self.values()
                sent = batch({at: value}, token=(1, at))
                task = await begun(sink.send(sent), pause)
                await sink.close()
                await asyncio.wait({task})
                error = task.exception()
                if error is None:
                    await self.expect_values({**before, (0, at): value}, "Ok, and then closed")
                else:
                    expect(isinstance(error, SinkError), f"close made send raise {error!r}")
                if isinstance(error, SinkUnavailable):
                    await self.expect_values_stay(before, "SinkUnavailable, and then closed")

        self.run(check())
