"""The HTTP client of the sink `webhook`: one host, checked addresses, answers of limited size.

It is built on httpcore, the transport of httpx: httpx has no public way to choose the address that is
connected to, and follows environment variables, stores cookies and unpacks answers, which is not wanted here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import httpcore

from pytube.errors import ConfigError, SinkContract, SinkTimeout, SinkUnavailable
from pytube.threads import resolve

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[list[str]]]

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_FIRST_BYTE = "http11.send_request_headers.started"
_ERRORS = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)
_IDLE_SECONDS = 3.0
"""How long an idle connection is kept: less than servers do (some 5 s), or a request may meet its end."""


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


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects to addresses that are allowed only.

    The very address that was checked is connected to. A name that leads elsewhere the next time it is looked
    up gains nothing by it.
    """

    def __init__(self, networks: Sequence[Network], resolve: Resolve) -> None:
        self._networks = networks
        self._resolve = resolve
        self._inner = httpcore.AnyIOBackend()

    async def allowed(self, host: str, port: int) -> list[str]:
        """The addresses of `host` that may be connected to; `OSError` when it has no address at all."""
        found = dict.fromkeys(await self._resolve(host, port))
        return [address for address in found if is_allowed(address, self._networks)]

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to the first of the allowed addresses that answers."""
        try:
            addresses = await self.allowed(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"the name can't be resolved: {error}") from error
        trouble: Exception = httpcore.ConnectError("the name leads to addresses that are not allowed")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                trouble = error
        raise trouble


class Client:
    """Posts to one URL."""

    def __init__(
        self,
        url: str,
        *,
        networks: Sequence[Network],
        tls: ssl.SSLContext,
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
            tls: how the receiver's certificate is checked, and our own.
            connections: at most; who needs one more waits.
            connect_timeout: seconds for the connection, for each address of the host.
            timeout: seconds from then on to the end of the answer, with the connecting.
            max_answer: bytes of a body, at most.
            resolve: looks up a name.
        """
        self._url = httpcore.URL(url)
        self._host = self._url.host.decode()
        self._port = self._url.port or (443 if self._url.scheme == b"https" else 80)
        self._backend = GuardedBackend(networks, resolve)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=connections,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=self._backend,
        )
        self._slots = asyncio.Semaphore(connections)
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._max_answer = max_answer
        self._users = 0
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
                allowed = await self._backend.allowed(self._host, self._port)
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

        async def trace(event: str, _: object) -> None:
            nonlocal begun
            if event == _FIRST_BYTE:
                begin()
                begun = True

        async with self._slots:
            self._users += 1
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._exchange(headers, body, trace)
            except TimeoutError as error:
                reason = f"no answer within {self._timeout:g} s"
                raise self._failed(reason, begun=begun) from error
            except _ERRORS as error:
                reason = f"{type(error).__name__}: {error}"
                raise self._failed(reason, begun=begun) from error
            finally:
                self._users -= 1
                await self._close_when_free()

    async def close(self) -> None:
        """Close the connections; the last request under way does that if there are some."""
        self._closed = True
        await self._close_when_free()

    async def _exchange(self, headers: Sequence[tuple[bytes, bytes]], body: bytes, trace: Any) -> Answer:
        extensions = {"timeout": {"connect": self._connect_timeout}, "trace": trace}
        async with self._pool.stream(
            b"POST", self._url, headers=list(headers), content=body, extensions=extensions
        ) as response:
            found = bytearray()
            async for chunk in response.aiter_stream():
                found += chunk
                if len(found) > self._max_answer:
                    raise SinkContract(
                        f'sink "webhook": {self.name} answered more than max_answer_bytes '
                        f"({self._max_answer}) with status {response.status}"
                    )
            names = {name.decode("latin-1").lower(): value for name, value in response.headers}
            decoded = {name: value.decode("latin-1") for name, value in names.items()}
            return Answer(response.status, decoded, bytes(found))

    def _failed(self, reason: str, *, begun: bool) -> SinkTimeout | SinkUnavailable:
        if begun:
            return SinkTimeout(f'sink "webhook": {self.name} gave no whole answer: {reason}')
        return SinkUnavailable(f'sink "webhook": {self.name} can\'t be reached: {reason}')

    async def _close_when_free(self) -> None:
        if self._closed and not self._users:
            await self._pool.aclose()
