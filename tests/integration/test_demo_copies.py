"""What the demonstration reads back from each kind of server, after a sink has written there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pytube.demo import copies
from pytube.demo.copies import TUBE, Copy, InFile, SinkType
from pytube.demo.tube import TELLER, Feed
from pytube.embedded.kafka_real import RealKafka
from pytube.embedded.redis import Redis
from pytube.embedded.search_server import OpenSearch
from pytube.errors import PytubeError
from pytube.model import OK, Batch, Documents, Token
from pytube.sinks import build_sink
from tests.helpers.database import server_folder

SHARD, ID = TELLER
PROBE = {"tid": ID, "filler": "probe 7 "}


@pytest.fixture(params=["jsonl", "opensearch", "redis", "kafka", "postgres"])
def copy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Copy]:
    """The copy in a server that other tests use, too; in a tube of its own."""
    sink: SinkType = request.param
    if sink != "jsonl":
        monkeypatch.setattr(copies, "TUBE", "copy-of-the-demo")
    with ExitStack() as stack:
        match sink:
            case "jsonl":
                yield InFile(stack.enter_context(server_folder()) / "sink.jsonl")
            case "opensearch":
                server: OpenSearch = request.getfixturevalue("real_opensearch")
                yield copies.InOpenSearch(server.url)
            case "redis":
                redis = stack.enter_context(Redis(stack.enter_context(server_folder()) / "redis"))
                yield copies.InRedis(redis.url, stack)
            case "kafka":
                kafka: RealKafka = request.getfixturevalue("kafka_real")
                yield copies.InKafka(kafka.bootstrap, stack)
            case "postgres":
                yield copies.InPostgres(request.getfixturevalue("bare_dsn"), stack)


def batch(counter: int, shard: int, documents: dict[int, Any]) -> Batch:
    token = Token(1, counter)
    columns = Documents(token, counter)
    bodies = [None if value is None else json.dumps(value).encode() for value in documents.values()]
    columns.add(shard, list(documents), bodies)
    return Batch(TUBE, 0, token, columns)


async def test_what_a_sink_wrote_is_read_back(copy: Copy, tmp_path: Path) -> None:
    feed = Feed(copy, tmp_path)
    settings = copy.options
    own = {key: value for key, value in settings.items() if key not in ("type", "request_timeout")}
    sink = build_sink(str(settings["type"]), own, request_timeout=5.0)
    assert not feed.poll(), "nothing is there yet"
    await sink.open()
    try:
        assert await sink.send(batch(1, 3, {n: {"n": n} for n in range(50)})) == [OK] * 50
        assert await sink.send(batch(2, SHARD, {ID: PROBE, 2: {"tid": 2}})) == [OK] * 2
        assert await sink.send(batch(3, 3, {7: None, 8: {"n": -8}})) == [OK] * 2
    finally:
        await sink.close()
    expected: dict[tuple[int, int], Any] = {(3, n): {"n": n} for n in range(50) if n != 7}
    expected |= {(3, 8): {"n": -8}, TELLER: PROBE, (SHARD, 2): {"tid": 2}}
    assert copy.documents() == expected
    feed.poll()
    assert {arrival.number for arrival in feed.arrivals} == {7}
    assert [copy.document(key) for key in ((3, 8), (3, 7), (3, 50))] == [{"n": -8}, None, None]


async def test_a_file_of_many_pieces_is_read_to_its_end(tmp_path: Path) -> None:
    """Also where a piece holds nothing of the probe."""
    feed = Feed(InFile(tmp_path / "sink.jsonl"), tmp_path)
    sink = build_sink("jsonl", {"path": str(tmp_path / "sink.jsonl")}, request_timeout=5.0)
    await sink.open()
    try:
        for counter in range(1, 5):
            await sink.send(batch(counter, 3, {n: {"n": "x" * 10_000} for n in range(100)}))
        await sink.send(batch(5, SHARD, {ID: PROBE}))
    finally:
        await sink.close()
    while feed.poll():
        assert len(feed.arrivals) <= 1
    assert [arrival.number for arrival in feed.arrivals] == [7]


class NoCopy(Copy):
    """Nothing is there."""

    def document(self, key: tuple[int, int]) -> Any:
        assert key == TELLER
        return PROBE

    def documents(self) -> dict[tuple[int, int], Any]:
        return {}


def test_who_delivered_what_is_read_in_the_logs(tmp_path: Path) -> None:
    feed = Feed(NoCopy("nowhere", {}), tmp_path)
    log = tmp_path / "w2.log"

    def says(event: str, second: int, **fields: object) -> str:
        return json.dumps({"timestamp": f"2026-01-01T00:00:{second:02}Z", "event": event, **fields}) + "\n"

    log.write_text(
        says("leader_acquired", 1, partition=3, epoch=100)
        + says("meter_read", 2, partition=3, documents=40)
        + says("meter_read", 3, partition=3, documents=0)
        + '{"timestamp": "2026-01-01T00:00:05Z", "event": "meter_r'
    )
    assert feed.poll()
    assert not feed.poll()
    with log.open("a") as file:
        file.write("\n" + says("meter_read", 6, partition=3, documents=2))
    assert feed.poll()
    assert feed.by_client == {"w2": 42}
    assert [number for number, _ in feed.arrivals] == [7]


@pytest.mark.parametrize(("sink", "package"), [("opensearch", "aiohttp"), ("redis", "redis")])
def test_a_missing_package_is_named_before_anything_starts(
    sink: SinkType, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "find_spec", lambda _: None)
    with pytest.raises(PytubeError, match=rf"needs the package {package}: .*\[embedded,{sink}\]"):
        copies.check(sink)


def test_a_missing_server_is_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("PYTUBE_REDIS_SERVER", raising=False)
    with pytest.raises(
        PytubeError, match=r"^there is no redis-server on this machine; install it \(.*\), or set"
    ):
        copies.check("redis")
