"""What the sink `opensearch` makes of answers that a real server gives rarely; logins; TLS."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from pydantic import SecretStr

from pytube.embedded.process import HOST, Port
from pytube.errors import ConfigError, SinkContract, SinkError, SinkTimeout, SinkUnavailable, UsageError
from pytube.model import OK, Reject, Retry, Stale, Token
from pytube.sinks.opensearch import OpenSearchSink
from pytube.sinks.opensearch.client import LONGEST_ANSWER, Client, OpenSearchOptions, Refused
from pytube.sinks.opensearch.index import STAMP
from pytube.testing import batch
from tests.helpers.waiting import wait_until_async

CANARY = "s3cr3t-canary"
INDEX = {
    "items-000001": {
        "aliases": {"items": {}},
        "mappings": {"properties": {"_pytube": {"properties": STAMP}}},
        "settings": {"index.gc_deletes": "1h"},
    }
}

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers as a test says; describes the index rightly by itself."""

    def __init__(self) -> None:
        self.url = ""
        self.bulk: list[Answer] = []
        """What becomes of bulk requests, one after the other; all documents are taken afterwards."""
        self.other: dict[str, Answer] = {}
        """By the last part of the path."""
        self.seen: list[tuple[str, list[Any]]] = []
        self.headers: dict[str, str] = {}
        self.query: dict[str, str] = {}

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
        """Serve, at `url`."""
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{tail:.*}", self.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        with Port() as port:
            await web.TCPSite(runner, HOST, port.number, ssl_context=tls).start()
            self.url = f"{'https' if tls else 'http'}://{HOST}:{port.number}"
            try:
                yield
            finally:
                await runner.cleanup()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        what = request.path.rsplit("/", 1)[-1]
        lines = [json.loads(line) for line in (await request.read()).splitlines()]
        self.seen.append((what, lines))
        self.headers, self.query = dict(request.headers), dict(request.query)
        if what in self.other:
            return await self.other[what](request)
        if what != "_bulk":
            return web.json_response(INDEX)
        if self.bulk:
            return await self.bulk.pop(0)(request)
        return web.json_response({"errors": False, "items": [item(201) for line in lines if "index" in line]})

    @property
    def names(self) -> list[list[str]]:
        """The documents of each bulk request."""
        return [
            [line["index"]["_id"] for line in lines if "index" in line]
            for what, lines in self.seen
            if what == "_bulk"
        ]


def item(status: int, kind: str = "", reason: str = "") -> dict[str, Any]:
    error = {"error": {"type": kind, "reason": reason}} if kind else {}
    return {"index": {"status": status, **error}}


def items(*found: dict[str, Any]) -> Answer:
    return answers(200, {"errors": True, "items": list(found)})


def answers(status: int, body: Any) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status)

    return answer


def fails(status: int, kind: str = "some_exception") -> Answer:
    return answers(status, {"error": {"type": kind, "reason": "for a reason"}, "status": status})


async def cut_half_way(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "application/json", "content-length": "1000"})
    await response.prepare(request)
    await response.write(b'{"errors":false,"items":[')
    assert request.transport is not None
    request.transport.abort()
    return response


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with server.listening():
        yield server


async def opened(server: Server, **more: Any) -> OpenSearchSink:
    options = {"url": server.url, "index": "items", **more}
    sink = OpenSearchSink.from_options(options)
    await sink.open()
    return sink


@pytest.mark.parametrize(("size", "encoding"), [(10, None), (10_000, "gzip")])
async def test_a_body_is_compressed_where_that_is_worth_it(
    server: Server, size: int, encoding: str | None
) -> None:
    sink = await opened(server)
    assert await sink.send(batch({1: {"body": "x" * size}})) == [OK]
    assert server.headers.get("Content-Encoding") == encoding
    await sink.close()


# --- single documents -----------------------------------------------------------------------


async def test_each_document_has_the_result_of_its_own(server: Server) -> None:
    sink = await opened(server)
    server.bulk = [
        items(
            item(201),
            item(429, "rejected_execution_exception", "busy"),
            item(503, "unavailable_shards_exception", "primary shard is not active"),
            item(400, "mapper_parsing_exception", "failed"),
            item(403, "cluster_block_exception", "read-only"),
            item(400, "index_closed_exception", "closed"),
        )
    ]
    results = await sink.send(batch({key: {} for key in range(6)}))
    assert results == [
        OK,
        Retry(1.0, "rejected_execution_exception: busy"),
        Retry(1.0, "unavailable_shards_exception: primary shard is not active"),
        Reject("mapper_parsing_exception: failed"),
        Retry(5.0, "cluster_block_exception: read-only"),
        Retry(5.0, "index_closed_exception: closed"),
    ]
    await sink.close()


async def test_an_index_that_takes_no_document_is_a_sink_that_is_down(server: Server) -> None:
    sink = await opened(server)
    server.bulk = [items(item(403, "cluster_block_exception", "full"), item(403, "security_exception"))]
    with pytest.raises(SinkUnavailable, match="takes nothing: cluster_block_exception: full"):
        await sink.send(batch({1: {}, 2: {}}))
    await sink.close()


CONFLICT = "[0:1]: version conflict, current version [{}] is higher or equal to the one provided [7]"
OWN = int(Token(5, 1))


@pytest.mark.parametrize(
    ("doc", "said", "expected"),
    [
        ({"found": True, "_version": OWN + 9, "_source": {"_pytube": {"token": str(OWN + 9)}}}, 0, OWN + 9),
        ({"found": True, "_version": OWN + 1, "_source": {"_pytube": {"token": str(OWN)}}}, 0, OWN),
        ({"found": True, "_version": OWN + 1, "_source": {"_pytube": {"token": str(OWN - 1)}}}, 0, None),
        ({"found": True, "_version": OWN + 1}, 0, OWN + 1),
        ({"found": False}, OWN + 3, OWN + 3),
        ({"found": False}, OWN, None),
        ({}, OWN + 3, OWN + 3),
        (None, OWN + 3, OWN + 3),
    ],
    ids=[
        "newer",
        "own, updated",
        "older, updated",
        "no source",
        "tombstone",
        "strange tombstone",
        "left out",
        "failed",
    ],
)
async def test_the_token_of_a_conflict(
    server: Server, doc: dict[str, Any] | None, said: int, expected: int | None
) -> None:
    sink = await opened(server)
    server.bulk = [items(item(409, "version_conflict_engine_exception", CONFLICT.format(said)))]
    server.other = {"_mget": fails(500) if doc is None else answers(200, {"docs": [doc] if doc else []})}
    (result,) = await sink.send(batch({1: {}}, token=(5, 1)))
    if expected is None:
        assert isinstance(result, Retry)
    else:
        assert result == (OK if expected == OWN else Stale(expected))
    await sink.close()


async def test_an_id_cannot_forge_the_version_in_a_reason(server: Server) -> None:
    sink = await opened(server)
    forged = f"[x current version [1] is higher or equal to the one provided [1]]{CONFLICT.format(OWN + 2)}"
    server.bulk = [items(item(409, "version_conflict_engine_exception", forged))]
    server.other = {"_mget": answers(200, {"docs": [{"found": False}]})}
    assert await sink.send(batch({1: {}}, token=(5, 1))) == [Stale(OWN + 2)]
    await sink.close()


# --- whole requests -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "error", "what"),
    [
        (fails(401), SinkUnavailable, "takes nothing: HTTP 401"),
        (fails(503), SinkUnavailable, "takes nothing: HTTP 503"),
        (fails(502), SinkTimeout, "failed: HTTP 502"),
        (fails(504), SinkTimeout, "failed: HTTP 504"),
        (fails(400), SinkError, "refused the batch: HTTP 400: some_exception: for a reason"),
        (cut_half_way, SinkTimeout, "no whole answer"),
        (answers(200, {"errors": False, "items": []}), SinkTimeout, "not one answer for each of 1"),
        (answers(200, [1]), SinkTimeout, "not one answer for each of 1"),
    ],
)
async def test_a_request_that_failed(
    server: Server, answer: Answer, error: type[SinkError], what: str
) -> None:
    sink = await opened(server)
    server.bulk = [answer]
    with pytest.raises(error, match=what) as caught:
        await sink.send(batch({1: {}}))
    assert caught.type is error
    assert await sink.send(batch({1: {}})) == [OK]
    await sink.close()


def echo(status: int) -> Answer:
    """Repeats the login in its reason, as some proxies do."""

    async def answer(request: web.Request) -> web.StreamResponse:
        error = {"type": "some_exception", "reason": f"Authorization={request.headers.get('Authorization')}"}
        if status != 200:
            return web.json_response({"error": error}, status=status)
        return await items({"index": {"status": 400, "error": error}}, item(201))(request)

    return answer


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "application/json"})
    await response.prepare(request)
    with suppress(ConnectionError):
        while True:
            await response.write(b" " * (1 << 20))
    return response


async def test_an_answer_without_end_is_given_up(server: Server) -> None:
    """Within the time of a request, it could fill the memory."""
    sink = await opened(server)
    server.bulk = [endless]
    with pytest.raises(SinkContract, match=f"more than {LONGEST_ANSWER} bytes"):
        await sink.send(batch({1: {}}))
    assert await sink.send(batch({1: {}})) == [OK]
    await sink.close()


async def test_a_server_that_asks_for_fewer_requests_is_up(server: Server) -> None:
    sink = await opened(server)
    server.bulk = [fails(429)]
    (result,) = await sink.send(batch({1: {}}))
    assert isinstance(result, Retry)
    assert (result.after, "is busy: HTTP 429" in result.reason) == (1.0, True)
    await sink.close()


async def test_a_request_that_is_too_large_is_halved(server: Server) -> None:
    sink = await opened(server)
    server.bulk = [fails(413), fails(413), fails(413)]
    results = await sink.send(batch({key: {} for key in range(4)}))
    assert isinstance(results[0], Reject)
    assert results[1:] == [OK] * 3
    assert server.names == [["0:0", "0:1", "0:2", "0:3"], ["0:0", "0:1"], ["0:0"], ["0:1"], ["0:2", "0:3"]]
    await sink.close()


async def test_what_was_written_before_the_server_went_away_counts(server: Server) -> None:
    sink = await opened(server, bulk_bytes=1)
    server.bulk = [items(item(201)), fails(503)]
    results = await sink.send(batch({key: {} for key in range(3)}))
    assert [type(result) for result in results] == [type(OK), Retry, Retry]
    assert server.names == [["0:0"], ["0:1"]]
    await sink.close()


async def test_requests_are_bounded_by_bytes(server: Server) -> None:
    sink = await opened(server, bulk_bytes=4000)
    results = await sink.send(
        batch({key: {"text": "x" * 1000} for key in range(10)} | {10: {"x": "x" * 9000}})
    )
    assert results == [OK] * 11
    assert [len(names) for names in server.names] == [3, 3, 3, 1, 1]
    # The client takes a "timeout" for its own, unless it is told otherwise.
    assert (server.query["timeout"], server.query["require_alias"]) == ("5s", "true")
    await sink.close()


async def test_a_request_that_waits_for_a_connection_too_long_is_not_sent(server: Server) -> None:
    sink = await opened(server, pool_size=1)
    go = asyncio.Event()

    async def slow(_: web.Request) -> web.StreamResponse:
        await go.wait()
        return web.json_response({"errors": False, "items": [item(201)]})

    server.bulk = [slow]
    first = asyncio.create_task(sink.send(batch({1: {}})))
    await wait_until_async(lambda: server.names)
    late = batch({2: {}}, send_before=time.monotonic() + 0.05)
    second = asyncio.create_task(sink.send(late))
    await wait_until_async(late.has_lapsed)
    go.set()
    with pytest.raises(SinkUnavailable, match="had lapsed"):
        await second
    assert await first == [OK]
    assert server.names == [["0:1"]]
    await sink.close()


async def test_the_next_node_is_asked_when_one_cannot_be_reached(server: Server) -> None:
    with Port() as nobody:
        urls = [f"http://127.0.0.1:{nobody.number}", server.url]
        sink = await opened(server, url=urls)
        for _ in range(4):
            assert await sink.send(batch({1: {}})) == [OK]
        await sink.close()


async def test_a_scan_that_can_leave_documents_out_fails(server: Server) -> None:
    sink = await opened(server)
    for what, answer in (
        ("_refresh", answers(200, {"_shards": {"total": 2, "failed": 1}})),
        ("_search", fails(503, "search_phase_execution_exception")),
    ):
        server.other = {"_refresh": answers(200, {"_shards": {"failed": 0}}), what: answer}
        with pytest.raises(SinkUnavailable, match="could not be scanned"):
            await anext(sink.scan("items", 0, 1))
    await sink.close()


async def test_connections_to_nodes_that_are_down_are_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = []

    def remembered(**options: Any) -> ClientSession:
        sessions.append(ClientSession(**options))
        return sessions[-1]

    monkeypatch.setattr("pytube.sinks.http.aiohttp.ClientSession", remembered)
    with Port() as port:
        sink = await opened(server, url=[server.url, f"http://{HOST}:{port.number}"])
        for key in range(2):  # they take turns
            assert await sink.send(batch({key: {}})) == [OK]
        await sink.close()
    assert [session.closed for session in sessions] == [True, True]


# --- logins and TLS -------------------------------------------------------------------------


async def test_a_user_and_an_api_key_are_sent(server: Server) -> None:
    await (await opened(server, user="ada", password=CANARY)).close()
    assert server.headers["Authorization"] == "Basic " + base64.b64encode(f"ada:{CANARY}".encode()).decode()
    await (await opened(server, api_key=CANARY)).close()
    assert server.headers["Authorization"] == f"ApiKey {CANARY}"


@pytest.mark.parametrize("login", [{"user": "ada", "password": CANARY}, {"api_key": CANARY}], ids=str)
async def test_no_secret_is_in_an_error_or_a_log(
    server: Server, login: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    texts = []
    for status, kind in ((401, ConfigError), (403, SinkUnavailable), (500, SinkUnavailable)):
        server.other = {"items": fails(status)}
        with pytest.raises(kind) as refused:
            await opened(server, **login)
        texts.append(repr(refused.value))
    server.other = {}
    sink = await opened(server, compress=False, **login)
    server.bulk = [cut_half_way]
    with pytest.raises(SinkTimeout) as cut:
        await sink.send(batch({1: {"body": "private"}}))
    for echoes in (401, 500):
        server.bulk = [echo(echoes)]
        with pytest.raises(SinkError) as echoed:
            await sink.send(batch({1: {}}))
        texts.append(repr(echoed.value))
    server.bulk = [echo(200)]
    texts += [repr(await sink.send(batch({1: {}, 2: {}})))]
    assert all("********" in text for text in texts[-3:])
    texts += [repr(cut.value), repr(sink), repr(vars(sink)), caplog.text]
    secrets = (CANARY, base64.b64encode(f"ada:{CANARY}".encode()).decode(), "private")
    assert not [text for text in texts for secret in secrets if secret in text]
    await sink.close()


@pytest.mark.parametrize("password", ["", "already"])
async def test_a_short_password_changes_no_error_by_which_it_is_decided(
    server: Server, password: str
) -> None:
    server.other = {"items": fails(400, "resource_already_exists_exception")}
    client = Client(
        OpenSearchOptions(url=[server.url], index="items", user="ada", password=SecretStr(password))
    )
    with pytest.raises(Refused) as refused:
        await client.request("PUT", "/items")
    assert refused.value.kind == "resource_already_exists_exception"
    assert str(refused.value).endswith(": for a reason")
    await client.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out cert.pem -subj /CN=localhost"
    )
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder


async def test_tls(certificates: Path) -> None:
    cert, key = str(certificates / "cert.pem"), str(certificates / "key.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=cert)
    context.load_cert_chain(cert, key)
    context.verify_mode = ssl.CERT_REQUIRED
    server = Server()
    async with server.listening(context):
        ours = {"client_cert": cert, "client_key": key}
        await (await opened(server, ca_file=cert, **ours)).close()
        await (await opened(server, verify=False, **ours)).close()
        with pytest.raises(
            SinkUnavailable, match="its certificate is not trusted: self-signed certificate; check ca_file"
        ):
            await opened(server, **ours)
        with pytest.raises(SinkUnavailable):
            await opened(server, ca_file=cert)


@pytest.mark.parametrize("option", ["ca_file", "client_cert"])
async def test_a_file_that_is_missing_is_named(server: Server, tmp_path: Path, option: str) -> None:
    with pytest.raises(ConfigError, match=f'option "{option}" can\'t be used: No such file'):
        await opened(server, url="https://127.0.0.1:9", **{option: str(tmp_path / "none.pem")})


# --- options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"url": f"http://ada:{CANARY}@localhost:9200"},
            'option "url.0": expected "https://host:9200", or a list',
        ),
        ({"url": "localhost:9200"}, 'option "url.0": expected'),
        ({"url": []}, 'option "url": expected'),
        ({"index": "Items"}, 'option "index": expected the name of an index or an alias, in lower case'),
        ({"index": "_items"}, 'option "index"'),
        ({"key": "{shard}"}, 'option "key": expected a template for the documents\' _id with {id}'),
        ({"key": "{id!r}"}, 'option "key"'),
        ({"user": "ada"}, 'sink "opensearch": user and password go together'),
        ({"user": "ada", "password": CANARY, "api_key": CANARY}, "give a user or an api_key, not both"),
        ({"client_key": "key.pem"}, "client_key goes with client_cert"),
        ({"settings": {"index": {"gc_deletes": "10m"}}}, "gc_deletes is shorter than tombstone_seconds"),
        ({"mappings": {"enabled": False}}, "enabled = false would hide the stamp"),
        ({"mappings": {"properties": {"_pytube": {}}}}, "the field of the stamp is pytube's own"),
        ({"colour": "red"}, 'option "colour" is unknown'),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenSearchSink.from_options({"url": "http://localhost:9200", "index": "items", **options})
    assert expected in str(caught.value)
    assert CANARY not in str(caught.value)


async def test_a_reindex_is_refused_by_a_server_that_does_not_know_must_exist(server: Server) -> None:
    """As Elasticsearch 7.10 and OpenSearch before 2.12 answer; nothing is made."""
    server.other = {
        "_refresh": answers(200, {}),
        "_count": answers(200, {"count": 0}),
        "_aliases": fails(400, "x_content_parse_exception"),
        "items--green-*": answers(200, {}),
    }
    reindexer = OpenSearchSink.from_options({"url": server.url, "index": "items"}).reindexer()
    with pytest.raises(UsageError, match=r"can't move an alias safely: .* OpenSearch 2\.12 or newer, or"):
        await reindexer.begin("es-live")
    assert [what for what, _ in server.seen if what.startswith("items")] == ["items", "items--green-*"]
    await reindexer.close()


async def test_all_faults_of_an_index_are_told_at_once(server: Server) -> None:
    fields = {**STAMP, "seq": {"type": "text"}, "shard": {"type": "keyword"}}
    about = {
        "aliases": {"items": {}},
        "mappings": {"enabled": False, "properties": {"_pytube": {"properties": fields}}},
        "settings": {"index.gc_deletes": "60s"},
    }
    server.other["items"] = answers(200, {"items-000001": about})
    with pytest.raises(ConfigError) as refused:
        await OpenSearchSink.from_options({"url": server.url, "index": "items"}).open()
    for part in (
        "remembers deletes for 60s",
        "enabled = false",
        "_pytube.seq as text",
        "_pytube.shard as keyword",
    ):
        assert part in str(refused.value)
    assert str(refused.value).count('sink "opensearch"') == 1


async def test_all_reasons_of_a_refused_index_are_told_at_once(server: Server) -> None:
    server.other["items"] = fails(404)
    server.other["items-000001"] = answers(
        400,
        {
            "error": {
                "type": "mapper_parsing_exception",
                "reason": "Failed to parse mapping",
                "root_cause": [{"reason": "no type for [a]"}, {"reason": "no type for [b]"}],
                "caused_by": {"reason": "no type for [a]", "caused_by": {"reason": "unknown analyzer"}},
            },
            "status": 400,
        },
    )
    with pytest.raises(ConfigError) as refused:
        await OpenSearchSink.from_options({"url": server.url, "index": "items"}).open()
    told = "Failed to parse mapping; no type for [a]; no type for [b]; unknown analyzer"
    assert str(refused.value).endswith(told)


def test_all_faults_of_the_options_are_told_at_once() -> None:
    wrong = {"url": "http://here", "index": "items", "user": "me", "client_key": "key.pem"}
    with pytest.raises(ConfigError) as refused:
        OpenSearchSink.from_options({**wrong, "mappings": {"enabled": False}})
    for part in ("user and password go together", "client_key goes with client_cert", "enabled = false"):
        assert part in str(refused.value)
