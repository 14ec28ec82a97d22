"""How a source and a sink are compared: when two documents are equal, and what checksums of buckets tell.

Spark's `reconcile` and `pytube verify` follow the same rules.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

_GREATEST_INT = 20
"""Digits from which on an integer may not fit 64 bits."""


def decode(body: bytes) -> Any:
    """The value of a JSON text; two documents are equal if their values are.

    Integers of up to 64 bits are exact; other numbers are doubles, as most stores and readers of JSON take
    them. So `1.50` equals `1.5`, and `1e300` equals the 301 digits that jsonb makes of it.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return orjson.loads(body)
    except ValueError:  # half of a surrogate pair, or nested too deeply for it
        try:
            return json.loads(body, parse_int=_int)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


def _int(digits: str) -> int | float:
    return int(digits) if len(digits) < _GREATEST_INT else float(digits)
