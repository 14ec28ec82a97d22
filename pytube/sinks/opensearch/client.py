"""The options of the sink `opensearch`, and requests to the nodes of a cluster."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from pytube import clock
from pytube.comparison import decode
from pytube.errors import SinkTimeout
from pytube.sinks import http
from pytube.sinks.registry import ServerOptions, TemplateText
from pytube.threads import Resolver, in_thread

# --- options --------------------------------------------------------------------------------------

_UNITS = {"nanos": 1e-9, "micros": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """A time as the server writes it ("60s", "1h"); without a unit it is milliseconds."""
    found = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if found is None or (found[2] and found[2] not in _UNITS):
        raise ValueError(f"{text!r} is not a valid time, such as 1h")
    return float(found[1]) * _UNITS[found[2] or "ms"]


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings of an index by their full names ("index.gc_deletes"), however they were nested."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    if prefix:
        return found
    return {name if name.startswith("index.") else f"index.{name}": value for name, value in found.items()}


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("not a URL of a server")
    if parts.username is not None or parts.password is not None:
        raise ValueError("no user in a URL")
    if parts.port == 0:
        raise ValueError("no port")
    return url.rstrip("/")


class OpenSearchOptions(ServerOptions):
    """The options. The description of each is what its error says was expected."""

    url: Annotated[
        list[Annotated[str, AfterValidator(_checked_url)]],
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    ] = Field(
        min_length=1,
        description='"https://host:9200", or a list of such for several nodes, without user and password',
    )
    index: str = Field(
        pattern=r"^[^-_+.A-Z\\/*?\"<>| ,#:\x00-\x20][^A-Z\\/*?\"<>| ,#:\x00-\x20]{0,247}$",
        description="the name of an index or an alias, in lower case",
    )
    key: TemplateText = Field(
        default="{shard}:{id}",
        description="a template for the documents' _id with {id}, and maybe {shard} and {tube}",
    )
    create: Literal["alias", "index", "never"] = Field(
        default="alias",
        description='what to create if it is missing: "alias" (with an index -000001), "index" or "never"',
    )
    settings: dict[str, Any] = Field(
        default_factory=dict, description="a table of settings for an index that is created"
    )
    mappings: dict[str, Any] = Field(
        default_factory=dict, description="a table, the mappings of an index that is created"
    )
    stamp: str = Field(
        default="_pytube",
        pattern=r"^[^\s.*\"\\]+$",
        description="the name of the field that holds pytube's own stamp, without dots",
    )
    routing: Literal["id", "shard"] = Field(
        default="id", description='"id", or "shard" to keep a shard\'s documents together'
    )
    refresh: Literal["no", "wait_for", "yes"] = Field(
        default="no",
        description='"no", "wait_for" or "yes": whether a write is searchable when it is answered',
    )
    tombstone_seconds: int = Field(
        default=3600, ge=1, description="seconds for which a delete refuses late writes, 1 or more"
    )
    user: str | None = Field(default=None, min_length=1, description="a user's name")
    password: SecretStr | None = Field(default=None, description="the user's password")
    api_key: SecretStr | None = Field(default=None, description="an API key, as the server encodes it")
    verify: bool = Field(default=True, description="true, or false to accept any certificate")
    connect_timeout: float = Field(default=3.0, gt=0, description="seconds, above 0")
    timeout: float = Field(default=30.0, gt=0, description="seconds for one request, above 0")
    bulk_bytes: int = Field(
        default=5 * 1024 * 1024, ge=1, description="bytes of one bulk request before compression, 1 or more"
    )
    compress: bool = Field(default=True, description="true to compress requests, or false")

    def faults(self) -> Iterator[str]:
        """See `SinkOptions.faults`."""
        yield from super().faults()
        if (self.user is None) != (self.password is None):
            yield "user and password go together"
        if self.user is not None and self.api_key is not None:
            yield "give a user or an api_key, not both"
        kept = flat(self.settings).get("index.gc_deletes")
        if kept is not None and seconds(str(kept)) < self.tombstone_seconds:
            yield "settings: gc_deletes is shorter than tombstone_seconds; leave it out"
        if self.mappings.get("enabled") is False:
            yield 'mappings: enabled = false would hide the stamp; use dynamic = "false"'
        if self.stamp in self.mappings.get("properties", {}):
            yield "mappings: the field of the stamp is pytube's own; leave it out, or name another"


# --- requests -------------------------------------------------------------------------------------

_JSON = "application/json"
_LINES = "application/x-ndjson"

_GZIP = 31
"""zlib's window bits for the format of gzip."""
_LEVEL = 1
"""Higher levels take three times as long for a tenth less."""
_WORTH = 4096
"""Bytes from which on a body is compressed: to pack and unpack less takes longer than to send it."""
_IN_LOOP = 64 * 1024
"""Bytes that are compressed within the event loop; more go to a thread."""

LONGEST_ANSWER = 32 * 1024 * 1024
"""Bytes of an answer without documents: of 500 documents with a reason each, it has a megabyte."""

_TYPE = re.compile(r"[a-z_]+")
"""The type of an error of the server's."""

_DOWN = 30.0
"""Seconds for which a node that could not be reached is asked last."""


class Refused(Exception):
    """The server answered with an error: it did nothing, unless the status is 500 or more."""

    def __init__(self, status: int, kind: str, reason: str) -> None:
        super().__init__(f"HTTP {status}: {kind}: {reason}" if kind else f"HTTP {status}")
        self.status = status
        self.kind = kind


class Client:
    """Requests to one cluster. A request is sent to one node, and to the next if that can't be reached."""

    def __init__(self, options: OpenSearchOptions, resolver: Resolver | None = None) -> None:
        """Nothing is connected yet; `ConfigError` when a file of a certificate can't be read."""
        self.where = ", ".join(options.url)
        self._compress = options.compress
        self._headers = {"accept": _JSON, "user-agent": "pytube"}
        self._secrets: list[str] = []
        if options.api_key is not None:
            self._secrets = [options.api_key.get_secret_value()]
            self._headers["authorization"] = f"ApiKey {self._secrets[0]}"
        if options.user is not None and options.password is not None:
            password = options.password.get_secret_value()
            self._secrets = [base64.b64encode(f"{options.user}:{password}".encode()).decode(), password]
            self._headers["authorization"] = f"Basic {self._secrets[0]}"
        tls = None
        if any(url.startswith("https:") for url in options.url):
            tls = http.tls_context("opensearch", options, verify=options.verify)
        names = resolver or Resolver(options.connect_timeout)
        self._nodes = [
            http.Client(url, url, options, resolve=lambda host, _: names.resolve(host), tls=tls)
            for url in options.url
        ]
        self._down_until = dict.fromkeys(self._nodes, 0.0)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | bytes | None = None,
        most: int | None = LONGEST_ANSWER,
        begin: Callable[[], None] = lambda: None,
    ) -> Any:
        """The decoded answer. A method that is repeatable by HTTP's rules may be sent twice.

        `most`: bytes of the answer; None where it has documents.

        `begin` as for `http.Client.request`.

        Raises:
            SinkUnavailable: nothing was sent.
            SinkTimeout: what the server did is not known.
            SinkContract: the answer is too large.
            Refused: the server's error.
        """
        headers = {**self._headers, "content-type": _LINES if isinstance(body, bytes) else _JSON}
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        if data is not None and self._compress and len(data) >= _WORTH:
            data = await _compressed(data)
            headers["content-encoding"] = "gzip"
        # They take turns; nodes that are down come last.
        self._nodes.append(self._nodes.pop(0))
        nodes = sorted(self._nodes, key=lambda node: self._down_until[node] > clock.now())
        for node in nodes:
            try:
                answer = await node.request(
                    method, path, headers=headers, params=params, body=data, most=most, begin=begin
                )
            except http.Unreachable:
                self._down_until[node] = clock.now() + _DOWN
                if node is nodes[-1]:
                    raise
            else:
                return self._decoded(answer)
        raise AssertionError("there is a node")

    def hide(self, text: str) -> str:
        """`text` without the login: a proxy may repeat the headers of a request in its reasons."""
        for secret in filter(None, self._secrets):
            text = text.replace(secret, "********")
        return text

    async def close(self) -> None:
        """Begin no more requests; connections are closed after the last one under way."""
        for node in self._nodes:
            await node.close()

    def _decoded(self, answer: http.Answer) -> Any:
        try:
            found = decode(answer.body)
        except ValueError:
            if answer.status < 300:
                raise SinkTimeout(f"{self.where} gave an incomplete answer: it is not valid JSON") from None
            found = None
        if answer.status < 300:
            return found
        error = found.get("error") if isinstance(found, dict) else None
        error = error if isinstance(error, dict) else {}
        kind = str(error.get("type") or "")
        if not _TYPE.fullmatch(kind):  # a short password may be part of a type, by which code decides
            kind = self.hide(kind)
        raise Refused(answer.status, kind, self.hide("; ".join(_reasons(error))))


async def _compressed(data: bytes) -> bytes:
    if len(data) <= _IN_LOOP:
        return zlib.compress(data, _LEVEL, _GZIP)
    return await in_thread(zlib.compress, data, _LEVEL, _GZIP)


def _reasons(found: dict[str, Any]) -> list[str]:
    """Each reason that the server gives, once: of several faults, and of their causes."""
    reasons: list[str] = []
    todo = [found]
    while todo:
        error = todo.pop(0)
        reason = str(error.get("reason") or "")
        if reason and not any(reason in other for other in reasons):
            reasons.append(reason)
        more = [*(error.get("root_cause") or ()), error.get("caused_by"), *(error.get("suppressed") or ())]
        todo += [one for one in more if isinstance(one, dict)]
    return reasons or [""]
