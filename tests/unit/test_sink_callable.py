"""The sink `callable`: what functions of all kinds may do to it."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytube.errors import ConfigError, SinkContract, SinkError, SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Ok, Reject, Retry
from pytube.sinks import build_sink
from pytube.sinks.callable import CallableSink
from pytube.testing import batch
from tests.helpers.waiting import wait_until_async


async def answer(function: Callable[[Batch], Any], sent: Batch | None = None, **options: Any) -> Any:
    """What a sink around `function` answers."""
    sink = CallableSink(function, **options)
    await sink.open()
    try:
        return await sink.send(sent or batch({1: {}, 2: {}}))
    finally:
        await sink.close()


class Service:
    """A target that is not a plain function."""

    def method(self, _: Batch) -> None:
        """All is written."""

    async def __call__(self, batch: Batch) -> list[Reject]:
        return [Reject("no") for _ in batch]


service = Service()
number = 7


def generates(_: Batch) -> Iterator[Ok]:
    yield OK


async def test_none_is_ok_for_all() -> None:
    assert await answer(lambda _: None) == [OK, OK]
    assert await answer(service.method) == [OK, OK]


async def test_results_come_back_in_order() -> None:
    results = [Reject("bad"), Retry(1.0, "busy")]
    assert await answer(lambda _: results) == results
    assert await answer(lambda _: tuple(results)) == results
    assert await answer(service) == [Reject("no"), Reject("no")]
    assert await answer(functools.partial(service)) == [Reject("no"), Reject("no")]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([OK], "answered 1 results for 2 documents"),
        ([OK] * 3, "answered 3 results for 2 documents"),
        ([OK, True], "result 1 is bool"),
        ([Ok, Ok], "result 0 is the class Ok"),
        ("ok", "answered with a str"),
        (True, "answered with a bool"),
        ({1: OK, 2: OK}, "answered with a dict"),
    ],
)
async def test_a_wrong_answer_breaks_the_contract(given: object, says: str) -> None:
    with pytest.raises(SinkContract, match="shop:index") as caught:
        await answer(lambda _: given, name="shop:index")
    assert says in str(caught.value)


async def test_a_forgotten_await_is_told() -> None:
    with pytest.raises(SinkContract, match="define it with async def"):
        await answer(lambda sent: service(sent), name="shop:index")  # noqa: PLW0108  # not a coroutine function


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (ValueError("boom"), ValueError),
        (SinkUnavailable("down"), SinkUnavailable),
        (TimeoutError("10 s"), SinkTimeout),
        (StopIteration(), (RuntimeError, SinkError)),
        (SystemExit(3), SinkError),
        (asyncio.CancelledError(), SinkError),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_what_it_raises_comes_out_as_an_error(
    raised: BaseException, seen: type[Exception] | tuple[type[Exception], ...], is_async: bool
) -> None:
    def plain(_: Batch) -> None:
        raise raised

    async def coroutine(_: Batch) -> None:
        raise raised

    with pytest.raises(seen):
        await asyncio.wait_for(answer(coroutine if is_async else plain), 5)


async def test_abandon_waits_for_a_thread_that_hangs() -> None:
    go, done = threading.Event(), threading.Event()

    def hangs(_: Batch) -> None:
        go.wait()
        done.set()

    sink = CallableSink(hangs)
    await sink.open()
    sent, other = batch({1: {}}), batch({2: {}})
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(sink.send(sent), 0.02)
    await sink.abandon(other)
    for _ in range(2):  # the caller may give up and ask again
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sink.abandon(sent), 0.02)
    waiting = asyncio.create_task(sink.abandon(sent))
    go.set()
    await asyncio.wait_for(waiting, 5)
    assert done.is_set()
    await sink.close()


class Threads:
    """Threads that begin when a test wants it."""

    def __init__(self) -> None:
        self.begun: list[Callable[[], None]] = []

    def __call__(self, target: Callable[[], None], **_: object) -> Threads:
        self.begun.append(target)
        return self

    def start(self) -> None:
        """Nothing begins."""


@pytest.mark.parametrize("is_given_up", [True, False])
async def test_a_call_that_begins_too_late_is_none(
    monkeypatch: pytest.MonkeyPatch, is_given_up: bool
) -> None:
    """Its send was given up, or the right to send has lapsed, before the thread began."""
    threads, called = Threads(), list[Batch]()
    monkeypatch.setattr("pytube.sinks.base.threading.Thread", threads)
    sink = CallableSink(called.append, name="shop:index")
    await sink.open()
    begin = time.monotonic()
    sending = asyncio.create_task(sink.send(batch({1: {}}, send_before=begin + 60)))
    await wait_until_async(lambda: threads.begun)
    if is_given_up:
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    else:
        monkeypatch.setattr("pytube.model.time.monotonic", lambda: begin + 61)
    threads.begun[0]()
    if not is_given_up:
        with pytest.raises(SinkUnavailable, match="the right to send had lapsed"):
            await sending
    assert called == []


async def test_a_coroutine_that_holds_off_its_end_is_waited_for() -> None:
    go = asyncio.Event()
    log: list[str] = []

    async def stubborn(_: Batch) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await go.wait()
            log.append("over")

    sink = CallableSink(stubborn)
    await sink.open()
    sent = batch({1: {}})
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(sink.send(sent), 0.02)
    waiting = asyncio.create_task(sink.abandon(sent))
    done, _ = await asyncio.wait({waiting}, timeout=0.02)
    assert not done
    go.set()
    await waiting
    assert log == ["over"]


async def test_concurrency_counts_calls_that_were_given_up() -> None:
    go = threading.Event()
    running: list[int] = []

    def hangs(_: Batch) -> None:
        running.append(1)
        go.wait()

    sink = CallableSink(hangs, concurrency=2, name="shop:index")
    await sink.open()
    for id_ in (1, 2):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sink.send(batch({id_: {}})), 0.05)
    with pytest.raises(SinkUnavailable, match=r"all 2 calls were busy \(2 of them given up\)"):
        await sink.send(batch({3: {}}, send_before=time.monotonic() + 0.05))
    assert len(running) == 2
    go.set()
    assert await asyncio.wait_for(sink.send(batch({4: {}})), 5) == [OK]


async def test_a_send_that_waits_for_a_slot_is_refused_by_close() -> None:
    go = asyncio.Event()
    calls: list[Batch] = []

    async def hangs(batch: Batch) -> None:
        calls.append(batch)
        await go.wait()

    sink = CallableSink(hangs, concurrency=1)
    await sink.open()
    first, second = (asyncio.create_task(sink.send(batch({id_: {}}))) for id_ in (1, 2))
    await wait_until_async(lambda: calls, what="the first call")
    await sink.close()
    go.set()
    assert await first == [OK]
    with pytest.raises(SinkUnavailable, match="closed"):
        await second
    assert len(calls) == 1


BAD_TARGETS = [
    ("no_colon", 'expected "module:function"'),
    ("os:", 'expected "module:function"'),
    ("os path:join", 'expected "module:function"'),
    ("pytube_nowhere:index", "there is no module pytube_nowhere"),
    ("os.nowhere:index", "there is no module os.nowhere"),
    ("os:path.nowhere", "module os, path has no nowhere"),
    (f"{__name__}:number", "number is a int"),
    (f"{__name__}:Service", "Service is a class"),
    (f"{__name__}:generates", "generates is a generator"),
]


@pytest.mark.parametrize(("target", "says"), BAD_TARGETS)
def test_bad_targets(target: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_sink("callable", {"target": target})
    assert says in str(caught.value)


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"concurrency": "many"}, {"compares": "maybe"}])
def test_bad_options(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        build_sink("callable", {"target": "os.path:join", **options})


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import pytube_nowhere", "importing broken_target failed: No module named 'pytube_nowhere'"),
        ("1 / 0", "importing broken_target raised ZeroDivisionError"),
        ("raise SystemExit(2)", "importing broken_target raised SystemExit"),
        ("def index(:", "importing broken_target raised SyntaxError"),
    ],
)
def test_a_module_that_fails_to_import(
    source: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_target.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as caught:
        build_sink("callable", {"target": "broken_target:index"})
    assert says in str(caught.value)


def test_a_method_is_a_target() -> None:
    sink = build_sink("callable", {"target": f"{__name__}:service.method", "compares": True})
    assert sink.compares is True


def test_a_hanging_call_does_not_keep_the_process() -> None:
    program = """
        import asyncio, threading
        from pytube.sinks.callable import CallableSink
        from pytube.testing import batch

        async def main():
            sink = CallableSink(lambda b: threading.Event().wait())
            await sink.open()
            try:
                await asyncio.wait_for(sink.send(batch({1: {}})), 0.05)
            except TimeoutError:
                print("timed out")
            await sink.close()

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("timed out\n", "")
