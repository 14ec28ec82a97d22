"""The sink `callable`: calls a function of the user's own with each batch."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from pydantic import Field

from pytube.errors import ConfigError, SinkContract, SinkError, SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Key, KeyType, Ok, Reject, Result, Retry, Stale
from pytube.sinks.base import Abandoned, Stored, ThreadCall, Trial, refuse_lapsed
from pytube.sinks.registry import SinkOptions
from pytube.targets import TARGET, import_target, is_async

_KINDS = (Ok, Retry, Reject, Stale)


class CallableOptions(SinkOptions):
    """What `[tube.NAME.sink]` may hold for `type = "callable"`."""

    target: str = Field(
        pattern=TARGET,
        description='"module:function", e.g. "shop.search:index"',
    )
    read: str | None = Field(
        default=None, pattern=TARGET, description='"module:function" that gives documents back'
    )
    concurrency: int = Field(default=4, ge=1, description="a number of calls, 1 or more")
    compares: bool = Field(default=False, description="true or false")


class CallableSink:
    """Calls `function(batch)`, which returns None (all is written) or one result per document.

    A plain function runs in a daemon thread, a coroutine function in the event loop. At most
    `concurrency` calls run at once. Say `compares` only of a function that refuses a lower token
    than the one it holds, and answers it `Stale`.

    `read(tube, keys)` returns the documents that are there, by key: as bytes of JSON, or as a `Stored` with
    token and seq. It undoes what the other function does to documents. Without it, they can't be read back.
    """

    def __init__(
        self,
        function: Callable[[Batch], Any],
        *,
        concurrency: int = 4,
        compares: bool = False,
        name: str | None = None,
        read: Callable[[str, Sequence[Key]], Any] | None = None,
    ) -> None:
        self.compares = compares
        self.name: str = name or getattr(function, "__qualname__", "") or type(function).__name__
        self._function = function
        self._reader = read
        self._is_async = is_async(function)
        self._concurrency = concurrency
        self._slots: asyncio.Semaphore | None = None
        self._abandoned = Abandoned()

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """The sink for these options; `ConfigError` names a bad one, or why the import failed."""
        given = CallableOptions.parse("callable", options)
        reader = given.read and import_target(given.read, 'sink "callable": option "read"')
        return cls(
            import_target(given.target, 'sink "callable": option "target"'),
            concurrency=given.concurrency,
            compares=given.compares,
            name=given.target,
            read=reader or None,
        )

    async def open(self) -> None:
        """Allow calls."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(self._concurrency)

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Call the function, once a slot is free; raises its errors."""
        slots = self._slots
        if slots is None:
            raise SinkUnavailable(f"{self.name} is not open")
        if not batch.documents:
            return []
        await self._take_slot(slots, batch)
        thread, call = self._begin(batch, slots)
        try:
            await asyncio.wait([call])
            answer = call.result()
        except asyncio.CancelledError:
            if thread is None:
                call.cancel()
            if thread is None or not thread.call_off(SinkUnavailable("called off")):
                self._abandoned.add(batch, call)
            raise
        except TimeoutError as error:
            raise SinkTimeout(f"{self.name} ran into a time limit: {error}") from error
        if answer is None:
            return [OK] * len(batch)
        if inspect.iscoroutine(answer):
            answer.close()
            raise SinkContract(f"{self.name} returned a coroutine; define it with async def")
        return _checked_results(self.name, batch, answer)

    async def abandon(self, batch: Batch) -> None:
        """Wait until the call for the batch has ended: a thread can't be stopped."""
        await self._abandoned.over(batch)

    async def close(self) -> None:
        """Allow no more calls; running calls continue."""
        self._slots = None

    def trial(self, name: str, keys: KeyType) -> Trial:
        """What the function's own attribute `trial` makes: see docs/sinks.md."""
        make = getattr(self._function, "trial", None)
        if make is None:
            raise ConfigError(
                f'sink "callable": {self.name} has no attribute `trial`, so there is no separate place for a '
                "trial; see docs/sinks.md"
            )
        made = make(name, keys.value)
        if not isinstance(made, Trial):
            raise ConfigError(f'sink "callable": {self.name}.trial gave a {type(made).__name__}, no Trial')
        return made

    def cannot_read(self) -> str | None:
        """Without a function for it, it can't."""
        return None if self._reader else 'option "read" names no function that gives documents back'

    async def read(self, tube: str, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        """The function's answer; raises its errors, and `SinkContract` for another kind of answer."""
        reader = self._reader
        assert reader is not None
        if self._slots is None:
            raise SinkUnavailable(f"{self.name} is not open")
        if is_async(reader):
            answer = await reader(tube, keys)
        else:
            answer = await ThreadCall(lambda _: reader(tube, keys), f"callable-read-{self.name}").over
        if not isinstance(answer, Mapping):
            raise SinkContract(
                f"the read function of {self.name} answered with a {type(answer).__name__}, no mapping"
            )
        return {key: _as_stored(self.name, answer.get(key)) for key in keys}

    def _begin(
        self, batch: Batch, slots: asyncio.Semaphore
    ) -> tuple[ThreadCall[Any] | None, asyncio.Future[Any]]:
        """Begin the call: its thread, if it has one, and its outcome. The slot is free with it."""
        try:
            if slots is not self._slots:
                raise SinkUnavailable(f"{self.name} was not called: the sink is closed")
            refuse_lapsed(self.name, batch)
            thread = None if self._is_async else self._in_thread(batch)
        except SinkUnavailable:
            slots.release()
            raise
        call = asyncio.create_task(self._await_function(batch)) if thread is None else thread.over
        call.add_done_callback(lambda _: slots.release())
        return thread, call

    def _in_thread(self, batch: Batch) -> ThreadCall[Any]:
        def work(begin: Callable[[], bool]) -> Any:
            if not begin():
                return None
            refuse_lapsed(self.name, batch)  # again: the process may have stood still since
            return self._function(batch)

        return ThreadCall(work, f"callable-{self.name}")

    async def _take_slot(self, slots: asyncio.Semaphore, batch: Batch) -> None:
        left = batch.send_before - time.monotonic()
        try:
            async with asyncio.timeout(None if left == float("inf") else left):
                await slots.acquire()
        except TimeoutError:
            raise SinkUnavailable(
                f"{self.name} was not called: all {self._concurrency} calls were busy "
                f"({len(self._abandoned)} of them given up) until the right to send had lapsed"
            ) from None

    async def _await_function(self, batch: Batch) -> Any:
        try:
            return await self._function(batch)
        except (SystemExit, asyncio.CancelledError) as error:
            # The first would stop the event loop, and with it the worker; the second look like the caller's.
            raise SinkError(f"{self.name} raised {error!r}") from error


def _as_stored(who: str, found: object) -> Stored:
    if found is None or isinstance(found, bytes):
        return Stored(found)
    if not isinstance(found, Stored):
        kind = type(found).__name__
        raise SinkContract(
            f"the read function of {who} gave a {kind} for a document; expected bytes or Stored"
        )
    return found


def _checked_results(who: str, batch: Batch, answer: object) -> list[Result]:
    """The results, one per document; `SinkContract` says how `who` broke the contract."""
    if not isinstance(answer, Sequence) or isinstance(answer, str | bytes):
        raise SinkContract(
            f"{who} answered with a {type(answer).__name__}; expected a list of "
            "Ok, Retry, Reject or Stale, one per document"
        )
    if len(answer) != len(batch):
        raise SinkContract(
            f"{who} answered {len(answer)} results for {len(batch)} documents; "
            "expected one per document, in order"
        )
    results: list[Result] = []
    for index, item in enumerate(answer):
        if not isinstance(item, _KINDS):
            found = f"the class {item.__name__}" if isinstance(item, type) else type(item).__name__
            raise SinkContract(f"{who}: result {index} is {found}; expected an Ok, Retry, Reject or Stale")
        results.append(item)
    return results
