"""The configuration as it may be shown: with every secret masked."""

from __future__ import annotations

import re
from typing import Any

from pydantic import SecretStr

from pytube.config.environment import FromEnvironment
from pytube.config.models import Config

MASK = "********"

_SECRET_KEY = re.compile(
    r"pass|secret|token|credential|auth|api_?key|private|dsn|jaas|sasl|cert",
    re.IGNORECASE,
)
_USER_INFO = re.compile(r"(?<=://)[^/\s]*@")


def masked(config: Config) -> dict[str, Any]:
    """The configuration by the names that the file uses, defaults included, secrets masked.

    Masked are secrets by type, all further options of Kafka, and of a sink's options those from
    the environment, those with the name of a secret, and user and password within a URL.
    """
    shown = config.model_dump(by_alias=True)
    if shown["kafka"] is None:
        del shown["kafka"]
    else:
        shown["kafka"]["options"] = dict.fromkeys(shown["kafka"]["options"], MASK)
    for tube in shown["tube"].values():
        tube["sink"]["options"] = {
            key: _mask_option(key, value) for key, value in tube["sink"]["options"].items()
        }
    plain: dict[str, Any] = _plain(shown)
    return plain


def _mask_option(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _mask_option(k, v) for k, v in value.items()}
    if isinstance(value, list):
        return [_mask_option(key, v) for v in value]
    if isinstance(value, FromEnvironment) or _SECRET_KEY.search(key):
        return MASK
    return _USER_INFO.sub(f"{MASK}@", value) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if v is not None}
    return value
