"""What the sink `redis` has the server do: one script that compares tokens and writes, and its arguments.

A script, not a function of `FUNCTION LOAD`: a server that has lost it (a failover, a restart, a flush)
says so, and is sent it again with the next call; every client brings the version that it needs; and
managed servers that allow no libraries allow scripts.

All keys of one call belong to one shard:

- the register, a hash: for each document that is there, its member to `epoch:counter:seq`;
- each document's own key;
- each document's tombstone: `epoch:counter`, which expires.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any, Literal

from redis.crc import key_slot

from pytube.model import Document, Id, Stale, Token
from pytube.sinks.parts import cut

Mode = Literal["json", "hash", "invalidate"]

RESERVED = b"pytube."
"""How the keys of registers and tombstones begin."""

# Epoch and counter are compared one after the other, because Lua's numbers are doubles, which hold 53 bits.
# All reads come first: whatever is wrong with a key, the script fails before it has written anything.
SCRIPT = b"""
local count = (#KEYS - 1) / 2
local epoch, counter = tonumber(ARGV[1]), tonumber(ARGV[2])
local stamp = ARGV[1] .. ':' .. ARGV[2] .. ':' .. ARGV[3]
local stone = ARGV[1] .. ':' .. ARGV[2]

local function is_newer(held)
    if not held then return false end
    local e, c = string.match(held, '^(%d+):(%d+)')
    if not c then return false end
    e, c = tonumber(e), tonumber(c)
    return e > epoch or (e == epoch and c > counter)
end

local written = redis.call('HMGET', KEYS[1], unpack(ARGV, 5, 4 + count))
local deleted = redis.call('MGET', unpack(KEYS, count + 2, 2 * count + 1))
local refused, values, stamps, gone, buried, revived = {}, {}, {}, {}, {}, {}
local at = 5 + count
for i = 1, count do
    local name, size = KEYS[i + 1], tonumber(ARGV[at])
    if is_newer(written[i]) then
        refused[#refused + 1] = i
        refused[#refused + 1] = written[i]
    elseif is_newer(deleted[i]) then
        refused[#refused + 1] = i
        refused[#refused + 1] = deleted[i]
    elseif size < 0 then
        gone[#gone + 1] = ARGV[4 + i]
        buried[#buried + 1] = name
        redis.call('SET', KEYS[count + 1 + i], stone, 'EX', ARGV[4])
    else
        stamps[#stamps + 1] = ARGV[4 + i]
        stamps[#stamps + 1] = stamp
        if deleted[i] then revived[#revived + 1] = KEYS[count + 1 + i] end
        if size == 1 then
            values[#values + 1] = name
            values[#values + 1] = ARGV[at + 1]
        else
            redis.call('DEL', name)
            for from = at + 1, at + size, 1000 do
                redis.call('HSET', name, unpack(ARGV, from, math.min(from + 999, at + size)))
            end
        end
    end
    at = at + 1 + math.max(size, 0)
end
if #values > 0 then redis.call('MSET', unpack(values)) end
if #stamps > 0 then redis.call('HSET', KEYS[1], unpack(stamps)) end
if #gone > 0 then redis.call('HDEL', KEYS[1], unpack(gone)) end
if #buried > 0 then redis.call('DEL', unpack(buried)) end
if #revived > 0 then redis.call('DEL', unpack(revived)) end
return refused
"""
SHA = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()

_DELETE = (b"-1",)
_DOCUMENTS = 100
"""Documents of one call; the server does nothing else meanwhile, and Lua unpacks 8000 values at most."""
_BYTES = 256 * 1024


@dataclass(slots=True)
class Call:
    """One call of the script: documents of one shard that share a token and a seq."""

    register: bytes
    seq: int
    token: Token
    positions: list[int] = field(default_factory=list)
    """Where the documents stand in their batch."""
    size: int = 0
    _names: list[bytes] = field(default_factory=list)
    _stones: list[bytes] = field(default_factory=list)
    _members: list[bytes] = field(default_factory=list)
    _payloads: list[bytes] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether the next document belongs into another call."""
        return len(self.positions) >= _DOCUMENTS or self.size >= _BYTES

    def add(self, position: int, name: bytes, member: bytes, payload: Sequence[bytes]) -> None:
        """One more document."""
        self.positions.append(position)
        self._names.append(name)
        self._stones.append(tombstone_of(name))
        self._members.append(member)
        self._payloads += payload
        self.size += sum(map(len, payload)) + 2 * len(name)

    def command(self, tombstone_seconds: int, *, with_text: bool) -> list[bytes]:
        """The command; with the script's text for a server that does not have it."""
        epoch, counter = self.token
        return [
            *((b"EVAL", SCRIPT) if with_text else (b"EVALSHA", SHA)),
            b"%d" % (1 + 2 * len(self._names)),
            self.register,
            *self._names,
            *self._stones,
            *(b"%d" % number for number in (epoch, counter, self.seq, tombstone_seconds)),
            *self._members,
            *self._payloads,
        ]

    def refused(self, reply: Sequence[Any]) -> list[tuple[int, Stale]]:
        """The documents that the server did not take, by their positions."""
        return [
            (self.positions[reply[at] - 1], Stale(int(Token(*map(int, reply[at + 1].split(b":")[:2])))))
            for at in range(0, len(reply), 2)
        ]


def register_of(tag: bytes, tube: str, shard: int) -> bytes:
    """The key of a shard's register; with the hash tag of its documents, so that it is in their slot."""
    return b"%bregister:%b%b:%d" % (RESERVED, b"{%b}" % tag if tag else b"", tube.encode(), shard)


def tombstone_of(name: bytes) -> bytes:
    """The key of a document's tombstone: with a fixed text before the name, it has the name's hash tag."""
    return b"%btombstone:%b" % (RESERVED, name)


MARKS = 16
"""Marks in a cluster: one in each sixteenth of the slots, so that each of a few servers has some."""


def marks_of(tag: bytes, tube: str, *, cluster: bool) -> list[bytes]:
    """The keys of a tube's mark; `tag` is that of its documents, which decides about no slot here."""
    places = [b"{%d}" % number for number in _spread()] if cluster else [b""]
    return [b"%bmark:%b:%b:%b" % (RESERVED, place, tag, tube.encode()) for place in places]


def note_of(key: str) -> bytes:
    """The key of a note; named as the mark's, so that a user who may set these may set it."""
    return b"%bmark:note:%b" % (RESERVED, key.encode())


@cache
def _spread() -> tuple[int, ...]:
    """For each part of the slots, the smallest number whose slot is in it."""
    size = 16384 // MARKS
    parts: dict[int, int] = {}
    for number in count():
        parts.setdefault(key_slot(b"%d" % number) // size, number)
        if len(parts) == MARKS:
            break
    return tuple(parts.values())


def hash_tag(name: bytes) -> bytes:
    """The part of a key that decides about its slot in a cluster; empty when it is all of the key."""
    start = name.find(b"{")
    end = name.find(b"}", start + 1)
    return name[start + 1 : end] if 0 <= start < end else b""


def member_of(key: Id) -> bytes:
    """An id as a field of the register; a text differs from a number that looks the same."""
    return b"%d" % key if isinstance(key, int) else b"=" + key.encode()


def id_of(member: bytes) -> Id:
    """The id that `member_of` was given."""
    return member[1:].decode() if member.startswith(b"=") else int(member)


def seq_of(stamp: bytes) -> int:
    """The seq of an entry of the register; -1, older than any, for other content."""
    last = stamp.rpartition(b":")[2]
    return int(last) if last.isdigit() else -1


def stamp_of(held: bytes | None) -> tuple[Token | None, int | None]:
    """The token and the seq of an entry of the register; of a tombstone, which has no seq, the token."""
    parts = (held or b"").split(b":")
    if len(parts) < 2 or not all(part.isdigit() for part in parts):
        return None, None
    return Token(int(parts[0]), int(parts[1])), int(parts[2]) if len(parts) > 2 else None


def text_of(field: bytes) -> str:
    """A name or a value of a hash as a text; invalid UTF-8, which only others write, stays distinct."""
    return field.decode(errors="backslashreplace")


def payload_of(document: Document, mode: Mode) -> Sequence[bytes]:
    """How many values follow (-1 deletes), and the values: the body's text, or fields with their values.

    Raises:
        ValueError: the body is not a JSON object with plain texts, which the mode `hash` needs.
    """
    body = document.body
    if body is None or mode == "invalidate":
        return _DELETE
    if mode == "json":
        return b"1", body
    fields = hash_fields(body)
    return b"%d" % len(fields), *fields


MOST_FIELDS = 100_000
"""Fields of a hash. A document of 64 MiB could have millions: the event loop would do nothing else for longer
than a term lasts, and each next term would come to the same document."""


def hash_fields(body: bytes) -> list[bytes]:
    """The top-level fields of a JSON object with their values, alternately.

    A text is given as it is, without quotes; a null is left out; of all else it is the JSON text itself,
    so that numbers keep their digits. Of a name that comes twice, the last value counts.

    Raises:
        ValueError: it is not a JSON object, has too many fields, or a text in it has no UTF-8 form.
    """
    found: dict[str, bytes] = {}
    try:
        for at, (name, value, own) in enumerate(cut(body.decode(), "{}", "it is not a JSON object")):
            if at >= MOST_FIELDS:
                raise ValueError(f"it has more than {MOST_FIELDS} fields")
            found.pop(name, None)
            if value is not None:
                found[name] = (value if isinstance(value, str) else own).encode()
        return [part for name, value in found.items() for part in (name.encode(), value)]
    except UnicodeEncodeError:
        raise ValueError("a text has half a surrogate pair") from None
