"""A network that fails on demand: a TCP proxy on loopback before one server.

It passes bytes and knows no protocol, so it stands before Postgres, before a listener of a broker
that advertises the proxy's port (`RealKafka`'s `doors`), or before a sink. What it does is switched
while connections are open, from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from pytube.embedded.process import HOST, Port

_CHUNK = 16 * 1024
_IN_FLIGHT = 256
"""Chunks that are under way in one direction; more are not read."""

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of a socket that ends with RST instead of FIN."""

_SWITCH_LIMIT = 10.0


class Mode(StrEnum):
    """What the network does."""

    PASS = "pass"
    SLOW = "slow"
    """Every chunk comes late, and as few bytes a second as was said."""
    CUT = "cut"
    """Nobody can connect, and who is connected is reset."""
    HALF_OPEN = "half_open"
    """Connections are accepted and stay open; nothing passes, and nobody is told."""
    REQUESTS_LOST = "requests_lost"
    """What clients send gets lost."""
    ANSWERS_LOST = "answers_lost"
    """What the server sends gets lost; requests reach it."""


_LOST_REQUESTS = {Mode.HALF_OPEN, Mode.REQUESTS_LOST}
_LOST_ANSWERS = {Mode.HALF_OPEN, Mode.ANSWERS_LOST}


class Proxy:
    """One way to one server. Runs in a thread of its own, from the making until `close`."""

    def __init__(self, upstream: int, port: Port | None = None) -> None:
        """Pass to `upstream`, a port of loopback; listen at `port` (the caller's), or any free one."""
        self._upstream = upstream
        self._own = Port() if port is None else None
        self.port = (port or self._own or Port()).number
        self.mode = Mode.PASS
        self.delay = 0.0
        self.rate: float | None = None
        self.accepted = 0
        """Connections that there ever were."""
        self.swallowed = 0
        """Bytes that got lost."""
        self.requests: list[bytes] | None = None
        """A list, to be filled with the chunks that clients send."""
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()
        self._do(self._listen())

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return len(self._links)

    def switch(self, mode: Mode, *, delay: float = 0.0, rate: float | None = None) -> None:
        """From now on behave so. Connections that have lost bytes are reset: they can't go on.

        Args:
            mode: what the network does.
            delay: for `SLOW`: seconds that each chunk is under way, each direction by itself.
            rate: for `SLOW`: bytes a second, each direction of each connection by itself.
        """
        self._do(self._switch(mode, delay, rate))

    def close(self) -> None:
        """Reset everything, and end."""
        self._do(self._switch(Mode.CUT, 0.0, None))
        self._do(self._wait_for_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._own is not None:
            self._own.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_SWITCH_LIMIT)

    # --- on the proxy's own loop ----------------------------------------------------------

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, HOST, self.port, reuse_address=True)

    async def _switch(self, mode: Mode, delay: float, rate: float | None) -> None:
        self.mode, self.delay, self.rate = mode, delay, rate
        if mode is not Mode.CUT:
            await self._listen()
        elif self._server is not None:
            self._server.close()
            self._server = None
        for link in list(self._links):
            if mode is Mode.CUT or link.damaged:
                link.reset()

    async def _wait_for_tasks(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        link = _Link(self, writer)
        self._links.add(link)
        try:
            await link.run(self._upstream, reader)
        finally:
            self._links.discard(link)
            self._tasks.discard(task)


class _Link:
    """One client's connection, and the one to the server that belongs to it."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._writers = [client]
        self._ended = asyncio.Event()
        self.damaged = False
        """Whether bytes got lost."""

    async def run(self, upstream: int, reader: asyncio.StreamReader) -> None:
        """Pass bytes until both sides have ended, or one is reset."""
        answers: asyncio.StreamReader | None = None
        if self._proxy.mode in _LOST_REQUESTS:
            self.damaged = True  # the server never hears of it
        else:
            try:
                answers, server = await asyncio.open_connection(HOST, upstream)
            except OSError:
                self.reset()
                return
            self._writers.append(server)
        server_side = self._writers[1] if answers else None
        flows = [_Flow(self, reader, server_side, self._loses(_LOST_REQUESTS), self._note_request)]
        if answers:
            flows.append(_Flow(self, answers, self._writers[0], self._loses(_LOST_ANSWERS)))
        both = asyncio.ensure_future(_all(flows))
        ended = asyncio.ensure_future(_true(self._ended))
        try:
            await asyncio.wait({both, ended}, return_when=asyncio.FIRST_COMPLETED)
            if self.damaged:  # who has lost bytes is told nothing, until the network is another
                await ended
        finally:
            ended.cancel()
            both.cancel()
            await asyncio.gather(both, ended, return_exceptions=True)
            self.reset() if self.damaged else self._close()

    def _loses(self, modes: set[Mode]) -> Callable[[], bool]:
        return lambda: self._proxy.mode in modes

    def _note_request(self, chunk: bytes) -> None:
        if self._proxy.requests is not None:
            self._proxy.requests.append(chunk)

    def lost(self, size: int) -> None:
        """So many bytes got lost, or an end did."""
        self._proxy.swallowed += size
        self.damaged = True

    def due(self, size: int, busy_until: float) -> tuple[float, float]:
        """When a chunk that is read now arrives, and until when the way is busy with it."""
        now = asyncio.get_running_loop().time()
        if self._proxy.mode is not Mode.SLOW:
            return now, now
        busy = max(now, busy_until) + (size / self._proxy.rate if self._proxy.rate else 0.0)
        return busy + self._proxy.delay, busy

    def reset(self) -> None:
        """End both sides with RST."""
        for writer in self._writers:
            sock: socket.socket | None = writer.get_extra_info("socket")
            # A transport that was closed already has no socket to set.
            with contextlib.suppress(OSError):
                if sock is not None:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        self._ended.set()

    def _close(self) -> None:
        for writer in self._writers:
            writer.close()


async def _all(flows: list[_Flow]) -> None:
    await asyncio.gather(*(flow.run() for flow in flows))


async def _true(event: asyncio.Event) -> None:
    await event.wait()


class _Flow:
    """One direction of a link."""

    def __init__(
        self,
        link: _Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter | None,
        loses: Callable[[], bool],
        noted: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        self._link = link
        self._reader = reader
        self._writer = writer
        self._loses = loses
        self._noted = noted
        self._under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_IN_FLIGHT)

    async def run(self) -> None:
        """Pass until the end of the stream; an end that is lost leaves the other side open."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read())
                group.create_task(self._deliver())
        except* OSError:
            if self._loses():
                self._link.lost(0)
            else:
                self._link.reset()

    async def _read(self) -> None:
        busy_until = 0.0
        while True:
            chunk = await self._reader.read(_CHUNK)
            self._noted(chunk)
            due, busy_until = self._link.due(len(chunk), busy_until)
            await self._under_way.put((due, chunk))
            if not chunk:
                return

    async def _deliver(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, chunk = await self._under_way.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            if self._loses() or self._writer is None:
                self._link.lost(len(chunk))
            elif chunk:
                self._writer.write(chunk)
                await self._writer.drain()
            else:
                self._writer.write_eof()
            if not chunk:
                return
