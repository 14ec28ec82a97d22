"""The options of the sink `redis`."""

from __future__ import annotations

from typing import Any, Self
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from pytube.errors import ConfigError
from pytube.sinks.keys import KeyTemplate
from pytube.sinks.redis_script import Mode, hash_tag
from pytube.sinks.registry import SinkOptions

_ID = "\x01"
"""Stands for an id where a template is checked."""


class RedisOptions(SinkOptions):
    """What `[tube.NAME.sink]` may hold for `type = "redis"`."""

    url: SecretStr = Field(description='"redis://HOST[:PORT][/DB]", or "rediss://…" for TLS')
    username: str | None = Field(default=None, description="the name of an ACL user")
    password: SecretStr | None = Field(default=None, description="the password")
    mode: Mode = Field(default="json", description='"json", "hash" or "invalidate"')
    key: str = Field(
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
    ca_file: str | None = Field(default=None, description="the path of a file with CA certificates")
    client_cert: str | None = Field(default=None, description="the path of a certificate")
    client_key: str | None = Field(default=None, description="the path of a private key")
    verify: bool = Field(default=True, description="true or false")
    connect_timeout: float = Field(default=5.0, gt=0, description="a number of seconds above 0")
    timeout: float = Field(default=10.0, gt=0, description="a number of seconds above 0")
    pool_size: int = Field(default=16, ge=1, description="a number of connections, 1 or more")
    max_bytes: int = Field(default=4 * 1024 * 1024, ge=1, description="a number of bytes, 1 or more")
    max_document_bytes: int = Field(
        default=64 * 1024 * 1024, ge=1, description="a number of bytes, 1 or more"
    )

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

    @field_validator("key")
    @classmethod
    def _is_template(cls, value: str) -> str:
        KeyTemplate(value)
        return value

    @model_validator(mode="after")
    def _fits_a_cluster(self) -> Self:
        if not self.cluster:
            return self
        name = KeyTemplate(self.key).name("t", 0, _ID).encode()
        tag = hash_tag(name)
        if not tag or name.index(tag) > name.index(_ID.encode()) or _ID.encode() in tag:
            raise ConfigError(
                'sink "redis": option "key": with cluster = true all documents of a shard have to be in one '
                'slot: give a hash tag before {id}, e.g. "{{{tube}:{shard}}}:{id}"'
            )
        if self.parts.path.strip("/") not in ("", "0"):
            raise ConfigError('sink "redis": option "url": a cluster has no other database than 0')
        return self

    @property
    def parts(self) -> SplitResult:
        """The URL in its parts."""
        return urlsplit(self.url.get_secret_value())

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
