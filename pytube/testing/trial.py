"""Runs the conformance suite against the real store of a sink, each check in a separate place there."""

from __future__ import annotations

import asyncio
import json
import unittest
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from pytube.comparison import decode
from pytube.errors import SinkTimeout, SinkUnavailable
from pytube.model import Batch, Key, KeyType, Result
from pytube.sinks.base import READ_MOST, Reading, Sink, Stored, Trial, held_forms, why_no_read
from pytube.testing.contract import SinkContract
from pytube.testing.harness import TUBE, batch, expect, skip

MakeTrial = Callable[[str, KeyType], Trial]

_LIMIT = 60.0
_ERASE_LIMIT = 60.0
"""Seconds for what one check has written to be deleted."""
_ASK_LIMIT = 20.0
"""Seconds for a store to take one document, after a check that failed."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of one check."""

    check: str
    result: Literal["ok", "failed", "not judged"]
    reason: str | None
    left: str | None = None
    """The objects left at the store, and why; None when there are none."""


def names_of_checks() -> list[str]:
    """All checks of the suite, in order."""
    return [name for name in dir(SinkContract) if name.startswith("test_")]


class Interruption:
    """Ends the check that runs, and begins no other. What a check has written is deleted all the same."""

    def __init__(self) -> None:
        """Nothing is interrupted yet."""
        self.is_asked = False
        self._task: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """From a signal handler, which may run at any place of the program's main thread."""
        self.is_asked = True
        if (task := self._task) is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)

    async def over(self, check: Coroutine[Any, Any, None]) -> None:
        """Run a check; raises CancelledError when it is interrupted."""
        self._task = asyncio.ensure_future(check)
        if self.is_asked:
            self._task.cancel()
        try:
            await self._task
        finally:
            self._task = None


def run_checks(
    make_trial: MakeTrial, told_left: Callable[[str], object], interruption: Interruption
) -> Iterator[Checked]:
    """Run one check after the other, and delete its documents; ends early when it is interrupted.

    Args:
        make_trial: a sink in a separate place, by the name of the trial.
        told_left: receives the leftovers at the store when an interrupted check could not be cleaned up.
        interruption: by whom it is interrupted.
    """
    run = uuid4().hex[:8]
    down: str | None = None
    for number, check in enumerate(names_of_checks()):
        if down is not None:  # each check would wait for its answers
            yield Checked(check.removeprefix("test_"), "not judged", f"the store does not answer: {down}")
            continue
        keys = KeyType.TEXT if "texts" in check else KeyType.BIGINT
        trial = make_trial(f"trial-{run}-{number:02}", keys)
        suite = _Suite(trial, interruption)
        try:
            result, reason = _judge(suite, check)
            down = suite.why_down() if result == "failed" else None
        except BaseException as error:
            left = suite.erase()
            if left is not None:
                told_left(left)
            if interruption.is_asked and isinstance(error, asyncio.CancelledError):
                return
            raise
        yield Checked(check.removeprefix("test_"), result, reason, suite.erase())
        if interruption.is_asked:
            return


def _judge(suite: _Suite, check: str) -> tuple[Literal["ok", "failed", "not judged"], str | None]:
    token = TUBE.set(suite.place.tube)
    try:
        getattr(suite, check)()
    except unittest.SkipTest as why:
        return "not judged", str(why)
    except AssertionError as error:
        return "failed", str(error)
    except Exception as error:  # noqa: BLE001 # whatever it raises, it should not have
        return "failed", f"{type(error).__name__}: {error}"
    finally:
        TUBE.reset(token)
    if suite.unread is not None:
        return "not judged", f"the answers were right; the written documents were not checked: {suite.unread}"
    return "ok", None


class _Suite(SinkContract):
    """The suite over a trial. What the sink holds is read by the sink itself, if it can be."""

    limit = _LIMIT

    def __init__(self, place: Trial, interruption: Interruption) -> None:
        self.place = place
        self._interruption = interruption
        self.unread: str | None = None
        """Why contents could not be looked at; None when they were."""
        self._bodies: dict[Key, bytes | None] = {}
        """The last that was sent of each key."""

    def run(self, check: Coroutine[Any, Any, None]) -> None:
        """Run one check; raises CancelledError when it is interrupted."""
        super().run(self._interruption.over(check))

    def make_sink(self) -> Sink:
        """A sink on the place that remembers its writes, to check and delete them."""
        sink = self.place.make_sink()
        send = sink.send

        def remembering(batch: Batch) -> Coroutine[Any, Any, Sequence[Result]]:
            self._bodies.update((document.key, document.body) for document in batch)
            return send(batch)

        sink.send = remembering  # type: ignore[method-assign] # no sink is shared
        return sink

    def unopenable_sink(self) -> Sink | None:
        """None can be made of a configuration that works."""
        skip("it takes a sink that can't be opened, and this one can")

    def rejected_value(self) -> Any:
        """What this store rejects depends on its configuration."""
        skip("which documents this sink rejects is not known here")

    async def values(self) -> dict[Key, Any]:
        """All that the suite wrote, as the sink reads it."""
        held = await self._held(self._bodies.keys(), [])
        if held is None:
            skip(f"the written documents can't be checked: {self.unread}")
        return {key: stored.value for key, stored in held[0].items() if stored.exists}

    async def expect_values(self, expected: Mapping[Key, Any], when: str) -> None:
        """Compare with what the sink would hold of `expected`, e.g. texts only."""
        texts = [self._text(key, value) for key, value in expected.items()]
        held = await self._held(self._bodies.keys() | expected.keys(), texts)
        if held is None:
            return
        wanted = dict(zip(expected, held[1], strict=True))
        for key, stored in held[0].items():
            expect(key in expected or not stored.exists, f"{when}: {key} should not be in the store")
            if key in expected:
                _expect_held(key, wanted[key], stored, when)

    def _text(self, key: Key, value: Any) -> bytes:
        """The text that was sent, if it has that value: some stores keep the text of it."""
        sent = self._bodies.get(key)
        return sent if sent is not None and decode(sent) == value else json.dumps(value).encode()

    async def _held(
        self, keys: Collection[Key], bodies: Sequence[bytes]
    ) -> tuple[Mapping[Key, Stored], Sequence[bytes | None]] | None:
        """What the sink holds of the keys, and would hold of the bodies; None when it can't be read."""
        sink = self.place.make_sink()
        self.unread = why_no_read(sink)
        if not isinstance(sink, Reading) or self.unread is not None:
            return None
        await sink.open()
        try:
            found: dict[Key, Stored] = {}
            asked = list(keys)
            for start in range(0, len(asked), READ_MOST):
                found |= await sink.read(self.place.tube, asked[start : start + READ_MOST])
            return found, await held_forms(sink, bodies)
        finally:
            await sink.close()

    def why_down(self) -> str | None:
        """Why the store takes nothing at all; None: it does, or the sink is to blame."""

        async def ask() -> None:
            sink = self.make_sink()
            try:
                async with asyncio.timeout(_ASK_LIMIT):
                    await sink.open()
                    await sink.send(batch({(0, 0): {}}, tube=self.place.tube))
            finally:
                await sink.close()

        try:
            asyncio.run(ask())
        except TimeoutError as error:
            return str(error) or f"no answer within {_ASK_LIMIT:g} s"
        except (SinkUnavailable, SinkTimeout) as error:
            return str(error)
        except Exception:  # noqa: BLE001 # the check that failed names the error
            return None
        return None

    def erase(self) -> str | None:
        """Delete the written documents; returns the leftovers, and why."""
        erase = self.place.erase
        if erase is None:
            return None

        async def limited() -> None:
            async with asyncio.timeout(_ERASE_LIMIT):
                await erase(self.place.tube, self._bodies.keys())

        try:
            asyncio.run(limited())
        except Exception as error:  # noqa: BLE001 # people should see any error
            return f"{self.place.where} ({type(error).__name__}: {error})"
        return None


def _expect_held(key: Key, wanted: bytes | None, stored: Stored, when: str) -> None:
    expect(stored.exists, f"{when}: {key} is missing in the store")
    held = stored.value
    expect(
        wanted is not None and decode(wanted) == held,
        f"{when}: {key} holds {held!r:.200}, expected {(wanted or b'nothing').decode():.200}",
    )
