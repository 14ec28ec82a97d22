"""The examples of docs/sinks.md work."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pytube.model import OK, Reject, Token
from pytube.sinks.base import Sink
from pytube.sinks.callable import CallableSink
from pytube.sinks.jsonl import JsonlOptions, JsonlSink, parse
from pytube.testing import SinkContract, batch

PAGE = Path(__file__).parents[2] / "docs" / "sinks.md"


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


REPLAY, INDEX, *OWN = examples("python")


def run(*sources: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "example"}
    for source in sources:
        exec(compile(source, str(PAGE), "exec", dont_inherit=True), namespace)  # noqa: S102  # our page
    return namespace


def checks() -> list[str]:
    return [name for name, _ in inspect.getmembers(SinkContract) if name.startswith("test_")]


@pytest.mark.parametrize("check", checks())
def test_own_sink_passes_the_suite(check: str) -> None:
    suite = run(*OWN)["TestDictSink"]()
    suite.store = {}
    getattr(suite, check)()


def test_own_sink_is_built_from_options() -> None:
    assert isinstance(run(*OWN)["DictSink"].from_options({"name": "x"}), Sink)


async def test_function() -> None:
    namespace = run(INDEX)
    sink = CallableSink(namespace["index"])
    await sink.open()
    results = await sink.send(batch({1: {"name": "Ada"}, 2: {}, 3: None}))
    assert results == [OK, Reject("it has no name"), OK]
    assert namespace["index_of_names"] == {(0, 1): "Ada"}


async def test_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = JsonlSink("es-live.jsonl")
    await sink.open()
    await sink.send(batch({1: {"name": "Ada"}, 2: None}, tube="es-live"))
    await sink.close()
    run(REPLAY)
    assert capsys.readouterr().out.splitlines() == [
        "('es-live', 0, 1) {'name': 'Ada'}",
        "('es-live', 0, 2) gone",
        "2 0 0",
    ]


def test_the_line_that_is_shown() -> None:
    (shown,) = examples("json")
    line = parse(shown.encode())
    assert line is not None
    assert (line.token, line.doc) == (Token(1795253820, 91), {"id": 7, "name": "Ada"})
    assert json.loads(shown)["epoch"] == line.token.epoch


def test_the_options_that_are_shown() -> None:
    sinks = [
        tomllib.loads(source).get("tube", {}).get("es-live", {}).get("sink") for source in examples("toml")
    ]
    shown = [sink for sink in sinks if sink]
    assert [sink.pop("type") for sink in shown] == ["jsonl", "callable"]
    assert JsonlOptions.parse("jsonl", shown[0]).path == "/var/lib/pytube/es-live.jsonl"
