"""A sink of pytube: documents in a key-value bucket of NATS JetStream, compared by token, scannable.

[tube."es-live".sink]
type = "nats"
servers = ["nats://nats1.example.org:4222", "nats://nats2.example.org:4222"]
bucket = "shop"
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar
from urllib.parse import quote

import nats
from nats.aio.client import Client
from nats.errors import MaxPayloadError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RawStreamMsg, StreamInfo
from nats.js.errors import APIError, NotFoundError
from pydantic import Field, SecretStr, field_validator

from pytube.errors import ConfigError, SinkError, SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Document, Id, Key, KeyType, Reject, Result, Retry, Stale, Token
from pytube.sinks import SinkOptions
from pytube.sinks.base import PAGE, Stored, Trial, refuse_lapsed

T = TypeVar("T")

WHO = 'sink "nats"'
TOKEN, SEQ, ID, OPERATION = "Pytube-Token", "Pytube-Seq", "Pytube-Id", "KV-Operation"
"""Headers; the last one is what every client of key-value buckets knows a deleted key by."""
_NO_STREAM, _TOO_LARGE, _WRONG_LAST_SEQUENCE = 10059, 10054, 10071
_LONGEST_SUBJECT = 3000
"""Bytes: the server ends a connection that sends a line of more than 4096."""
_AT_ONCE, _TRIES, _PAUSE = 64, 5, 1.0


class NatsOptions(SinkOptions):
    """What `[tube.NAME.sink]` may hold."""

    servers: list[str] = Field(min_length=1, description='addresses, as ["nats://host:4222"], without user')
    bucket: str = Field(pattern=r"^[A-Za-z0-9_-]{1,200}$", description="the name of a bucket")
    replicas: int = Field(default=1, ge=1, le=5, description="a number of replicas of a new bucket, 1 to 5")
    user: str | None = Field(default=None, description="a name")
    password: SecretStr | None = Field(default=None, description="the password of user")
    credentials: str | None = Field(default=None, min_length=1, description="the path of a .creds file")
    connect_timeout: float = Field(default=5.0, gt=0, description="a number of seconds above 0")
    timeout: float = Field(default=5.0, gt=0, description="a number of seconds above 0")
    tombstone_seconds: int = Field(default=3600, ge=1, description="a number of seconds, 1 or more")

    @field_validator("servers")
    @classmethod
    def _are_addresses(cls, value: list[str]) -> list[str]:
        if not all(one.startswith(("nats://", "tls://")) and "@" not in one for one in value):
            raise ValueError
        return value

    def faults(self) -> Iterator[str]:
        """See `SinkOptions.faults`."""
        if (self.user is None) != (self.password is None):
            yield "password goes with user"


def encoded(text: str) -> str:
    """A text as one part of a subject: `=2E` for a dot, as `%2E` in URLs, and `=` for an empty text."""
    return quote(text, safe="").replace("%", "=").replace(".", "=2E").replace("~", "=7E") or "="


class NatsSink:
    """A key per document, as `tube.shard.id`; a delete is the bucket's own marker, which expires.

    A write names the message that it follows, and the server refuses it if another one came between. So
    a token is compared with the one that is held, in effect in one step with the write.
    """

    compares = True

    def __init__(self, options: NatsOptions) -> None:
        self._options = options
        self._stream = f"KV_{options.bucket}"
        self._client: Client | None = None
        self._reopening = asyncio.Lock()
        self._sends: Counter[Client] = Counter()
        """Under way, by connection: one that is closed meanwhile is kept until they have ended."""
        self._of_markers: dict[str, str] = {}
        """Headers by which markers of deletes expire, if the bucket lets them."""

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """The sink for these options; `ConfigError` names a bad one."""
        return cls(NatsOptions.parse("nats", options))

    # --- the connection and the bucket ------------------------------------------------------

    async def open(self) -> None:
        """Connect, and create the bucket if it is missing."""
        if await self.open_existing() is None:
            return
        client = await self._connect()
        try:
            create = client.jetstream(timeout=self._options.timeout).create_key_value
            await self._asked(create(bucket=self._options.bucket, replicas=self._options.replicas))
        finally:
            await client.close()
        await self.open_existing()

    async def open_existing(self) -> str | None:
        """Connect; says that the bucket is missing, and is not open then."""
        if self._client is not None:
            return None
        client = await self._connect()
        try:
            info = await self._find(client)
            if info is not None and info.config.max_age:
                ttl = f"drops documents after {info.config.max_age:g} s; take one without a TTL"
                raise ConfigError(f'{WHO}: bucket "{self._options.bucket}" {ttl}')
        except BaseException:
            await client.close()
            raise
        if info is None:
            await client.close()
            return f'{WHO}: there is no bucket "{self._options.bucket}"'
        expire = {"Nats-TTL": str(self._options.tombstone_seconds)}
        self._of_markers = expire if info.config.allow_msg_ttl else {}
        self._client = client
        return None

    async def _connect(self) -> Client:
        options = self._options
        client = Client()
        secret = options.password.get_secret_value() if options.password else None

        async def quiet(_: Exception) -> None:
            """Errors are in the answers, and in `last_error`; the default would log them all."""

        try:
            async with asyncio.timeout(options.connect_timeout):
                await client.connect(
                    options.servers,
                    error_cb=quiet,
                    user=options.user,
                    password=secret,
                    user_credentials=options.credentials,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.2,
                )
        except (OSError, TimeoutError, nats.errors.Error) as error:
            why = client.last_error or error
            await client.close()
            raise SinkUnavailable(f"{WHO}: no connection: {why}") from error
        return client

    async def _find(self, client: Client) -> StreamInfo | None:
        found = client.jetstream(timeout=self._options.timeout).stream_info(self._stream)
        try:
            return await self._asked(found)
        except _Missing:
            return None

    async def close(self) -> None:
        """Begin no more writes; the connection is closed after the ones that have begun."""
        client, self._client = self._client, None
        if client is not None and not self._sends[client]:
            await client.close()

    async def _opened(self) -> Client:
        """The client; a new one where the server has ended it for good, as when a login expires."""
        async with self._reopening:
            ended = self._client
            if ended is not None and ended.is_closed:
                client = await self._connect()
                if self._client is not ended:
                    await client.close()
                else:
                    self._client = client
        if self._client is None:
            raise SinkUnavailable(f"{WHO} is not open")
        if not self._client.is_connected:
            raise SinkUnavailable(f"{WHO}: no connection: {self._client.last_error}")
        return self._client

    async def _asked(self, request: Awaitable[T]) -> T:
        """The answer of the server, or its error as ours."""
        try:
            return await request
        except TimeoutError as error:
            said = self._client and self._client.last_error
            raise SinkTimeout(
                f"{WHO}: no answer in time" + (f"; the last error: {said}" if said else "")
            ) from error
        except NotFoundError as error:
            missing = _Missing if error.err_code == _NO_STREAM else _NoMessage
            raise missing(f'{WHO}: bucket "{self._options.bucket}": {error.description}') from error
        except (nats.errors.Error, OSError) as error:
            raise SinkUnavailable(f"{WHO}: {error}") from error

    # --- writing --------------------------------------------------------------------------------

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Write the documents side by side."""
        client = await self._opened()
        slots = asyncio.Semaphore(_AT_ONCE)

        async def answer(document: Document) -> Result | SinkError:
            async with slots:
                try:
                    return await self._write(client, batch, document)
                except SinkError as error:
                    return error

        self._sends[client] += 1
        try:
            found = await asyncio.gather(*map(answer, batch))
        finally:
            self._sends[client] -= 1
            if client is not self._client and not self._sends[client]:
                await client.close()
        troubles = [one for one in found if isinstance(one, SinkError)]
        if troubles and len(troubles) == len(found):
            raise next((one for one in troubles if isinstance(one, SinkTimeout)), troubles[0])
        return [Retry(_PAUSE, str(one)) if isinstance(one, SinkError) else one for one in found]

    async def abandon(self, batch: Batch) -> None:
        """Return at once: a late write does not follow the message that it names, and is refused."""

    async def _write(self, client: Client, batch: Batch, document: Document) -> Result:
        subject = self._subject(batch.tube, *document.key)
        if len(subject) > _LONGEST_SUBJECT:
            return Reject(f"{WHO}: its key takes {len(subject)} bytes, and {_LONGEST_SUBJECT} are possible")
        headers = {TOKEN: str(document.token), SEQ: str(document.seq), ID: json.dumps(document.id)}
        if document.is_delete:
            headers |= {OPERATION: "DEL", **self._of_markers}
        stream = client.jetstream(timeout=self._options.timeout)
        for _ in range(_TRIES):
            held = await self._last(client, subject)
            token = int(_header(held, TOKEN) or 0)
            if token >= int(document.token):
                return Stale(token) if token > int(document.token) else OK
            headers["Nats-Expected-Last-Subject-Sequence"] = str(held.seq if held else 0)
            refuse_lapsed(WHO, batch)
            if client is not self._client:
                raise SinkUnavailable(f"{WHO} is closed")
            try:
                await self._asked(
                    stream.publish(subject, document.body or b"", stream=self._stream, headers=headers)
                )
                return OK
            except SinkUnavailable as error:
                if (reason := _refusal(error.__cause__)) is not None:
                    return Reject(f"{WHO}: {reason}")
                if getattr(error.__cause__, "err_code", None) != _WRONG_LAST_SEQUENCE:
                    raise
        return Retry(_PAUSE, f"{WHO}: others wrote {subject} at the same time")

    def _subject(self, tube: str, shard: int, key: Id) -> str:
        return f"$KV.{self._options.bucket}.{encoded(tube)}.{shard}.{encoded(str(key))}"

    async def _last(self, client: Client, subject: str) -> RawStreamMsg | None:
        """The last message of a subject, of the stream's leader: a replica could be behind."""
        get = client.jetstream(timeout=self._options.timeout).get_msg
        try:
            return await self._asked(get(self._stream, subject=subject))
        except _NoMessage:
            return None

    # --- reading --------------------------------------------------------------------------------

    async def read(self, tube: str, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        """The last messages of these keys, with their stamps."""
        client = await self._opened()
        found = await asyncio.gather(*(self._last(client, self._subject(tube, *key)) for key in keys))
        return dict(zip(keys, map(_stored, found), strict=True))

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        """The last message of each key of the shard, without bodies, in the order of writes."""
        stream = (await self._opened()).jetstream(timeout=self._options.timeout)
        last = ConsumerConfig(
            deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
            ack_policy=AckPolicy.NONE,
            headers_only=True,
            inactive_threshold=60.0,
        )
        subject = f"$KV.{self._options.bucket}.{encoded(tube)}.{shard}.*"
        reader = await self._asked(stream.pull_subscribe(subject, stream=self._stream, config=last))
        seen = 0
        while pending := (await self._asked(reader.consumer_info())).num_pending:
            messages = await self._asked(reader.fetch(min(pending, PAGE), timeout=self._options.timeout))
            seen += len(messages)
            if messages[-1].metadata.sequence.consumer != seen:
                raise SinkUnavailable(f"{WHO}: the scan missed messages, as after a lost connection")
            headers = [message.headers or {} for message in messages]
            old = [one for one in headers if ID in one and OPERATION not in one and int(one[SEQ]) < below_seq]
            yield [json.loads(one[ID]) for one in old]
        await self._asked(reader.unsubscribe())

    async def read_mark(self, tube: str) -> str | None:
        """The moment at which the server created the bucket; None: there is none."""
        del tube  # all share the bucket
        info = await self._find(await self._opened())
        return None if info is None or info.created is None else info.created.isoformat()

    async def write_mark(self, tube: str, mark: str) -> None:
        """Create the bucket: its mark is the server's."""
        del tube, mark
        await self.close()
        await self.open()

    def trial(self, name: str, keys: KeyType) -> Trial:
        """A separate bucket."""
        del keys  # a subject takes both
        options = self._options.model_copy(update={"bucket": f"{self._options.bucket[:150]}-{name}"})

        async def erase(_: str, __: Collection[Key]) -> None:
            client = await self._connect()
            with suppress(_Missing):  # a check may have made none
                await self._asked(client.jetstream().delete_key_value(options.bucket))
            await client.close()

        return Trial(lambda: type(self)(options), f"bucket {options.bucket}", erase)


class _Missing(SinkUnavailable):
    """There is no bucket."""


class _NoMessage(SinkUnavailable):
    """The bucket has no message of a subject."""


def _header(message: RawStreamMsg | None, name: str) -> str | None:
    found: dict[str, Any] = (message and message.headers) or {}
    return found.get(name)


def _stored(message: RawStreamMsg | None) -> Stored:
    token, seq = _header(message, TOKEN), _header(message, SEQ)
    body = None if message is None or _header(message, OPERATION) else message.data
    return Stored(body, Token.parse(token) if token else None, int(seq) if seq else None)


def _refusal(error: BaseException | None) -> str | None:
    """Why the server will never take a document; None: it may."""
    if isinstance(error, MaxPayloadError):
        return "the document is larger than the server's max_payload"
    if isinstance(error, APIError) and error.err_code == _TOO_LARGE:
        return "the document is larger than the bucket's max_value_size"
    return None
