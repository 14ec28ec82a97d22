"""`/healthz`, `/readyz` and `/metrics` of a worker, by a small HTTP responder in its event loop.

It answers GET of a few paths and closes the connection.

Requests are bounded in size and time, and connections in number. When there are too many connections, the
responder drops the oldest, so a client that holds connections open locks no other out.
"""

from __future__ import annotations

import asyncio
import re
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from types import SimpleNamespace

from pytube.config import split_address
from pytube.errors import ConfigError, UsageError, how_to_install
from pytube.logs import Logger
from pytube.worker.metrics import View, collect

TIME_LIMIT = 5.0
"""Seconds for a request and its answer together."""
LONGEST_REQUEST = 8192
"""Bytes of a request's line and headers."""
MOST_CONNECTIONS = 16

_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) ([!-~]{1,2000}) HTTP/1\.[01]\r\n")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a path answers."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"

    @classmethod
    def text(cls, status: HTTPStatus, text: str) -> Answer:
        return cls(status, f"{text}\n".encode())


Maker = Callable[[], Awaitable[Answer]]
"""Makes the answer of a path."""


class HttpResponder:
    """Listens at one address while it is open."""

    def __init__(self, address: str, paths: Mapping[str, Maker], log: Logger) -> None:
        """Opens nothing. `address`: `host:port`; port 0 takes any that is free. `log`: for what `paths`
        raise.
        """
        self._address = address
        self._paths = paths
        self._log = log
        self._server: asyncio.Server | None = None
        self._connections: dict[StreamWriter, None] = {}
        """The open ones, in the order in which they came."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port that it listens at, while it is open."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def open(self) -> None:
        """Listen."""
        host, port = split_address(self._address)
        try:
            self._server = await asyncio.start_server(self._accept, host, port, limit=LONGEST_REQUEST)
        except OSError as error:
            raise UsageError(
                f"key worker.listen: can't listen at {self._address}: {error.strerror or error}; "
                "end what listens there, or choose another address or port for this worker"
            ) from error

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self._connections:
                writer.transport.abort()
            await asyncio.gather(*self._tasks)

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        if len(self._connections) >= MOST_CONNECTIONS:
            first = next(iter(self._connections))
            del self._connections[first]
            first.transport.abort()  # its own task ends then
        self._connections[writer] = None
        writer.transport.set_write_buffer_limits(high=0)  # so that `drain` waits until all is sent
        try:
            async with asyncio.timeout(TIME_LIMIT):
                writer.write(await self._response(reader))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            writer.transport.abort()  # it was too slow, or has gone
        finally:
            self._connections.pop(writer, None)

    async def _response(self, reader: StreamReader) -> bytes:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            return _encoded(Answer.text(status, f"a request has at most {LONGEST_REQUEST} bytes"))
        line = _REQUEST_LINE.match(request)
        if line is None:
            return _encoded(Answer.text(HTTPStatus.BAD_REQUEST, "not a valid HTTP/1.1 request"))
        make = self._paths.get(line[2].decode().partition("?")[0])
        if make is None:
            known = ", ".join(self._paths)
            return _encoded(Answer.text(HTTPStatus.NOT_FOUND, f"there are: {known}"), line[1])
        if line[1] != b"GET":
            return _encoded(Answer.text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered"), line[1])
        return _encoded(await self._made(make))

    async def _made(self, make: Maker) -> Answer:
        try:
            return await make()
        except Exception as error:  # noqa: BLE001 # a bug here must not end the delivery
            self._log.error("answering_failed", exc_info=error)
            return Answer.text(HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of pytube; its log has more")


def _encoded(answer: Answer, method: bytes = b"GET") -> bytes:
    head = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        head.append("Allow: GET")
    body = b"" if method == b"HEAD" else answer.body
    return "\r\n".join([*head, "", ""]).encode() + body


# --- what a worker answers -----------------------------------------------------------------------


_MOST_TIME = 0.01
"""The part of the event loop's time that scrapes may take; answers are repeated to keep to it."""
_OLDEST = 10.0
"""Seconds after which an answer is made again, whatever it costs."""


def build_listener(
    address: str,
    view: View,
    *,
    why_broken: Callable[[], str | None],
    why_unready: Callable[[], str | None],
    remarks: Callable[[], Sequence[str]],
    log: Logger,
) -> HttpResponder:
    """A listener that is not open yet; `/readyz` shows `remarks` where it answers 200.

    Raises:
        ConfigError: the package that writes metrics is not installed.
    """
    try:
        import prometheus_client  # noqa: F401 # its parts are imported where they are used
    except ImportError as error:
        raise ConfigError(
            f"key worker.listen needs the package prometheus_client: {how_to_install('metrics')}"
        ) from error

    async def health() -> Answer:
        return _state(why_broken(), "ok")

    async def readiness() -> Answer:
        return _state(why_unready(), "\n".join(["ok", *remarks()]))

    paths: dict[str, Maker] = {
        "/healthz": health,
        "/readyz": readiness,
        "/metrics": _Scrapes(view).answer,
    }
    return HttpResponder(address, paths, log)


def _state(reason: str | None, well: str) -> Answer:
    if reason is not None:
        return Answer.text(HTTPStatus.SERVICE_UNAVAILABLE, reason)
    return Answer.text(HTTPStatus.OK, well)


class _Scrapes:
    """Answers scrapes at a bounded cost, however many tubes there are and however often they come."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._turn = asyncio.Lock()
        self._body = b""
        self._fresh_until = float("-inf")

    async def answer(self) -> Answer:
        """The metrics, no older than `_OLDEST`."""
        from prometheus_client import CONTENT_TYPE_LATEST

        async with self._turn:
            if time.monotonic() >= self._fresh_until:
                await self._renew()
            return Answer(HTTPStatus.OK, self._body, CONTENT_TYPE_LATEST)

    async def _renew(self) -> None:
        # Not over the global registry, which belongs to the program that embeds the worker.
        from prometheus_client import generate_latest

        parts: list[bytes] = []
        spent, begun = 0.0, time.monotonic()
        for family in collect(self._view):
            if family is not None:
                parts.append(generate_latest(SimpleNamespace(collect=partial(iter, [family]))))
            spent += time.monotonic() - begun
            await asyncio.sleep(0)  # with hundreds of tubes, all at once would keep deliveries waiting
            begun = time.monotonic()
        self._body = b"".join(parts)
        self._fresh_until = time.monotonic() + min(_OLDEST, spent / _MOST_TIME)
