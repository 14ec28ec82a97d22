"""The faults of the memory sink."""

from __future__ import annotations

import asyncio
import time

import pytest

from pytube.errors import SinkError, SinkUnavailable
from pytube.model import OK, Reject, Retry, Stale, Token
from pytube.testing import Faults, MemorySink, batch


@pytest.fixture
async def sink() -> MemorySink:
    sink = MemorySink()
    await sink.open()
    return sink


async def test_down_takes_nothing(sink: MemorySink) -> None:
    sink.faults = Faults(down=True)
    with pytest.raises(SinkUnavailable, match="is down"):
        await sink.send(batch({1: {}}))
    with pytest.raises(SinkUnavailable):
        await MemorySink(faults=Faults(down=True)).open()
    assert sink.store.log == []


async def test_single_documents(sink: MemorySink) -> None:
    sink.faults = Faults(reject={(0, 1)}, retry={(0, 2): 0.5})
    results = await sink.send(batch({1: {}, 2: {}, 3: {}}))
    assert results == [Reject("memory: rejects (0, 1)"), Retry(0.5, "memory: not now"), OK]
    assert sink.store.values() == {(0, 3): {}}


async def test_whole_batch(sink: MemorySink) -> None:
    sink.faults = Faults(fail={(0, 2)})
    with pytest.raises(SinkError, match=r"fails on \(0, 2\)"):
        await sink.send(batch({1: {}, 2: {}}))
    assert sink.store.values() == {}
    assert await sink.send(batch({1: {}})) == [OK]


async def test_short_answer(sink: MemorySink) -> None:
    sink.faults = Faults(short=1)
    assert await sink.send(batch({1: {}, 2: {}})) == [OK]


@pytest.mark.parametrize(("faults", "written"), [(Faults(hang=True), 0), (Faults(mute=True), 1)])
async def test_no_answer_until_the_fault_is_gone(sink: MemorySink, faults: Faults, written: int) -> None:
    sink.faults = faults
    task = asyncio.create_task(sink.send(batch({1: {}})))
    done, _ = await asyncio.wait({task}, timeout=0.02)
    assert not done
    assert len(sink.store.log) == written
    sink.faults = Faults()
    assert await task == [OK]
    assert len(sink.store.log) == 1


async def test_slow(sink: MemorySink) -> None:
    sink.faults = Faults(slow=0.02)
    began = time.monotonic()
    await sink.send(batch({1: {}}))
    assert time.monotonic() - began >= 0.02


async def test_notes_keys_that_are_sent_twice_at_once(sink: MemorySink) -> None:
    sink.faults = Faults(hang=True)
    tasks = [asyncio.create_task(sink.send(batch({2: {}, id_: {}}))) for id_ in (1, 3)]
    await asyncio.wait(tasks, timeout=0.01)
    assert sink.overlaps == [(0, 2)]
    await sink.close()
    for task in tasks:
        with pytest.raises(SinkUnavailable):
            await task


async def test_compares_by_option() -> None:
    sink = MemorySink.from_options({"compares": True})
    await sink.open()
    await sink.send(batch({1: {}}, token=(2, 1)))
    assert await sink.send(batch({1: None}, token=(1, 7))) == [Stale(int(Token(2, 1)))]
    assert sink.store.token((0, 1)) == Token(2, 1)
