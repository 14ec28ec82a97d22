"""Reading back what `jsonl` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytube.sinks.jsonl import Replay, encode, replay
from pytube.testing import batch


def line(
    id_: int, value: Any, token: tuple[int, int], *, tube: str = "t", client: str | None = None
) -> bytes:
    return b"1.5".join(encode(batch({id_: value}, token=token, tube=tube, seq=3), client))


def test_highest_token_wins_whatever_came_last(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(
        line(1, {"v": 1}, (1, 1))
        + line(1, None, (2, 1))
        + line(1, {"v": "late"}, (1, 9), client="zombie")
        + line(1, {"other": "tube"}, (1, 1), tube="u")
        + line(2, {"v": 1}, (1, 1))
        + line(2, {"v": 2}, (1, 1))
    )
    held = replay([path])
    assert held["t", 0, 1].is_delete
    assert held["u", 0, 1].doc == {"other": "tube"}
    assert held["t", 0, 2].doc == {"v": 2}, "with the same token the last one"
    assert (held["t", 0, 2].seq, held["t", 0, 2].at) == (3, 1.5)
    arrived = Replay([path], compare=False)
    arrived.finish()
    assert arrived.lines["t", 0, 1].client == "zombie"
    assert arrived.stale == 1


def test_torn_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    whole = line(1, {"text": "ä\u2028"}, (1, 1))
    others = [b'{"a":1}', b"[]", b"7", b"\0\0\0", b'{"tube":"t"', b"\xff\xfe", b"[" * 200_000]
    path.write_bytes(b"\n  \n" + b"\n".join([whole[:40], *others]) + b"\n" + whole + b"\r\n" + whole[:20])
    reader = Replay([path])
    reader.finish()
    assert (reader.applied, reader.torn) == (1, 2 + len(others))
    assert reader.lines["t", 0, 1].doc == {"text": "ä\u2028"}


def test_a_whole_line_that_lacks_only_its_end_counts(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(line(1, {"v": 1}, (1, 1)).rstrip(b"\n"))
    assert replay([path])["t", 0, 1].doc == {"v": 1}


def test_poll_takes_what_has_come_since(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    reader = Replay([path])
    assert reader.poll() == 0
    first, second = line(1, {"v": 1}, (1, 1)), line(1, {"v": 2}, (1, 2))
    path.write_bytes(first + second[:30])
    assert reader.poll() == 1
    path.write_bytes(first + second)
    assert reader.poll() == 1
    assert reader.poll() == 0
    assert reader.lines["t", 0, 1].doc == {"v": 2}
    assert reader.torn == 0


def test_lines_longer_than_a_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"".join(line(id_, {"text": "x" * 1_500_000}, (1, 1)) for id_ in range(3)))
    assert len(replay([path])) == 3


def test_files_of_a_rotation_in_their_order(tmp_path: Path) -> None:
    old, new = tmp_path / "x.1", tmp_path / "x"
    old.write_bytes(line(1, {"v": 1}, (1, 1)))
    new.write_bytes(line(1, {"v": 2}, (1, 2)))
    assert replay([old, new], compare=False)["t", 0, 1].doc == {"v": 2}
    with pytest.raises(FileNotFoundError):
        replay([old, tmp_path / "none"])
