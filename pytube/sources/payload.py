"""The payloads of control pods. Roles that may touch can put anything there, so reading one never fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytube.model import Pod

_GREATEST = 2**63 - 1


def type_of(pod: Pod) -> object:
    """What kind of control pod it is; None when it does not say."""
    return _get(pod, "type")


def start_seq_of(pod: Pod) -> int | None:
    """The start seq of a backfill's control pod; None when it has none that is a seq."""
    return _natural(_get(pod, "start_seq"))


def is_end(pod: Pod) -> bool:
    """Whether all that the end of a backfill says can be understood, here and in SQL."""
    backfill = _get(pod, "backfill")
    return start_seq_of(pod) is not None and (backfill is None or _natural(backfill) is not None)


def asks_for_sweep(pod: Pod) -> bool:
    """Whether the end of this backfill is to be followed by a sweep: it was one of a root table."""
    return _get(pod, "sweep") is not False


def _get(pod: Pod, name: str) -> Any:
    payload: Any = pod.payload
    return payload.get(name) if isinstance(payload, Mapping) else None


def _natural(value: object) -> int | None:
    """A `bigint` that is not negative, as a number or as its digits; None when it is something else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        value = int(value)
    return value if type(value) is int and 0 <= value <= _GREATEST else None
