"""The words of the system as values: keys, shards, pods, tokens, documents, results. No I/O, no decisions."""

from __future__ import annotations

import enum
import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby, repeat
from typing import Any, Final, NamedTuple, TypeAlias, cast, overload

from pytube import clock

# --- keys -------------------------------------------------------------------------------

Id: TypeAlias = int | str
"""Of one row: an integer, or a text (of a uuid, as Postgres writes it). A tube has ids of one kind."""

Key: TypeAlias = tuple[int, Id]
"""`(shard, id)`: names a document at every sink."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GREATEST = 2**63 - 1


class KeyType(enum.StrEnum):
    """The type of a tube's keys, by the name that Postgres has for it."""

    BIGINT = "bigint"
    UUID = "uuid"
    TEXT = "text"

    def has(self, value: object) -> bool:
        """Whether `value` can be the id of a row of a tube with these keys, as a worker writes it."""
        match self:
            case KeyType.BIGINT:
                return type(value) is int and -_GREATEST - 1 <= value <= _GREATEST
            case KeyType.UUID:
                return isinstance(value, str) and _UUID.fullmatch(value) is not None
            case KeyType.TEXT:
                return isinstance(value, str) and "\0" not in value


# --- shards and partitions: the same here and in SQL ------------------------------------

# `tests/vectors/shards.json` and `shards_of_keys.json` hold values that SQL, Python and Spark all give.


def shard_of(key: Id, shard: int, shards: int, place: int | None = None) -> int:
    """The shard of the id `key` in a table spread over `shards` shards from `shard` on.

    Of an integer it is the remainder, which is never negative, so that negative ids have a shard
    too. A text, or a uuid in Postgres' own spelling, goes by the first 32 bits of its md5. `place`: by that
    part alone, of a key of several columns.
    """
    if isinstance(key, str):
        key = part_of(key, place)
        key = int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")
    return shard + key % shards


_PART = r'"(?:[^"\\]|\\.)*"|[^",\]]+'


@cache
def _parts(place: int) -> re.Pattern[str]:
    return re.compile(rf"\[(?:(?:{_PART}), ){{{place}}}({_PART})", re.DOTALL)


def part_of(key: str, place: int | None) -> str:
    """The text of a column in a key of several, as JSON: `7` or `"acme"`; `place` counts from 0.

    The whole key where there is no such part, as in a key touched manually, or `place` is
    None.
    """
    found = None if place is None else _parts(place).match(key)
    return key if found is None else found[1]


def ids_in(number: int, ids: Sequence[Id], shard: int, shards: int, place: int | None = None) -> Sequence[Id]:
    """The ones of `ids`, all of one kind, whose `shard_of` is `number`.

    Where there is one shard, all ids are in it, and they are returned unchanged.
    """
    if shards == 1:
        return ids if number == shard else ()
    if ids and isinstance(ids[0], int):  # many times as fast as a call for each
        rest = number - shard
        return [key for key in cast("Sequence[int]", ids) if key % shards == rest]
    return [key for key in ids if shard_of(key, shard, shards, place) == number]


def partition_of(shard: int, partitions: int) -> int:
    """The partition, out of `partitions`, that works on `shard`."""
    return shard % partitions


# --- pods: the rows of a tube, as a mark returns them -----------------------------------


class PodClass(enum.IntEnum):
    """The two classes of a partition's queue; incremental pods go before backfill pods."""

    INCREMENTAL = 0
    BACKFILL = 1


TOUCHED_AT_ONCE: Final = 1000
"""Keys that an operator may touch together with live changes; more would be in their way, and go behind."""


def touch_op(count: int) -> str:
    """The op of an operator's touches of so many keys."""
    return "T" if count <= TOUCHED_AT_ONCE else "B"


class Pod(NamedTuple):
    """Touches of one shard, drawn at one `seq`. The fields are a mark's columns, in order.

    A pod without ids and with a payload is a control pod. A named tuple, because a worker makes
    hundreds of thousands of these a second.
    """

    seq: int
    op: str
    shard: int
    ids: Sequence[Id]
    payload: Mapping[str, Any] | None = None
    ts: float = 0.0
    """Unix seconds at which the pod was inserted, by the database's clock."""

    @property
    def pod_class(self) -> PodClass:
        """Backfill for op B, incremental for every other op."""
        return PodClass.BACKFILL if self.op == "B" else PodClass.INCREMENTAL


# --- tokens: they order the writes of one key at a sink ---------------------------------


COUNTER_BITS = 28
_COUNTER_MASK = (1 << COUNTER_BITS) - 1


class Token(NamedTuple):
    """`(epoch, counter)`, compared as a pair; `int(token)` is `epoch << 28 | counter` (59 bits).

    Postgres, JSON and message headers carry the integer as text, because 59 bits do not fit a
    double. A store whose numbers are doubles compares the two fields one after the other.
    """

    epoch: int
    counter: int

    def __int__(self) -> int:
        return self.epoch << COUNTER_BITS | self.counter

    def __str__(self) -> str:
        return str(int(self))

    @classmethod
    def parse(cls, value: int | str) -> Token:
        """The token whose integer form is `value`; `ValueError` when it is not one."""
        number = int(value)
        if number < 0:
            raise ValueError(f"a token is not negative, got {value!r}")
        return cls(number >> COUNTER_BITS, number & _COUNTER_MASK)


# --- documents, in batches that share one token -----------------------------------------


@dataclass(slots=True)
class Document:
    """The state of one key: its JSON text, or None when the source has no such row (delete)."""

    shard: int
    id: Id
    """An int where the tube's keys are bigint; a str where they are uuid or text."""
    body: bytes | None
    token: Token
    seq: int
    """Stamp for the sweep: at least the highest seq among the touches that caused this document."""

    @property
    def key(self) -> Key:
        """`(shard, id)`: names the document at every sink."""
        return self.shard, self.id

    @property
    def is_delete(self) -> bool:
        """Whether the document is to be removed at the sink."""
        return self.body is None

    def value(self) -> Any:
        """The body, decoded; None for a delete."""
        return None if self.body is None else json.loads(self.body)


class Documents(Sequence[Document]):
    """Documents with one token and stamp, held as columns; an object is made for each that is read.

    Objects for all would take a worker longer than all else that it does for them. Changes of an object
    have no effect here.
    """

    __slots__ = ("_bodies", "_ids", "_shards", "seq", "token")

    def __init__(self, token: Token, seq: int) -> None:
        """None yet; `token` and `seq` as in `Document`."""
        self.token = token
        self.seq = seq
        self._shards: list[int] = []
        self._ids: list[Id] = []
        self._bodies: list[bytes | None] = []

    def add(self, shard: int, ids: Sequence[Id], bodies: Iterable[bytes | None]) -> None:
        """Put the documents of `ids` to the end; as many bodies, in their order."""
        self._shards += [shard] * len(ids)
        self._ids += ids
        self._bodies += bodies

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Document]:
        return map(Document, self._shards, self._ids, self._bodies, repeat(self.token), repeat(self.seq))

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Documents: ...
    def __getitem__(self, index: int | slice) -> Document | Documents:
        if isinstance(index, int):
            return Document(self._shards[index], self._ids[index], self._bodies[index], self.token, self.seq)
        part = Documents(self.token, self.seq)
        part._shards, part._ids, part._bodies = self._shards[index], self._ids[index], self._bodies[index]
        return part

    @property
    def keys(self) -> list[Key]:
        """The `(shard, id)` of each."""
        return list(zip(self._shards, self._ids, strict=True))

    def by_shard(self) -> dict[int, list[Id]]:
        """The ids of each shard."""
        if len(set(self._shards)) == 1:  # as a rule
            return {self._shards[0]: self._ids}
        groups: dict[int, list[Id]] = {}
        for shard, key in zip(self._shards, self._ids, strict=True):
            groups.setdefault(shard, []).append(key)
        return groups

    def runs(self) -> Iterator[tuple[int, list[Id], list[bytes | None]]]:
        """Shard, ids and bodies of the documents, cut where the shard changes."""
        end = 0
        for shard, run in groupby(self._shards):
            start, end = end, end + len(list(run))
            yield shard, self._ids[start:end], self._bodies[start:end]

    @property
    def sizes(self) -> list[int]:
        """Bytes of each body; 0 for a delete."""
        return [len(body or b"") for body in self._bodies]

    @property
    def size(self) -> int:
        """Bytes of all bodies."""
        return sum(map(len, filter(None, self._bodies)))


@dataclass(slots=True, eq=False, weakref_slot=True)
class Batch:
    """Documents of one partition that are sent together; no key occurs twice.

    `send_before` is a moment of `time.monotonic()`: a sink that has not begun its write by then
    must not begin it, because another worker may lead the partition. `has_lapsed()` says whether it has
    come, and knows of a machine that has slept meanwhile, too.
    """

    tube: str
    partition: int
    token: Token
    documents: Sequence[Document]
    send_before: float = field(default=float("inf"))
    host: str | None = None
    """The Postgres host that the partition is of, where there are several: they have partitions of the same
    number. None for the only one."""
    _trusted_until: float = field(default=float("inf"), init=False)

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    def carrying(self, documents: Sequence[Document]) -> Batch:
        """Other documents in place of these, under the same token and the same right to send."""
        other = copy(self)
        other.documents = documents
        return other

    def trust_until(self, moment: float) -> None:
        """No write may begin from `moment` on, which is of `pytube.clock`."""
        self._trusted_until = moment
        self.send_before = clock.on_monotonic(moment)

    def has_lapsed(self) -> bool:
        """Whether the write must not begin any more."""
        return time.monotonic() >= self.send_before or clock.now() >= self._trusted_until

    @property
    def size(self) -> int:
        """Bytes of all bodies."""
        return sum(len(d.body) for d in self.documents if d.body is not None)


# --- results: what a sink answers for each document -------------------------------------


@dataclass(frozen=True, slots=True)
class Ok:
    """The write is durable at the sink, or a newer one of the same term is there already."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Not now (an overloaded sink): send again after `after` seconds. Uses up no attempt."""

    after: float
    reason: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Never: the sink will not take this document, whatever happens. It is parked."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stale:
    """The sink holds a write with the token `newer`, which is equal or higher.

    With an equal token this write is done already; with a higher one this term is over.
    """

    newer: int


Result = Ok | Retry | Reject | Stale

OK = Ok()
"""The one shared `Ok`, so that a whole batch is `[OK] * len(batch)`."""
