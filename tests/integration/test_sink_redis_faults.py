"""The sink `redis` and what goes wrong: cuts, kills, rights, unfit options; and a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from pytube.config import SinkConfig
from pytube.embedded.process import Port
from pytube.errors import ConfigError, SinkError, SinkTimeout, SinkUnavailable
from pytube.health.doctor import check_sink
from pytube.health.findings import Level
from pytube.model import OK, Key, Retry, Stale, Token
from pytube.sinks.redis import RedisSink
from pytube.sinks.redis_servers import Servers
from pytube.testing import batch
from tests.helpers.certificates import make_certificate
from tests.helpers.logs import capture_logs
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.redis_server import RedisCluster, RedisServer, held, opened
from tests.helpers.waiting import wait_until_async

SECRET = "canary-5e1f"
REGISTER = b"pytube.register:{conformance:%d}conformance:%d"


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    return redis_server


@pytest.fixture
def store(redis_store: redis_py.Redis) -> redis_py.Redis:
    return redis_store


# --- faults -------------------------------------------------------------------------------------


async def test_the_right_to_send_lapses_while_it_waits_for_a_connection(
    server: RedisServer, store: redis_py.Redis
) -> None:
    async with opened(server.url, pool_size=1) as sink:
        store.client_pause(60_000, all=False)
        first = asyncio.create_task(sink.send(batch({1: {}})))
        await wait_until_async(lambda: held_up(store) == 1, what="the first send waits")
        late = batch({2: {}})
        second = asyncio.create_task(sink.send(late))
        await asyncio.sleep(0)
        late.send_before = 0.0
        store.client_unpause()
        assert await first == [OK]
        with pytest.raises(SinkUnavailable, match="lapsed"):
            await second
    assert held(store).keys() == {(0, "1")}


def held_up(store: redis_py.Redis) -> int:
    """How many clients have a script that the server has not done yet."""
    return sum(client["cmd"] == "evalsha" for client in store.client_list())


async def test_no_answer(server: RedisServer, store: redis_py.Redis) -> None:
    """Nobody knows whether it was taken; the connection is not used again."""
    with Proxy(server.port) as proxy:
        async with opened(f"redis://{proxy.address}", timeout=0.2, pool_size=1) as sink:
            for mode in (Mode.HALF_OPEN, Mode.ANSWERS_LOST):
                assert await sink.send(batch({1: {"v": 1}})) == [OK]
                proxy.switch(mode)
                with pytest.raises(SinkTimeout, match="did not answer within"):
                    await sink.send(batch({1: {"v": 1}}))
                proxy.switch(Mode.PASS)
            assert await sink.send(batch({1: {"v": 3}}, token=(1, 3))) == [OK]
    assert store.get(held(store)[0, "1"]) == b'{"v": 3}'


async def test_the_connection_is_cut_before_the_answer(server: RedisServer, store: redis_py.Redis) -> None:
    with Proxy(server.port) as proxy:
        async with opened(f"redis://{proxy.address}") as sink:
            assert await sink.send(batch({1: None})) == [OK]  # the server has the script now
            proxy.switch(Mode.ANSWERS_LOST)
            send = asyncio.create_task(sink.send(batch({1: {"v": 1}})))
            await wait_until_async(lambda: held(store), what="the server has taken it")
            proxy.switch(Mode.CUT)
            with pytest.raises(SinkTimeout, match="broke before the answer"):
                await send
            with pytest.raises(SinkUnavailable, match="can't be reached"):
                await sink.send(batch({1: {"v": 2}}, token=(1, 2)))
            proxy.switch(Mode.PASS)
            assert await sink.send(batch({1: {"v": 3}}, token=(1, 3))) == [OK]


async def test_an_idle_connection_that_the_server_closed(server: RedisServer, store: redis_py.Redis) -> None:
    """Is not written to."""
    async with opened(server.url) as sink:
        for at in range(1, 4):
            assert await sink.send(batch({1: {"v": at}}, token=(1, at))) == [OK]
            (connection,) = opened_servers(sink).seed._idle
            store.client_kill_filter(_type="normal", skipme=True)
            reader = connection._reader
            assert reader is not None
            await wait_until_async(reader.at_eof, what="the end of the connection has come")


def opened_servers(sink: RedisSink) -> Servers:
    assert sink._servers is not None
    return sink._servers


async def test_killed_and_restarted_in_a_bulk(tmp_path: Path) -> None:
    """With `appendfsync always` nothing that was answered is lost, nor is its stamp."""
    acknowledged: set[int] = set()
    with RedisServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        async with opened(server.url) as sink:

            async def write(lane: int) -> None:
                for at in range(40):
                    ids = range(lane * 10_000 + at * 50, lane * 10_000 + at * 50 + 50)
                    try:
                        results = await sink.send(batch({key: {"n": key} for key in ids}, partition=lane))
                    except SinkError:
                        await asyncio.sleep(0.001)
                        continue
                    acknowledged.update(key for key, r in zip(ids, results, strict=True) if r == OK)

            writing = asyncio.gather(*(write(lane) for lane in range(4)))
            await wait_until_async(lambda: len(acknowledged) > 500, what="some were acknowledged")
            await asyncio.to_thread(server.kill)
            before = len(acknowledged)
            await asyncio.to_thread(server.start)
            await writing
            assert await sink.send(batch({1: {"n": "again"}}, token=(1, 2))) == [OK]
            found = {key async for page in sink.scan("conformance", 0, 2) for key in page}
        with server.client() as store:
            assert {int(key) for _, key in held(store)} >= acknowledged
        assert before <= len(acknowledged) <= len(found)
        assert found >= acknowledged


async def test_a_scan_ends_when_another_server_answers(tmp_path: Path) -> None:
    """A cursor means nothing there."""
    with RedisServer(tmp_path, "--appendonly", "yes") as server:
        async with opened(server.url) as sink:
            for start in range(0, 5000, 500):
                await sink.send(batch({key: {} for key in range(start, start + 500)}))
            scan = sink.scan("conformance", 0, 2)
            assert await anext(scan)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            with pytest.raises(SinkUnavailable, match="another server"):
                await anext(scan)


async def test_full_memory(server: RedisServer, store: redis_py.Redis) -> None:
    """Nothing is taken and nothing is parked; it goes on when there is memory again."""
    async with opened(server.url) as sink:
        await sink.send(batch({1: {"v": 1}}))
        store.config_set("maxmemory", 1)
        with pytest.raises(SinkUnavailable, match="maxmemory"):
            await sink.send(batch({1: {"v": 2}, 2: {}}, token=(1, 2)))
        store.config_set("maxmemory", 0)
        assert store.get(held(store)[0, "1"]) == b'{"v": 1}'
        assert await sink.send(batch({1: {"v": 2}}, token=(1, 2))) == [OK]


async def test_a_server_that_became_a_replica(server: RedisServer, store: redis_py.Redis) -> None:
    async with opened(server.url) as sink:
        store.replicaof("127.0.0.1", "1")
        try:
            with pytest.raises(SinkUnavailable, match="read only replica"):
                await sink.send(batch({1: {}}))
        finally:
            store.replicaof("NO", "ONE")
        assert await sink.send(batch({1: {}})) == [OK]


async def test_a_register_that_is_something_else(server: RedisServer, store: redis_py.Redis) -> None:
    """Of a batch, the shard that is not concerned is written; the other is tried again, not parked."""
    async with opened(server.url) as sink:
        store.set(REGISTER % (1, 1), "mine")
        results = await sink.send(batch({(0, 1): {}, (1, 1): {}}))
        assert results[0] == OK
        assert isinstance(results[1], Retry)
        assert "WRONGTYPE" in results[1].reason
        assert held(store).keys() == {(0, "1")}


async def test_errors_of_one_user(server: RedisServer, store: redis_py.Redis) -> None:
    """Rights that are missing, and a password that is wrong, are mended at the server; no secret is shown."""
    store.acl_setuser("app", enabled=True, passwords=[f"+{SECRET}"], keys=["*"], categories=["+@all"])
    try:
        async with opened(server.url, username="app", password=SECRET) as sink:
            store.acl_setuser("app", enabled=True, keys=["*"], categories=["+@all"], commands=["-mset"])
            with pytest.raises(SinkUnavailable, match="mset|this command") as denied:
                await sink.send(batch({1: {}}))
            store.acl_setuser("app", enabled=True, keys=["*"], categories=["+@all"])
            assert await sink.send(batch({1: {}})) == [OK]
        errors = [denied.value]
        for options in (
            {"username": "app", "password": f"{SECRET}x"},
            {"url": f"redis://app:{SECRET}x@127.0.0.1:{server.port}"},
        ):
            wrong = RedisSink.from_options({"url": server.url, **options})
            with pytest.raises(SinkUnavailable, match="invalid username-password") as refused:
                await wrong.open()
            errors.append(refused.value)
            assert SECRET not in repr(wrong)
            assert SECRET not in repr(wrong._options)
        assert [SECRET in str(error) for error in errors] == [False] * 3
    finally:
        store.acl_deluser("app")


async def test_tls(tmp_path: Path) -> None:
    own = make_certificate(tmp_path / "own", "IP:127.0.0.1")
    strange = make_certificate(tmp_path / "strange", "IP:127.0.0.1")
    files = (
        "--tls-cert-file",
        own.certificate,
        "--tls-key-file",
        own.key,
        "--tls-ca-cert-file",
        own.authority,
    )
    with (
        Port() as port,
        RedisServer(tmp_path, "--tls-port", str(port.number), *map(str, files), "--tls-auth-clients", "yes"),
    ):
        url = f"rediss://127.0.0.1:{port.number}"
        ours = {"client_cert": str(own.certificate), "client_key": str(own.key)}
        async with opened(url, ca_file=str(own.authority), **ours) as sink:
            assert await sink.send(batch({1: {}})) == [OK]
        for options in ({"ca_file": str(strange.authority), **ours}, ours, {"ca_file": str(own.authority)}):
            with pytest.raises(SinkUnavailable):
                await RedisSink.from_options({"url": url, **options}).open()


# --- what the server and the options have to agree about ----------------------------------------


@pytest.mark.parametrize(
    ("policy", "options", "said"),
    [
        ("noeviction", {}, ""),
        ("allkeys-lru", {"mode": "json"}, "error"),
        ("allkeys-lru", {"mode": "hash", "allow_eviction": True}, "documents and tombstones"),
        ("allkeys-lru", {"mode": "invalidate"}, "tombstones"),
        ("volatile-ttl", {"mode": "json"}, "tombstones"),
    ],
)
async def test_eviction(
    server: RedisServer,
    store: redis_py.Redis,
    policy: str,
    options: dict[str, object],
    said: str,
) -> None:
    store.config_set("maxmemory-policy", policy)
    async with opened(server.url, mode="json"):
        pass  # without a limit of memory, nothing is evicted
    store.config_set("maxmemory", 2**30)
    sink = RedisSink.from_options({"url": server.url, **options})
    with capture_logs() as log:
        if said == "error":
            with pytest.raises(ConfigError, match="noeviction"):
                await sink.open()
        else:
            await sink.open()
    await sink.close()
    told = [line["reason"] for line in log if line["event"] == "redis_may_evict"]
    assert bool(told) == (said not in ("", "error"))
    assert all(f"may drop {said};" in reason for reason in told)


@pytest.mark.parametrize("key", ["user:{id}", "{{{id}}}"])
async def test_braces_of_an_id_choose_no_register(server: RedisServer, key: str) -> None:
    """All documents of a shard have one, or a late write would find no token, and a scan no document."""
    ids = ["plain", "a{b}c", "{d}"]
    async with opened(server.url, key=key) as sink:
        assert (
            await sink.send(batch({one: {"v": 2} for one in ids}, token=(2, 1), seq=5, tube="t")) == [OK] * 3
        )
        for one in reversed(ids):
            assert isinstance((await sink.send(batch({one: {"v": 1}}, token=(1, 1), tube="t")))[0], Stale)
        assert sorted([found async for page in sink.scan("t", 0, 10) for found in page]) == sorted(ids)


async def test_an_entry_of_somebody_else_hinders_nothing(server: RedisServer, store: redis_py.Redis) -> None:
    async with opened(server.url) as sink:
        await sink.send(batch({1: {"v": 1}}, tube="t"))
        store.hset("pytube.register:{t:0}t:0", "1", "no stamp")
        assert await sink.send(batch({1: {"v": 2}, 2: None}, tube="t", token=(1, 2))) == [OK, OK]


async def test_wait_for_replicas(server: RedisServer, store: redis_py.Redis, tmp_path: Path) -> None:
    async with opened(server.url, wait_replicas=1, wait_timeout=0.1) as sink:
        with pytest.raises(SinkUnavailable, match="of 0 replicas"):
            await sink.send(batch({1: {"v": 1}}))
        with RedisServer(tmp_path, "--replicaof", "127.0.0.1", str(server.port)) as replica:
            await wait_until_async(lambda: replica_is_up(store), what="the replica follows")
            async with opened(server.url, wait_replicas=1, wait_timeout=5) as patient:
                assert await patient.send(batch({1: {"v": 2}}, token=(1, 2))) == [OK]
            with replica.client() as client:
                assert client.get(held(client)[0, "1"]) == b'{"v": 2}'


def replica_is_up(store: redis_py.Redis) -> bool:
    about = store.info("replication")
    return bool(about.get("slave0", {}).get("state") == "online")


def test_the_doctor_has_what_redis_warns_of(
    server: RedisServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As a finding, and not as a line of a log amid its text."""
    with RedisServer(tmp_path, "--appendonly", "yes") as safe:
        for one, level in ((server, Level.WARN), (safe, Level.OK)):
            options = {"url": one.url, "key": "items:{id}"}
            found = check_sink("items", SinkConfig(type="redis", options=options))
            assert found.level is level
            assert ("appendonly is off" in found.finding) == (level is Level.WARN)
            assert ("redis_may_lose" in str(found.remedy)) == (level is Level.WARN)
    assert "redis_may_lose" not in "".join(capfd.readouterr())


async def test_wait_for_the_disk(server: RedisServer, store: redis_py.Redis, tmp_path: Path) -> None:
    """Needs an append-only file, and a server that has WAITAOF."""
    with pytest.raises(ConfigError, match="appendonly"):
        async with opened(server.url, wait_fsync=True):
            pass
    new = tuple(int(part) for part in store.info("server")["redis_version"].split(".")[:2]) >= (7, 2)
    with RedisServer(tmp_path, "--appendonly", "yes", "--appendfsync", "everysec") as own:
        if not new:
            with pytest.raises(ConfigError, match="needs Redis 7.2"):
                async with opened(own.url, wait_fsync=True):
                    pass
            return
        async with opened(own.url, wait_fsync=True, wait_timeout=5) as sink:
            assert await sink.send(batch({1: {"v": 1}})) == [OK]
            own.kill()
            own.start()
            with own.client() as client:
                assert held(client).keys() == {(0, "1")}
        async with opened(own.url, wait_fsync=True, wait_replicas=1, wait_timeout=0.05) as sink:
            with pytest.raises(SinkUnavailable, match="of 0 replicas"):
                await sink.send(batch({1: {"v": 2}}, token=(1, 2)))


async def test_a_mark_that_may_not_be_read(server: RedisServer, store: redis_py.Redis) -> None:
    """It is no outage: documents go on."""
    store.acl_setuser(
        "app",
        enabled=True,
        nopass=True,
        keys=["{*", "pytube.register*", "pytube.tombstone*"],
        categories=["+@all"],
    )
    try:
        async with opened(server.url, username="app", password="any") as sink:
            assert await sink.send(batch({1: {"v": 1}})) == [OK]
            with pytest.raises(ConfigError, match=r"grant MGET and SET of pytube\.mark:\*"):
                await sink.read_mark("conformance")
    finally:
        store.acl_deluser("app")


# --- a cluster ----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    cluster = RedisCluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


async def test_a_cluster(cluster: RedisCluster) -> None:
    """Shards are spread over the servers; of each shard, all keys are in one slot; slots may move."""
    documents = {(shard, id_): {"n": id_} for shard in range(12) for id_ in range(30)}
    gone: dict[Key, Any] = {(shard, 0): None for shard in range(12)}
    async with opened(cluster.url, cluster=True) as sink:
        assert await sink.send(batch(documents, seq=5)) == [OK] * 360
        assert await sink.send(batch(gone, token=(1, 2))) == [OK] * 12
        assert await sink.send(batch(documents, token=(1, 1))) == [
            Stale(int(Token(1, 2))) if id_ == 0 else OK for _, id_ in documents
        ]
        slots: dict[int, set[int]] = {}
        for number, server in enumerate(cluster.servers):
            with server.client() as client:
                found = list(client.scan_iter())
                assert found, f"server {number} has no key"
                for name in found:
                    tag = name[name.index(b":", name.index(b"{")) + 1 : name.index(b"}")]
                    slots.setdefault(int(tag), set()).add(client.cluster("KEYSLOT", name))
        assert {shard: len(found) for shard, found in slots.items()} == dict.fromkeys(range(12), 1)
        for shard in range(12):
            ids = {key async for page in sink.scan("conformance", shard, 6) for key in page}
            assert ids == {*range(1, 30)}


async def test_one_server_of_the_cluster_is_emptied(cluster: RedisCluster) -> None:
    """Each has some of the mark: none can lose its documents unseen."""
    async with opened(cluster.url, cluster=True) as sink:
        await sink.write_mark("emptied", "first")
        for server in cluster.servers:
            before = await sink.read_mark("emptied")
            assert before is not None
            with server.client() as client:
                client.flushall()
            assert await sink.read_mark("emptied") is None
            await sink.write_mark("emptied", "again")
            assert await sink.read_mark("emptied") in (before, "again")


async def test_a_slot_of_the_cluster_moves(cluster: RedisCluster) -> None:
    """Its first write afterwards finds the new server."""
    async with opened(cluster.url, cluster=True) as sink:
        with cluster.servers[0].client() as client:
            slot = client.cluster("KEYSLOT", "{moved:0}")
        owner = slot * 3 // 16384
        target = cluster.servers[(owner + 1) % 3]
        with target.client() as client:
            new = client.cluster("MYID").decode()
        for server in (target, *cluster.servers):
            with server.client() as client:
                client.cluster("SETSLOT", slot, "NODE", new)
        assert await sink.send(batch({1: {"v": 1}}, tube="moved")) == [OK]
        with target.client() as client:
            assert client.get("{moved:0}:1") == b'{"v": 1}'


async def test_a_server_of_the_cluster_is_lost(tmp_path: Path) -> None:
    """When others have its slots, they are found without an answer of the lost one."""
    cluster = RedisCluster(tmp_path)
    try:
        async with opened(cluster.url, cluster=True) as sink:
            with cluster.servers[0].client() as client:
                slot = client.cluster("KEYSLOT", "{lost:0}")
            lost = slot * 3 // 16384
            heir, other = (server for at, server in enumerate(cluster.servers) if at != lost)
            assert await sink.send(batch({1: {"v": 1}}, tube="lost")) == [OK]
            cluster.servers[lost].kill()
            with pytest.raises(SinkError):
                await sink.send(batch({1: {"v": 2}}, tube="lost", token=(1, 2)))
            with heir.client() as client:
                new = client.cluster("MYID").decode()
            for server in (heir, other):
                with server.client() as client:
                    client.config_set("cluster-require-full-coverage", "no")
                    client.cluster("SETSLOT", slot, "NODE", new)
            assert await sink.send(batch({1: {"v": 3}}, tube="lost", token=(1, 3))) == [OK]
        with heir.client() as client:
            assert client.get("{lost:0}:1") == b'{"v": 3}'
    finally:
        cluster.close()


async def test_cluster_or_not_is_checked(cluster: RedisCluster, server: RedisServer) -> None:
    with pytest.raises(ConfigError, match="set cluster = true"):
        await RedisSink.from_options({"url": cluster.url}).open()
    with pytest.raises(ConfigError, match="cluster support disabled"):
        await RedisSink.from_options({"url": server.url, "cluster": True}).open()
