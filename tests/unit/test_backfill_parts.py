"""Limits and progress of backfills, and the index of the sink `jsonl`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytube.backfill.limits import BackfillLimits, Pressure
from pytube.backfill.progress import Progress, Rate
from pytube.errors import SinkUnavailable
from pytube.sinks.jsonl import JsonlSink, encode
from pytube.sinks.jsonl_index import JsonlIndex
from pytube.testing import batch

MB = 1024 * 1024


@pytest.mark.parametrize(
    ("pressure", "reason"),
    [
        (Pressure(0, None, None, None), None),
        (Pressure(1999, "b", 10.0, 256 * MB), None),
        (Pressure(2000, None, None, None), "2000 backfill pods or more wait in the tube (limit 2000)"),
        (Pressure(0, "b", 10.5, 0), "the replica b is 10.5 s behind (limit 10 s)"),
        (Pressure(0, "b", None, 300 * MB), "the replica b lacks 300 MB of WAL (limit 256 MB)"),
    ],
)
def test_what_slows_a_backfill(pressure: Pressure, reason: str | None) -> None:
    assert BackfillLimits().reason(pressure) == reason


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    rate = Rate()
    assert rate.saw(0, 100.0) is None
    assert rate.saw(1000, 101.0) == 1000
    assert [rate.saw(1000, 100.0 + second) for second in range(2, 60)][-1] == 0
    assert rate.saw(31_000, 190.0) == pytest.approx(1000, rel=0.05)


def test_the_time_left() -> None:
    progress = Progress(1, "t", "items", "inserting", False, 500, 2000, 100.0, None)
    assert progress.seconds_left == 15
    assert Progress(1, "t", "items", "waiting", False, 0, None, None, None).seconds_left is None


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


def test_where_jsonl_cannot_be_looked_through(tmp_path: Path) -> None:
    assert JsonlSink(str(tmp_path / "not yet there")).cannot_scan() is None
    assert "standard output" in str(JsonlSink("-").cannot_scan())
    assert "is no file" in str(JsonlSink("/dev/null").cannot_scan())
