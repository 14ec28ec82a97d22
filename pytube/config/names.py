"""Names at Kafka, of leader topics and consumer groups; names of tables.

A leader's name is `pytube.<installation>.<tube>`, or `pytube.<installation>` where all tubes share one. Kafka
takes ASCII letters, digits, `.`, `_` and `-`, at most 249 of them. In the two parts letters, digits and
`-` stand for themselves, `_` is written `__`, and each byte of anything else (in UTF-8; dots too) is
written `_` and two hexadecimal digits. So two tubes never share a topic by accident. A name that would be too
long is cut, and ends in `_.` and a hash of the whole.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from pytube.errors import ConfigError

LONGEST = 249
_PREFIX = "pytube"
_HASHED = "_."
_HASH_DIGITS = 32
_PLAIN = re.compile(rb"[A-Za-z0-9-]")
_ALLOWED = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST}}}")

_IDENTIFIER = r'"(?:[^"]|"")+"|[^".\s]+'
_TABLE = re.compile(rf"({_IDENTIFIER})\.({_IDENTIFIER})")


def leader_name(installation: str, tube: str | None = None) -> str:
    """The name of the leader topic, and of the group, of a tube; None: of all tubes."""
    name = ".".join([_PREFIX, _escape(installation), *([] if tube is None else [_escape(tube)])])
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]
    return name[: LONGEST - len(_HASHED) - _HASH_DIGITS].rstrip("_") + _HASHED + digest


def checked_name(name: str, what: str) -> str:
    """`name` as it was configured; `ConfigError` when Kafka would refuse it."""
    if _ALLOWED.fullmatch(name) and name not in (".", ".."):
        return name
    raise ConfigError(
        f"{what} {name!r} is not a valid Kafka name: use 1 to {LONGEST} of the characters A-Z a-z 0-9 . _ -"
    )


def _escape(part: str) -> str:
    return "".join(
        chr(byte) if _PLAIN.match(bytes([byte])) else "__" if byte == ord("_") else f"_{byte:02x}"
        for byte in part.encode()
    )


def quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


class TableName(NamedTuple):
    """A table by the names that the catalog has."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def sql(self) -> str:
        """As SQL writes it, with its schema: the caller's search_path must not matter."""
        return f"{quoted(self.schema)}.{quoted(self.table)}"


def table_name(text: str) -> TableName:
    """The table that is written as in SQL: unquoted parts are in lower case.

    Raises:
        ValueError: it is not `schema.table`.
    """
    match = _TABLE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} does not name a table; expected schema.table, quoted as in SQL")
    return TableName(*map(_identifier, match.groups()))


def _identifier(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text.lower()
