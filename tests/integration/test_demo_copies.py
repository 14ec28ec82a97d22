"""What the demonstration reads back from each kind of server, after a sink has written there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pytube.demo import copies
from pytube.demo.copies import Copy
from pytube.demo.feeds import ServerFeed
from pytube.demo.settings import TUBE, SinkType
from pytube.demo.source import TELLER, TELLER_SHARD, Arrival
from pytube.embedded.kafka_real import RealKafka
from pytube.embedded.opensearch import OpenSearch
from pytube.embedded.redis import Redis
from pytube.errors import PytubeError
from pytube.model import OK, Batch, Documents, Token
from pytube.sinks import build_sink
from tests.helpers.database import server_folder

PROBE = {"tid": TELLER, "filler": "probe 7 "}


@pytest.fixture(params=["opensearch", "redis", "kafka", "postgres"])
def copy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Copy]:
    """The copy in a server that other tests use, too; in a tube of its own."""
    monkeypatch.setattr(copies, "TUBE", "copy-of-the-demo")
    sink: SinkType = request.param
    with ExitStack() as stack:
        match sink:
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
    feed = ServerFeed(copy, tmp_path)
    settings = feed.settings("w1").options
    own = {key: value for key, value in settings.items() if key not in ("type", "request_timeout")}
    sink = build_sink(str(settings["type"]), own, request_timeout=5.0)
    assert not feed.poll(), "nothing is there yet"
    await sink.open()
    try:
        assert await sink.send(batch(1, 3, {n: {"n": n} for n in range(50)})) == [OK] * 50
        assert await sink.send(batch(2, TELLER_SHARD, {TELLER: PROBE, 2: {"tid": 2}})) == [OK] * 2
        assert await sink.send(batch(3, 3, {7: None, 8: {"n": -8}})) == [OK] * 2
    finally:
        await sink.close()
    expected: dict[tuple[int, int], Any] = {(3, n): {"n": n} for n in range(50) if n != 7}
    expected |= {(3, 8): {"n": -8}, (TELLER_SHARD, TELLER): PROBE, (TELLER_SHARD, 2): {"tid": 2}}
    assert feed.documents() == expected
    assert copy.probe() == PROBE
    assert copy.name in feed.remarks().values()


class NoCopy(Copy):
    """Nothing is there."""

    def probe(self) -> Any:
        return PROBE

    def documents(self) -> dict[tuple[int, int], Any]:
        return {}


def test_who_delivered_what_is_read_in_the_logs(tmp_path: Path) -> None:
    feed = ServerFeed(NoCopy("nowhere", {}), tmp_path)
    log = tmp_path / "w2.log"

    def says(event: str, second: int, **fields: object) -> str:
        return json.dumps({"timestamp": f"2026-01-01T00:00:{second:02}Z", "event": event, **fields}) + "\n"

    log.write_text(
        says("leader_acquired", 1, partition=3, epoch=100)
        + says("meter_read", 2, partition=3, documents=40)
        + says("meter_read", 3, partition=3, documents=0)
        + says("leader_acquired", 4, partition=3, epoch=105)
        + '{"timestamp": "2026-01-01T00:00:05Z", "event": "meter_r'
    )
    assert feed.poll()
    assert not feed.poll()
    with log.open("a") as file:
        file.write("\n" + says("meter_read", 6, partition=3, documents=2))
    assert feed.poll()
    tally = feed.tally
    assert (tally.documents, tally.peak, tally.by_client) == (42, 40, {"w2": 42})
    assert tally.first == {(3, 100): 1767225602.0, (3, 105): 1767225606.0}
    assert [number for number, _ in tally.arrivals] == [7, 7, 7]
    assert isinstance(tally.arrivals[0], Arrival)


@pytest.mark.parametrize(("sink", "package"), [("opensearch", "opensearchpy"), ("redis", "redis")])
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
