"""Each built-in sink, cut off in each way that a network and a server know: an outage, and nobody's fault."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pytube.embedded.process import Port
from pytube.errors import OUTAGES, ConfigError, SinkTimeout
from pytube.logs import Logger, UserFaults
from pytube.model import OK
from pytube.sinks import Sink, build_sink
from pytube.testing import batch
from tests.helpers.logs import capture_logs
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.redis_server import RedisServer

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_PATIENCE = 1.0
"""Seconds for an answer; what takes longer is a sink that hangs, which the worker ends."""


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read and never answer."""
    while await reader.read(4096):
        pass
    writer.close()


def answer(*parts: bytes) -> Handler:
    """Answer each request with the next of these, and then close in the midst of what is expected."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            for part in parts:
                await reader.read(65536)
                writer.write(part)
                await writer.drain()
        writer.close()

    return handler


def _postgres_error(sqlstate: str, message: str) -> bytes:
    fields = f"SFATAL\0VFATAL\0C{sqlstate}\0M{message}\0\0".encode()
    return b"E" + struct.pack("!i", len(fields) + 4) + fields


_HTTP_401 = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
_HTTP_HALF = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{"
# What each kind of server answers a request with that it does not let in, and half an answer.
_DENIALS = {
    "webhook": [_HTTP_401],
    "opensearch": [_HTTP_401] * 5,
    "redis": [b"-WRONGPASS invalid username-password pair\r\n" * 9] * 5,
    "postgres": [_postgres_error("28P01", 'password authentication failed for user "u"')],
    "kafka": [b"\0\0\0\4\0\0\0\1"],
}
_HALVES = {
    "webhook": [_HTTP_HALF],
    "opensearch": [_HTTP_HALF],
    "redis": [b"$900\r\nhalf"],
    "postgres": [b"R\0\0"],
    "kafka": [b"\0\0\1\0\0\0"],
}


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def options(kind: str, host: str, port: int, *, tls: bool) -> Mapping[str, Any]:
    s, mode = ("s", "require") if tls else ("", "disable")
    known: dict[str, dict[str, Any]] = {
        "webhook": {
            "url": f"http{s}://{host}:{port}/hook",
            "allow_plain_http": True,
            "allowed_networks": ["127.0.0.0/8"],
        },
        "opensearch": {"url": f"http{s}://{host}:{port}", "index": "i"},
        "redis": {"url": f"redis{s}://u:pw@{host}:{port}"},
        "postgres": {
            "dsn": f"host={host} port={port} user=u password=hunter2 sslmode={mode}",
            "table": "copy",
        },
        "kafka": {
            "bootstrap_servers": f"{host}:{port}",
            "topic": "t",
            "timeout": _PATIENCE,
            "client_options": {"security.protocol": "SSL"} if tls else {},
        },
    }
    return known[kind]


async def failure(sink: Sink) -> Exception:
    """What it raises when it is opened, or then sends."""
    limit = asyncio.timeout(5 * _PATIENCE)
    try:
        async with limit:
            await sink.open()
            await sink.send(batch({1: {}}))
    except Exception as error:  # noqa: BLE001 # this is what is looked at
        return SinkTimeout("as the worker says") if limit.expired() else error
    finally:
        await sink.close()
    raise AssertionError("it was delivered")


async def _check(sink: Sink, kind: str, how: str) -> None:
    error = await failure(sink)
    with capture_logs() as logs:
        UserFaults(Logger("pytube.tests")).log_sink("send", error)
    ends_a_start = (kind, how) in (("opensearch", "denied"), ("jsonl", "no such folder"))
    assert isinstance(error, ConfigError if ends_a_start else OUTAGES), repr(error)
    assert logs == []


@pytest.mark.parametrize("how", ["refused", "no such name", "silent", "denied", "half", "no TLS"])
@pytest.mark.parametrize("kind", ["webhook", "opensearch", "redis", "postgres", "kafka"])
async def test_a_sink_that_is_cut_off_is_down_and_no_code_of_the_users_is_blamed(kind: str, how: str) -> None:
    def built(host: str, port: int) -> Sink:
        given = options(kind, host, port, tls=how in ("no TLS", "no such name"))
        return build_sink(kind, given, request_timeout=5 * _PATIENCE)

    if how == "refused":
        await _check(built("127.0.0.1", Port().number), kind, how)
    elif how == "no such name":
        await _check(built("nowhere.invalid", 9999), kind, how)
    else:
        handlers = {"silent": silence, "denied": answer(*_DENIALS[kind]), "half": answer(*_HALVES[kind])}
        async with serving(handlers.get(how, answer(b"HTTP/1.1 400 plain\r\n\r\n"))) as port:
            await _check(built("127.0.0.1", port), kind, how)


@pytest.mark.parametrize("mode", [Mode.CUT, Mode.ANSWERS_LOST])
async def test_sessions_that_are_cut_while_the_worker_sends(
    bare_dsn: str, tmp_path: Path, mode: Mode
) -> None:
    with RedisServer(tmp_path) as redis, psycopg.connect(bare_dsn) as postgres:
        for kind, port in (("redis", redis.port), ("postgres", postgres.info.port)):
            with Proxy(port) as proxy:
                given: dict[str, dict[str, Any]] = {
                    "redis": {"url": f"redis://127.0.0.1:{proxy.port}"},
                    "postgres": {
                        "dsn": make_conninfo(bare_dsn, host="127.0.0.1", port=proxy.port),
                        "table": "copy",
                        "create": True,
                    },
                }
                sink = build_sink(kind, given[kind], request_timeout=_PATIENCE)
                await sink.open()
                assert await sink.send(batch({1: {}})) == [OK]
                proxy.switch(mode)
                await _check(sink, kind, mode)


async def test_a_file_that_can_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "copy.jsonl"
    await _check(build_sink("jsonl", {"path": str(path)}), "jsonl", "no such folder")
