"""The sink `webhook` against a real receiver: the suite, faults, signatures, addresses, and a worker."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import load
from pytube.errors import ConfigError, SinkContract, SinkError, SinkTimeout, SinkUnavailable
from pytube.model import OK, Key, Reject, Retry, Stale, Token
from pytube.sinks.base import Sink
from pytube.sinks.webhook import LONGEST_ANSWER, WebhookOptions, WebhookSink
from pytube.testing import SinkContract as Suite
from pytube.testing import batch
from pytube.worker import Worker
from tests.helpers.certificates import make_certificate
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.receiver import How, Receiver
from tests.helpers.waiting import wait_until_async

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
CANARY = "Bearer canary-5e1f"
LOCAL: dict[str, object] = {
    "allow_plain_http": True,
    "allowed_networks": ["127.0.0.0/8"],
    "settle_seconds": 0.3,
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@asynccontextmanager
async def opened(url: str, **options: object) -> AsyncIterator[WebhookSink]:
    sink = WebhookSink.from_options({"url": url, **LOCAL, **options})
    await sink.open()
    try:
        yield sink
    finally:
        await sink.close()


# --- the suite ----------------------------------------------------------------------------------


class TestWebhook(Suite):
    """A receiver that answers for all of a request, and goes on with requests whose connection is closed."""

    compares = False
    how = How.OK
    form = "ndjson"

    @pytest.fixture(autouse=True)
    def _receiver(self) -> Iterator[None]:
        with Receiver(compares=self.compares) as self.receiver:
            self.receiver.how = self.how
            yield

    def make_sink(self) -> Sink:
        options = {**LOCAL, "compares": self.compares, "format": self.form}
        return WebhookSink.from_options({"url": self.receiver.url, **options})

    def unopenable_sink(self) -> Sink:
        return WebhookSink.from_options({"url": self.receiver.url, "allow_plain_http": True})

    def read_back(self) -> dict[Key, Any]:
        return self.receiver.store.values()

    def stall(self) -> bool:
        self.receiver.go.clear()
        return True

    def unstall(self) -> None:
        self.receiver.go.set()


class TestWebhookThatCompares(TestWebhook):
    compares = True
    how = How.ITEMS
    form = "json"

    def rejected_value(self) -> Any:
        return "bad"


# --- requests -----------------------------------------------------------------------------------


async def test_a_request(receiver: Receiver) -> None:
    old = "whsec_" + base64.b64encode(KEY[::-1]).decode()
    async with opened(receiver.url, secret=SECRET, old_secret=old, headers={"Authorization": CANARY}) as sink:
        sent = batch({7: b'{"price": 1.10,\n "n": 9007199254740993}', "x": None}, token=(5, 3), seq=11)
        assert await sink.send(sent) == [OK, OK]
        assert await sink.send(sent) == [OK, OK]
    first, again = receiver.requests
    stamps = b'"token":"1342177283","epoch":5,"counter":3,"seq":11'
    assert first.body.splitlines() == [
        b'{"tube":"conformance","shard":0,"id":7,"op":"upsert",%b,'
        b'"doc":{"price": 1.10,  "n": 9007199254740993}}' % stamps,
        b'{"tube":"conformance","shard":0,"id":"x","op":"delete",%b,"doc":null}' % stamps,
    ]
    head = first.headers
    assert head["content-type"] == "application/x-ndjson"
    assert head["authorization"] == CANARY
    assert abs(int(head["webhook-timestamp"]) - time.time()) < 60
    assert head["idempotency-key"] == head["webhook-id"] == again.headers["webhook-id"]
    signed = f"{head['webhook-id']}.{head['webhook-timestamp']}.".encode() + first.body
    expected = [
        "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        for key in (KEY, KEY[::-1])
    ]
    assert head["webhook-signature"].split(" ") == expected


async def test_another_token_is_another_message(receiver: Receiver) -> None:
    async with opened(receiver.url) as sink:
        for counter in (1, 2):
            await sink.send(batch({1: {}}, token=(1, counter)))
    first, second = receiver.requests
    assert first.headers["webhook-id"] != second.headers["webhook-id"]
    assert "webhook-signature" not in first.headers


async def test_requests_are_of_limited_size(receiver: Receiver) -> None:
    async with opened(receiver.url, max_bytes=1000) as sink:
        documents: dict[int, Any] = {at: {"n": at} for at in range(30)} | {15: {"text": "x" * 2000}}
        assert await sink.send(batch(documents)) == [OK] * 30
    assert len(receiver.store.values()) == 30
    assert [len(r.body) > 1000 for r in receiver.requests].count(True) == 1
    assert receiver.connections == 1


async def test_the_receiver_goes_away_between_two_requests(receiver: Receiver) -> None:
    """What was taken is said to be; the rest is sent again."""
    receiver.patience, receiver.status = 1, 404
    async with opened(receiver.url, max_bytes=200) as sink:
        taken, *rest = await sink.send(batch({at: {"text": "x" * 100} for at in range(3)}))
    assert taken == OK
    assert [type(result) for result in rest] == [Retry, Retry]
    assert receiver.store.values().keys() == {(0, 0)}
    assert len(receiver.requests) == 2


# --- answers ------------------------------------------------------------------------------------


async def test_one_rejected_document_among_many(receiver: Receiver) -> None:
    receiver.how = How.ITEMS
    documents: dict[int, Any] = {at: {"n": at} for at in range(100)} | {50: "bad"}
    async with opened(receiver.url) as sink:
        results = await sink.send(batch(documents))
    assert results == [OK] * 50 + [Reject("it is bad")] + [OK] * 49


async def test_all_kinds_of_results(receiver: Receiver) -> None:
    receiver.how = How.BODY
    receiver.body = json.dumps(
        {
            "results": [
                {"status": "ok"},
                {"status": "retry", "after": 2.5, "reason": f"busy; you sent {CANARY}"},
                {"status": "reject", "reason": f"you sent {CANARY}"},
                {"status": "stale", "token": str(int(Token(9, 1)))},
            ]
        }
    ).encode()
    async with opened(receiver.url, headers={"authorization": CANARY}) as sink:
        results = await sink.send(batch({at: {} for at in range(4)}))
    assert results == [
        OK,
        Retry(2.5, "busy; you sent ********"),
        Reject("you sent ********"),
        Stale(int(Token(9, 1))),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b'{"results": []}',
        b'{"results": {}}',
        b'{"results": [{"status": "fine"}, {"status": "ok"}]}',
        b'{"results": [{"status": "retry", "after": "soon"}, {"status": "ok"}]}',
        b'{"results": [{"status": "stale", "token": 7}, {"status": "ok"}]}',
    ],
)
async def test_results_that_are_none(receiver: Receiver, body: bytes) -> None:
    receiver.how, receiver.body = How.BODY, body
    async with opened(receiver.url) as sink:
        with pytest.raises(SinkContract, match="result"):
            await sink.send(batch({1: {}, 2: {}}))


@pytest.mark.parametrize("body", [b"", b"thanks", b'{"received": true}', b"[1]"])
async def test_an_answer_without_results(receiver: Receiver, body: bytes) -> None:
    """All is taken; but a receiver that compares has to say so."""
    receiver.how, receiver.body = How.BODY, body
    async with opened(receiver.url) as sink, opened(receiver.url, compares=True) as comparing:
        assert await sink.send(batch({1: {}, 2: {}})) == [OK, OK]
        with pytest.raises(SinkContract, match="compares"):
            await comparing.send(batch({1: {}}))


@pytest.mark.parametrize(
    ("status", "raises"),
    [
        (301, SinkUnavailable),
        (401, SinkUnavailable),
        (404, SinkUnavailable),
        (422, SinkError),
        (413, SinkError),
        (408, SinkTimeout),
        (500, SinkTimeout),
        (501, SinkUnavailable),
        (502, SinkTimeout),
        (503, SinkTimeout),
    ],
)
async def test_statuses(receiver: Receiver, status: int, raises: type[Exception]) -> None:
    """Only those that are about the documents are held against them."""
    receiver.how, receiver.status = How.STATUS, status
    receiver.headers = {"location": receiver.url} if status == 301 else {}
    async with opened(receiver.url) as sink:
        with pytest.raises(SinkError) as caught:
            await sink.send(batch({1: {}, 2: {}}))
        # A proxy that gives up may have passed the request on: the keys wait.
        assert len(sink._abandoned) == (raises is SinkTimeout)
    assert type(caught.value) is raises
    assert len(receiver.requests) == 1
    assert f"answered {status}" in str(caught.value)


async def test_a_refused_document_that_stands_alone(receiver: Receiver) -> None:
    receiver.how, receiver.status = How.STATUS, 422
    async with opened(receiver.url) as sink:
        (result,) = await sink.send(batch({1: {}}))
    assert isinstance(result, Reject)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("as_date", [False, True])
async def test_retry_after(receiver: Receiver, status: int, as_date: bool) -> None:
    """Nothing is sent to the receiver until then, whichever documents they are."""
    receiver.how, receiver.status = How.STATUS, status
    receiver.headers = {"retry-after": formatdate(time.time() + 60) if as_date else "60"}
    async with opened(receiver.url) as sink:
        pair: list[dict[int, Any]] = [{1: {}, 2: {}}, {3: {}}]
        for documents in pair:
            results = await sink.send(batch(documents))
            assert len(results) == len(documents)
            for result in results:
                assert isinstance(result, Retry)
                assert 50 < result.after <= 60
        assert len(receiver.requests) == 1
        sink._quiet_until = 0.0  # the minute is over
        receiver.how = How.OK
        assert await sink.send(batch({1: {}})) == [OK]


async def test_an_answer_that_nobody_asked_for(receiver: Receiver) -> None:
    """It is not taken for the answer to the next request."""
    receiver.how = How.TWICE
    async with opened(receiver.url) as sink:
        assert await sink.send(batch({1: {}})) == [OK]
        await wait_until_async(lambda: receiver.answered == 2, what="both answers were sent")
        receiver.how, receiver.status = How.STATUS, 422
        (result,) = await sink.send(batch({2: {}}))
    assert isinstance(result, Reject)
    assert receiver.connections == 2


async def test_an_answer_that_is_too_big(receiver: Receiver) -> None:
    receiver.how = How.BIG
    async with opened(receiver.url) as sink:
        with pytest.raises(SinkContract, match=f"more than {LONGEST_ANSWER} bytes"):
            await sink.send(batch({1: {}}))


async def test_an_answer_that_is_cut(receiver: Receiver) -> None:
    receiver.how = How.CUT
    async with opened(receiver.url) as sink:
        sent = batch({1: {}})
        with pytest.raises(SinkTimeout, match="no whole answer"):
            await sink.send(sent)
        assert len(sink._abandoned) == 1
        began = time.monotonic()
        await sink.abandon(sent)
        assert time.monotonic() - began > 0.1  # most of settle_seconds


@pytest.mark.parametrize("cancel", [False, True])
async def test_a_receiver_that_hangs(receiver: Receiver, cancel: bool) -> None:
    """Its connection is not used again, and its keys wait until it can't take effect any more."""
    receiver.go.clear()
    async with opened(receiver.url, timeout=60 if cancel else 0.2, pool_size=1) as sink:
        sent = batch({1: {"v": 1}})
        send = asyncio.create_task(sink.send(sent))
        await wait_until_async(lambda: receiver.requests, what="the request came")
        if cancel:
            send.cancel()
        with pytest.raises(asyncio.CancelledError if cancel else SinkTimeout):
            await send
        abandon = asyncio.create_task(sink.abandon(sent))
        await asyncio.sleep(0)
        assert not abandon.done()
        receiver.go.set()
        await abandon
        assert await sink.send(batch({1: {"v": 2}}, token=(1, 2))) == [OK]
    assert receiver.store.values() == {(0, 1): {"v": 2}}
    assert receiver.connections == 2


async def test_abandon_of_a_receiver_that_compares_returns_at_once(receiver: Receiver) -> None:
    receiver.go.clear()
    async with opened(receiver.url, timeout=0.1, settle_seconds=60, compares=True) as sink:
        sent = batch({1: {"v": 1}})
        with pytest.raises(SinkTimeout):
            await sink.send(sent)
        async with asyncio.timeout(5):
            await sink.abandon(sent)


async def test_a_receiver_that_is_down(receiver: Receiver) -> None:
    with Proxy(receiver.port) as proxy:
        async with opened(f"http://{proxy.address}/", headers={"authorization": CANARY}) as sink:
            proxy.switch(Mode.CUT)
            with pytest.raises(SinkUnavailable, match="can't be reached") as caught:
                await sink.send(batch({1: {}}))
            proxy.switch(Mode.PASS)
            assert await sink.send(batch({1: {}})) == [OK]
    assert CANARY not in str(caught.value) + repr(caught.value.__cause__) + repr(sink) + repr(sink._options)


async def test_the_right_to_send_lapses_while_it_connects(receiver: Receiver) -> None:
    """It is looked at after the connection was made, right before the first byte."""
    late = batch({1: {}})

    async def slowly(*_: object) -> list[str]:
        late.send_before = 0.0
        return ["127.0.0.1"]

    options = WebhookOptions.parse("webhook", {"url": f"http://hook.test:{receiver.port}/", **LOCAL})
    sink = WebhookSink(options, resolve=slowly)
    await sink.open()
    with pytest.raises(SinkUnavailable, match="lapsed"):
        await sink.send(late)
    late.send_before = float("inf")
    await sink.close()
    assert receiver.requests == []


# --- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("127.1", "2130706433", "0x7f.1", "0177.0.0.1"),
        *("224.0.0.1", "::1", "fe80::1", "fd00::1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::"),
    ],
)
async def test_addresses_that_are_not_public(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(ConfigError, match="allowed_networks"):
        await WebhookSink.from_options({"url": f"https://{host}/"}).open()


async def test_a_name_that_leads_elsewhere_later(receiver: Receiver) -> None:
    """The address that is connected to is the one that was checked."""
    answers = [["192.0.2.1", "93.184.216.34"], ["127.0.0.1"]]
    options = {"url": f"http://hook.test:{receiver.port}/", "allow_plain_http": True}

    async def rebinding(host: str, port: int) -> list[str]:
        assert (host, port) == ("hook.test", receiver.port)
        return answers.pop(0)

    sink = WebhookSink(WebhookOptions.parse("webhook", options), resolve=rebinding)
    await sink.open()
    with pytest.raises(SinkUnavailable, match="not allowed"):
        await sink.send(batch({1: {}}))
    await sink.close()
    assert answers == []
    assert receiver.connections == 0


async def test_proxies_of_the_environment_are_not_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with opened(receiver.url) as sink:
        assert await sink.send(batch({1: {}})) == [OK]


async def test_tls(tmp_path: Path) -> None:
    """The certificate has to be for the name in the URL, not for the address that it leads to."""
    own = make_certificate(tmp_path / "own", "DNS:hook.test")
    strange = make_certificate(tmp_path / "strange", "DNS:hook.test")

    async def local(*_: object) -> list[str]:
        return ["127.0.0.1"]

    with Receiver(tls=own) as receiver:
        for name, authority, fits in (
            ("hook.test", own.authority, True),
            ("other.test", own.authority, False),
            ("hook.test", strange.authority, False),
            ("hook.test", None, False),
        ):
            given = {
                "url": f"https://{name}:{receiver.port}/",
                **LOCAL,
                "ca_file": authority and str(authority),
            }
            sink = WebhookSink(WebhookOptions.parse("webhook", given), resolve=local)
            await sink.open()
            if fits:
                assert await sink.send(batch({1: {}})) == [OK]
            else:
                with pytest.raises(SinkUnavailable, match="certificate|CERTIFICATE"):
                    await sink.send(batch({1: {}}))
            await sink.close()
        assert len(receiver.requests) == 1


# --- by a worker --------------------------------------------------------------------------------


async def test_a_worker_makes_the_receiver_equal_to_the_table(
    dsn: str, receiver: Receiver, tmp_path: Path
) -> None:
    """Through refusals and failures; one document that it never takes is parked."""
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as connection:
        connection.execute("CREATE TABLE public.items (id bigint PRIMARY KEY, name text)")
        connection.execute("SELECT tube_ensure_exists('items')")
        connection.execute("SELECT tube_table_ensure_attached('items', 'public.items', 0)")
        connection.execute("INSERT INTO public.items SELECT g, 'name ' || g FROM generate_series(1, 500) g")
        path = tmp_path / "pytube.toml"
        path.write_text(
            f"""
            [postgres]
            dsn = "{dsn}"
            [tube.items.sink]
            type = "webhook"
            url = "{receiver.url}"
            allow_plain_http = true
            allowed_networks = ["127.0.0.0/8"]
            max_bytes = 10000
            settle_seconds = 0.1
            """
        )
        receiver.how, receiver.status, receiver.headers = How.STATUS, 429, {"retry-after": "0"}
        worker = Worker(load(path))
        await worker.start()
        try:
            await wait_until_async(lambda: receiver.requests, what="a first request")
            receiver.how = How.CUT
            await wait_until_async(receiver.store.values, what="a request is cut")
            receiver.how = How.ITEMS
            connection.execute("UPDATE public.items SET name = 'new' WHERE id % 2 = 0")
            connection.execute("DELETE FROM public.items WHERE id % 10 = 0")

            def is_equal() -> bool:
                rows = connection.execute("SELECT id, name FROM public.items").fetchall()
                expected = {(0, id_): {"id": id_, "name": name} for id_, name in rows}
                return receiver.store.values() == expected

            await wait_until_async(is_equal, what="the receiver is equal to the table")
        finally:
            await worker.stop()
