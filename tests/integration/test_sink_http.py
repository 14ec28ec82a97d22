"""What becomes of a request of the sinks' HTTP client that is not answered."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import suppress

import pytest

from pytube.errors import SinkContract, SinkTimeout
from pytube.sinks.http import Client
from pytube.sinks.registry import ServerOptions

_BODY = b"x" * (32 << 20)
"""More than both ends of a connection hold for each other."""


def client_of(port: int, *, timeout: float = 10.0) -> Client:
    async def resolve(host: str, port: int) -> list[str]:
        del host, port
        return ["127.0.0.1"]

    return Client(
        "the server",
        f"http://127.0.0.1:{port}",
        ServerOptions(pool_size=2, timeout=timeout),
        resolve=resolve,
        tls=None,
    )


async def test_a_request_that_was_half_sent_has_no_end() -> None:
    """Were the rest sent when the server reads on, it would take an old document for a new one."""
    reads_on = asyncio.Event()
    read: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reads_on.wait()
        count = 0
        with suppress(ConnectionError):
            while piece := await reader.read(1 << 16):
                count += len(piece)
        read.set_result(count)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        client = client_of(server.sockets[0].getsockname()[1], timeout=0.5)
        with pytest.raises(SinkTimeout):
            await client.request("POST", headers={}, body=_BODY, most=None)
        reads_on.set()
        assert await read < len(_BODY)
        await client.close()


async def answering(head: str, body: bytes, asked: list[bytes]) -> asyncio.Server:
    """A server that gives this answer to each request; `asked` gets their heads, in lower case."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).lower())
        writer.write(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize("status", [200, 503])
async def test_an_answer_that_is_too_long(status: int) -> None:
    """The words of an error do not matter, its status does."""
    head = f"HTTP/1.1 {status} Said\r\nX-Long: {'z' * 50_000}"
    async with await answering(head, b"y" * 100_000, []) as server:
        client = client_of(server.sockets[0].getsockname()[1])
        if status == 200:
            with pytest.raises(SinkContract, match="more than 1000 bytes"):
                await client.request("POST", headers={}, body=b"", most=1000)
        else:
            assert (await client.request("POST", headers={}, body=b"", most=1000)).status == status
        await client.close()


async def test_an_answer_is_not_unpacked() -> None:
    """Of a few bytes, that could make as many as the memory has."""
    packed = gzip.compress(b"y" * 1_000_000)
    asked: list[bytes] = []

    async with await answering("HTTP/1.1 200 OK\r\nContent-Encoding: gzip", packed, asked) as server:
        client = client_of(server.sockets[0].getsockname()[1])
        answer = await client.request("POST", headers={}, body=b"", most=None)
        await client.close()
    assert answer.body == packed
    assert b"accept-encoding: identity\r\n" in asked[0]
