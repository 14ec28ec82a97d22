"""What the conformance suite needs around its checks: what an author provides, and how to wait."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
import unittest
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NoReturn

from pytube.errors import SinkUnavailable
from pytube.model import Batch, Key, Ok, Result
from pytube.sinks.base import Sink

Values = Mapping[Key, Any]


def expect(condition: bool, what: str) -> None:
    """Fail with `what`; unlike `assert` it says so from an installed package as well."""
    if not condition:
        raise AssertionError(what)


def skip(why: str) -> NoReturn:
    """End a test as skipped: what it is for can't be tested here. pytest knows this exception, too."""
    raise unittest.SkipTest(why)


class SinkHarness:
    """What the author of a sink provides. Each test begins with an empty store."""

    limit: float = 10.0
    """Seconds that one test may take."""
    grace: float = 0.2
    """Seconds in which a write that should not happen would show."""
    largest: int = 1_000_000
    """Bytes of the largest document that the sink takes."""

    def make_sink(self) -> Sink:
        """A sink, not open, on the store of this test; called several times in some tests."""
        raise NotImplementedError("return a new sink on the store of this test")

    def read_back(self) -> Values | Awaitable[Values]:
        """The decoded documents that the store holds, by `(shard, id)`; may be a coroutine."""
        raise NotImplementedError("return what the store holds")

    def unopenable_sink(self) -> Sink | None:
        """A sink whose `open` fails; None when there is no way to make one, which is then not tested."""
        return None

    def stall(self) -> bool:
        """Keep writes to the store from getting done until `unstall`; False: that can't be done.

        With it, the checks of cancelled and blocking sends are sharp. Without it, blocking sends are not
        tested, and whether cancelled ones are depends on how long a write takes.
        """
        return False

    def unstall(self) -> None:
        """Let writes to the store get done; called from a thread when the event loop is stuck."""

    def rejected_value(self) -> Any:
        """A value that the sink rejects; None when it takes every one, so that rejecting is not tested."""
        return None

    # --- for the checks -----------------------------------------------------------------------

    def run(self, check: Coroutine[Any, Any, None]) -> None:
        """Run one check in a loop of its own, for `limit` seconds at most."""

        async def limited() -> None:
            task = asyncio.ensure_future(check)
            done, _ = await asyncio.wait({task}, timeout=self.limit)
            if not done:
                task.cancel()
                raise AssertionError(f"the check did not end within {self.limit} s")
            task.result()

        asyncio.run(limited())

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Sink]:
        """A sink that is open."""
        sink = self.make_sink()
        await sink.open()
        try:
            yield sink
        finally:
            await sink.close()

    async def values(self) -> dict[Key, Any]:
        """What the store holds now."""
        found = self.read_back()
        return dict(await found if inspect.isawaitable(found) else found)

    async def expect_values(self, expected: Mapping[Key, Any], when: str) -> None:
        """Fail unless the store holds exactly `expected`."""
        held = await self.values()
        for key in expected.keys() | held.keys():
            expect(key in held, f"{when}: {key} is missing in the store")
            expect(key in expected, f"{when}: {key} should not be in the store")
            expect(
                held[key] == expected[key],
                f"{when}: {key} holds {held[key]!r:.200}, expected {expected[key]!r:.200}",
            )

    async def expect_values_stay(self, expected: Mapping[Key, Any], when: str) -> None:
        """Fail when the store comes to hold anything else within `grace`."""
        end = time.monotonic() + self.grace
        while time.monotonic() < end:
            await self.expect_values(expected, when)
            await asyncio.sleep(self.grace / 20)
        await self.expect_values(expected, when)

    async def expect_refused(self, send: Callable[[], Awaitable[object]], when: str) -> None:
        """Fail unless the send raises `SinkUnavailable`."""
        try:
            answer = await send()
        except SinkUnavailable:
            return
        except Exception as error:
            raise AssertionError(f"{when}: {error!r} instead of SinkUnavailable") from error
        raise AssertionError(f"{when}: answered {answer!r:.200} instead of SinkUnavailable")

    async def write(self, sink: Sink, batch: Batch) -> Sequence[Result]:
        """Send a batch, and fail unless each document got one result."""
        results = await sink.send(batch)
        expect(
            len(results) == len(batch),
            f"{len(results)} results for {len(batch)} documents: one for each, in order",
        )
        return results

    async def write_ok(self, sink: Sink, *batches: Batch) -> None:
        """Send the batches one after the other, and fail unless each document is Ok."""
        for batch in batches:
            for document, result in zip(batch, await self.write(sink, batch), strict=True):
                expect(isinstance(result, Ok), f"{document.key} was answered {result!r:.200}, not Ok")


async def begun(send: Awaitable[Sequence[Result]], turns: float) -> asyncio.Task[Sequence[Result]]:
    """A send in a task of its own, left to run for `turns` seconds."""

    async def run() -> Sequence[Result]:
        return await send

    task = asyncio.create_task(run())
    await asyncio.wait({task}, timeout=turns)
    return task


async def cancelled(task: asyncio.Task[Sequence[Result]]) -> bool:
    """Cancel a send; whether it had no answer yet."""
    task.cancel()
    await asyncio.wait({task})
    return task.cancelled() or task.exception() is not None
