"""HTTP to the server, by the official client's transport; what went wrong, in three kinds.

Nothing was sent: `SinkUnavailable`. It may have been: `SinkTimeout`. The server answered with an error:
`Refused`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, cast

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver, ResolveResult
from opensearchpy import AIOHttpConnection, AsyncOpenSearch
from opensearchpy.exceptions import (
    ConnectionError as NoConnection,
)
from opensearchpy.exceptions import (
    SerializationError,
    TransportError,
)
from opensearchpy.serializer import JSONSerializer

from pytube.errors import ConfigError, SinkTimeout, SinkUnavailable
from pytube.sinks.opensearch.options import OpenSearchOptions
from pytube.threads import Resolver, in_thread

_JSON = "application/json"
_LINES = "application/x-ndjson"

_GZIP = 31
"""zlib's window bits for the format of gzip."""
_LEVEL = 1
"""Higher levels take three times as long for a tenth less."""
_IN_LOOP = 64 * 1024
"""Bytes that are compressed within the event loop; more go to a thread."""

MayBegin = Callable[[], bool]

_may_begin: ContextVar[MayBegin] = ContextVar("may_begin")


class Refused(Exception):
    """The server answered with an error: it did nothing, unless the status is 500 or more."""

    def __init__(self, status: int, kind: str, reason: str) -> None:
        super().__init__(f"HTTP {status}: {kind}: {reason}" if kind else f"HTTP {status}")
        self.status = status
        self.kind = kind


class Client:
    """Requests to one cluster. A request is sent to one node, and to the next if that can't be reached."""

    def __init__(self, options: OpenSearchOptions, names: Names | None = None) -> None:
        """Nothing is connected yet.

        Args:
            options: of the sink.
            names: looks names up, for several clients of one sink.

        Raises:
            ConfigError: a file of a certificate can't be read.
        """
        self.where = ", ".join(options.url)
        self._attempts = len(options.url)
        self._timeout = options.timeout
        self._compress = options.compress
        headers = {}
        if options.api_key is not None:
            headers["authorization"] = f"ApiKey {options.api_key.get_secret_value()}"
        auth = None
        if options.user is not None and options.password is not None:
            auth = (options.user, options.password.get_secret_value())
        self._users = 0
        self._retired = False
        self._transport = AsyncOpenSearch(
            options.url,
            connection_class=_Connection,
            serializer=_Json(),
            # A second attempt of its own would come after `send_before`.
            max_retries=0,
            http_auth=auth,
            headers=headers,
            ssl_context=_ssl_context(options),
            maxsize=options.pool_size,
            connect_timeout=options.connect_timeout,
            names=names or Names(options.connect_timeout),
        ).transport

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | bytes | None = None,
        may_begin: MayBegin = lambda: True,
    ) -> Any:
        """The decoded answer.

        Args:
            method: of HTTP; one that is repeatable by HTTP's rules may be sent twice.
            path: begins with a slash.
            params: the query.
            body: an object, or the lines of a bulk request.
            may_begin: asked right before the first byte is sent; when it says no, none is.

        Raises:
            SinkUnavailable: nothing was sent.
            SinkTimeout: what the server did is not known.
            Refused: the server's error.
        """
        headers = {"content-type": _LINES if isinstance(body, bytes) else _JSON, "accept": _JSON}
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        if data is not None and self._compress:
            data = await _compressed(data)
            headers["content-encoding"] = "gzip"
        _may_begin.set(lambda: may_begin() and not self._retired)
        left = self._attempts
        while True:
            left -= 1
            try:
                return await self._transport.perform_request(
                    method,
                    path,
                    params=dict(params or {}),
                    body=data,
                    headers=headers,
                    # Without this, the transport would take the server's "timeout" out of the query.
                    timeout=self._timeout,
                )
            except (NoConnection, SerializationError) as error:
                cause = error.info if isinstance(error, NoConnection) else error
                if not isinstance(cause, _NOT_SENT):
                    raise SinkTimeout(f"{self.where}: no whole answer: {_words(cause)}") from error
                if not left or isinstance(cause, _Lapsed):
                    raise SinkUnavailable(f"{self.where}: nothing was sent: {_words(cause)}") from error
            except TransportError as error:
                raise _refused(error) from error

    @asynccontextmanager
    async def use(self) -> AsyncIterator[None]:
        """Keep the connections open for requests that are under way when the client is retired."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._retired and not self._users:
                await self.close()

    async def retire(self) -> None:
        """Begin no more requests, and close once the last one under way has ended."""
        self._retired = True
        if not self._users:
            await self.close()

    async def close(self) -> None:
        """Close all connections."""
        # The transport itself forgets connections to nodes that did not answer last time.
        for connection in cast("list[_Connection]", self._transport.seed_connections):
            await connection.close()


class _Lapsed(Exception):
    """The request must not begin any more."""


_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, _Lapsed)
"""Errors that come before the first byte of a request."""


class _Request(aiohttp.ClientRequest):
    """A request that asks, once it has its connection, whether it may begin."""

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        """Send it on `conn`."""
        if not _may_begin.get()():
            raise _Lapsed("the right to send had lapsed, or the sink was closed")
        return await super().send(conn)


class _Connector(aiohttp.TCPConnector):
    """Limits the time for connecting apart from that of the request: after it, nothing was sent."""

    connect_timeout: float

    async def connect(self, req: Any, traces: Any, timeout: aiohttp.ClientTimeout) -> Any:
        """A connection for the request. `timeout` has nothing else that is for connecting."""
        del timeout
        return await super().connect(req, traces, aiohttp.ClientTimeout(sock_connect=self.connect_timeout))


class Names(AbstractResolver):
    """Looks names up in threads of its own, and not in those that all code of the process shares."""

    def __init__(self, limit: float) -> None:
        """`limit`: seconds for a lookup."""
        self._resolver = Resolver(limit)

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC) -> list[ResolveResult]:
        """All addresses, whatever the `family`: the connector has not chosen one."""
        del family
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in await self._resolver.resolve(host)
        ]

    async def close(self) -> None:
        """Nothing is open."""


class _Connection(AIOHttpConnection):
    """The client's connection to one node, without its log, which would hold bodies."""

    def __init__(self, *args: Any, connect_timeout: float, names: Names, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connect_timeout = connect_timeout
        self._names = names

    async def _create_aiohttp_session(self) -> None:
        self.loop = asyncio.get_running_loop()
        connector = _Connector(limit=self._limit or 0, ssl=self._ssl_context or True, resolver=self._names)
        connector.connect_timeout = self._connect_timeout
        self.session = aiohttp.ClientSession(
            connector=connector,
            headers=self.headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            request_class=_Request,
        )

    def log_request_success(self, *_: Any, **__: Any) -> None:
        """Say nothing."""

    def log_request_fail(self, *_: Any, **__: Any) -> None:
        """Say nothing: the error says it."""


class _Json(JSONSerializer):
    """Reads answers faster than the client's own; requests are encoded already."""

    def loads(self, s: str) -> Any:
        """The decoded answer."""
        try:
            return orjson.loads(s)
        except ValueError as error:
            raise SerializationError("the answer is no JSON", error) from error


async def _compressed(data: bytes) -> bytes:
    if len(data) <= _IN_LOOP:
        return zlib.compress(data, _LEVEL, _GZIP)
    return await in_thread(zlib.compress, data, _LEVEL, _GZIP)


def _ssl_context(options: OpenSearchOptions) -> ssl.SSLContext | None:
    if not any(url.startswith("https:") for url in options.url):
        return None
    what = "ca_file"
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if not options.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if options.client_cert is not None:
            what = "client_cert"
            context.load_cert_chain(options.client_cert, options.client_key, password=_no_password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(
            f'sink "opensearch": option "{what}" can\'t be used: {reason}; '
            "give a PEM file that this user can read"
        ) from error
    return context


def _no_password() -> str:
    # Without this, the library asks at the terminal, and the worker waits.
    raise ValueError("the key is encrypted")


def _refused(error: TransportError) -> Refused:
    info = error.info if isinstance(error.info, dict) else {}
    found = info.get("error")
    found = found if isinstance(found, dict) else {}
    return Refused(int(error.status_code), found.get("type") or "", found.get("reason") or "")


def _words(error: object) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        found = error.certificate_error
        why = found.verify_message if isinstance(found, ssl.SSLCertVerificationError) else str(found)
        return f"its certificate is not trusted: {why.rstrip('.')}; check ca_file, and the name in url"
    return str(error) or type(error).__name__
