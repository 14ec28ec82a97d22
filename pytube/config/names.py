"""Names at Kafka, of leader topics and consumer groups; names of tables.

A leader's name is `pytube.<installation>.<tube>`, or `pytube.<installation>` where all tubes share one. Kafka
takes ASCII letters, digits, `.`, `_` and `-`, at most 249 of them. In the two parts letters, digits and
`-` stand for themselves, `_` is written `__`, and each byte of anything else (in UTF-8; dots too) is
written `_` and two hexadecimal digits. So two tubes never share a topic by accident, and a name can be
read back. A name that would be too long is cut, and ends in `_.` and a hash of the whole; that one can't
be read back.
"""

from __future__ import annotations

import hashlib
import re

from pytube.errors import ConfigError

LONGEST = 249
_PREFIX = "pytube"
_HASHED = "_."
_HASH_DIGITS = 32
_PLAIN = re.compile(rb"[A-Za-z0-9-]")
_ALLOWED = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST}}}")
_WHOLE = re.compile(r"(?:[A-Za-z0-9-]|__|_[0-9a-f]{2})*")
_ESCAPE = re.compile(r"__|_([0-9a-f]{2})")

_IDENTIFIER = r'"(?:[^"]|"")+"|[^".\s]+'
_TABLE = re.compile(rf"({_IDENTIFIER})\.({_IDENTIFIER})")


def leader_name(installation: str, tube: str | None = None) -> str:
    """The name of the leader topic, and of the group, of a tube; None: of all tubes."""
    name = ".".join([_PREFIX, _escape(installation), *([] if tube is None else [_escape(tube)])])
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]
    return name[: LONGEST - len(_HASHED) - _HASH_DIGITS].rstrip("_") + _HASHED + digest


def parse_leader_name(name: str) -> tuple[str, str] | None:
    """Installation and tube of a leader topic; None when it is none, or was cut."""
    parts = name.split(".")
    if len(parts) != 3 or parts[0] != _PREFIX or not all(_WHOLE.fullmatch(part) for part in parts[1:]):
        return None
    return _unescape(parts[1]), _unescape(parts[2])


def checked_name(name: str, what: str) -> str:
    """`name` as it was configured; `ConfigError` when Kafka would refuse it."""
    if _ALLOWED.fullmatch(name) and name not in (".", ".."):
        return name
    raise ConfigError(
        f"{what} {name!r} is not a valid Kafka name: use 1 to {LONGEST} of the characters A-Z a-z 0-9 . _ -"
    )


def _escape(part: str) -> str:
    return "".join(_escape_byte(bytes([byte])) for byte in part.encode())


def _escape_byte(byte: bytes) -> str:
    if _PLAIN.match(byte):
        return byte.decode()
    return "__" if byte == b"_" else f"_{byte.hex()}"


def _unescape(part: str) -> str:
    def byte(match: re.Match[str]) -> str:
        return "_" if match.group(1) is None else chr(int(match.group(1), 16))

    return _ESCAPE.sub(byte, part).encode("latin-1").decode()


def table_name(text: str) -> tuple[str, str]:
    """Schema and name of a table that is written as in SQL: unquoted parts are in lower case.

    Raises:
        ValueError: it is not `schema.table`.
    """
    match = _TABLE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} does not name a table; expected schema.table, quoted as in SQL")
    schema, table = (_identifier(part) for part in match.groups())
    return schema, table


def _identifier(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text.lower()
