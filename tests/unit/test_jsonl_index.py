"""The index of the sink `jsonl`: what the file holds, whatever was written, rotated, cut or closed."""

from __future__ import annotations

import asyncio
import fcntl
import json
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytube.errors import SinkUnavailable
from pytube.sinks.jsonl import JsonlSink, encode
from pytube.sinks.jsonl_index import JsonlIndex
from pytube.testing import batch
from tests.helpers.waiting import wait_until_async


def write(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


def lines(values: Mapping[Any, object], token: int, seq: int = 1) -> bytes:
    return b"1.0".join(encode(batch(values, token=(1, token), seq=seq), None))


def test_the_index_passes_over_torn_lines_and_late_writes(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(path, lines({1: {}, 2: {}}, token=5))
    write(path, lines({3: {}}, token=6)[:40] + b"\n" + lines({1: None}, token=4) + b"\n")
    index = JsonlIndex(str(path))
    index.catch_up()
    assert index.page("conformance", 0, 10, 0, 10) == [1, 2]
    write(path, lines({2: None}, token=7)[:-30])
    index.catch_up()
    assert index.page("conformance", 0, 10, 0, 10) == [1, 2]
    assert index.page("another", 0, 10, 0, 10) == []
    index.close()


def test_the_index_passes_over_what_it_has_not_written(tmp_path: Path) -> None:
    """Others may have written to the file, too."""
    path = tmp_path / "out.jsonl"
    good = json.loads(lines({1: {}}, token=5))
    strange: dict[str, list[object]] = {
        "id": [2**63, -(2**63) - 1, 2**70, 1.5, True, None, [1], {}, "\ud800"],
        "tube": [7, None, ["conformance"], "\udc00"],
        "shard": ["0", None, -1, 2**64],
        "token": ["x", "-1", str(2**63), None],
        "seq": ["1", None, []],
    }
    for name, values in strange.items():
        for value in values:
            write(path, json.dumps(good | {"id": 3, name: value}).encode() + b"\n")
    for line in (b"7", b"[]", b'"text"', b"null", b"{}", b"\xff\xfe", b"[" * 100_000):
        write(path, line + b"\n")
    write(path, json.dumps(good | {"id": 8, "doc": float("nan")}).encode() + b"\n")
    write(path, lines({1: {}, "1": {}, "\U0001f600": {}}, token=6))
    index = JsonlIndex(str(path))
    index.catch_up()
    assert index.page("conformance", 0, 10, None, 10) == [1, 8, "1", "\U0001f600"]
    assert index.page("conformance", 0, 10, 8, 10) == ["1", "\U0001f600"]
    assert index.page("conformance", 0, 10, "1", 10) == ["\U0001f600"]
    index.close()


def test_the_index_follows_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    index = JsonlIndex(str(path))
    index.catch_up()
    write(path, lines({1: {}, 2: {}}, token=5))
    index.catch_up()
    path.rename(tmp_path / "out.jsonl.1")
    write(path, lines({2: None, 3: {}}, token=6))
    index.catch_up()
    assert index.page("conformance", 0, 10, 0, 10) == [1, 3]
    index.close()
    with pytest.raises(SinkUnavailable):
        index.page("conformance", 0, 10, 0, 10)


def ids(index: JsonlIndex) -> list[Any]:
    """All that the file holds, as far as the index knows it after a look."""
    index.catch_up()
    return index.page("conformance", 0, 10, None, 1000)


def rotate(path: Path) -> None:
    """As logrotate does: the oldest goes, each takes the next number."""
    for number in (2, 1, 0):
        old = path.with_name(f"{path.name}.{number}") if number else path
        if old.exists():
            old.rename(path.with_name(f"{path.name}.{number + 1}"))


def test_what_was_written_before_a_rotation_is_in_the_index(tmp_path: Path) -> None:
    """Also what was in files that came and went between two looks."""
    path = tmp_path / "out.jsonl"
    index = JsonlIndex(str(path))
    write(path, lines({1: {}}, token=5))
    assert ids(index) == [1]
    write(path, lines({2: {}}, token=5))
    rotate(path)
    write(path, lines({3: {}}, token=5))
    assert ids(index) == [1, 2, 3]
    write(path, lines({4: {}}, token=5))
    rotate(path)
    write(path, lines({5: {}, 1: None}, token=6))
    rotate(path)
    write(path, lines({6: {}}, token=5))
    assert ids(index) == [2, 3, 4, 5, 6]
    rotate(path)
    assert ids(index) == [2, 3, 4, 5, 6], "a path that names no file now"
    index.close()


def test_a_file_that_is_copied_and_cut_is_followed(tmp_path: Path) -> None:
    """Also where it has outgrown the place where the reading had ended."""
    path = tmp_path / "out.jsonl"
    index = JsonlIndex(str(path))
    write(path, lines({1: {}}, token=5))
    assert ids(index) == [1]
    for number, more in enumerate((10, 300), start=1):
        write(path, lines({number * 1000: {}}, token=5))
        shutil.copy(path, tmp_path / f"out.jsonl.{number}")
        with path.open("wb"):
            pass
        write(path, lines({number * 1000 + key: {} for key in range(1, more)}, token=5))
        assert {number * 1000 + key for key in range(more)} <= set(ids(index))
    index.close()


def test_what_was_rotated_away_before_and_what_is_packed_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(path, lines({1: {}}, token=5))
    rotate(path)
    write(path, lines({2: {}}, token=5))
    index = JsonlIndex(str(path))
    assert ids(index) == [2]
    write(tmp_path / "out.jsonl.2.gz", lines({3: {}}, token=5))
    write(tmp_path / "other.jsonl", lines({4: {}}, token=5))
    assert ids(index) == [2]
    index.close()


def test_an_index_that_could_not_be_written_is_made_anew(tmp_path: Path) -> None:
    """A disk that was full leaves no gap in it."""
    path = tmp_path / "out.jsonl"
    write(path, lines({1: {}, 2: {}}, token=5))
    index = JsonlIndex(str(path))
    assert ids(index) == [1, 2]
    rotate(path)
    write(path, lines({3: {}}, token=5))
    assert index._db is not None
    index._db.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)
    with pytest.raises(SinkUnavailable, match="looked through"):
        index.catch_up()
    assert ids(index) == [1, 2, 3]
    index.close()


async def test_closing_does_not_wait_for_a_look_that_hangs(tmp_path: Path) -> None:
    """The look ends by itself then, and lets go of the index."""
    sink = JsonlSink(str(tmp_path / "out.jsonl"), fsync=False)
    await sink.open()
    await sink.send(batch({1: {}}))
    with (tmp_path / "out.jsonl").open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        scan = aiter(sink.scan("conformance", 0, 10))
        looking = asyncio.ensure_future(anext(scan))
        await wait_until_async(
            lambda: sink._index is not None and sink._index._turn.locked(), what="it looks"
        )
        index = sink._index
        assert index is not None
        began = asyncio.get_running_loop().time()
        await sink.close()
        assert asyncio.get_running_loop().time() - began < 0.5
        assert not looking.done()
        fcntl.flock(writer, fcntl.LOCK_UN)
    with pytest.raises(SinkUnavailable):
        await looking
    assert index._db is None
    assert not index._turn.locked()
