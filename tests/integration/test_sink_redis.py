"""The sink `redis` against a real server: the suite, what is stored, tokens, names, and a worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import psycopg
import pytest
import redis as redis_py

from pytube.config import load
from pytube.errors import ConfigError
from pytube.health.queues import check_sources
from pytube.keys import CompositeKey, KeyColumn, PartType
from pytube.model import OK, Key, Reject, Result, Stale, Token
from pytube.sinks import redis_script
from pytube.sinks.base import Sink
from pytube.sinks.redis import RedisSink
from pytube.sinks.redis_script import id_of
from pytube.testing import SinkContract, batch
from pytube.testing.harness import expect
from pytube.worker import Worker
from tests.docs.pages import BY_NAME
from tests.helpers.database import preparing
from tests.helpers.logs import capture_logs
from tests.helpers.redis_server import RedisCluster, RedisServer, held, opened
from tests.helpers.waiting import wait_until_async

REGISTER = b"pytube.register:{conformance:%d}conformance:%d"


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    return redis_server


@pytest.fixture
def store(redis_store: redis_py.Redis) -> redis_py.Redis:
    return redis_store


# --- the suite ----------------------------------------------------------------------------------


class TestJson(SinkContract):
    mode = "json"

    @pytest.fixture(autouse=True)
    def _empty(self, server: RedisServer, store: redis_py.Redis) -> None:
        self.server, self.store = server, store

    def make_sink(self) -> Sink:
        return RedisSink.from_options({"url": self.server.url, "mode": self.mode})

    def unopenable_sink(self) -> Sink:
        return RedisSink.from_options({"url": "redis://127.0.0.1:1"})

    def read_back(self) -> dict[Key, Any]:
        """By the registers, so that a document and its stamp are there together or not at all."""
        names = held(self.store)
        keys: list[tuple[Key, bytes]] = []
        for register in self.store.scan_iter(match="pytube.register:*"):
            shard = int(register.rpartition(b":")[2])
            for member in self.store.hkeys(register):
                assert isinstance(member, bytes)
                key = id_of(member)
                keys.append(((shard, key), b"{conformance:%d}:%b" % (shard, str(key).encode())))
        assert {(shard, str(key)) for (shard, key), _ in keys} >= names.keys(), "documents without a stamp"
        return self.values_of(keys)

    def values_of(self, keys: list[tuple[Key, bytes]]) -> dict[Key, Any]:
        texts = self.store.mget([name for _, name in keys]) if keys else []
        return {key: json.loads(text or "") for (key, _), text in zip(keys, texts, strict=True)}

    async def lose(self) -> bool:
        self.store.flushall()
        return True

    def stall(self) -> bool:
        self.store.client_pause(60_000, all=False)
        return True

    def unstall(self) -> None:
        with self.server.client() as client:
            client.client_unpause()


class TestHash(TestJson):
    mode = "hash"

    def values_of(self, keys: list[tuple[Key, bytes]]) -> dict[Key, Any]:
        pipe = self.store.pipeline(transaction=False)
        for _, name in keys:
            pipe.hgetall(name)
        return {
            key: {name.decode(): text.decode() for name, text in fields.items()}
            for (key, _), fields in zip(keys, pipe.execute(), strict=True)
        }

    async def expect_values(self, expected: Mapping[Key, Any], when: str) -> None:
        """Texts are held as they are, nulls are left out, all else is held as its JSON text."""
        held = await self.values()
        expect(held.keys() == expected.keys(), f"{when}: {held.keys()} instead of {expected.keys()}")
        for key, document in expected.items():
            fields = {name: value for name, value in document.items() if value is not None}
            found = {
                name: text if isinstance(fields.get(name), str) else json.loads(text)
                for name, text in held[key].items()
            }
            expect(found == fields, f"{when}: {key} holds {found!r:.200}, expected {fields!r:.200}")

    def rejected_value(self) -> Any:
        return ["no", "object"]


NO_DOCUMENTS = {
    "test_concurrent_sends_of_different_keys",
    "test_acknowledged_writes_keep_their_order",
    "test_close_while_a_send_runs",
    "test_abandoned_send_has_no_later_effect",
    "test_keys_that_are_texts",
    "test_large_documents",
    "test_leaves_the_batch_alone",
    "test_lower_token_does_not_win",
    "test_odd_documents",
    "test_open_and_close_can_be_repeated",
    "test_send_before",
    "test_upsert_delete_upsert",
}
"""Checks that read documents back; the mode writes none."""


def _skip(_: object) -> NoReturn:
    pytest.skip('reads documents back, which mode = "invalidate" does not write')


class TestInvalidate(TestJson):
    """What does not need documents; tokens and order are checked below."""

    mode = "invalidate"


for _name in sorted(NO_DOCUMENTS):
    setattr(TestInvalidate, _name, _skip)


# --- what is in the store -----------------------------------------------------------------------


async def test_what_is_stored(server: RedisServer, store: redis_py.Redis) -> None:
    body = b'{"price": 1.10, "big": 9007199254740993}'
    async with opened(server.url) as sink:
        await sink.send(batch({7: body, 8: None}, token=(5, 3), seq=11, tube="es-live"))
    assert store.get("{es-live:0}:7") == body
    assert store.hgetall("pytube.register:{es-live:0}es-live:0") == {b"7": b"5:3:11"}
    assert store.get("pytube.tombstone:{es-live:0}:8") == b"5:3"
    assert 3590 < store.ttl("pytube.tombstone:{es-live:0}:8") <= 3600
    assert store.dbsize() == 3


async def test_documents_of_one_batch_may_have_different_seqs(
    server: RedisServer, store: redis_py.Redis
) -> None:
    sent = batch({1: {}, 2: {}, 3: {}})
    for document, seq in zip(sent.documents, (5, 6, 5), strict=True):
        document.seq = seq
    async with opened(server.url) as sink:
        assert await sink.send(sent) == [OK] * 3
        assert [page async for page in sink.scan("conformance", 0, 6)] == [[1, 3]]
    assert store.hget(REGISTER % (0, 0), "2") == b"1:1:6"


async def test_a_key_of_ones_own(server: RedisServer, store: redis_py.Redis) -> None:
    async with opened(server.url, key="user:{id}", mode="hash") as sink:
        await sink.send(batch({(3, 7): {"name": "Ada", "age": 36, "tags": ["x"], "gone": None}}))
    assert store.hgetall("user:7") == {b"name": b"Ada", b"age": b"36", b"tags": b'["x"]'}


async def test_a_document_may_not_have_a_key_of_the_sink(server: RedisServer, store: redis_py.Redis) -> None:
    async with opened(server.url, key="{id}") as sink:
        await sink.send(batch({"a": {}}, token=(5, 1)))
        results = await sink.send(batch({"pytube.tombstone:a": b'"9:9"', "b": {}}, token=(6, 1)))
        assert isinstance(results[0], Reject)
        assert results[1] == OK
        assert await sink.send(batch({"a": None}, token=(6, 2))) == [OK]
    assert set(store.scan_iter(match="[^p]*")) == {b"b"}


async def test_one_large_document_among_many(
    server: RedisServer, store: redis_py.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytube.sinks.redis.LARGEST", 1000)
    documents: dict[int, Any] = {at: {"n": at} for at in range(300)} | {150: {"text": "x" * 2000}}
    async with opened(server.url, max_bytes=2000) as sink:
        results = await sink.send(batch(documents))
    assert [at for at, result in enumerate(results) if result != OK] == [150]
    assert isinstance(results[150], Reject)
    assert "1000 are possible" in results[150].reason
    assert len(held(store)) == 299


async def test_one_round_trip(server: RedisServer, store: redis_py.Redis) -> None:
    """One script for each hundred documents of a shard, all in one packet and one answer."""
    documents = {(at % 2, at): {"n": at} for at in range(400)}
    async with opened(server.url, pool_size=1) as sink:
        await sink.send(batch(documents))
        store.config_resetstat()
        await sink.send(batch(documents, token=(1, 2)))
    stats = store.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 4
    assert "cmdstat_eval" not in stats


# --- tokens -------------------------------------------------------------------------------------


async def late_writes(url: str, store: redis_py.Redis, mode: str = "json") -> tuple[list[Result], set[Key]]:
    """A zombie writes and deletes what its successor has written and deleted."""
    async with opened(url, mode=mode) as successor, opened(url, mode=mode) as zombie:
        await zombie.send(batch({at: {"v": "old"} for at in range(1, 5)}, token=(4, 1)))
        await successor.send(batch({1: {"v": "new"}, 2: {"v": "new"}, 3: None, 4: None}, token=(5, 1)))
        late = await zombie.send(batch({1: {"v": "late"}, 2: None, 3: {"v": "late"}, 4: None}, token=(4, 9)))
    return list(late), {key for key, name in held(store).items() if b"new" in (store.get(name) or b"")}


async def test_a_zombie_loses(server: RedisServer, store: redis_py.Redis) -> None:
    late, new = await late_writes(server.url, store)
    assert late == [Stale(int(Token(5, 1)))] * 4
    assert new == {(0, "1"), (0, "2")} == held(store).keys()


async def test_a_zombie_would_win_without_tokens(
    server: RedisServer, store: redis_py.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = redis_script.SCRIPT.replace(b"return e > epoch", b"return false and e > epoch").replace(
        b"or (e == epoch and c > counter)", b""
    )
    monkeypatch.setattr(redis_script, "SCRIPT", text)
    monkeypatch.setattr(redis_script, "SHA", b"0" * 40)
    late, new = await late_writes(server.url, store)
    assert late == [OK] * 4
    assert new == set()
    assert held(store).keys() == {(0, "1"), (0, "3")}


async def test_a_zombie_of_a_cache_loses(server: RedisServer, store: redis_py.Redis) -> None:
    """Its invalidation is refused, so it deletes nothing that was cached since."""
    late, _ = await late_writes(server.url, store, "invalidate")
    assert late == [Stale(int(Token(5, 1)))] * 4


async def test_an_invalidation_deletes_and_leaves_its_token(
    server: RedisServer, store: redis_py.Redis
) -> None:
    store.set("user:7", "cached")
    store.hset("user:8", "cached", "1")
    async with opened(server.url, mode="invalidate", key="user:{id}", tombstone_seconds=60) as sink:
        assert await sink.send(batch({7: {"v": 1}, 8: {"v": 1}, 9: None}, token=(5, 2))) == [OK] * 3
        assert sink.cannot_scan()
    names = {b"pytube.tombstone:user:%d" % at for at in (7, 8, 9)}
    assert set(store.scan_iter()) == names
    assert {store.get(name) for name in names} == {b"5:2"}
    assert all(50 < store.ttl(name) <= 60 for name in names)


async def test_the_filler_of_the_page(server: RedisServer, store: redis_py.Redis) -> None:
    """What it read before a change was delivered is not cached after it."""
    (block,) = BY_NAME["docs/sinks/redis.md"].blocks("python")
    page: dict[str, Any] = {}
    exec(compile(block.text, str(block), "exec", dont_inherit=True), page)  # noqa: S102  # our page
    changes = iter(range(1, 9))
    async with opened(server.url, mode="invalidate", key="user:{id}") as sink:

        def fill(read_row: Callable[[], bytes]) -> bytes | None:
            page["cached"](store, "user:7", read_row)
            held = store.get("user:7")
            assert held is None or isinstance(held, bytes)
            return held

        def changed() -> bytes:
            change = asyncio.run_coroutine_threadsafe(
                sink.send(batch({7: {}}, token=(1, next(changes)))), loop
            )
            assert change.result(10) == [OK]
            return b"old"

        loop = asyncio.get_running_loop()
        for _ in range(2):  # without a tombstone, and with an earlier one
            assert await asyncio.to_thread(fill, changed) is None
        assert await asyncio.to_thread(fill, lambda: b"new") == b"new"
        assert await asyncio.to_thread(fill, lambda: b"not read") == b"new"


async def test_the_script_is_sent_again_when_it_is_lost(server: RedisServer, store: redis_py.Redis) -> None:
    async with opened(server.url) as sink:
        for at in range(1, 4):
            store.script_flush()
            sent = batch({(shard, 1): {"v": at} for shard in range(3)}, token=(1, at))
            assert await sink.send(sent) == [OK] * 3
    assert {store.get(name) for name in held(store).values()} == {b'{"v": 3}'}


# --- by a worker --------------------------------------------------------------------------------


async def test_a_worker_makes_the_store_equal_to_the_table(
    dsn: str, server: RedisServer, store: redis_py.Redis, tmp_path: Path
) -> None:
    """Documents that nothing deleted are found by the sweep of a backfill."""
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as connection:
        connection.execute("CREATE TABLE public.items (id bigint PRIMARY KEY, name text)")
        connection.execute("SELECT tube_ensure_exists('items')")
        connection.execute("SELECT tube_table_ensure_attached('items', 'public.items', 0)")
        connection.execute("INSERT INTO public.items SELECT g, 'name ' || g FROM generate_series(1, 500) g")
        async with opened(server.url) as earlier:
            await earlier.send(batch({9000: {"id": 9000}}, tube="items", token=(0, 1), seq=0))
        path = tmp_path / "pytube.toml"
        path.write_text(
            f"""
            [postgres]
            dsn = "{dsn}"
            [tube.items.sink]
            type = "redis"
            url = "{server.url}"
            """
        )
        worker = Worker(load(path))
        await worker.start()
        try:
            await wait_until_async(lambda: len(held(store)) == 501, what="all rows are there")
            connection.execute("UPDATE public.items SET name = 'new' WHERE id % 2 = 0")
            connection.execute("DELETE FROM public.items WHERE id % 10 = 0")
            connection.execute("SELECT tube_backfill_schedule('items', 'id', 0, 0)")

            def is_equal() -> bool:
                rows = connection.execute("SELECT id, row_to_json(i)::text FROM public.items i").fetchall()
                names = held(store)
                texts = dict(zip(names, store.mget(list(names.values())), strict=True))
                return texts == {(0, str(id_)): text.encode() for id_, text in rows}

            await wait_until_async(is_equal, what="the store is equal to the table")
        finally:
            await worker.stop()


# --- names of columns ---------------------------------------------------------------------------

Conn = psycopg.Connection[Any]

KEY = CompositeKey((KeyColumn("tenant", PartType.TEXT), KeyColumn("id", PartType.BIGINT)))
TABLE = """
SET search_path = tube, public;
CREATE TABLE public.docs (tenant text, id bigint, name text, PRIMARY KEY (tenant, id));
SELECT tube_ensure_exists('docs', 1, key_type => 'text');
SELECT tube_table_ensure_attached('docs', 'public.docs', 0, key_cols => '{tenant,id}');
INSERT INTO public.docs VALUES ('a', 1, 'one'), ('a', 2, 'two')
"""


def _prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLE.encode())


prepare = preparing(_prepare, "dsn")


async def test_marks_and_registers_are_read_before_any_columns_are_known(
    server: RedisServer, store: redis_py.Redis
) -> None:
    async with opened(server.url, key="{tenant}:{id}") as sink:
        sink.template.learn_keys(lambda _: KEY)
        assert await sink.send(batch({(0, '["a", 1]'): {"v": 1}}, seq=1)) == [OK]
        await sink.write_mark("conformance", "full")
        await sink.write_note("conformance", "note")
    async with opened(server.url, key="{tenant}:{id}") as sink:
        assert await sink.read_mark("conformance") == "full"
        assert await sink.read_note("conformance") == "note"
        assert [page async for page in sink.scan("conformance", 0, 2)] == [['["a", 1]']]
        store.flushall()
        assert await sink.read_mark("conformance") is None


async def test_all_names_of_a_shard_are_in_one_slot(tmp_path: Path) -> None:
    cluster = RedisCluster(tmp_path)
    try:
        async with opened(cluster.url, key="{{{tube}}}:{tenant}:{id}", cluster=True) as sink:
            sink.template.learn_keys(lambda _: KEY)
            written = {(shard, f'["a", {number}]'): {"v": number} for shard in (0, 1) for number in range(20)}
            assert await sink.send(batch(written, seq=1)) == [OK] * 40
            of_no_row = {(0, f"by hand {number}"): None for number in range(20)}
            assert await sink.send(batch(of_no_row, seq=1)) == [OK] * 20
            found = {key async for page in sink.scan("conformance", 1, 2) for key in page}
            assert found == {key for shard, key in written if shard == 1}
    finally:
        cluster.close()


# --- a worker -----------------------------------------------------------------------------------


def configured(folder: Path, dsn: str, url: str, key: str, enrich: str = "row") -> Path:
    path = folder / "pytube.toml"
    path.write_text(
        f"""
        [postgres]
        dsn = "{dsn}"
        [worker]
        election = "lease"
        [tube.docs]
        enrich = {{ mode = "{enrich}" }}
        [tube.docs.sink]
        type = "redis"
        url = "{url}"
        key = "{key}"
        """
    )
    return path


WRONG = "{tenant}:{number} names number, tenant, and keys of public.docs are of tenant, id"


async def test_a_worker_does_not_start_with_columns_that_the_key_does_not_have(
    dsn: str, server: RedisServer, tmp_path: Path
) -> None:
    worker = Worker(load(configured(tmp_path, dsn, server.url, "{tenant}:{number}")))
    with pytest.raises(ConfigError, match=WRONG):
        await worker.start()
    await worker.stop()


def test_nor_where_no_rows_are_read(dsn: str, server: RedisServer, tmp_path: Path) -> None:
    path = configured(tmp_path, dsn, server.url, "{tenant}:{id}", enrich="none")
    with pytest.raises(ConfigError, match=r'mode = "none" of \[tube\.docs\.enrich\] reads no rows'):
        Worker(load(path))


@pytest.mark.parametrize(
    ("key", "enrich", "said"),
    [
        ("{tenant}:{number}", "row", WRONG),
        ("{tenant}:{id}", "none", 'mode = "none" of [tube.docs.enrich] reads no rows'),
        ("{tenant}:{id}", "row", "no row was read"),
        ("{id}", "none", "no row was read"),
    ],
)
def test_the_doctor_says_so(
    dsn: str, server: RedisServer, tmp_path: Path, key: str, enrich: str, said: str
) -> None:
    (check,) = check_sources(load(configured(tmp_path, dsn, server.url, key, enrich)), ["docs"])
    assert said in check.finding


async def test_a_column_of_the_key_is_renamed(
    dsn: str, conn: Conn, server: RedisServer, store: redis_py.Redis, tmp_path: Path
) -> None:
    """Nothing is parked meanwhile, and what was written arrives."""
    worker = Worker(load(configured(tmp_path, dsn, server.url, "{tenant}:{id}")))
    conn.execute("UPDATE public.docs SET name = 'first'")
    with capture_logs() as logs:
        await worker.start()
        try:
            await wait_until_async(lambda: b"first" in (store.get("a:2") or b""), what="it is there")
            conn.execute("ALTER TABLE public.docs RENAME tenant TO owner")
            conn.execute("SELECT tube_sync()")
            conn.execute("UPDATE public.docs SET name = 'second'")
            await wait_until_async(lambda: "are of owner, id; " in _source_down(conn), what="it stands still")
            conn.execute("ALTER TABLE public.docs RENAME owner TO tenant")
            conn.execute("SELECT tube_sync()")
            await wait_until_async(lambda: b"second" in (store.get("a:2") or b""), what="it goes on")
        finally:
            await worker.stop()
    assert not [line for line in logs if "parked" in str(line["event"])]
    assert conn.execute("SELECT count(*) FROM tube_parked").fetchone() == (0,)


def _source_down(conn: Conn) -> str:
    """Why no rows are read, as `pytube status` says it."""
    row = conn.execute("SELECT string_agg(source_down, ' ') FROM tube_leaders('docs')").fetchone()
    return str(row and row[0])
