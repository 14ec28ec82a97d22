"""The sink `webhook`: posts batches to a URL, signed, and understands a result for each document."""

from __future__ import annotations

import asyncio
import dataclasses
import ipaddress
import re
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Self
from urllib.parse import urlsplit

import orjson
from pydantic import Field, SecretStr, field_validator, model_validator

from pytube.errors import ConfigError, SinkError, SinkTimeout, SinkUnavailable, how_to_install
from pytube.model import OK, Batch, KeyType, Reject, Result, Retry
from pytube.sinks.calls import Abandoned
from pytube.sinks.registry import SinkOptions
from pytube.sinks.trial import Trial
from pytube.sinks.webhook_message import (
    CONTENT_TYPES,
    LONGEST_REASON,
    Format,
    body_of,
    id_of,
    key_of,
    lines,
    results_of,
    signature,
    wait_of,
)
from pytube.threads import resolve

try:
    from pytube.sinks.webhook_http import Answer, Client, Resolve
except ModuleNotFoundError as error:
    raise ConfigError(f'sink "webhook" needs the package {error.name}: {how_to_install("webhook")}') from None

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_OWN_HEADERS = {
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "host",
    "idempotency-key",
    "transfer-encoding",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
}
_PAUSE = 1.0
"""Seconds after which documents are sent again that were not taken while others of the batch were."""

_OF_THE_BODY = {400, 413, 415, 422}
"""Statuses by which a receiver refuses what was sent, so that smaller requests tell which document it is."""
_LATER = {425, 429}
_NOT_TAKEN = {501, 505}
"""Statuses of servers that have not looked at the documents. At any other above 499, and at 408, the receiver
may still be at work: a proxy says so when it gives up waiting."""


class WebhookOptions(SinkOptions):
    """What `[tube.NAME.sink]` may hold for `type = "webhook"`."""

    url: SecretStr = Field(
        description='"https://…" without user, password and fragment; "http://…" with allow_plain_http = true'
    )
    format: Format = Field(default="ndjson", description='"ndjson" or "json"')
    secret: SecretStr | None = Field(default=None, description='"whsec_" and 24 to 64 bytes in base64')
    old_secret: SecretStr | None = Field(default=None, description='"whsec_" and 24 to 64 bytes in base64')
    headers: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="a table of further headers with printable ASCII values; "
        "those that HTTP or the sink sets itself are not among them",
    )
    compares: bool = Field(default=False, description="true or false")
    allow_plain_http: bool = Field(default=False, description="true or false")
    allowed_networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = Field(
        default=(), description='a list of networks, e.g. ["10.1.0.0/16"]'
    )
    ca_file: str | None = Field(default=None, description="the path of a file with CA certificates")
    client_cert: str | None = Field(default=None, description="the path of a certificate")
    client_key: str | None = Field(default=None, description="the path of a private key")
    connect_timeout: float = Field(default=5.0, gt=0, description="a number of seconds above 0")
    timeout: float = Field(default=10.0, gt=0, description="a number of seconds above 0")
    settle_seconds: float = Field(default=10.0, ge=0, description="a number of seconds, 0 or more")
    pool_size: int = Field(default=16, ge=1, description="a number of connections, 1 or more")
    max_bytes: int = Field(default=1024 * 1024, ge=1, description="a number of bytes, 1 or more")
    max_answer_bytes: int = Field(default=1024 * 1024, ge=1, description="a number of bytes, 1 or more")

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        parts = urlsplit(text)
        if not parts.hostname or "@" in parts.netloc or parts.fragment or parts.port == 0:
            raise ValueError
        if not _HEADER_VALUE.fullmatch(text) or " " in text:
            raise ValueError
        return value

    @field_validator("secret", "old_secret")
    @classmethod
    def _is_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            key_of(value.get_secret_value())
        return value

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, text in value.items():
            if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
                raise ValueError
            if not _HEADER_VALUE.fullmatch(text.get_secret_value()):
                raise ValueError
        return value

    @model_validator(mode="after")
    def _is_encrypted(self) -> Self:
        scheme = urlsplit(self.url.get_secret_value()).scheme
        if scheme != "https" and not (scheme == "http" and self.allow_plain_http):
            raise ConfigError(
                'sink "webhook": option "url": expected "https://…"; "http://…" shows documents and headers '
                "to everybody on the way, and needs allow_plain_http = true"
            )
        return self

    @property
    def keys(self) -> list[bytes]:
        """The keys to sign with: the newer one first."""
        return [key_of(s.get_secret_value()) for s in (self.secret, self.old_secret) if s is not None]

    def tls(self) -> ssl.SSLContext | None:
        """How certificates are checked, and which one is ours; None for plain HTTP.

        Raises:
            ConfigError: a file can't be used.
        """
        if urlsplit(self.url.get_secret_value()).scheme != "https":
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.client_cert is not None:
                context.load_cert_chain(self.client_cert, self.client_key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f'sink "webhook": ca_file, client_cert or client_key can\'t be used: {error}'
            ) from error
        return context


class WebhookSink:
    """Posts batches; a receiver may answer for all of a request, or for each document.

    It compares no tokens, but sends them. A receiver that compares is declared by the option `compares`.
    """

    def __init__(self, options: WebhookOptions, *, resolve: Resolve = resolve) -> None:
        """`resolve` looks up the addresses of a name."""
        self.compares = options.compares
        self._options = options
        self._resolve = resolve
        self._keys = options.keys
        self._client: Client | None = None
        self._abandoned = Abandoned()
        self._quiet_until = 0.0
        """The moment until which the receiver asked for no request, of `time.monotonic()`."""

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """The sink for these options; `ConfigError` names a bad one."""
        return cls(WebhookOptions.parse("webhook", options))

    def trial(self, name: str, keys: KeyType) -> Trial:
        """The same receiver, with a tube of its own: what it took can't be taken back."""
        del keys  # a message takes both
        host = urlsplit(self._options.url.get_secret_value()).hostname
        tube = f"conformance-{name}"
        where = f"the receiver at {host}, as documents of the tube {tube}"
        return Trial(lambda: type(self)(self._options, resolve=self._resolve), where, None, tube=tube)

    async def open(self) -> None:
        """Check that the address may be connected to; nothing is sent."""
        if self._client is not None:
            return
        options = self._options
        client = Client(
            options.url.get_secret_value(),
            networks=options.allowed_networks,
            tls=options.tls(),
            connections=options.pool_size,
            connect_timeout=options.connect_timeout,
            timeout=options.timeout,
            max_answer=options.max_answer_bytes,
            resolve=self._resolve,
        )
        await client.check()
        self._client = client

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Post the batch, `max_bytes` a request, one request after the other."""
        client = self._client
        if client is None:
            raise SinkUnavailable('sink "webhook" is not open')
        results: list[Result] = []
        for items in self._parts(batch):
            try:
                results += await self._post(client, batch, items)
            except SinkUnavailable as error:
                if not results:
                    raise
                results += [Retry(_PAUSE, str(error))] * (len(batch) - len(results))
                break
        return results

    async def abandon(self, batch: Batch) -> None:
        """Wait until the receiver is done with the requests of the batch that it has not answered.

        Their connections are closed already. Nobody tells when the receiver is done, so `settle_seconds` is
        waited out, unless the receiver compares.
        """
        if not self.compares:
            await self._abandoned.over(batch)

    async def close(self) -> None:
        """Begin no more requests; those that were begun go on."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # --- requests -------------------------------------------------------------------------

    def _parts(self, batch: Batch) -> Iterator[list[bytes]]:
        """The documents as lines, in groups of at most `max_bytes`; a larger one stands alone."""
        found = lines(orjson.dumps(batch.tube), batch.documents)
        if sum(map(len, found)) + len(found) <= self._options.max_bytes:
            yield found
            return
        group: list[bytes] = []
        size = 0
        for line in found:
            if group and size + len(line) > self._options.max_bytes:
                yield group
                group, size = [], 0
            group.append(line)
            size += len(line) + 1
        if group:
            yield group

    async def _post(self, client: Client, batch: Batch, items: Sequence[bytes]) -> list[Result]:
        quiet = self._quiet_until - time.monotonic()
        if quiet > 0:
            return [Retry(quiet, f"{client.name} asked for no requests meanwhile")] * len(items)
        body = body_of(items, self._options.format)
        begun = False

        def begin() -> None:
            nonlocal begun
            if client is not self._client:
                raise SinkUnavailable('sink "webhook" is closed')
            if batch.has_lapsed():
                raise SinkUnavailable('sink "webhook": not sent, the right to send had lapsed')
            begun = True

        try:
            answer = await client.post(self._headers(body), body, begin)
        except (asyncio.CancelledError, SinkTimeout):
            if begun:
                self._leave(batch)
            raise
        return self._results(client.name, batch, answer, len(items))

    def _headers(self, body: bytes) -> list[tuple[bytes, bytes]]:
        message, now = id_of(body), int(time.time())
        headers = [
            (b"content-type", CONTENT_TYPES[self._options.format]),
            (b"accept", b"application/json"),
            (b"accept-encoding", b"identity"),
            (b"user-agent", b"pytube"),
            (b"webhook-id", message),
            (b"webhook-timestamp", b"%d" % now),
            (b"idempotency-key", message),
        ]
        if self._keys:
            headers.append((b"webhook-signature", signature(self._keys, message, now, body)))
        own = self._options.headers.items()
        replaced = {name.lower().encode() for name, _ in own}
        return [pair for pair in headers if pair[0] not in replaced] + [
            (name.encode(), value.get_secret_value().encode()) for name, value in own
        ]

    def _leave(self, batch: Batch) -> None:
        """The receiver may go on with a request of the batch."""
        self._abandoned.add(batch, _Settling(self._options.settle_seconds))

    # --- answers --------------------------------------------------------------------------

    def _results(self, name: str, batch: Batch, answer: Answer, count: int) -> list[Result]:
        """What the answer says of the documents; raises what it says of the receiver."""
        status = answer.status
        said = f'sink "webhook": {name} answered {status}'
        if 200 <= status < 300:
            results = results_of(answer.body, count, required=self.compares)
            return [result if result is OK else self._without_secrets(result) for result in results]
        wait = wait_of(answer.headers.get("retry-after"), time.time())
        if status in _LATER or (status == 503 and wait is not None):
            self._quiet_until = time.monotonic() + (wait or 0.0)
            return [Retry(_PAUSE if wait is None else wait, said)] * count
        if status in _OF_THE_BODY:
            if count == 1:
                return [Reject(said)]
            raise SinkError(f"{said} to {count} documents")
        if status == 408 or (status >= 500 and status not in _NOT_TAKEN):
            self._leave(batch)
            raise SinkTimeout(f"{said}; it may have taken the documents or not")
        hint = "; redirects are not followed, set url to where it leads" if 300 <= status < 400 else ""
        raise SinkUnavailable(said + hint)

    def _without_secrets(self, result: Result) -> Result:
        """A receiver may repeat our own headers, or where they were sent, in its reasons."""
        if not isinstance(result, Retry | Reject):
            return result
        options, reason = self._options, result.reason
        parts = urlsplit(options.url.get_secret_value())
        secrets = [*options.headers.values(), options.secret, options.old_secret]
        values = [secret.get_secret_value() for secret in secrets if secret is not None]
        for value in [*values, *(part for part in (parts.query, parts.path) if len(part) > 1)]:
            reason = reason.replace(value, "********")
        return dataclasses.replace(result, reason=reason[:LONGEST_REASON])


class _Settling:
    """A request that was not answered, until the receiver can't go on with it any more."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def is_over(self) -> bool:
        """Whether the time has passed."""
        return time.monotonic() >= self._until

    async def over(self) -> None:
        """Wait until the time has passed."""
        await asyncio.sleep(max(0.0, self._until - time.monotonic()))
