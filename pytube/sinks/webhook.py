"""The sink `webhook`: posts batches to a URL, signed, and understands a result for each document."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import hashlib
import hmac
import ipaddress
import json
import re
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from pytube.errors import ConfigError, SinkContract, SinkError, SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Document, KeyType, Reject, Result, Retry, Stale, Token
from pytube.sinks.base import Abandoned, Trial, in_groups, refuse_lapsed
from pytube.sinks.http import Answer, Client, Resolve, is_allowed, place_of, tls_context
from pytube.sinks.jsonl import envelopes
from pytube.sinks.registry import ServerOptions
from pytube.threads import resolve

Format = Literal["ndjson", "json"]

CONTENT_TYPES: dict[Format, str] = {"ndjson": "application/x-ndjson", "json": "application/json"}

SECRET_PREFIX = "whsec_"  # noqa: S105 # how a secret begins
_LONGEST_WAIT = 3600.0
"""Seconds of a Retry-After that are believed."""
_IDLE_SECONDS = 3.0
"""How long an idle connection is kept: less than servers do (some 5 s), or a request may meet its end."""
LONGEST_ANSWER = 1024 * 1024
"""Bytes."""
LONGEST_REASON = 500


# --- requests -----------------------------------------------------------------------------------


def lines(tube: str, documents: Sequence[Document]) -> list[bytes]:
    """The documents as lines: those of the sink `jsonl` without its own fields."""
    return [b'%b,"doc":%b}' % pair for pair in envelopes(tube, documents)]


def body_of(items: Sequence[bytes], form: Format) -> bytes:
    """The body of a request."""
    if form == "json":
        return b"[" + b",\n".join(items) + b"]"
    return b"\n".join([*items, b""])


def id_of(body: bytes) -> str:
    """The idempotency key: the same documents with the same tokens have the same one."""
    return "pytube_" + hashlib.sha256(body).hexdigest()[:40]


def key_of(secret: str) -> bytes:
    """The key of a secret such as `whsec_…`; `ValueError` when it is none."""
    if not secret.startswith(SECRET_PREFIX):
        raise ValueError("a secret begins with whsec_")
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    if not 24 <= len(key) <= 64:
        raise ValueError("a secret has 24 to 64 bytes")
    return key


def signature(keys: Iterable[bytes], message: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature for each key, as Standard Webhooks has it."""
    signed = b"%b.%d.%b" % (message.encode(), timestamp, body)
    digests = [hmac.digest(key, signed, "sha256") for key in keys]
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


# --- answers ------------------------------------------------------------------------------------


def results_of(body: bytes, count: int, *, required: bool) -> list[Result]:
    """The results in the body of an answer with status 2xx.

    Without results in it, everything is taken, unless they are `required`.

    Raises:
        SinkContract: there is not one result for each document, or one can't be understood.
    """
    try:
        answer = json.loads(body) if body.strip() else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "results" not in answer:
        if required:
            raise SinkContract('sink "webhook": with compares = true an answer needs "results"')
        return [OK] * count
    items = answer["results"]
    if not isinstance(items, list) or len(items) != count:
        found = len(items) if isinstance(items, list) else "no list of"
        raise SinkContract(f'sink "webhook": the receiver answered {found} results for {count} documents')
    return [_result(at, item) for at, item in enumerate(items)]


def _result(at: int, item: Any) -> Result:
    match item:
        case {"status": "ok"}:
            return OK
        case {"status": "retry", "after": int() | float() as after} if after >= 0:
            return Retry(min(float(after), _LONGEST_WAIT), _reason(item))
        case {"status": "retry"} if "after" not in item:
            return Retry(1.0, _reason(item))
        case {"status": "reject"}:
            return Reject(_reason(item))
        case {"status": "stale", "token": str() as token} if token.isdigit():
            return Stale(int(Token.parse(token)))
    raise SinkContract(
        f'sink "webhook": result {at} is none; expected an object with "status" ok, retry (and "after" in '
        'seconds), reject (and "reason"), or stale (and "token", a text of digits)'
    )


def _reason(item: dict[str, Any]) -> str:
    return str(item.get("reason") or "the receiver gave no reason")


def wait_of(retry_after: str | None, now: float) -> float | None:
    """Seconds of a Retry-After, a number or a date; None where there is none, or none to be understood."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isdigit():
        return min(float(text), _LONGEST_WAIT)
    try:
        moment = parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
    return min(max(0.0, moment - now), _LONGEST_WAIT)


# --- options --------------------------------------------------------------------------------------

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
"""Statuses by which a receiver refuses the content, so that smaller requests show which document it is."""
_LATER = {425, 429}
_NOT_TAKEN = {501, 505}
"""Statuses of servers that have not looked at the documents. At any other above 499, and at 408, the receiver
may still be at work: a proxy says so when it gives up waiting."""


class WebhookOptions(ServerOptions):
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
        "headers that HTTP or the sink sets itself are not allowed",
    )
    compares: bool = Field(default=False, description="true or false")
    allow_plain_http: bool = Field(default=False, description="true or false")
    allowed_networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = Field(
        default=(), description='a list of networks, e.g. ["10.1.0.0/16"]'
    )
    settle_seconds: float = Field(default=10.0, ge=0, description="a number of seconds, 0 or more")
    max_bytes: int = Field(default=1024 * 1024, ge=1, description="a number of bytes, 1 or more")

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

    def faults(self) -> Iterator[str]:
        """See `SinkOptions.faults`."""
        yield from super().faults()
        scheme = urlsplit(self.url.get_secret_value()).scheme
        if scheme != "https" and not (scheme == "http" and self.allow_plain_http):
            yield (
                'option "url": expected "https://…"; "http://…" shows documents and headers to everybody on '
                "the way, and needs allow_plain_http = true"
            )

    @property
    def keys(self) -> list[bytes]:
        """The keys to sign with: the newer one first."""
        return [key_of(s.get_secret_value()) for s in (self.secret, self.old_secret) if s is not None]

    def tls(self) -> ssl.SSLContext | None:
        """How certificates are checked, and the client's own; None for plain HTTP; raises `ConfigError`."""
        if urlsplit(self.url.get_secret_value()).scheme != "https":
            return None
        return tls_context("webhook", self)


# --- the sink -------------------------------------------------------------------------------------


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
        self._host, self._port = place_of(options.url.get_secret_value())
        self._quiet_until = 0.0
        """The moment until which the receiver asked for no request, of `time.monotonic()`."""

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """The sink for these options; `ConfigError` names a bad one."""
        return cls(WebhookOptions.parse("webhook", options))

    def trial(self, name: str, keys: KeyType) -> Trial:
        """The same receiver, with a separate tube: documents that it took can't be removed."""
        del keys  # a message takes both
        tube = f"conformance-{name}"
        where = f"the receiver at {self._host}, as documents of the tube {tube}"
        return Trial(lambda: type(self)(self._options, resolve=self._resolve), where, None, tube=tube)

    async def open(self) -> None:
        """Check that the address may be connected to; nothing is sent."""
        if self._client is not None:
            return
        options = self._options
        tls = options.tls()
        try:
            async with asyncio.timeout(options.timeout):
                allowed = await self._allowed(self._host, self._port)
        except (OSError, TimeoutError) as error:
            raise SinkUnavailable(f'sink "webhook": {self._host} can\'t be resolved: {error}') from error
        if not allowed:
            raise ConfigError(
                f'sink "webhook": option "url": {self._host} leads to private, loopback or link-local '
                'addresses only; if they are meant, add their network to "allowed_networks"'
            )
        self._client = Client(
            # The rest of the URL may be a secret.
            f'sink "webhook": {self._host}:{self._port}',
            options.url.get_secret_value(),
            options,
            resolve=self._allowed,
            tls=tls,
            idle_seconds=_IDLE_SECONDS,
        )

    async def _allowed(self, host: str, port: int) -> list[str]:
        """The addresses that may be connected to; `OSError` when there is no address at all.

        It is asked for each connection. A name that leads elsewhere the next time gains nothing by it.
        """
        found = dict.fromkeys(await self._resolve(host, port))
        return [address for address in found if is_allowed(address, self._options.allowed_networks)]

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

        Their connections are closed already. The receiver does not report when it is done, so
        `settle_seconds` is waited out, unless the receiver compares.
        """
        if not self.compares:
            await self._abandoned.over(batch)

    async def close(self) -> None:
        """Begin no more requests; requests that have begun continue."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # --- requests -------------------------------------------------------------------------

    def _parts(self, batch: Batch) -> Iterator[list[bytes]]:
        """The documents as lines, in groups of at most `max_bytes`."""
        found = lines(batch.tube, batch.documents)
        return in_groups(found, lambda line: len(line) + 1, self._options.max_bytes)

    async def _post(self, client: Client, batch: Batch, items: Sequence[bytes]) -> list[Result]:
        quiet = self._quiet_until - time.monotonic()
        if quiet > 0:
            return [Retry(quiet, f"{client.name} asked for no requests meanwhile")] * len(items)
        body = body_of(items, self._options.format)
        begun = False

        def begin() -> None:
            nonlocal begun
            refuse_lapsed(client.name, batch)
            begun = True

        try:
            answer = await client.request(
                "POST", headers=self._headers(body), body=body, most=LONGEST_ANSWER, begin=begin
            )
        except (asyncio.CancelledError, SinkTimeout):
            if begun:
                self._leave(batch)
            raise
        return self._results(client.name, batch, answer, len(items))

    def _headers(self, body: bytes) -> dict[str, str]:
        message, now = id_of(body), int(time.time())
        headers = {
            "content-type": CONTENT_TYPES[self._options.format],
            "accept": "application/json",
            "user-agent": "pytube",
            "webhook-id": message,
            "webhook-timestamp": str(now),
            "idempotency-key": message,
        }
        if self._keys:
            headers["webhook-signature"] = signature(self._keys, message, now, body)
        own = {name.lower(): value.get_secret_value() for name, value in self._options.headers.items()}
        return {**headers, **own}

    def _leave(self, batch: Batch) -> None:
        """The receiver may still work on a request of the batch."""
        self._abandoned.add(batch, asyncio.ensure_future(asyncio.sleep(self._options.settle_seconds)))

    # --- answers --------------------------------------------------------------------------

    def _results(self, name: str, batch: Batch, answer: Answer, count: int) -> list[Result]:
        """The results for the documents; raises the answer's errors about the receiver."""
        status = answer.status
        said = f"{name} answered {status}"
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
        """A receiver may repeat the sink's headers, or their address, in its reasons."""
        if not isinstance(result, Retry | Reject):
            return result
        options, reason = self._options, result.reason
        parts = urlsplit(options.url.get_secret_value())
        secrets = [*options.headers.values(), options.secret, options.old_secret]
        values = [secret.get_secret_value() for secret in secrets if secret is not None]
        for value in [*values, *(part for part in (parts.query, parts.path) if len(part) > 1)]:
            reason = reason.replace(value, "********")
        return dataclasses.replace(result, reason=reason[:LONGEST_REASON])
