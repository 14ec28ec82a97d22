"""Calls that block do not wait for each other, whatever hangs in the threads that all share."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from pytube.db import connect
from pytube.db.connect import connect_async
from pytube.embedded.process import Port
from pytube.errors import SinkUnavailable
from pytube.sinks.base import Sink
from pytube.sinks.opensearch import OpenSearchSink
from pytube.sinks.redis import RedisSink
from pytube.threads import in_thread

LIMIT = 10.0


@pytest.fixture
async def hanging() -> AsyncIterator[None]:
    """The event loop's default executor is full of calls that hang, as those of an async sink may."""
    over = threading.Event()
    for _ in range(64):  # more than it has threads
        asyncio.get_running_loop().run_in_executor(None, over.wait)
    yield
    over.set()


@pytest.mark.usefixtures("hanging")
async def test_a_session_with_postgres_is_opened_whatever_hangs_in_the_shared_threads(dsn: str) -> None:
    given = conninfo_to_dict(dsn)
    assert str(given["host"]) == "127.0.0.1"
    named = psycopg.conninfo.make_conninfo(dsn, host="localhost")
    async with asyncio.timeout(LIMIT):
        connection = await connect_async(named)
    await connection.close()


@pytest.mark.usefixtures("hanging")
async def test_a_call_has_a_thread_of_its_own() -> None:
    async with asyncio.timeout(LIMIT):
        assert await in_thread(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await in_thread(divmod, 7, 0)


async def test_a_call_that_was_given_up_hurts_nobody() -> None:
    over = threading.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await in_thread(over.wait)
    over.set()
    assert await in_thread(divmod, 7, 2) == (3, 1)


def opensearch(address: str, **limits: float) -> Sink:
    return OpenSearchSink.from_options({"url": f"http://{address}", "index": "items", **limits})


def redis(address: str, **limits: float) -> Sink:
    return RedisSink.from_options({"url": f"redis://{address}/0", **limits})


SINKS = pytest.mark.parametrize("sink_at", [opensearch, redis])


@SINKS
@pytest.mark.usefixtures("hanging")
async def test_a_sink_reaches_its_server_whatever_hangs_in_the_shared_threads(
    sink_at: Callable[..., Sink],
) -> None:
    """As far as a port where nobody listens: the name was resolved, then."""
    with Port() as port:
        sink = sink_at(f"localhost:{port.number}", connect_timeout=LIMIT)
        with pytest.raises(SinkUnavailable, match="Connect call failed"):
            await sink.open()
        await sink.close()


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Lookups of a name that the system's resolver hangs at."""
    known, over, found = socket.getaddrinfo, threading.Event(), list[str]()

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        if host == "hangs.example":
            found.append(host)
            over.wait()
            raise OSError("Name or service not known")
        return known(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield found
    over.set()


@SINKS
async def test_a_name_that_hangs_takes_one_thread_of_its_sink_and_none_of_others(
    sink_at: Callable[..., Sink], lookups: list[str]
) -> None:
    sink = sink_at("hangs.example:1", connect_timeout=0.05)
    try:
        for _ in range(3):
            with pytest.raises(SinkUnavailable, match="(not resolved|no connection) within 0.05 s"):
                await sink.open()
    finally:
        await sink.close()
    assert len(lookups) == 1


async def known(host: str) -> list[str]:
    addresses = {"one": ["10.0.0.1", "fd00::1"], "two": ["10.0.0.2"]}
    if host not in addresses:
        raise OSError("Name or service not known")
    return addresses[host]


@pytest.mark.parametrize(
    ("conninfo", "hosts", "addresses", "ports"),
    [
        ("host=one", "one,one", "10.0.0.1,fd00::1", None),
        ("host=two,one port=1,2", "two,one,one", "10.0.0.2,10.0.0.1,fd00::1", "1,2,2"),
        ("host=gone,two port=7", "two", "10.0.0.2", "7"),
        ("host=/run,two", "/run,two", ",10.0.0.2", None),
        ("host=10.0.0.9", "10.0.0.9", None, None),
        ("host=/run", "/run", None, None),
        ("host=one hostaddr=10.0.0.7", "one", "10.0.0.7", None),
    ],
)
async def test_hosts_get_their_addresses(
    conninfo: str, hosts: str, addresses: str | None, ports: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "resolve", known)
    given = conninfo_to_dict(await connect._resolved(conninfo))
    assert (given["host"], given.get("hostaddr"), given.get("port")) == (hosts, addresses, ports)


async def test_a_host_without_an_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "resolve", known)
    with pytest.raises(psycopg.OperationalError, match="failed to resolve host 'gone': Name or service not"):
        await connect._resolved("host=gone")
