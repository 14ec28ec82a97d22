"""Two indices of a reindex: no write misses one, and a step that is interrupted can be run again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from pytube.embedded.search_server import SearchServer
from pytube.errors import SinkTimeout, SinkUnavailable, UsageError
from pytube.model import OK, Reject, Stale, Token
from pytube.sinks.base import Sink
from pytube.sinks.opensearch.client import Client
from pytube.sinks.opensearch.index import Indices
from pytube.sinks.opensearch.reindex import IndexReindexer, ReindexState
from pytube.testing import batch
from tests.helpers.opensearch import SMALL, Index, an_index, request

TUBE = "conformance"


@pytest.fixture
def index(opensearch: SearchServer) -> Iterator[Index]:
    with an_index(opensearch.url) as index:
        yield index


@pytest.fixture
async def sinks(index: Index) -> AsyncIterator[list[Sink]]:
    """Two, as of two workers, that were opened before any reindex; they hold one document."""
    sinks: list[Sink] = [index.sink(), index.sink()]
    for sink in sinks:
        await sink.open()
    await sinks[0].send(batch({1: {"v": 1}}))
    yield sinks
    for sink in sinks:
        await sink.close()


@pytest.fixture
async def reindexer(index: Index) -> AsyncIterator[IndexReindexer]:
    reindexer = index.sink().reindexer()
    assert isinstance(reindexer, IndexReindexer)
    yield reindexer
    await reindexer.close()


def held(index: Index, name: str | None) -> dict[int, Any]:
    assert name is not None
    return {hit["_source"]["_pytube"]["id"]: hit["_source"]["v"] for hit in Index(index.server, name).hits()}


def traces(index: Index) -> Any:
    return request(f"{index.server}/{index.name}*/_alias")


async def test_a_worker_that_has_not_noticed_misses_neither(
    index: Index, sinks: list[Sink], reindexer: IndexReindexer
) -> None:
    state = await reindexer.begin(TUBE)
    late = '{"index":{"_id":"0:9","version":9,"version_type":"external"}}\n{}\n'
    # As a request that was sent before and arrives now: the server itself refuses it.
    assert await bulk(index, late) == "illegal_argument_exception"
    assert await sinks[0].send(batch({1: {"v": 2}, 2: {"v": 2}, 3: None}, token=(1, 2))) == [OK] * 3
    assert held(index, state.old) == held(index, state.new) == {1: 2, 2: 2}
    # Tombstones are in both: an older write of another worker loses in the new index, too.
    assert await sinks[0].send(batch({2: None}, token=(3, 1))) == [OK]
    assert await sinks[1].send(batch({2: {"v": 9}, 3: {"v": 9}}, token=(2, 1))) == [
        Stale(int(Token(3, 1))),
        OK,
    ]
    assert held(index, state.new) == {1: 2, 3: 9}
    await reindexer.switch()
    assert await sinks[0].send(batch({4: {"v": 4}}, token=(3, 2))) == [OK]
    assert held(index, state.old) == held(index, state.new) == {1: 2, 3: 9, 4: 4}
    await reindexer.finish(force=True)
    assert await sinks[1].send(batch({5: {"v": 5}, 4: None}, token=(3, 3))) == [OK, OK]
    assert held(index, index.name) == {1: 2, 3: 9, 5: 5}
    found = [id_ async for page in index_scan(sinks[0]) for id_ in page]
    assert found == [1, 3, 5]


def index_scan(sink: Sink) -> Any:
    scan: Callable[..., Any] = sink.scan  # type: ignore[attr-defined] # of this sink
    return scan(TUBE, 0, 100)


async def bulk(index: Index, lines: str) -> str:
    """The error of a raw request through the alias that is searched."""
    client = Client(index.sink()._options)
    try:
        answer = await client.request("POST", f"/{index.name}/_bulk", body=lines.encode())
    finally:
        await client.close()
    return str(answer["items"][0]["index"]["error"]["type"])


async def test_one_reindex_after_another_is_noticed(
    index: Index, sinks: list[Sink], reindexer: IndexReindexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await reindexer.begin(TUBE)
    await sinks[0].send(batch({1: {"v": 2}}, token=(1, 2)))
    assert await reindexer.abandon()
    # The other index of a second moment.
    monkeypatch.setattr("pytube.sinks.opensearch.reindex._MOMENT", "2%m%d%H%M%S%y9")
    second = await reindexer.begin(TUBE)
    assert second.new != first.new
    assert await sinks[0].send(batch({1: {"v": 3}}, token=(1, 3))) == [OK]
    assert held(index, second.new) == held(index, second.old) == {1: 3}


async def test_what_one_index_rejects_is_rejected_with_its_name(
    index: Index, sinks: list[Sink], reindexer: IndexReindexer
) -> None:
    strict = index.sink(mappings={"dynamic": "strict", "properties": {"v": {"type": "long"}}}).reindexer()
    state = await strict.begin(TUBE)
    await strict.close()
    taken, refused = await sinks[0].send(batch({1: {"v": 2}, 2: {"w": 2, "v": 0}}, token=(1, 2)))
    assert taken == OK
    assert isinstance(refused, Reject)
    assert refused.reason.startswith(f"{index.name}--green-")
    assert held(index, state.new) == {1: 2}
    await reindexer.abandon()


async def test_an_index_that_is_deleted_by_hand_stops_the_line_until_it_is_abandoned(
    index: Index, sinks: list[Sink], reindexer: IndexReindexer
) -> None:
    state = await reindexer.begin(TUBE)
    request(f"{index.server}/{state.new}", "DELETE")
    with pytest.raises(SinkUnavailable, match="takes nothing"):
        await sinks[0].send(batch({1: {"v": 2}}, token=(1, 2)))
    with pytest.raises(SinkUnavailable, match="one of the two indices is gone; run `pytube reindex abandon`"):
        await index.sink().open()
    found = await reindexer.look()
    assert found is not None
    assert found.new is None
    assert await reindexer.abandon()
    assert await sinks[0].send(batch({1: {"v": 3}}, token=(1, 3))) == [OK]


@pytest.mark.usefixtures("sinks")
async def test_writes_that_may_come_late_are_waited_for(reindexer: IndexReindexer) -> None:
    await reindexer.begin(TUBE)
    await reindexer.switch()
    with pytest.raises(UsageError, match=r"finish in 3\d\d\d s, when tombstone_seconds have passed"):
        await reindexer.finish()


async def test_an_index_without_alias_and_other_tubes_are_refused(index: Index) -> None:
    request(index.url, "PUT", {"settings": {**SMALL, "index.gc_deletes": "1h"}})
    reindexer = index.sink().reindexer()
    with pytest.raises(UsageError, match="is an index, and only an alias can be moved"):
        await reindexer.begin(TUBE)
    await reindexer.close()


# --- interrupted --------------------------------------------------------------------------------


class Cut(Indices):
    """Its connection breaks at the request of that number: before it is sent, or before its answer comes."""

    left = 0
    answers = False

    async def ask(self, *arguments: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left == 0 and not self.answers:
            raise SinkTimeout("cut")
        answer = await super().ask(*arguments, **options)
        if self.left == 0:
            raise SinkTimeout("cut")
        return answer


async def interrupted(index: Index, step: Callable[[IndexReindexer], Awaitable[object]]) -> None:
    """Run the step with a cut at each of its requests in turn, until one run needs fewer."""
    for answers in (False, True):
        for at in range(1, 30):
            reindexer = IndexReindexer(index.sink()._options)
            cut = reindexer._indices = Cut(reindexer._indices.client, reindexer._options)
            cut.left, cut.answers = at, answers
            try:
                await step(reindexer)
            except SinkTimeout:
                continue
            except UsageError as error:
                # The cut run has done it all the same.
                assert "is not being reindexed" in str(error)  # noqa: PT017
            finally:
                await reindexer.close()
            assert at > 1, "nothing was cut"
            break


async def test_each_step_can_be_interrupted_anywhere(index: Index, sinks: list[Sink]) -> None:
    before = traces(index)
    sink, token = sinks[0], 1

    async def write() -> None:
        """Whatever is half done, writes arrive."""
        nonlocal token
        token += 1
        assert await sink.send(batch({1: {"v": token}}, token=(1, token))) == [OK]
        assert held(index, index.name) == {1: token}

    async def begin(reindexer: IndexReindexer) -> None:
        await write()
        await reindexer.begin(TUBE)
        await write()

    async def abandon(reindexer: IndexReindexer) -> None:
        await reindexer.abandon()
        await write()

    async def finish(reindexer: IndexReindexer) -> None:
        await reindexer.finish(force=True)

    await interrupted(index, begin)
    await interrupted(index, abandon)
    assert traces(index) == before
    await interrupted(index, begin)
    state = await look(index)
    assert held(index, state.old) == held(index, state.new) == {1: token}
    await interrupted(index, switch)
    await write()
    await interrupted(index, finish)
    await write()
    assert traces(index) == {state.new: {"aliases": {index.name: {}}}}


async def switch(reindexer: IndexReindexer) -> None:
    state = await reindexer.look()
    if state is not None and not state.is_switched:
        await reindexer.switch()


async def look(index: Index) -> ReindexState:
    reindexer = index.sink().reindexer()
    state = await reindexer.look()
    await reindexer.close()
    assert state is not None
    return state
