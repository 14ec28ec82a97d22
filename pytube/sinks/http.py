"""HTTP for sinks, by aiohttp: one server, and two kinds of failure.

Nothing was sent: `SinkUnavailable`. Something may have been: `SinkTimeout`. Whatever the server answers is an
`Answer`. Redirects, cookies and proxies of the environment are not followed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from pytube.errors import ConfigError, SinkContract, SinkTimeout, SinkUnavailable
from pytube.sinks.registry import ServerOptions

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Looks up the addresses of a name."""

_LONGEST_HEADER = 100 * 1024
"""Bytes of a line or field of an answer."""

_begin: ContextVar[Callable[[], None]] = ContextVar("_begin")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Unreachable(SinkUnavailable):
    """There is no connection to the server."""


def place_of(url: str) -> tuple[str, int]:
    """The host and the port that a client of `url` connects to."""
    parts = URL(url, encoded=True)
    return parts.raw_host or "", parts.port or 0


class Client:
    """Requests to one server."""

    def __init__(
        self,
        name: str,
        url: str,
        options: ServerOptions,
        *,
        resolve: Resolve,
        tls: ssl.SSLContext | None,
        idle_seconds: float = 15.0,
    ) -> None:
        """Connects to nothing yet.

        Args:
            name: the server in errors. The URL may be a secret.
            url: what all paths begin with.
            options: of the sink; a request waits for one of `pool_size` connections without limit.
            resolve: gives the addresses that may be connected to. It is not asked where `url` has an address:
                who restricts addresses asks for that of `place_of(url)` before.
            tls: how certificates are checked.
            idle_seconds: for which an idle connection is kept.
        """
        self.name = name
        self._url = url
        self._resolver = _Resolver(resolve)
        self._tls = tls
        self._slots = asyncio.Semaphore(options.pool_size)
        self._connect_timeout = options.connect_timeout
        self._timeout = options.timeout
        self._idle_seconds = idle_seconds
        self._session: aiohttp.ClientSession | None = None
        self._users = 0
        self._closed = False

    async def request(
        self,
        method: str,
        path: str = "",
        *,
        headers: Mapping[str, str],
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        most: int | None,
        begin: Callable[[], None] = lambda: None,
    ) -> Answer:
        """The answer, whatever its status is. A method that HTTP calls idempotent may be sent twice.

        `most`: bytes of the answer; None: any number. It is not unpacked: a few could become gigabytes.

        `begin` is called right before the first byte is sent, and raises `SinkUnavailable` if it must not be.

        Raises:
            Unreachable: there was no connection.
            SinkUnavailable: the client was closed.
            SinkTimeout: the server may have done it; the connection is closed.
            SinkContract: the answer is too large.
        """
        begun = False

        def begin_now() -> None:
            nonlocal begun
            self._refuse_when_closed()
            begin()
            begun = True

        url = URL(self._url + path, encoded=True)
        async with self._slots:
            self._refuse_when_closed()
            session = self._session = self._session or self._new_session()
            _begin.set(begin_now)
            self._users += 1
            try:
                async with asyncio.timeout(self._timeout):
                    response = await session.request(
                        method,
                        url.update_query(params) if params else url,
                        headers=headers,
                        data=body,
                        allow_redirects=False,
                    )
                    assert begun, "aiohttp has sent a request without asking"
                    return Answer(response.status, response.headers, await self._body(response, most))
            # Without their causes, which hold headers and URLs.
            except SinkUnavailable:
                if begun:  # sent; the refusal is about sending it again
                    raise SinkTimeout(f"{self.name} gave no whole answer: the sink is closed") from None
                raise
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                if not begun:
                    raise Unreachable(f"{self.name} can't be reached: {self._words(error)}") from None
                raise SinkTimeout(f"{self.name} gave no whole answer: {self._words(error)}") from None
            finally:
                self._users -= 1
                await self._end_when_idle()

    async def close(self) -> None:
        """Begin no more requests; the connections are closed after the last one under way."""
        self._closed = True
        await self._end_when_idle()

    async def _end_when_idle(self) -> None:
        if self._closed and not self._users and self._session is not None:
            await self._session.close()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise SinkUnavailable(f"{self.name}: not sent, the sink is closed")

    def _new_session(self) -> aiohttp.ClientSession:
        connector = _Connector(
            limit=0,  # `_slots` is the limit
            ssl=self._tls or True,
            resolver=self._resolver,
            use_dns_cache=False,
            keepalive_timeout=self._idle_seconds,
        )
        connector.connect_timeout = self._connect_timeout
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            request_class=_Request,
            auto_decompress=False,
            headers={"accept-encoding": "identity"},  # answers are short, or from near by
            timeout=aiohttp.ClientTimeout(),  # the limit is on the whole request
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
        )

    async def _body(self, response: aiohttp.ClientResponse, most: int | None) -> bytes:
        found = bytearray()
        try:
            async for piece in response.content.iter_any():
                found += piece
                if most is not None and len(found) > most:
                    if response.status >= 300:  # its words do not matter
                        response.close()
                        break
                    raise SinkContract(f"{self.name} answered more than {most} bytes")
        except BaseException:
            response.close()
            raise
        return bytes(found)

    def _words(self, error: Exception) -> str:
        """The reason without the URL."""
        match error:
            case aiohttp.ClientConnectorCertificateError():
                found = error.certificate_error
                why = found.verify_message if isinstance(found, ssl.SSLCertVerificationError) else str(found)
                return (
                    f"its certificate is not trusted: {why.rstrip('.')}; check ca_file, and the name in url"
                )
            case aiohttp.ClientConnectorError():
                return str(error.os_error)
            case aiohttp.ConnectionTimeoutError():
                return f"no connection within {self._connect_timeout:g} s"
            case aiohttp.ClientResponseError():
                return error.message
            case TimeoutError():
                return f"no answer within {self._timeout:g} s"
        return str(error) or type(error).__name__


class _Request(aiohttp.ClientRequest):
    """A request that asks, once it has its connection, whether it may begin."""

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        _begin.get()()
        return await super().send(conn)


class _Connector(aiohttp.TCPConnector):
    """Limits the time of connecting separately, and refuses unrequested answers."""

    connect_timeout: float

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._used: WeakSet[Any] = WeakSet()
        """The protocols of connections that have carried a request."""

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        """A connection that is to be closed is cut: a request that was half sent has no end then.

        Closed in order, it would send the rest, whenever the server reads on.
        """
        if (should_close or protocol.should_close) and protocol.transport is not None:
            protocol.transport.abort()
        super()._release(key, protocol, should_close=should_close)

    async def connect(self, req: Any, traces: Any, timeout: aiohttp.ClientTimeout) -> Any:
        """A connection. Data received on an idle one would be taken for the answer to the next request."""
        del timeout  # it has nothing that is for connecting
        limit = aiohttp.ClientTimeout(sock_connect=self.connect_timeout)
        while True:
            connection = await super().connect(req, traces, limit)
            protocol = connection.protocol
            if protocol not in self._used:
                self._used.add(protocol)
                return connection
            try:
                for _ in range(2):  # the first one returns before the event loop has read the data
                    await asyncio.sleep(0)
            except BaseException:
                connection.close()
                raise
            if protocol is not None and not protocol.should_close:
                return connection
            connection.close()


class _Resolver(AbstractResolver):
    """Asks `resolve`."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC) -> list[ResolveResult]:
        """All addresses, whatever the `family`: the connector has not chosen one."""
        del family
        addresses = await self._resolve(host, port)
        if not addresses:
            raise OSError("the name leads to addresses that are not allowed")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is open."""


# --- which addresses are public -------------------------------------------------------------------

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


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


def _innermost(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The IPv4 address that an IPv6 address stands for; the address itself where it stands for none."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


# --- certificates ---------------------------------------------------------------------------------


def tls_context(sink: str, options: ServerOptions, *, verify: bool = True) -> ssl.SSLContext:
    """How certificates are checked, and the client's own; `ConfigError` names an unusable file."""
    option = "ca_file"
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if not verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if options.client_cert is not None:
            option = "client_cert"
            context.load_cert_chain(options.client_cert, options.client_key, password=_no_password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(
            f'sink "{sink}": option "{option}" can\'t be used: {reason}; '
            "give a PEM file that this user can read"
        ) from error
    return context


def _no_password() -> str:
    # Without this, the library asks at the terminal, and the worker waits.
    raise ValueError("the key is encrypted")
