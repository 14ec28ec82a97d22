"""The HTTP client of the sink `webhook`: one host, checked addresses, answers of limited size.

It is built on h11, the HTTP parser of httpx: httpx has no public way to choose the address that is connected
to, and follows environment variables, stores cookies and unpacks answers, which is not wanted here. Its pool,
httpcore, takes more CPU for a request than to make, sign and send 500 documents does.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

from pytube.errors import ConfigError, SinkContract, SinkTimeout, SinkUnavailable
from pytube.threads import resolve

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[list[str]]]

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_IDLE_SECONDS = 3.0
"""How long an idle connection is kept: less than servers do (some 5 s), or a request may meet its end."""
_LONGEST_HEAD = 100 * 1024
"""Bytes of the head of an answer."""
_PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """What the receiver answered."""

    status: int
    headers: dict[str, str]
    """By lower-case names."""
    body: bytes


def is_allowed(text: str, networks: Iterable[Network]) -> bool:
    """Whether the address is public, or in one of `networks`."""
    address = _innermost(ipaddress.ip_address(text))
    if any(address in network for network in networks):
        return True
    return address.is_global and not (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
    )


def _innermost(address: IPAddress) -> IPAddress:
    """The IPv4 address that an IPv6 address stands for; the address itself where it stands for none."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


class Connection:
    """One connection to the receiver, for one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD)
        self._idle_since = time.monotonic()
        self._watch: asyncio.Task[None] | None = None
        """Ends when something comes while the connection is idle."""

    async def is_usable(self) -> bool:
        """Whether it may carry another request: what came unasked would be taken for its answer."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
            if not self._watch.cancelled():
                return False
        return time.monotonic() - self._idle_since < _IDLE_SECONDS

    async def exchange(self, head: h11.Request, body: bytes, most: int) -> Answer | None:
        """Send a request and read the answer; None when its body has more than `most` bytes."""
        self._write(head, h11.Data(body), h11.EndOfMessage())
        await self._writer.drain()
        response = await self._next_event()
        while isinstance(response, h11.InformationalResponse):
            response = await self._next_event()
        assert isinstance(response, h11.Response), "h11 gives nothing else before"
        found = bytearray()
        while isinstance(event := await self._next_event(), h11.Data):
            found += event.data
            if len(found) > most:
                return None
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
        return Answer(response.status_code, headers, bytes(found))

    def renew(self) -> bool:
        """Get ready for another request; whether that is possible."""
        http = self._http
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE or http.trailing_data[0]:
            return False
        http.start_next_cycle()
        self._idle_since = time.monotonic()
        self._watch = asyncio.create_task(self._await_anything())
        return True

    def close(self) -> None:
        """Drop it, whatever is under way."""
        if self._watch is not None:
            self._watch.cancel()
        self._writer.transport.abort()

    async def _await_anything(self) -> None:
        with suppress(OSError):
            await self._reader.read(1)

    def _write(self, *events: h11.Event) -> None:
        for event in events:
            if data := self._http.send(event):
                self._writer.write(data)

    async def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_PIECE))
        return event


class Client:
    """Posts to one URL."""

    def __init__(
        self,
        url: str,
        *,
        networks: Sequence[Network],
        tls: ssl.SSLContext | None,
        connections: int,
        connect_timeout: float,
        timeout: float,
        max_answer: int,
        resolve: Resolve = resolve,
    ) -> None:
        """Connects to nothing yet.

        Args:
            url: where to.
            networks: addresses that are allowed beside public ones.
            tls: how the receiver's certificate is checked, and our own; None for plain HTTP.
            connections: at most; who needs one more waits.
            connect_timeout: seconds for the connection, for each address of the host.
            timeout: seconds from then on to the end of the answer, with the connecting.
            max_answer: bytes of a body, at most.
            resolve: looks up a name.
        """
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._authority = parts.netloc.encode()
        self._target = ((parts.path or "/") + (f"?{parts.query}" if parts.query else "")).encode()
        self._tls = tls if parts.scheme == "https" else None
        self._networks = networks
        self._resolve = resolve
        self._idle: list[Connection] = []
        self._slots = asyncio.Semaphore(connections)
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._max_answer = max_answer
        self._closed = False

    @property
    def name(self) -> str:
        """The host and the port: the rest of the URL may be a secret."""
        return f"{self._host}:{self._port}"

    async def check(self) -> None:
        """Look the host up.

        Raises:
            ConfigError: none of its addresses is allowed.
            SinkUnavailable: it has none.
        """
        try:
            async with asyncio.timeout(self._timeout):
                allowed = await self._allowed()
        except (OSError, TimeoutError) as error:
            raise SinkUnavailable(f'sink "webhook": {self._host} can\'t be resolved: {error}') from error
        if not allowed:
            raise ConfigError(
                f'sink "webhook": option "url": {self._host} leads to private, loopback or link-local '
                'addresses only; if they are meant, add their network to "allowed_networks"'
            )

    async def post(
        self, headers: Sequence[tuple[bytes, bytes]], body: bytes, begin: Callable[[], None]
    ) -> Answer:
        """Post the body. `begin` is called right before the first byte, and raises if it must not be.

        Raises:
            SinkUnavailable: the receiver was not reached; nothing was written.
            SinkTimeout: there was no whole answer. The connection is closed.
            SinkContract: the answer is too large.
        """
        begun = False
        async with self._slots:
            connection: Connection | None = None
            try:
                async with asyncio.timeout(self._timeout):
                    connection = await self._take_idle() or await self._connect()
                    begin()
                    begun = True
                    head = [(b"host", self._authority), *headers, (b"content-length", b"%d" % len(body))]
                    request = h11.Request(method=b"POST", target=self._target, headers=head)
                    answer = await connection.exchange(request, body, self._max_answer)
                if answer is None:
                    raise SinkContract(
                        f'sink "webhook": {self.name} answered more than max_answer_bytes, {self._max_answer}'
                    )
                if connection.renew() and not self._closed:
                    self._idle.append(connection)
                    connection = None
                return answer
            except TimeoutError as error:
                reason = f"no answer within {self._timeout:g} s"
                raise self._failed(reason, begun=begun) from error
            except (OSError, h11.RemoteProtocolError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise self._failed(reason, begun=begun) from error
            finally:
                if connection is not None:
                    connection.close()

    async def close(self) -> None:
        """Close the connections; one with a request under way is closed after it."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    # --- connections ----------------------------------------------------------------------

    async def _take_idle(self) -> Connection | None:
        """The connection that was used last, if it may be used again."""
        while self._idle:
            connection = self._idle.pop()
            if await connection.is_usable():
                return connection
            connection.close()
        return None

    async def _allowed(self) -> list[str]:
        """The addresses of the host that may be connected to; `OSError` when it has no address at all."""
        found = dict.fromkeys(await self._resolve(self._host, self._port))
        return [address for address in found if is_allowed(address, self._networks)]

    async def _connect(self) -> Connection:
        """A connection to the first of the allowed addresses that answers.

        The very address that was checked is connected to. A name that leads elsewhere the next time it is
        looked up gains nothing by it.
        """
        trouble: Exception = OSError("the name leads to addresses that are not allowed")
        name = self._host if self._tls is not None else None
        for address in await self._allowed():
            try:
                async with asyncio.timeout(self._connect_timeout):
                    streams = await asyncio.open_connection(
                        address, self._port, ssl=self._tls, server_hostname=name
                    )
                return Connection(*streams)
            except TimeoutError:
                trouble = OSError(f"{address} does not accept within {self._connect_timeout:g} s")
            except OSError as error:
                trouble = error
        raise trouble

    def _failed(self, reason: str, *, begun: bool) -> SinkTimeout | SinkUnavailable:
        if begun:
            return SinkTimeout(f'sink "webhook": {self.name} gave no whole answer: {reason}')
        return SinkUnavailable(f'sink "webhook": {self.name} can\'t be reached: {reason}')
