"""The HTTP responder: what it answers, and what clients that behave badly get."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import pytest
from prometheus_client import Metric

from pytube.config import parse, split_address
from pytube.errors import ConfigError, UsageError
from pytube.logs import Logger
from pytube.worker import listener
from pytube.worker.listener import Answer, HttpResponder, Maker
from pytube.worker.metrics import View
from tests.helpers.http import exchange, get
from tests.helpers.logs import capture_logs
from tests.helpers.waiting import wait_until_async

LARGE = "x" * 20_000_000


async def broken() -> Answer:
    raise RuntimeError("hunter2")


async def answer(status: HTTPStatus, text: str) -> Answer:
    return Answer.text(status, text)


PATHS: dict[str, Maker] = {
    "/ok": lambda: answer(HTTPStatus.OK, "fine"),
    "/no": lambda: answer(HTTPStatus.SERVICE_UNAVAILABLE, "not yet"),
    "/broken": broken,
    "/large": lambda: answer(HTTPStatus.OK, LARGE),
}


@asynccontextmanager
async def listening(address: str = "127.0.0.1:0") -> AsyncIterator[HttpResponder]:
    responder = HttpResponder(address, PATHS, Logger("pytube.tests"))
    await responder.open()
    try:
        yield responder
    finally:
        await responder.close()


async def test_a_get_is_answered_and_the_connection_closed() -> None:
    async with listening() as responder:
        head, body = await exchange(responder.port, b"GET /ok?a=b HTTP/1.1\r\nHost: x\r\n\r\n")
        assert head.startswith("HTTP/1.1 200 OK\r\n")
        assert "Content-Length: 5" in head
        assert body == "fine\n"
        assert await get(responder.port, "/no") == (503, "not yet\n")
        assert await get(responder.port, "/large") == (200, LARGE + "\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /ok HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 405),
        (b"HEAD /ok HTTP/1.1\r\n\r\n", 405),
        (b"GET /other HTTP/1.1\r\n\r\n", 404),
        (b"GET http://x/ok HTTP/1.1\r\n\r\n", 404),
        (b"GET /ok HTTP/2.0\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\xff\r\n\r\n", 400),
        (b"GET /ok\r\n\r\n", 400),
        (b"GET /ok HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n", 431),
        (b"x" * 9000, 431),
    ],
)
async def test_other_requests_are_refused(request_: bytes, status: int) -> None:
    async with listening() as responder:
        head, body = await exchange(responder.port, request_)
        assert head.startswith(f"HTTP/1.1 {status} ")
        assert ("Allow: GET" in head) is (status == 405)
        assert bool(body) is not request_.startswith(b"HEAD")


async def test_a_fault_of_ours_is_logged_and_not_shown() -> None:
    async with listening() as responder:
        with capture_logs() as logs:
            status, body = await get(responder.port, "/broken")
        assert status == 500
        assert "hunter2" not in body
        assert [line["event"] for line in logs] == ["answering_failed"]
        assert (await get(responder.port, "/ok"))[0] == 200


async def test_a_client_that_sends_or_reads_too_slowly_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "TIME_LIMIT", 0.05)
    async with listening() as responder:
        assert await exchange(responder.port, b"GET /ok HTT") == ("", "")
        reader, writer = await asyncio.open_connection("127.0.0.1", responder.port)
        writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        got = len(await reader.readexactly(1))
        await wait_until_async(lambda: not responder._connections, what="it is dropped")
        with suppress(ConnectionError):
            while part := await reader.read(1_000_000):
                got += len(part)
        assert got < len(LARGE)
        writer.close()


async def test_connections_kept_open_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "TIME_LIMIT", 1000.0)
    monkeypatch.setattr(listener, "MOST_CONNECTIONS", 3)
    async with listening() as responder:
        held = []
        for count in (1, 2, 3):
            held.append(await asyncio.open_connection("127.0.0.1", responder.port))
            await wait_until_async(lambda n=count: len(responder._connections) == n)  # type: ignore[misc]
        assert (await get(responder.port, "/ok"))[0] == 200
        first, _ = held[0]
        assert await first.read() == b""
        assert len(responder._connections) == 2
        held[1][1].write(b"GET /ok HTTP/1.1\r\n\r\n")
        assert (await held[1][0].read()).startswith(b"HTTP/1.1 200 ")
        for _, writer in held:
            writer.close()


async def test_a_port_in_use_is_an_error_that_says_so() -> None:
    async with listening() as responder:
        with pytest.raises(UsageError, match=f"can't listen at 127.0.0.1:{responder.port}: .*choose another"):
            async with listening(f"127.0.0.1:{responder.port}"):
                pass


@pytest.mark.parametrize("address", ["9187", ":9187", "::1:9187", "[::1]", "x:70000", "x:y", "a@b:1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="key worker.listen: .*expected"):
        parse(f"postgres.dsn = ''\nworker.listen = '{address}'")


def test_addresses_of_both_kinds() -> None:
    assert split_address("127.0.0.1:9187") == ("127.0.0.1", 9187)
    assert split_address("[::1]:0") == ("::1", 0)


async def test_scrapes_take_a_bounded_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is repeated until a hundred times the time that it took has passed."""
    made: list[int] = []

    def collect(_: View) -> list[Metric]:
        made.append(1)
        return [Metric("pytube_x", "x", "gauge")]

    monkeypatch.setattr(listener, "collect", collect)
    scrapes = listener._Scrapes(View([], {}, lambda: True))
    monkeypatch.setattr(listener, "_MOST_TIME", 1e-12)
    for _ in range(3):
        assert b"pytube_x" in (await scrapes.answer()).body
    assert len(made) == 1
    monkeypatch.setattr(listener, "_OLDEST", 0.0)
    scrapes._fresh_until = 0.0
    for _ in range(2):
        await scrapes.answer()
    assert len(made) == 3
