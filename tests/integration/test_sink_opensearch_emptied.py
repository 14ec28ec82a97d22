"""Nothing but what makes indices makes one; one that is gone or was replaced is found, and made again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.embedded.search_server import SearchServer
from pytube.errors import ConfigError, SinkUnavailable
from pytube.model import OK
from pytube.testing import batch
from pytube.worker import sink_marks
from tests.helpers.emptied import SAID, check_remedy, make_source, rows_of, serving
from tests.helpers.opensearch import SMALL, Index, an_index, opened, request
from tests.helpers.waiting import wait_until_async

Conn = psycopg.Connection[Any]


@pytest.fixture
def index(opensearch: SearchServer) -> Iterator[Index]:
    with an_index(opensearch.url) as index:
        yield index


def indices(index: Index) -> set[str]:
    """The names that there are, of indices and aliases."""
    found = request(f"{index.server}/{index.name}*/_alias")
    return {*found, *(alias for about in found.values() for alias in about["aliases"])}


IS_AN_INDEX = r"was an alias, and is an index now .* `pytube backfill start \S+`"
DELETES: dict[Any, Any] = {1: None, 2: None}
MIXED: dict[Any, Any] = {1: None, 2: {"n": 2}}


# --- the sink -----------------------------------------------------------------------------------


@pytest.mark.parametrize("create", ["alias", "index"])
@pytest.mark.parametrize("documents", [DELETES, MIXED, {1: {"n": 1}}], ids=["deletes", "both", "documents"])
async def test_no_write_brings_an_index_back(index: Index, create: str, documents: dict[Any, Any]) -> None:
    async with opened(index, create=create) as sink:
        assert await sink.send(batch(documents)) == [OK] * len(documents)
        for name in request(f"{index.url}*/_alias"):
            request(f"{index.server}/{name}", "DELETE")
        with pytest.raises(SinkUnavailable, match="is gone"):
            await sink.send(batch(documents, token=(2, 1)))
        assert indices(index) == set()


async def test_deletes_that_find_nothing_write_no_document(index: Index) -> None:
    """What stands before them in the request writes none."""
    for create in ("alias", "index"):
        async with opened(index, create=create) as sink:
            assert await sink.send(batch(DELETES)) == [OK, OK]
            assert await sink.send(batch({3: {"n": 3}}, token=(2, 1))) == [OK]
            assert await sink.send(batch({3: None, 4: None}, token=(3, 1))) == [OK, OK]
        assert index.hits() == []
        for name in request(f"{index.url}*/_alias"):
            request(f"{index.server}/{name}", "DELETE")


@pytest.mark.parametrize("documents", [DELETES, MIXED], ids=["deletes", "both"])
async def test_an_index_of_others_in_place_of_the_alias_gets_nothing(
    index: Index, documents: dict[Any, Any]
) -> None:
    """Deletes neither: an answer from there would say that they are done."""
    async with opened(index) as sink:
        request(f"{index.url}-000001", "DELETE")
        request(f"{index.url}", "PUT", {"settings": SMALL})
        for token in (1, 2):
            with pytest.raises(SinkUnavailable, match=IS_AN_INDEX):
                await sink.send(batch(documents, token=(token, 1)))
        assert await sink.read_mark("es") is not None
        with pytest.raises(SinkUnavailable, match=IS_AN_INDEX):
            await sink.send(batch({9: {"n": 9}}, token=(3, 1)))
        assert index.hits() == []
        request(f"{index.url}", "DELETE")
        await sink.write_mark("es", "")
        await sink.read_mark("es")
        assert await sink.send(batch({9: {"n": 9}}, token=(4, 1))) == [OK]


async def test_an_index_that_was_replaced_is_checked_before_more_is_written(index: Index) -> None:
    """One that a write of others has made: it forgets deletes after a minute."""
    async with opened(index, create="index") as sink:
        before = await sink.read_mark("es")
        request(index.url, "DELETE")
        request(f"{index.url}/_doc/1?refresh=true", "PUT", {"of": "others"})
        assert await sink.read_mark("es") not in (None, before)
        with pytest.raises(SinkUnavailable, match="remembers deletes for 60s"):
            await sink.send(batch({9: {"n": 9}}))
        request(f"{index.url}/_settings", "PUT", {"index.gc_deletes": "2h"})
        await sink.read_mark("es")
        assert await sink.send(batch({9: {"n": 9}})) == [OK]


async def test_the_fault_of_an_index_ends_with_it(index: Index) -> None:
    """What an index that is gone had for a fault is no reason any more; why no other one is made, is."""
    async with opened(index) as sink:
        (made,) = request(f"{index.url}/_alias")
        request(f"{index.server}/{made}/_alias/{index.name}", "DELETE")
        request(f"{index.url}/_doc/1?refresh=true", "PUT", {"of": "others"})
        await sink.read_mark("es")
        request(index.url, "DELETE")
        assert await sink.read_mark("es") is None
        with pytest.raises(SinkUnavailable, match=r"is gone, and only a tube .* `pytube backfill start \S+`"):
            await sink.send(batch({9: {"n": 9}}))
        with pytest.raises((ConfigError, SinkUnavailable)) as refused:  # an index of that name has no alias
            await sink.write_mark("es", "")
        with pytest.raises(SinkUnavailable) as told:
            await sink.send(batch({9: {"n": 9}}))
        assert str(told.value) == str(refused.value)


async def test_to_look_makes_nothing(index: Index) -> None:
    sink = index.sink()
    assert "there is no index or alias" in str(await sink.open_existing())
    assert indices(index) == set()
    with pytest.raises(SinkUnavailable, match="is not open"):
        await sink.send(batch({1: {}}))
    with pytest.raises(SinkUnavailable, match='set create = "alias"'):
        await index.sink(create="never").open_existing()
    await sink.open()
    await sink.close()
    assert await sink.open_existing() is None
    await sink.close()


async def test_to_look_changes_no_index_that_is_there(index: Index) -> None:
    request(index.url, "PUT", {"settings": {**SMALL, "index.gc_deletes": "1h"}})
    sink = index.sink()
    assert await sink.open_existing() is None
    await sink.close()
    assert request(index.url)[index.name]["mappings"] == {}


# --- a worker -----------------------------------------------------------------------------------


@pytest.fixture
def folder(dsn: str, conn: Conn, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sink_marks, "INTERVAL", 0.2)
    monkeypatch.setattr(sink_marks, "_STEP", 0.1)
    make_source(conn)
    (tmp_path / "pytube.toml").write_text(
        f'[postgres]\ndsn = "{dsn}"\n[tube.items.sink]\ntype = "opensearch"\nurl = "{index.server}"\n'
        f'index = "{index.name}"\nkey = "{{id}}"\n[tube.items.sink.settings]\nnumber_of_replicas = 0\n'
        '[tube.items.sink.mappings]\ndynamic = "strict"\n'
        '[tube.items.sink.mappings.properties]\nid = { type = "long" }\nn = { type = "integer" }\n'
    )
    return tmp_path


def held(index: Index) -> dict[Any, Any]:
    return {id_: value for (_, id_), value in index.values().items()}


async def test_an_index_that_is_deleted_while_deletes_wait(folder: Path, conn: Conn, index: Index) -> None:
    """It stays away, whoever looks, until it is to be filled again; then it is as configured."""
    async with serving(folder) as watched:
        await wait_until_async(lambda: held(index) == rows_of(conn))
        await watched.until_marked()
        await watched.run("pause", "--tube", "items")
        conn.execute("DELETE FROM public.items WHERE id <= 10")
        request(f"{index.url}-000001", "DELETE")
        await watched.run("resume", "--tube", "items")
        await watched.until_emptied()
        await wait_until_async(lambda: "sink down" in _state(conn), what="nothing can be sent")
        said = await watched.run("explain", "--tube", "items", "--key", "3")
        assert "The sink holds no document" in said
        is_equal, told = await watched.verify()
        assert not is_equal
        assert "there is no index or alias" in told
        assert "there is no index or alias" in await watched.run("doctor", code=1)
        assert indices(index) == set()
    async with serving(folder) as watched:  # a restart is no order to make it
        await wait_until_async(lambda: "sink down" in _state(conn), what="nothing can be sent")
        said = await watched.run("status")
        assert SAID in said
        assert "and there was one: restore it, or run `pytube backfill start items`" in said
        assert indices(index) == set()
        await check_remedy(watched, lambda: held(index), lambda: rows_of(conn))
    ((_, about),) = request(f"{index.url}?flat_settings=true").items()
    assert about["mappings"]["dynamic"] == "strict"
    assert about["settings"]["index.gc_deletes"] == "3600s"


async def test_an_index_that_is_replaced_by_others(folder: Path, conn: Conn, index: Index) -> None:
    async with serving(folder) as watched:
        await wait_until_async(lambda: held(index) == rows_of(conn))
        await watched.until_marked()
        request(f"{index.url}-000001", "DELETE")
        other = {"settings": {**SMALL, "index.gc_deletes": "1h"}, "aliases": {index.name: {}}}
        request(f"{index.url}-000002", "PUT", other)
        await watched.until_emptied()
        conn.execute("UPDATE public.items SET n = -n WHERE id = 1")
        await wait_until_async(lambda: set(held(index)) == {1}, what="delivery goes on")
        await check_remedy(watched, lambda: held(index), lambda: rows_of(conn))


async def test_a_reindex_is_no_loss(folder: Path, conn: Conn, index: Index) -> None:
    async with serving(folder) as watched:
        await wait_until_async(lambda: held(index) == rows_of(conn))
        await watched.until_marked()
        async with opened(index, key="{id}") as sink:
            before = await sink.read_mark("items")
            await watched.run("reindex", "start", "--tube", "items")
            finished = "SELECT FROM tube.tube_backfill WHERE state = 'finished'"
            await wait_until_async(lambda: conn.execute(finished).fetchall(), what="the new index is filled")
            await watched.run("reindex", "switch", "--tube", "items", "--force")
            await watched.run("reindex", "finish", "--tube", "items", "--force")
            assert await sink.read_mark("items") == before
            assert f"{index.name}-000001" not in indices(index)
        await watched.until_well()


def _state(conn: Conn) -> set[str]:
    rows = conn.execute("SELECT sink_down FROM tube.tube_leaders() WHERE sink_down IS NOT NULL").fetchall()
    return {"sink down" for _ in rows}
