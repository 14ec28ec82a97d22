"""The folder, the configurations and the lines of the demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from pytube.config.loader import parse
from pytube.demo.copies import TUBE
from pytube.demo.screen import Figures, Leader, Screen, state
from pytube.demo.stage import configuration, folder_of
from pytube.embedded.process import last_lines
from pytube.errors import UsageError


def test_the_configuration_of_a_worker() -> None:
    options = {"type": "jsonl", "path": '/a "b"/größe.jsonl', "table": {"n": 1, "flag": True}}
    sections: dict[str, Any] = {"postgres": {"dsn": "postgresql://u@h:1/d"}, "worker": {"client_id": "w1"}}
    config = parse(configuration(sections | {f'tube."{TUBE}".sink': options}), environment={})
    assert config.worker.client_id == "w1"
    assert config.tube(TUBE).sink.options == {key: value for key, value in options.items() if key != "type"}


def test_a_folder_is_emptied_when_a_demo_left_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    with folder_of(path) as folder:
        (folder / "sink.jsonl").write_text("old")
        (path / "postgres").mkdir()
        (path / "postgres" / "x").write_text("old")
        (path / "link").symlink_to(tmp_path)
    with folder_of(path):
        assert [child.name for child in path.iterdir()] == ["demo.lock"]
    assert tmp_path.exists()


def test_a_folder_of_somebody_else_s_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="no demo has left there"), folder_of(tmp_path):
        pass
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    refused = pytest.raises(UsageError, match="another demo runs in")
    with folder_of(tmp_path / "d"), refused, folder_of(tmp_path / "d"):
        pass


def test_a_folder_that_can_t_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't be used for the demo"), folder_of(tmp_path / "file"):
        pass


def test_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "w1.log"
    assert "can't be read" in last_lines(log, 12)[0]
    log.write_text("")
    assert "is empty" in last_lines(log, 12)[0]
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    assert last_lines(log, 12) == [f"line {n}" for n in range(88, 100)]


def test_how_things_stand_in_a_second() -> None:
    leaders = [Leader(0, "w1", 5), Leader(1, "w2", 6), Leader(3, "w1", 7)]
    text = state(12, Figures(3, 7, 1.25), 512.4, leaders, dead={"w2"})
    said = "   12 s  512/s delivered, 7 wait (1.2 s)  w1 0,3  w2 killed  w3 –"
    assert text.plain == said
    assert "wait" not in state(13, Figures(0, 0, 0.0), 0.0, leaders, dead=()).plain


def test_how_things_stand_is_said_after_a_silence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no terminal shows it all the time; when it ends badly, what was said last is said once more."""
    clock = iter([0.0, 1.0, 10.0, 10.5, 11.0, 12.0])
    monkeypatch.setattr("pytube.demo.screen.time.monotonic", lambda: next(clock))
    screen = Screen()
    for second in range(1, 4):
        screen.now(Text(f"second {second}"))
    assert capsys.readouterr().out == "second 2\n"
    screen.last()
    assert capsys.readouterr().out == "second 3\n"
