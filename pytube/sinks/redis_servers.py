"""The servers behind the sink `redis`: connections, round trips, and which server of a cluster has a key."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import Field, SecretStr, field_validator
from redis.asyncio.connection import Connection, SSLConnection
from redis.crc import key_slot
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    MovedError,
    RedisError,
    ResponseError,
)

from pytube.errors import ConfigError, SinkTimeout, SinkUnavailable
from pytube.sinks.redis_script import Mode, hash_tag
from pytube.sinks.registry import KeyTemplate, ServerOptions, TemplateText
from pytube.threads import Resolver

# --- options --------------------------------------------------------------------------------------

_ID = "\x01"
"""Stands for an id where a template is checked."""


class RedisOptions(ServerOptions):
    """What `[tube.NAME.sink]` may hold for `type = "redis"`."""

    url: SecretStr = Field(description='"redis://HOST[:PORT][/DB]", or "rediss://…" for TLS')
    username: str | None = Field(default=None, description="the name of an ACL user")
    password: SecretStr | None = Field(default=None, description="the password")
    mode: Mode = Field(default="json", description='"json", "hash" or "invalidate"')
    key: TemplateText = Field(
        default="{{{tube}:{shard}}}:{id}",
        description="a template with {id} in it, and perhaps {tube} and {shard}, text between any two; "
        "with cluster = true also with a hash tag ({{…}}) before {id}",
    )
    cluster: bool = Field(default=False, description="true or false")
    tombstone_seconds: int = Field(default=3600, ge=1, description="a number of seconds, 1 or more")
    wait_replicas: int = Field(default=0, ge=0, description="a number of replicas, 0 or more")
    wait_fsync: bool = Field(default=False, description="true or false")
    wait_timeout: float = Field(default=2.0, gt=0, le=3600, description="a number of seconds above 0")
    allow_eviction: bool = Field(default=False, description="true or false")
    verify: bool = Field(default=True, description="true or false")
    max_bytes: int = Field(default=4 * 1024 * 1024, ge=1, description="a number of bytes, 1 or more")

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: SecretStr) -> SecretStr:
        parts = urlsplit(value.get_secret_value())
        database = parts.path.strip("/")
        if parts.scheme not in ("redis", "rediss") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError
        if not (database.isdigit() or database == "") or parts.port == 0:
            raise ValueError
        return value

    def faults(self) -> Iterator[str]:
        """See `SinkOptions.faults`."""
        yield from super().faults()
        if not self.cluster:
            return
        name = KeyTemplate(self.key).example(_ID).encode()
        tag = hash_tag(name)
        if not tag or name.index(tag) > name.index(_ID.encode()) or _ID.encode() in tag:
            yield (
                'option "key": with cluster = true all documents of a shard have to be in one slot: give a '
                'hash tag before {id}, e.g. "{{{tube}:{shard}}}:{id}"'
            )
        if self.parts.path.strip("/") not in ("", "0"):
            yield 'option "url": a cluster has no other database than 0'

    @property
    def parts(self) -> SplitResult:
        """The URL in its parts."""
        return urlsplit(self.url.get_secret_value())

    @property
    def address(self) -> tuple[str, int]:
        """The server's, or that of any one of the cluster."""
        return self.parts.hostname or "", self.parts.port or 6379

    def connection(self) -> dict[str, Any]:
        """Settings of redis-py's connections."""
        parts = self.parts
        password = self.password.get_secret_value() if self.password is not None else None
        settings: dict[str, Any] = {
            "db": int(parts.path.strip("/") or 0),
            "username": self.username or (unquote(parts.username) if parts.username else None),
            "password": password or (unquote(parts.password) if parts.password else None),
        }
        if parts.scheme == "rediss":
            settings |= {
                "ssl_cert_reqs": "required" if self.verify else "none",
                "ssl_check_hostname": self.verify,
                "ssl_ca_certs": self.ca_file,
                "ssl_certfile": self.client_cert,
                "ssl_keyfile": self.client_key,
            }
        return settings


# --- servers --------------------------------------------------------------------------------------


T = TypeVar("T")
Address = tuple[str, int]
Command = Sequence[bytes]

_TAKES_NOTHING = (AuthenticationError, AuthorizationError, BusyLoadingError)
"""Errors that a server answers instead of doing anything; redis-py raises them as if the connection broke."""


class _Connection(Connection):
    """Resolves the host's name itself: asyncio would do so in threads that all code of the process shares."""

    resolver: Resolver
    _address: str

    async def _connect(self) -> None:
        failure: OSError | None = None
        for address in await self.resolver.resolve(self.host):
            self._address = address
            try:
                await super()._connect()  # type: ignore[no-untyped-call]
            except OSError as error:
                failure = error
            else:
                return
        assert failure is not None, "a name that is resolved has an address"
        raise failure

    def _connection_arguments(self) -> dict[str, Any]:
        return {**super()._connection_arguments(), "host": self._address}


class _SSLConnection(_Connection, SSLConnection):
    """The same with TLS: the certificate is that of the name."""

    def _connection_arguments(self) -> dict[str, Any]:
        return {**super()._connection_arguments(), "server_hostname": self.host}


class Server:
    """One server, and the connections to it.

    The pool is pytube's own: redis-py's has one timeout for the wait for a free connection and none for the
    handshake of a new one.
    """

    def __init__(self, address: Address, options: RedisOptions, resolver: Resolver) -> None:
        """Connects to nothing yet. Who needs one more connection than `pool_size` waits."""
        self.name = f"{address[0]}:{address[1]}"
        self._connect_timeout = options.connect_timeout
        how = options.connection()
        self._kind = _SSLConnection if "ssl_cert_reqs" in how else _Connection
        self._resolver = resolver
        # A timeout for each read would not bound the whole; `ask` does.
        limits = {"socket_timeout": None, "socket_connect_timeout": options.connect_timeout}
        self._settings = {"host": address[0], "port": address[1], "protocol": 2, **limits, **how}
        self._slots = asyncio.Semaphore(options.pool_size)
        self._idle: list[Connection] = []
        self._closed = False

    async def ask(
        self, commands: Sequence[Command], limit: float, begin: Callable[[], None] | None = None
    ) -> list[Any]:
        """One round trip: the replies in order; an error is a `ResponseError`.

        `begin` is called right before the first byte is written, and raises if it must not be.

        Raises:
            SinkUnavailable: the server can't be reached or takes nothing; no command was sent or done.
            SinkTimeout: the connection broke, or `limit` seconds passed, after commands were sent.
        """
        async with self._slots:
            connection = self._idle.pop() if self._idle else self._new()
            try:
                await self._connect(connection)
                if begin is not None:
                    begin()
                return await self._exchange(connection, commands, limit)
            finally:
                # Whatever broke off an exchange has disconnected the connection; it connects when used again.
                if self._closed:
                    await connection.disconnect(nowait=True)
                else:
                    self._idle.append(connection)

    async def close(self) -> None:
        """Close the unused connections; each of the others is closed after its exchange."""
        self._closed = True
        await self.drop_idle()

    async def drop_idle(self) -> None:
        """Close idle connections, so that the next ones go where the name leads to by then."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)

    def _new(self) -> Connection:
        connection = self._kind(**self._settings)
        connection.resolver = self._resolver
        return connection

    async def _connect(self, connection: Connection) -> None:
        """Connect, unless the connection is up and clean."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                await connection.connect()  # type: ignore[no-untyped-call]
                if await connection.can_read():  # the server has closed it meanwhile
                    await connection.disconnect(nowait=True)
                    await connection.connect()  # type: ignore[no-untyped-call]
        except (RedisError, OSError, TimeoutError) as error:
            await connection.disconnect(nowait=True)
            reason = str(error) or f"no connection within {self._connect_timeout:g} s"
            raise SinkUnavailable(f'sink "redis": {self.name} can\'t be reached: {reason}') from error
        except asyncio.CancelledError:
            await connection.disconnect(nowait=True)
            raise

    async def _exchange(self, connection: Connection, commands: Sequence[Command], limit: float) -> list[Any]:
        try:
            async with asyncio.timeout(limit):
                packed = connection.pack_commands(commands)
                await connection.send_packed_command(packed, check_health=False)
                return [await _reply(connection) for _ in commands]
        except _TAKES_NOTHING as error:
            raise SinkUnavailable(f'sink "redis": {self.name} takes nothing: {error}') from error
        except TimeoutError as error:
            raise SinkTimeout(f'sink "redis": {self.name} did not answer within {limit:g} s') from error
        except (RedisError, OSError) as error:
            raise SinkTimeout(
                f'sink "redis": the connection to {self.name} broke before the answer: {error}'
            ) from error


async def _reply(connection: Connection) -> Any:
    try:
        # Without a limit: the caller's is on all replies together.
        return await connection.read_response(timeout=math.inf)
    except ResponseError as error:
        return error


def _has_moved(reply: Any) -> bool:
    return any(isinstance(one, MovedError) for one in (reply if isinstance(reply, list) else [reply]))


class Servers:
    """All servers: one, or the primaries of a cluster."""

    def __init__(self, options: RedisOptions, resolver: Resolver) -> None:
        """Connects to nothing yet."""
        self._options = options
        self._resolver = resolver
        self._cluster = options.cluster
        self.in_doubt = False
        """Whether a server of the cluster failed since the slots were read: another one may have them now."""
        self.seed = Server(options.address, options, resolver)
        """The server that the configuration names."""
        self._known: dict[Address, Server] = {options.address: self.seed}
        self._slots: list[Server | None] = []

    @property
    def all(self) -> list[Server]:
        """The servers that hold keys."""
        return list(dict.fromkeys(filter(None, self._slots))) if self._cluster else [self.seed]

    async def spread(
        self,
        items: Sequence[T],
        key_of: Callable[[T], bytes],
        ask: Callable[[Server, list[T]], Awaitable[list[Any]]],
    ) -> list[Any]:
        """The reply to each item, which `ask` gets of the server that has its key.

        If a server can't be reached, the replies are that `SinkUnavailable`. What the cluster has moved is
        asked for once more.
        """
        if self.in_doubt:
            await self.refresh()
        replies: dict[int, Any] = {}
        todo: Sequence[int] = range(len(items))
        for is_last in (False, True):
            shares: dict[Server, list[int]] = {}
            for at in todo:
                try:
                    shares.setdefault(self.of(key_of(items[at])), []).append(at)
                except SinkUnavailable as error:
                    replies[at] = error
            answers = await asyncio.gather(
                *(self._ask(ask(server, [items[at] for at in share])) for server, share in shares.items()),
            )
            for share, answer in zip(shares.values(), answers, strict=True):
                is_error = isinstance(answer, SinkUnavailable)
                replies.update(dict.fromkeys(share, answer) if is_error else zip(share, answer, strict=True))
            todo = [at for at in todo if _has_moved(replies[at])]
            if is_last or not todo:
                break
            try:
                await self.refresh()
            except SinkUnavailable as error:
                replies.update(dict.fromkeys(todo, error))
                break
        return [replies[at] for at in range(len(items))]

    async def _ask(self, asked: Awaitable[list[Any]]) -> Any:
        """The replies, or the `SinkUnavailable`; whatever else happens puts the slots in doubt, too."""
        try:
            return await asked
        except BaseException as error:
            self.in_doubt = self._cluster
            if isinstance(error, SinkUnavailable):
                return error
            raise

    def of(self, key: bytes) -> Server:
        """The server that has `key`; `SinkUnavailable` while none of the cluster has its slot."""
        if not self._cluster:
            return self.seed
        slot = key_slot(key)
        server = self._slots[slot]
        if server is None:
            self.in_doubt = True
            raise SinkUnavailable(f'sink "redis": no server of the cluster has slot {slot}')
        return server

    async def refresh(self) -> None:
        """Ask which server of the cluster has which slots; does nothing where there is no cluster.

        Raises:
            ConfigError: the server is not a member of a cluster.
            SinkUnavailable: none of the known servers answers.
        """
        if not self._cluster:
            await self.seed.drop_idle()
            return
        for server in [*self.all, self.seed]:
            with contextlib.suppress(SinkUnavailable, SinkTimeout):
                (reply,) = await server.ask([[b"CLUSTER", b"SLOTS"]], self._options.timeout)
                if isinstance(reply, ResponseError):
                    raise ConfigError(
                        f'sink "redis": option "cluster" is true, and {server.name} answers: {reply}'
                    )
                await self._arrange(reply)
                return
        raise SinkUnavailable('sink "redis": none of the servers of the cluster answers')

    async def close(self) -> None:
        """Close all unused connections."""
        for server in self._known.values():
            await server.close()

    async def _arrange(self, ranges: Sequence[Any]) -> None:
        slots: list[Server | None] = [None] * 16384
        for first, last, primary, *_ in ranges:
            # A server that does not know its own name gives none: it is the server that was asked.
            host = primary[0].decode() if primary[0] else self._options.address[0]
            address = host, primary[1]
            if address not in self._known:
                self._known[address] = Server(address, self._options, self._resolver)
            slots[first : last + 1] = [self._known[address]] * (last + 1 - first)
        self._slots = slots
        self.in_doubt = False
        for address in [*self._known]:
            if address != self._options.address and self._known[address] not in slots:
                await self._known.pop(address).close()
