"""The sink `sqs` on ElasticMQ: the conformance suite, a worker, a server that is killed, refusals."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from botocore.exceptions import ClientError
from conftest import RunWorker, eventually, freeze, thaw
from pytube_sqs import SqsSink, _answers, _refused, _result, session

from pytube.embedded import java
from pytube.embedded.process import HOST, EmbeddedServer, Port
from pytube.errors import ConfigError, SinkError, SinkTimeout, SinkUnavailable
from pytube.model import OK, Key, Reject, Result, Retry
from pytube.sinks import build_sink
from pytube.sinks.base import Sink
from pytube.testing import SinkContract, batch

COORDINATES = ("org.elasticmq:elasticmq-server_2.13:1.7.1", "org.apache.commons:commons-pool2:2.12.1")
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
CONFIG = """
include classpath("application.conf")
node-address {{ host = "{host}", port = {port} }}
rest-sqs {{ bind-hostname = "{host}", bind-port = {port} }}
rest-stats.enabled = false
messages-storage {{ enabled = true, uri = "jdbc:h2:{folder}/messages;WRITE_DELAY=0" }}
queues {{ "shop.fifo" {{ fifo = true }} }}
"""


class ElasticMq(EmbeddedServer):
    """A server of the protocol of SQS; the messages of `shop.fifo` stay over `kill` and `start`."""

    NAME = "ElasticMQ"
    START_TIMEOUT = 90.0

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, Port())
        self._numbers = itertools.count()

    def _prepare(self) -> list[str]:
        config = self.directory / "elasticmq.conf"
        config.write_text(CONFIG.format(host=HOST, port=self.port, folder=self.directory))
        jars = os.pathsep.join(map(str, java.jars(*COORDINATES)))
        return [str(java.find()), *JVM, f"-Dconfig.file={config}", "-cp", jars, "org.elasticmq.server.Main"]

    def _serves(self) -> bool:
        try:
            return self.call("ListQueues")["QueueUrls"] is not None
        except OSError:
            return False

    def call(self, action: str, **parameters: Any) -> dict[str, Any]:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AmazonSQS.{action}"}
        connection.request("POST", "/", json.dumps(parameters), headers)
        answer: dict[str, Any] = json.loads(connection.getresponse().read() or b"{}")
        connection.close()
        return answer

    def url(self, name: str) -> str:
        return f"http://{HOST}:{self.port}/000000000000/{name}"

    def new_queue(self) -> str:
        """The URL of an empty queue."""
        name = f"q{next(self._numbers)}.fifo"
        self.call("CreateQueue", QueueName=name, Attributes={"FifoQueue": "true"})
        return self.url(name)

    def take(self, url: str) -> list[dict[str, Any]]:
        """What the messages of the queue say, in their order; they are deleted."""
        found = []
        while messages := self.call("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            found += [json.loads(message["Body"]) for message in messages]
            entries = [
                {"Id": str(at), "ReceiptHandle": one["ReceiptHandle"]} for at, one in enumerate(messages)
            ]
            self.call("DeleteMessageBatch", QueueUrl=url, Entries=entries)
        return found


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ElasticMq]:
    with ElasticMq(tmp_path_factory.mktemp("elasticmq")) as server:
        yield server


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")


class TestSqs(SinkContract):
    limit = 120.0
    largest = 200_000

    @pytest.fixture(autouse=True)
    def _queue(self, server: ElasticMq) -> Iterator[None]:
        self.server = server
        self.url = server.new_queue()
        self.held: dict[Key, Any] = {}
        yield
        self.unstall()

    def make_sink(self) -> Sink:
        return build_sink("sqs", {"queue_url": self.url})

    def unopenable_sink(self) -> Sink:
        return build_sink("sqs", {"queue_url": self.server.url("none.fifo")})

    def rejected_value(self) -> Any:
        return {"text": "x" * 300_000}

    def read_back(self) -> dict[Key, Any]:
        # As a reader that does not compare: what a late writer did would show.
        for message in self.server.take(self.url):
            key = message["shard"], message["id"]
            self.held.pop(key, None)
            if message["op"] == "upsert":
                self.held[key] = message["doc"]
        return self.held

    def stall(self) -> bool:
        freeze(self.server.pid)
        return True

    def unstall(self) -> None:
        thaw(self.server.pid)


async def test_what_a_message_says(server: ElasticMq) -> None:
    url = server.new_queue()
    sink = build_sink("sqs", {"queue_url": url})
    await sink.open()
    odd = b'{"text": "\xef\xbf\xbf"}'  # U+FFFF, which SQS refuses
    sent = batch({7: odd, "ä" * 100: None}, token=(2, 5), seq=11)
    assert await sink.send(sent) == [OK, OK]
    assert await sink.send(sent) == [OK, OK]  # the same messages, and so no more of them
    said = {"tube": "conformance", "shard": 0, "token": "536870917", "epoch": 2, "counter": 5, "seq": 11}
    assert server.take(url) == [
        {**said, "id": 7, "op": "upsert", "doc": {"text": "\uffff"}},
        {**said, "id": "ä" * 100, "op": "delete", "doc": None},
    ]
    await sink.close()


async def test_close_lets_a_request_end(server: ElasticMq) -> None:
    sink = SqsSink.from_options({"queue_url": server.new_queue()})
    await sink.open()
    freeze(server.pid)
    sending = asyncio.create_task(sink.send(batch({1: {}})))

    async def has_begun() -> int:
        return sink._requests.total()

    await eventually(has_begun)
    await sink.close()
    thaw(server.pid)
    assert await sending == [OK]


def test_what_answers_mean() -> None:
    """Those that ElasticMQ does not give, as the API describes them."""
    of_entry = {"Code": "Odd", "Message": "why", "SenderFault": True}
    assert _result(of_entry) == Reject('sink "sqs": Odd: why')
    assert _result({**of_entry, "SenderFault": False}) == Retry(1.0, 'sink "sqs": Odd: why')
    kinds = {
        (503, "ServiceUnavailable"): SinkTimeout,
        (400, "AWS.SimpleQueueService.BatchRequestTooLong"): SinkError,
        (400, "InvalidMessageContents"): SinkError,
        (403, "AccessDenied"): SinkUnavailable,
        (400, "RequestThrottled"): SinkUnavailable,
    }
    errors = [
        _refused(ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "x"))
        for status, code in kinds
    ]
    assert [type(error) for error in errors] == [*kinds.values()]
    unknown, refused, _, down, _ = errors
    mixed: list[list[Result | SinkError]] = [[OK, down, refused, unknown], [OK, refused], [down]]
    for results in mixed:
        with pytest.raises(SinkError) as error:
            _answers(results)
        assert error.value is results[-1]
    assert _answers([refused]) == [Reject(str(refused))]
    assert _answers([OK, down]) == [OK, Retry(1.0, str(down))]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, 'option "queue_url" is missing'),
        ({"queue_url": "https://host/1/shop"}, 'option "queue_url": expected the URL of a FIFO queue'),
        ({"queue_url": "https://u:secret@host/shop.fifo"}, 'option "queue_url": expected'),
        ({"queue_url": "https://host/shop.fifo", "regoin": "x"}, 'option "regoin" is unknown'),
    ],
)
def test_bad_options(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        build_sink("sqs", options)
    assert said in str(error.value)
    assert "secret" not in str(error.value)


async def test_what_open_finds(server: ElasticMq, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A queue that is missing may come; a region that is missing does not."""
    with pytest.raises(SinkUnavailable, match=r"none\.fifo: .*QueueDoesNotExist"):
        await build_sink("sqs", {"queue_url": server.url("none.fifo")}).open()
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    session.cache_clear()
    with pytest.raises(ConfigError, match='option "region": You must specify a region'):
        await build_sink("sqs", {"queue_url": server.new_queue()}).open()
    session.cache_clear()


# --- with a worker --------------------------------------------------------------------------------


async def test_a_server_that_is_killed_under_load(
    server: ElasticMq, shop: psycopg.Connection[Any], run_worker: RunWorker
) -> None:
    """The last version of each row arrives, and versions come in the order of their tokens."""
    url = server.url("shop.fifo")
    shop.execute("INSERT INTO goods SELECT n, 0 FROM generate_series(0, 19) n")
    found: list[dict[str, Any]] = []
    async with run_worker(f'type = "sqs"\nqueue_url = "{url}"\ntimeout = 2'):
        for version in range(1, 301):
            # Rows above 9 are changed for the last time while the server is down.
            row = version % (20 if version <= 200 else 10)
            await asyncio.to_thread(shop.execute, "UPDATE goods SET v = %s WHERE id = %s", [version, row])
            if version == 100:
                server.kill()
            elif version == 200:
                await asyncio.to_thread(server.start)
        shop.execute("DELETE FROM goods WHERE id = 9")
        rows = dict(shop.execute("SELECT id, v FROM goods").fetchall())

        async def equal() -> bool:
            found.extend(await asyncio.to_thread(server.take, url))
            last = {message["id"]: message["doc"] for message in found}
            return {key: doc["v"] for key, doc in last.items() if doc} == rows

        await eventually(equal)
    tokens = defaultdict(list)
    for message in found:
        tokens[message["id"]].append(int(message["token"]))
    assert all(of_row == sorted(of_row) for of_row in tokens.values())


async def test_a_refused_document_is_parked(
    server: ElasticMq, shop: psycopg.Connection[Any], run_worker: RunWorker
) -> None:
    shop.execute("INSERT INTO goods VALUES (1, 0, 'small'), (2, 0, repeat('x', 300000)), (3, 0, 'small')")
    url = server.new_queue()
    taken: set[int] = set()
    async with run_worker(f'type = "sqs"\nqueue_url = "{url}"'):

        async def done() -> bool:
            taken.update(message["id"] for message in await asyncio.to_thread(server.take, url))
            parked = shop.execute(
                "SELECT id FROM tube_parked WHERE error LIKE '%and the queue takes 262144%'"
            )
            return taken == {1, 3} and parked.fetchall() == [("2",)]

        await eventually(done)
