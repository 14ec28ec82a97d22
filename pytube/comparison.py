"""How a source and a sink are compared: when two documents are equal, and how a key can differ.

Spark's `reconcile` and `pytube verify` follow the same rules. Spark moves rows between machines. So it first
compares the number of rows, and the sum of their hashes, in each bucket of keys; only in buckets that differ
are keys compared one by one. `verify` has both documents of a key in its hands anyway.
"""

from __future__ import annotations

import enum
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
        ValueError: it is not valid JSON.
    """
    try:
        return orjson.loads(body)
    except ValueError:  # half of a surrogate pair, or nested too deeply for it
        try:
            return json.loads(body, parse_int=_int)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


def encode(value: Any) -> bytes:
    """The JSON text of a decoded document; an empty text, which equals none, if it is nested too deeply."""
    try:
        return orjson.dumps(value)
    except TypeError:  # half of a surrogate pair, or more than 254 levels
        try:
            return json.dumps(value).encode()
        except RecursionError:  # almost a thousand
            return b""


def equal(one: Any, other: Any) -> bool:
    """Whether two decoded documents are the same. `true` is not `1`, as it is to Python."""
    try:
        if one != other:
            return False
        if orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS):
            return True
    except (TypeError, RecursionError):  # half of a surrogate pair, or nested deeply
        pass
    return _are_same(one, other)  # 1 and 1.0 are written otherwise, and equal


def _are_same(one: Any, other: Any) -> bool:
    """As `equal`, slower, and to any depth."""
    todo = [(one, other)]
    while todo:
        one, other = todo.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            if one.keys() != other.keys():
                return False
            todo += [(value, other[name]) for name, value in one.items()]
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            todo += zip(one, other, strict=True)
        elif isinstance(one, bool) != isinstance(other, bool) or one != other:
            return False
    return True


def _int(digits: str) -> int | float:
    return int(digits) if len(digits) < _GREATEST_INT else float(digits)


class Difference(enum.StrEnum):
    """How a key differs."""

    MISSING = "missing"
    """Only the source has it."""
    EXTRA = "extra"
    """Only the sink has it."""
    DIFFERENT = "different"
    """Both have it, with other values."""


def counted(missing: int, extra: int, different: int) -> str:
    """The differences in words."""
    return f"{missing} missing, {extra} extra, {different} different"
