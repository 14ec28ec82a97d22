"""Uuids as arrays of numpy, 16 bytes each, from any form that Postgres reads, and as Postgres writes them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pytube.errors import UsageError
from pytube.spark import arrow
from pytube.spark.texts import shown

Uuids = npt.NDArray[np.bytes_]
Bytes = npt.NDArray[np.uint8]

WIDTH = 16
EXAMPLE = "6ecd8c99-4036-403d-bf84-cf8400f67836"
_ANY = re.compile(rb"(\{)?[0-9a-f]{4}(?:-?[0-9a-f]{4}){7}(?(1)\})", re.IGNORECASE)
"""A hyphen may stand after each four digits, and braces around all."""
_WRONG = 256
_VALUES = np.full(256, _WRONG, np.uint16)
for _digit in b"0123456789abcdefABCDEF":
    _VALUES[_digit] = int(chr(_digit), 16)
# Of two characters at a time: the first is the lower byte of their number.
_PAIRS = np.minimum(_VALUES[None, :] * 16 + _VALUES[:, None], _WRONG).reshape(-1)
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


class _Form:
    """One of the forms of which there are many rows: where its digits are, and what else it has."""

    def __init__(self, pattern: str) -> None:
        marks = np.frombuffer(pattern.encode(), np.uint8)
        self.digits = np.flatnonzero(marks == ord("x"))
        self.runs = [slice(*run.span()) for run in re.finditer("x+", pattern)]
        self.others = np.flatnonzero(marks != ord("x"))
        self.marks = marks[self.others]


_HYPHENS = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
_FORMS = {len(pattern): _Form(pattern) for pattern in (_HYPHENS, "x" * 32, f"{{{_HYPHENS}}}")}
"""By how many characters they have."""
_CANONICAL = _FORMS[len(_HYPHENS)]


def read(column: pa.Array[Any]) -> Uuids:
    """The uuids of a column, none NULL: of texts in any form, or of 16 bytes each.

    Raises:
        UsageError: one of them is none. The first is named.
    """
    edges, data = arrow.pieces(column, np.uint8)
    lengths = np.diff(edges)
    found = np.empty((len(lengths), WIDTH), np.uint8)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        if (lengths != WIDTH).any():
            raise UsageError(f"an id has {lengths[lengths != WIDTH][0]} bytes; a uuid has {WIDTH}")
        found[:] = data.reshape(-1, WIDTH)
        return _uuids(found)
    wrong = np.ones(len(lengths), np.bool_)
    for length, form in _FORMS.items():
        here = lengths == length
        if here.all():
            found, wrong = _of_form(data.reshape(-1, length), form)
        elif here.any():
            found[here], wrong[here] = _of_form(data[np.repeat(here, lengths)].reshape(-1, length), form)
    for row in np.flatnonzero(wrong):  # of other forms there are few
        found[row] = np.frombuffer(_parsed(data[edges[row] : edges[row + 1]].tobytes()), np.uint8)
    return _uuids(found)


def written(uuids: Uuids) -> npt.NDArray[np.bytes_]:
    """As Postgres writes them: small letters, and four hyphens."""
    numbers = uuids.view(np.uint8).reshape(-1, WIDTH)
    rows = np.empty((len(uuids), len(_HYPHENS)), np.uint8)
    rows[:, _CANONICAL.others] = _CANONICAL.marks
    rows[:, _CANONICAL.digits[0::2]] = _DIGITS[numbers >> 4]
    rows[:, _CANONICAL.digits[1::2]] = _DIGITS[numbers & 15]
    return rows.view(f"S{len(_HYPHENS)}").reshape(-1)


def _of_form(rows: Bytes, form: _Form) -> tuple[Bytes, npt.NDArray[np.bool_]]:
    """The bytes of rows of one length, and whether each is of another form after all."""
    digits = np.concatenate([rows[:, run] for run in form.runs], axis=1)
    values = _PAIRS[digits.view("<u2")]
    wrong = (values == _WRONG).any(axis=1) | (rows[:, form.others] != form.marks).any(axis=1)
    return values.astype(np.uint8), wrong


def _parsed(text: bytes) -> bytes:
    if _ANY.fullmatch(text) is None:
        raise UsageError(
            f"an id is no uuid: {shown(text)}; write it like {EXAMPLE}, or give its {WIDTH} bytes"
        )
    return bytes.fromhex(text.strip(b"{}").replace(b"-", b"").decode())


def _uuids(rows: Bytes) -> Uuids:
    return np.ascontiguousarray(rows).view(f"S{WIDTH}").reshape(-1)
