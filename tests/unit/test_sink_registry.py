"""Sinks are found by type, and bad options are named without their values."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint

import pytest
from pydantic import BaseModel

import pytube.sinks
from pytube.errors import ConfigError
from pytube.sinks import build_sink, known_sinks, registry
from pytube.sinks.base import Sink
from pytube.sinks.callable import CallableSink
from pytube.sinks.jsonl import JsonlSink
from pytube.testing import MemorySink


class Broken:
    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> object:
        if "raise" in options:
            raise RuntimeError("no such server")
        if "secret" in options:
            return Strict.model_validate(options)
        return "not a sink"


class Strict(BaseModel):
    secret: int


def no_sink() -> None:
    """Something that cannot build a sink."""


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("broken", f"{__name__}:Broken", registry.GROUP),
        EntryPoint("unbuildable", f"{__name__}:no_sink", registry.GROUP),
        EntryPoint("missing", "pytube_nowhere.sinks:Sink", registry.GROUP),
        EntryPoint("twice", "one:Sink", registry.GROUP),
        EntryPoint("twice", "two:Sink", registry.GROUP),
        EntryPoint("memory", "pytube.testing:MemorySink", registry.GROUP),
    ]

    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        return [point for point in points if group == point.group and name in (None, point.name)]

    monkeypatch.setattr(registry, "_found", {})
    monkeypatch.setattr(registry, "entry_points", entry_points)


def message(sink_type: str, options: Mapping[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        build_sink(sink_type, options)
    return str(caught.value)


def test_finds_the_built_in_sinks() -> None:
    assert {"jsonl", "callable"} <= set(known_sinks())
    sink = build_sink("jsonl", {"path": "-", "fsync": "true"})
    assert isinstance(sink, JsonlSink)
    assert isinstance(sink, Sink)
    assert isinstance(build_sink("callable", {"target": "os.path:join"}), CallableSink)


def test_unknown_type_lists_the_known_ones() -> None:
    text = message("josnl", {})
    assert 'unknown sink type "josnl"' in text
    assert "callable, jsonl" in text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, ['option "path" is missing: expected the path of a file']),
        ({"path": ""}, ['option "path": expected the path of a file']),
        ({"path": "a\0b"}, ['option "path": expected the path of a file']),
        ({"path": 5}, ['option "path": expected the path of a file']),
        ({"path": "x", "fsync": "hunter2"}, ['option "fsync": expected true or false']),
        ({"path": "x", "pth": 1, "fsync": 7}, ['"pth" is unknown (known: client, fsync', '"fsync"']),
    ],
)
def test_bad_options_of_jsonl(options: dict[str, object], says: list[str]) -> None:
    text = message("jsonl", options)
    assert text.startswith('sink "jsonl": ')
    for part in says:
        assert part in text
    assert "hunter2" not in text


@pytest.mark.usefixtures("offer")
def test_broken_distributions_are_named() -> None:
    assert isinstance(build_sink("memory", {"compares": True}), MemorySink)
    assert 'sink "memory": option "compares": expected true or false' in message("memory", {"compares": []})
    assert "no such server" in message("broken", {"raise": 1})
    assert "is not a sink" in message("broken", {})
    assert "has no from_options" in message("unbuildable", {})
    assert "pytube_nowhere" in message("missing", {})
    assert "offered twice: one:Sink, two:Sink" in message("twice", {})
    secret = message("broken", {"secret": "hunter2"})
    assert 'option "secret"' in secret
    assert "hunter2" not in secret


def test_what_is_found_is_kept_and_what_is_not_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been installed while a worker runs."""
    points: list[EntryPoint] = []
    looks = 0

    def entry_points(*, group: str) -> list[EntryPoint]:
        nonlocal looks
        looks += group == registry.GROUP
        return points

    monkeypatch.setattr(registry, "_found", {})
    monkeypatch.setattr(registry, "entry_points", entry_points)
    with pytest.raises(ConfigError, match="the installed ones are: none"):
        build_sink("memory", {})
    points.append(EntryPoint("memory", "pytube.testing:MemorySink", registry.GROUP))
    assert isinstance(build_sink("memory", {}), MemorySink)
    before = looks
    assert isinstance(build_sink("memory", {}), MemorySink)
    assert looks == before
    monkeypatch.syspath_prepend("/nowhere")
    assert isinstance(build_sink("memory", {}), MemorySink)
    assert looks == before + 1


class Slow(MemorySink):
    write_timeout = 9.0


def test_a_write_must_not_outlive_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("slow", f"{__name__}:Slow", registry.GROUP)
    monkeypatch.setattr(registry, "_found", {})
    monkeypatch.setattr(registry, "entry_points", lambda **_: [point])
    assert isinstance(build_sink("slow", {}, request_timeout=9.0), MemorySink)
    with pytest.raises(ConfigError, match="a write may take 9 s, but request_timeout is 8 s"):
        build_sink("slow", {}, request_timeout=8.0)


@pytest.mark.parametrize(
    ("sink", "package"),
    [
        ("kafka", "confluent_kafka"),
        ("redis", "redis.exceptions"),
        ("webhook", "aiohttp"),
        ("opensearch", "aiohttp"),
    ],
)
def test_a_sink_whose_package_is_missing_names_its_extra(
    sink: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = (f"pytube.sinks.{sink}", "pytube.sinks.http", "pytube.kafka", package)
    for name in [name for name in sys.modules if name.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(pytube.sinks, "http", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(registry, "_found", {})
    with pytest.raises(ConfigError) as refused:
        registry.find_sink(sink)
    install = f"pip install 'pytube-pg[{sink}]' (in a clone: '.[{sink}]')"
    assert str(refused.value) == f'sink "{sink}" needs the package {package}: {install}'
