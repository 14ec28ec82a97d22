"""The sink `opensearch` against a real server: the conformance suite, the index, what is stored."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import quote

import pytest

from pytube.embedded.search_server import SearchServer
from pytube.errors import ConfigError, SinkUnavailable
from pytube.model import OK, Key, Ok, Reject, Retry, Stale, Token
from pytube.sinks.base import Sink
from pytube.testing import SinkContract, batch
from pytube.verify.compare import difference
from tests.helpers.frozen import freeze, thaw
from tests.helpers.opensearch import SMALL, Index, an_index, request

PARSING, AT = "(?:mapper|document)_parsing", r"(?:\[\d+:\d+\] )?"
"""The second words are those of Elasticsearch 8 and later, which also says where."""


@pytest.fixture
def index(opensearch: SearchServer) -> Iterator[Index]:
    with an_index(opensearch.url) as index:
        yield index


class TestOpenSearch(SinkContract):
    limit = 60.0
    more: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def _server(self, opensearch: SearchServer, index: Index) -> Iterator[None]:
        self.pid = opensearch.pid
        self.index = index
        yield
        self.unstall()

    def make_sink(self) -> Sink:
        return self.index.sink(**self.more)

    def read_back(self) -> dict[Key, Any]:
        return self.index.values()

    def unopenable_sink(self) -> Sink:
        return self.index.sink(url="http://127.0.0.1:9")

    def rejected_value(self) -> Any:
        return ["no object"]

    async def lose(self) -> bool:
        for name in request(f"{self.index.url}*/_alias"):
            request(f"{self.index.server}/{name}", "DELETE")
        return True

    def stall(self) -> bool:
        freeze(self.pid)
        return True

    def unstall(self) -> None:
        thaw(self.pid)


class TestOpenSearchOtherwise(TestOpenSearch):
    """The choices that change requests, and batches that take several."""

    more: ClassVar[dict[str, Any]] = {
        "create": "index",
        "routing": "shard",
        "key": "{tube}/{shard}/{id}",
        "stamp": "_mine",
        "bulk_bytes": 50_000,
        "compress": False,
        "settings": {"index": {"number_of_shards": 2, "number_of_replicas": 0}},
    }

    def read_back(self) -> dict[Key, Any]:
        return self.index.values("_mine")


async def opened(index: Index, **more: Any) -> Sink:
    sink = index.sink(**more)
    await sink.open()
    return sink


# --- the index ------------------------------------------------------------------------------


async def test_an_index_is_made_with_the_settings_and_mappings_given(index: Index) -> None:
    mappings = {"dynamic": "strict", "properties": {"name": {"type": "keyword"}}}
    sink = await opened(index, mappings=mappings, settings={**SMALL, "index": {"refresh_interval": "30s"}})
    ((name, about),) = request(index.url + "?flat_settings=true").items()
    assert name == f"{index.name}-000001"
    assert about["settings"]["index.gc_deletes"] == "3600s"
    assert about["settings"]["index.refresh_interval"] == "30s"
    assert about["mappings"]["dynamic"] == "strict"
    assert about["mappings"]["properties"]["_pytube"]["properties"]["seq"] == {"type": "long"}
    results = await sink.send(batch({1: {"name": "Ada"}, 2: {"nickname": "A"}}))
    assert results[0] == OK
    refused = results[1]
    assert isinstance(refused, Reject)
    assert re.fullmatch(
        rf"strict_dynamic_mapping_exception: {AT}mapping set to strict, dynamic introduction of \[nickname\] "
        r"within \[_doc\] is not allowed",
        refused.reason,
    )
    await sink.close()


async def test_an_index_that_forgets_deletes_too_soon_is_refused(index: Index) -> None:
    request(index.url, "PUT", {"settings": SMALL})
    with pytest.raises(ConfigError, match="remembers deletes for 60s .*: set index.gc_deletes to that"):
        await opened(index)
    request(f"{index.url}/_settings", "PUT", {"index.gc_deletes": "3600s"})
    await (await opened(index)).close()
    with pytest.raises(ConfigError, match="remembers deletes for 3600s"):
        await opened(index, tombstone_seconds=7200)


async def test_an_index_without_the_stamp_gets_it_mapped(index: Index) -> None:
    settings = {**SMALL, "index.gc_deletes": "1h"}
    request(index.url, "PUT", {"settings": settings, "mappings": {"dynamic": "strict"}})
    sink = await opened(index)
    assert await sink.send(batch({1: {}})) == [OK]
    await sink.close()


async def test_an_index_whose_stamp_is_mapped_in_another_way_is_refused(index: Index) -> None:
    settings = {**SMALL, "index.gc_deletes": "1h"}
    properties = {"_pytube": {"properties": {"seq": {"type": "text"}}}}
    request(index.url, "PUT", {"settings": settings, "mappings": {"properties": properties}})
    with pytest.raises(ConfigError, match=r"_pytube\.seq as text, and it has to be long"):
        await opened(index)


async def test_an_alias_of_two_indices_is_refused(index: Index) -> None:
    await (await opened(index)).close()
    other = f"{index.name}-000002"
    request(f"{index.server}/{other}", "PUT", {"settings": SMALL, "aliases": {index.name: {}}})
    try:
        with pytest.raises(ConfigError, match="stands for .*-000001, .*-000002; name an index, or an alias"):
            await opened(index)
    finally:
        request(f"{index.server}/{other}", "DELETE")


async def test_an_index_that_has_lost_its_alias_is_not_used(index: Index) -> None:
    request(f"{index.url}-000001", "PUT", {"settings": SMALL})
    with pytest.raises(SinkUnavailable, match="but no alias .*; add the alias, or delete the index"):
        await opened(index)


async def test_an_index_that_must_not_be_created_is_asked_for(index: Index) -> None:
    with pytest.raises(SinkUnavailable, match="there is no index or alias"):
        await opened(index, create="never")


async def test_an_index_that_was_deleted_does_not_come_back_by_itself(index: Index) -> None:
    sink = await opened(index)
    request(f"{index.url}-000001", "DELETE")
    with pytest.raises(SinkUnavailable, match="the index or alias .* is gone"):
        await sink.send(batch({1: {}}))
    assert request(index.url)["status"] == 404
    await sink.close()


async def test_a_write_can_be_searched_when_it_was_answered(index: Index) -> None:
    for refresh, interval, seen in (("no", "-1", 0), ("yes", "-1", 2), ("wait_for", "100ms", 3)):
        sink = await opened(index, refresh=refresh, settings={**SMALL, "refresh_interval": "-1"})
        request(f"{index.url}/_settings", "PUT", {"index.refresh_interval": interval})
        assert await sink.send(batch({refresh: {}})) == [OK]
        assert request(f"{index.url}/_count")["count"] == seen
        await sink.close()


async def test_a_write_waits_for_the_copies_that_the_index_asks_for(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only node has one."""
    monkeypatch.setattr("pytube.sinks.opensearch.bulk._SHARD_WAIT", "10ms")
    sink = await opened(index, settings={**SMALL, "number_of_replicas": 1})
    request(f"{index.url}/_settings", "PUT", {"index.write.wait_for_active_shards": "2"})
    (put_off,) = await sink.send(batch({1: {"v": 1}}))
    assert isinstance(put_off, Retry)
    assert "Not enough active copies to meet shard count of [2]" in put_off.reason
    assert index.hits() == []
    request(f"{index.url}/_settings", "PUT", {"index.write.wait_for_active_shards": "1"})
    assert await sink.send(batch({1: {"v": 1}}, token=(5, 2))) == [OK]
    await sink.close()


async def test_two_workers_open_at_once(index: Index) -> None:
    sinks = await asyncio.gather(*(opened(index) for _ in range(4)))
    for sink in sinks:
        await sink.close()
    assert len(request(index.url)) == 1


# --- what is stored -------------------------------------------------------------------------


async def test_a_document_has_its_stamp_and_its_version(index: Index) -> None:
    sink = await opened(index)
    await sink.send(batch({(3, 7): {"n": 1}, (3, "x"): {}}, token=(9, 5), seq=44, tube="items"))
    token = int(Token(9, 5))
    stamp = {"tube": "items", "shard": 3, "id": 7, "seq": 44, "token": str(token)}
    found = {hit["_id"]: hit for hit in index.hits()}
    assert found["3:7"]["_source"] == {"_pytube": stamp, "n": 1}
    assert found["3:7"]["_version"] == token
    assert found["3:x"]["_source"] == {"_pytube": {**stamp, "id": "x", "text": True}}
    await sink.close()


async def test_one_poison_document_among_many(index: Index) -> None:
    sink = await opened(index, mappings={"properties": {"n": {"type": "integer"}, "k": {"type": "keyword"}}})
    values = {key: {"n": key} for key in range(50)} | {25: {"n": "of Ada"}, 30: {"k": "a" * 40_000}}
    results = await sink.send(batch(values))
    for at, reason in (
        (25, rf"{PARSING}_exception: {AT}failed to parse field \[n\] of type \[integer\] in document .*\."),
        (30, rf'(illegal_argument|{PARSING})_exception: .*(immense term in field="k"|field \[k\]).*'),
    ):
        poison = results[at]
        assert isinstance(poison, Reject)
        assert re.fullmatch(reason, poison.reason)
        assert "Ada" not in poison.reason
        assert "97, 97" not in poison.reason  # bytes of the value
    assert [result for at, result in enumerate(results) if at not in (25, 30)] == [OK] * 48
    await sink.close()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"[1]", "its body is not a JSON object"),
        (b'"text"', "its body is not a JSON object"),
        (b'{"a": 1', "failed to parse"),
        (b'{"_pytube": 1}', "Duplicate field '_pytube'"),
        (b"{} {}", f"failed to parse|{PARSING}"),
    ],
)
async def test_bodies_that_cannot_be_taken(index: Index, body: bytes, reason: str) -> None:
    sink = await opened(index)
    first, bad, last = await sink.send(batch({1: {}, 2: body, 3: {}}))
    assert isinstance(bad, Reject)
    assert re.search(reason, bad.reason)
    assert (first, last) == (OK, OK)
    await sink.close()


async def test_names_that_the_server_does_not_take(index: Index) -> None:
    sink = await opened(index, key="{id}")
    results = await sink.send(batch({"": {}, "x" * 513: {}, "y" * 512: {}}))
    assert [type(result) for result in results] == [Reject, Reject, Ok]
    assert await sink.send(batch({"": None, "x" * 513: None})) == [OK, OK]
    await sink.close()


# --- tokens ---------------------------------------------------------------------------------


async def test_the_same_write_again_is_told_as_done(index: Index) -> None:
    sink = await opened(index)
    sent = batch({1: {"v": 1}, 2: None}, token=(5, 1))
    assert await sink.send(sent) == [OK, OK]
    assert await sink.send(sent) == [OK, OK]
    await sink.close()


async def test_a_zombie_loses_against_its_successor(index: Index) -> None:
    """Its late writes come after the successor's rewrite, and after the successor's delete."""
    zombie, successor = await opened(index), await opened(index)
    await zombie.send(batch({1: {"v": "old"}, 2: {"v": "old"}}, token=(5, 1)))
    await successor.send(batch({1: {"v": "new"}, 2: None}, token=(6, 1)))
    newer = Stale(int(Token(6, 1)))
    assert await zombie.send(batch({1: {"v": "late"}, 2: {"v": "late"}}, token=(5, 2))) == [newer, newer]
    assert await zombie.send(batch({1: None, 2: None}, token=(5, 3))) == [newer, newer]
    assert index.values() == {(0, 1): {"v": "new"}}
    await zombie.close()
    await successor.close()


async def test_a_version_that_others_counted_up_hides_no_write(index: Index) -> None:
    """An `_update` by hand makes version T+1, which the next batch has as its token."""
    sink = await opened(index)
    await sink.send(batch({1: {"v": 1}}, token=(5, 1)))
    request(f"{index.url}/_update/0:1", "POST", {"doc": {"note": "by hand"}})
    (result,) = await sink.send(batch({1: {"v": 2}}, token=(5, 2)))
    assert not isinstance(result, Ok | Stale)
    assert await sink.send(batch({1: {"v": 2}}, token=(5, 3))) == [OK]
    request(f"{index.url}/_doc/0:1", "DELETE")
    (result,) = await sink.send(batch({1: {"v": 3}}, token=(5, 4)))
    assert not isinstance(result, Ok | Stale)
    await sink.close()


@pytest.mark.parametrize("depth", [255, 900])
async def test_a_document_that_is_nested_deeply_is_read(index: Index, depth: int) -> None:
    """Nothing else could be verified or explained."""
    body = b'{"a":' * depth + b"1" + b"}" * depth
    sink = index.sink()
    await sink.open()
    await sink.send(batch({1: body, 2: {"a": 1}}, tube="t"))
    found = await sink.read("t", [(0, 1), (0, 2)])
    await sink.close()
    assert difference(body, found[0, 1]) is None
    assert difference(b'{"a":1}', found[0, 2]) is None


async def test_a_document_with_half_of_a_surrogate_pair_is_read(index: Index) -> None:
    """Of another writer: the server takes it, and it is no UTF-8."""
    sink = index.sink()
    await sink.open()
    await sink.send(batch({1: {"a": 1}}, tube="t"))
    (hit,) = index.hits()
    request(f"{index.url}/_doc/{quote(hit['_id'], safe='')}", "PUT", {"a": "\ud800"})
    found = await sink.read("t", [(0, 1)])
    await sink.close()
    assert difference(b'{"a":1}', found[0, 1]) == "different"
