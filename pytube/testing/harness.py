"""What the conformance suite needs around its checks: what an author provides, and how to wait."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import time
import unittest
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

from pytube.errors import SinkUnavailable
from pytube.model import Batch, Document, Id, Key, Ok, Result, Token
from pytube.sinks.base import Sink

# --- documents: batches made in one line, and edge cases --------------------------------

TUBE = ContextVar("TUBE", default="conformance")
"""The tube of batches that name none."""


def document(key: Id | Key, value: Any, *, token: Token | tuple[int, int] = (1, 1), seq: int = 1) -> Document:
    """A document of `key`, an id of shard 0 or `(shard, id)`.

    The value becomes its JSON text; bytes are taken as that text, None is a delete.
    """
    shard, id_ = key if isinstance(key, tuple) else (0, key)
    if value is None or isinstance(value, bytes):
        body = value
    else:
        body = json.dumps(value, ensure_ascii=False).encode()
    return Document(shard=shard, id=id_, body=body, token=Token(*token), seq=seq)


def batch(
    values: Mapping[Any, Any],
    *,
    token: Token | tuple[int, int] = (1, 1),
    seq: int = 1,
    tube: str | None = None,
    partition: int = 0,
    send_before: float = float("inf"),
) -> Batch:
    """A batch of the keys and values, as `document` takes them, all under one token."""
    documents = [document(key, value, token=token, seq=seq) for key, value in values.items()]
    return Batch(tube or TUBE.get(), partition, Token(*token), documents, send_before)


ODD_DOCUMENTS: dict[Key, Any] = {
    (0, 0): {},
    (0, -1): {"id": -1},
    (0, -(2**63)): {"id": "the least bigint"},
    (0, 2**63 - 1): {"id": "the greatest bigint"},
    (0, 2**53 + 1): {"n": 2**53 + 1, "m": -(2**63), "f": 0.1, "e": 1e300},
    (0, 2**53): {"why": "as a double it is the id before it"},
    (2**31 - 1, 1): {"shard": "the greatest"},
    (1, 1): {"text": "äöü €  \u2028 \u2029 \u0085 \U0001f600 \u200f"},
    (1, 2): {"text": 'line\nbreak\r\n\ttab "quotes" \\ back / \u0001 \u007f'},
    (1, 3): {"nothing": None, "yes": True, "list": [], "object": {}, "empty": ""},
    (1, 4): b'{"raw":\n  {"pretty": true,\r\n   "list": [1,\n2]}\n}\n',
    (1, 5): b'{"escaped": "\\u00e4\\ud83d\\ude00\\n"}',
    (1, 6): {"nested": {"a": {"b": {"c": [[[["deep"]]]]}}}},
    (1, 7): {"looks like": '{"shard":1,"id":1,"op":"delete"}\n'},
    (2, 1): {"same id": "in another shard"},
}
"""By key; bytes are the JSON text itself. Zero bytes are missing: jsonb and text refuse them."""

ODD_TEXTS = (
    *(
        "",
        " ",
        "NULL",
        "null",
        "7",
        "007",
        "-7",
        "a,b",
        "{a,b}",
        'say "x"',
        "it's",
        "\\",
        '\\"',
        "%s",
        "a/b?c=d#e",
    ),
    *(
        "line\nbreak\r\n\ttab",
        "\x01\x7f",
        "Straße",
        "STRASSE",
        "ä",
        "a\u0308",
        "\U0001f600",
        "\u2028",
        "ö" * 200,
    ),
    "6ecd8c99-4036-403d-bf84-cf8400f67836",
)
"""Ids in tubes of texts and uuids: each is another key."""


# --- what an author provides ----------------------------------------------------------------------


Values = Mapping[Key, Any]


def expect(condition: bool, what: str) -> None:
    """Fail with `what`; unlike `assert` it says so from an installed package as well."""
    if not condition:
        raise AssertionError(what)


def skip(why: str) -> NoReturn:
    """End a test as skipped: its subject can't be tested here. pytest knows this exception, too."""
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

    async def lose(self) -> bool:
        """Empty the store by other means than the sink, as a restart without a disk does; False: it can't.

        Without it, whether the mark of a sink goes with its documents is not tested.
        """
        return False

    # --- for the checks -----------------------------------------------------------------------

    def run(self, check: Coroutine[Any, Any, None]) -> None:
        """Run one check in a separate loop, for `limit` seconds at most."""

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

    @contextlib.asynccontextmanager
    async def offering(self, what: str, why_not: Callable[[Sink], str | None]) -> AsyncIterator[Any]:
        """A sink that is open and can do `what`; without one the check is skipped."""
        async with self.opened() as sink:
            if (why := why_not(sink)) is not None:
                skip(f"no {what}: {why}")
            yield sink

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
        """Fail unless the call raises `SinkUnavailable`."""
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


_Harness = TypeVar("_Harness", bound=SinkHarness)


def in_loop(check: Callable[[_Harness], Coroutine[Any, Any, None]]) -> Callable[[_Harness], None]:
    """Make a test of a coroutine, which `SinkHarness.run` runs."""

    @functools.wraps(check)
    def test(self: _Harness) -> None:
        self.run(check(self))

    return test


async def begun(send: Awaitable[Sequence[Result]], turns: float) -> asyncio.Task[Sequence[Result]]:
    """A send in a separate task, left to run for `turns` seconds."""

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
