"""The sink `jsonl`: lines, locks, and files that fail."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytube.errors import ConfigError, SinkUnavailable
from pytube.model import OK, Token
from pytube.sinks.jsonl import JsonlSink, replay
from pytube.testing import batch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "documents.jsonl"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of the file, as a paused process would."""
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(fd)


def read(path: Path) -> bytes:
    return path.read_bytes()


def rotate(path: Path) -> None:
    path.rename(path.with_suffix(".1"))


def remove(path: Path) -> None:
    path.unlink()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def opened(path: Path, **options: object) -> JsonlSink:
    sink = JsonlSink.from_options({"path": str(path), **options})
    await sink.open()
    return sink


async def test_lines(path: Path) -> None:
    sink = await opened(path, client="worker-1")
    began = time.time()
    sent = batch({(3, 7): b'{"n": 1.0,\n "big": 12345678901234567890.10}', (3, 8): None}, token=(5, 2), seq=9)
    assert await sink.send(sent) == [OK, OK]
    await sink.close()
    raw = read(path)
    assert raw.count(b"\n") == 2
    assert b'"doc":{"n": 1.0,  "big": 12345678901234567890.10}}' in raw, "the body is not decoded"
    upsert, delete = (json.loads(line) for line in raw.splitlines())
    assert began - 0.001 <= upsert.pop("at") <= time.time() + 0.001
    del upsert["doc"], delete["at"]
    common = {"tube": "conformance", "shard": 3, "token": str(int(Token(5, 2))), "epoch": 5, "counter": 2}
    common |= {"seq": 9, "client": "worker-1"}
    assert upsert == {**common, "id": 7, "op": "upsert"}
    assert delete == {**common, "id": 8, "op": "delete", "doc": None}


async def test_keys_that_are_texts(path: Path) -> None:
    sink = await opened(path)
    assert await sink.send(batch({(3, 'a "b"\n\\ü'): {}, (3, "7"): {}}, seq=9)) == [OK, OK]
    lines = read(path).splitlines()
    assert [json.loads(line)["id"] for line in lines] == ['a "b"\n\\ü', "7"]
    assert set(replay([path])) == {("conformance", 3, 'a "b"\n\\ü'), ("conformance", 3, "7")}


@pytest.fixture
def torn(path: Path) -> Path:
    path.write_bytes(b'{"tube":"conf')
    return path


async def test_ends_the_line_that_another_process_left(torn: Path) -> None:
    path = torn
    sink = await opened(path)
    await sink.send(batch({1: {"v": 1}}))
    await sink.send(batch({2: {"v": 2}}))
    await sink.close()
    lines = read(path).split(b"\n")
    assert lines[0] == b'{"tube":"conf'
    assert [json.loads(line)["id"] for line in lines[1:-1]] == [1, 2]
    assert lines[-1] == b""


async def test_right_to_send_lapses_while_the_lock_is_held_elsewhere(path: Path) -> None:
    sink = await opened(path)
    with (
        locked(path),
        pytest.raises(SinkUnavailable, match="nothing was written, the right to send had lapsed"),
    ):
        await sink.send(batch({1: {}}, send_before=time.monotonic() + 0.03))
    assert await sink.send(batch({2: {}})) == [OK]
    assert {key[2] for key in replay([path])} == {2}


async def test_a_cancelled_send_that_waits_for_the_lock_is_called_off(path: Path) -> None:
    sink = await opened(path)
    sent = batch({1: {}})
    with locked(path):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sink.send(sent), 0.02)
        await asyncio.wait_for(sink.abandon(sent), 5)  # though the lock is still held
    await sink.send(batch({2: {}}))
    await sink.send(batch({3: {}}))
    await sink.close()
    assert {key[2] for key in replay([path])} == {2, 3}


async def test_close_ends_sends_that_wait_for_the_lock(path: Path) -> None:
    sink = await opened(path)
    with locked(path):
        tasks = [asyncio.create_task(sink.send(batch({id_: {}}))) for id_ in (1, 2)]
        await asyncio.wait(tasks, timeout=0.02)
        await sink.close()
        for task in tasks:
            with pytest.raises(SinkUnavailable, match="is closed"):
                await task
    again = await opened(path)
    assert await again.send(batch({3: {}})) == [OK]
    await again.close()
    assert {key[2] for key in replay([path])} == {3}


async def test_follows_a_rotation(path: Path) -> None:
    sink = await opened(path)
    await sink.send(batch({1: {}}))
    rotate(path)
    await sink.send(batch({2: {}}))
    remove(path)
    await sink.send(batch({3: {}}))
    await sink.close()
    assert {key[2] for key in replay([path.with_suffix(".1")])} == {1}
    assert {key[2] for key in replay([path])} == {3}


async def test_folder_goes_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "documents.jsonl"
    path.parent.mkdir()
    sink = await opened(path)
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("in the way")
    with pytest.raises(SinkUnavailable, match=str(path)):
        await sink.send(batch({1: {}}))
    path.parent.unlink()
    path.parent.mkdir()
    assert await sink.send(batch({1: {}})) == [OK]


async def test_full_disk_takes_nothing() -> None:
    sink = await opened(Path("/dev/full"))
    with pytest.raises(SinkUnavailable, match=r"No space left.*nothing of the batch"):
        await sink.send(batch({1: {}}))
    await sink.close()


async def test_what_is_no_file_is_not_synced() -> None:
    sink = await opened(Path("/dev/null"), fsync=True)
    assert await sink.send(batch({1: {}})) == [OK]
    await sink.close()


async def test_a_batch_is_on_the_disk_before_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fdatasync", synced.append)
    sink = await opened(tmp_path / "a.jsonl")
    await sink.send(batch({1: {}}))
    assert len(synced) == 1
    await sink.close()


async def test_paths_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cases = [
        (tmp_path, "Is a directory; give a file inside of it"),
        (tmp_path / "none" / "x.jsonl", f'create the directory "{tmp_path}/none"'),
        (tmp_path / "file" / "x.jsonl", "Not a directory"),
        (tmp_path / ("x" * 300), "name too long"),
    ]
    for path, says in cases:
        with pytest.raises(ConfigError) as caught:
            await opened(path)
        assert says in str(caught.value)
        assert str(path) in str(caught.value)


async def test_pipe_without_a_reader_is_down_not_wrong(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    with pytest.raises(SinkUnavailable, match="no process reads"):
        await opened(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    sink = await opened(fifo)
    await sink.send(batch({1: {}}))
    assert json.loads(os.read(reader, 4096))["id"] == 1
    os.close(reader)
    with pytest.raises(SinkUnavailable, match="Broken pipe"):
        await sink.send(batch({2: {}}))


async def test_leaves_no_descriptor_open(path: Path) -> None:
    before = open_descriptors()
    for _ in range(3):
        sink = await opened(path)
        await sink.send(batch({1: {}}))
        await sink.close()
        with pytest.raises(ConfigError):
            await opened(path.parent)
    assert open_descriptors() == before
