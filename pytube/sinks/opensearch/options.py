"""What `[tube.NAME.sink]` may hold for `type = "opensearch"`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from pytube.sinks.keys import KeyTemplate
from pytube.sinks.registry import SinkOptions

_UNITS = {"nanos": 1e-9, "micros": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """A time as the server writes it ("60s", "1h"); without a unit it is milliseconds."""
    found = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if found is None or (found[2] and found[2] not in _UNITS):
        raise ValueError(f"{text!r} is no time, e.g. 1h")
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


def _checked_key(text: str) -> str:
    KeyTemplate(text)
    return text


class OpenSearchOptions(SinkOptions):
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
    key: Annotated[str, AfterValidator(_checked_key)] = Field(
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
    raise_gc_deletes: bool = Field(
        default=False, description="true to raise index.gc_deletes of an index that exists, or false"
    )
    user: str | None = Field(default=None, min_length=1, description="a user's name")
    password: SecretStr | None = Field(default=None, description="the user's password")
    api_key: SecretStr | None = Field(default=None, description="an API key, as the server encodes it")
    ca_file: str | None = Field(default=None, min_length=1, description="a PEM file of certificates to trust")
    client_cert: str | None = Field(default=None, min_length=1, description="a PEM file, our certificate")
    client_key: str | None = Field(
        default=None, min_length=1, description="a PEM file, the key of client_cert"
    )
    verify: bool = Field(default=True, description="true, or false to accept any certificate")
    connect_timeout: float = Field(default=3.0, gt=0, description="seconds, above 0")
    timeout: float = Field(default=30.0, gt=0, description="seconds for one request, above 0")
    pool_size: int = Field(default=16, ge=1, description="a number of connections to each node, 1 or more")
    bulk_bytes: int = Field(
        default=5 * 1024 * 1024, ge=1, description="bytes of one bulk request before compression, 1 or more"
    )
    compress: bool = Field(default=True, description="true to compress requests, or false")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """What no field can check by itself. Messages have no values: some are secrets."""
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password go together")
        if self.user is not None and self.api_key is not None:
            raise ValueError("give a user or an api_key, not both")
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("client_key goes with client_cert")
        kept = flat(self.settings).get("index.gc_deletes")
        if kept is not None and seconds(str(kept)) < self.tombstone_seconds:
            raise ValueError("settings: gc_deletes is shorter than tombstone_seconds; leave it out")
        if self.mappings.get("enabled") is False:
            raise ValueError('mappings: enabled = false would hide the stamp; use dynamic = "false"')
        if self.stamp in self.mappings.get("properties", {}):
            raise ValueError(
                "mappings: the field of the stamp is pytube's own; leave it out, or name another"
            )
        return self
