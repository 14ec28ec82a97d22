"""Documents that are split: each part of one is a separate document at the sink.

The parts are declared. So every write covers all of them, with missing parts as deletes, and the sink need
not remember earlier writes. No outdated part can stay.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

from pytube.comparison import decode
from pytube.errors import SinkContract
from pytube.model import OK, Batch, Document, Id, Key, Ok, Reject, Result, Retry, Stale, Token
from pytube.sinks.base import (
    HOLDS_NOTHING,
    READ_MOST,
    Making,
    Reading,
    Scanning,
    Sink,
    Stored,
    held_forms,
    why_no_read,
    why_no_scan,
)

_SLICE = 0.005
"""Seconds of splitting after which the event loop gets its turn."""
_SHOWN = 10
"""Parts that an error names."""

T = TypeVar("T", Token, int)


# --- ids ----------------------------------------------------------------------------------------

_NUMBER = re.compile(r"-?[0-9]{1,19}")


def part_id(key: Id, part: str) -> str:
    """The id of a part at the sink. A text that could be taken for a number has a `~` before it."""
    if isinstance(key, str) and (key.startswith("~") or _NUMBER.fullmatch(key)):
        key = f"~{key}"
    return f"{key}/{part}"


def base_id(found: Id) -> tuple[Id, str] | None:
    """The id of the whole document, and the part; None for what `part_id` gives of no id."""
    base, slash, part = found.rpartition("/") if isinstance(found, str) else ("", "", "")
    if not slash:
        return None
    key: Id = base
    if base.startswith("~"):
        key = base[1:]
    elif _NUMBER.fullmatch(base):
        key = int(base)
    return (key, part) if part_id(key, part) == found else None


# --- JSON texts, cut into the values of their top level, each as it is written -------------------

_BLANKS = re.compile(r"[ \t\n\r]*")
# Numbers stay texts, because Python refuses integers of 4300 digits.
_VALUES = json.JSONDecoder(parse_int=str, parse_float=str)


def cut(text: str, brackets: Literal["{}", "[]"], expected: str) -> Iterator[tuple[str, Any, str]]:
    """Each value of an object or array: its name, the value, in which numbers are texts, and its own text.

    Raises:
        ValueError: `expected`, if the text begins with another sign; else why it is not valid JSON.
    """
    begin, end = brackets
    at = _past(text, _past(text, 0, ""), begin)
    if not at:
        raise ValueError(expected)
    while not (over := _past(text, at, end)):
        name = ""
        if begin == "{":
            name, own, at = _value(text, at)
            if not own.startswith('"'):
                raise ValueError("it is not valid JSON: a name is not a string")
            at = _past_required(text, at, ":")
        value, own, at = _value(text, at)
        yield name, value, own
        if not _past(text, at, end):
            at = _past_required(text, at, ",")
    if over < len(text):
        raise ValueError("it is not valid JSON: more text follows its end")


def _past(text: str, at: int, sign: str) -> int:
    """Where the text continues, without blanks, after `sign`; 0 if that does not come next."""
    found = _BLANKS.match(text, at + len(sign))
    return found.end() if found is not None and text.startswith(sign, at) else 0


def _past_required(text: str, at: int, sign: str) -> int:
    after = _past(text, at, sign)
    if not after:
        raise ValueError(f"it is not valid JSON: {sign!r} is missing at character {at}")
    return after


def _value(text: str, at: int) -> tuple[Any, str, int]:
    """The next value, decoded; its text; and where the text continues."""
    try:
        value, end = _VALUES.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not valid JSON: {error}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value, text[at:end], _past(text, end, "")


# --- documents ----------------------------------------------------------------------------------


class Parts:
    """The parts that the documents of a tube are split into."""

    def __init__(self, declared: Sequence[str] | int) -> None:
        """`declared`: the names of the parts; or their number, which makes each document an array."""
        self._is_array = isinstance(declared, int)
        names = map(str, range(declared)) if isinstance(declared, int) else declared
        self.names: Sequence[str] = tuple(names)
        self._known = frozenset(self.names)

    def has(self, name: object) -> bool:
        """Whether it is the name of one of them."""
        return isinstance(name, str) and name in self._known

    def split(self, body: bytes) -> list[bytes | None]:
        """The text of each part, digit by digit as it is in `body`; None: the document does not have it.

        Raises:
            ValueError: says why the document can't be split.
        """
        found = self._elements(body.decode()) if self._is_array else self._members(body.decode())
        return [None if (part := found.get(name, "null")) == "null" else part.encode() for name in self.names]

    def _elements(self, text: str) -> dict[str, str]:
        expected = f"expected an array of at most {len(self.names)} documents"
        found = {str(at): part for at, (_, _, part) in enumerate(cut(text, "[]", expected))}
        if len(found) > len(self.names):
            raise ValueError(f"{expected}, got {len(found)}")
        return found

    def _members(self, text: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, _, part in cut(text, "{}", f"expected an object with the parts {_listed(self.names)}"):
            if not self.has(name):
                raise ValueError(f"its member {name[:50]!r} is none of the parts {_listed(self.names)}")
            if name in found:
                raise ValueError(f"it has the part {name} twice")
            found[name] = part
        return found

    def join(self, texts: Sequence[bytes | None]) -> bytes:
        """An object with the parts that are there, by their names."""
        there = [
            json.dumps(name).encode() + b":" + text
            for name, text in zip(self.names, texts, strict=True)
            if text is not None
        ]
        return b"{" + b",".join(there) + b"}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def joined(parts: Parts, held: Sequence[Stored]) -> Stored:
    """What the sink holds of one document, by its parts, which are given in their order.

    It is an object, also if the parts are numbered: `{"0": …}`.
    """
    there = [one for one in held if one.exists]
    body = parts.join([one.body for one in held]) if there else None
    try:
        for one in there:  # invalid texts might become valid JSON when joined
            decode(one.body or b"")
    except ValueError:
        body = b""
    known = there or held
    return Stored(body, _lowest([one.token for one in known]), _lowest([one.seq for one in known]))


def _lowest(values: Sequence[T | None]) -> T | None:
    """None, if one is not known: it may be lower than the others."""
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None


# --- results ------------------------------------------------------------------------------------


def join_results(names: Sequence[str], results: Sequence[Result], token: Token) -> Result:
    """The answer for a document whose parts got these: `Ok` if all are written, else the gravest.

    A newer write of another term at one part ends this term, whatever the other answers. A part that is
    rejected parks the document although others are only deferred: sent again, it would be rejected again.
    """
    rejected: list[tuple[str, str]] = []
    delayed: list[tuple[float, str]] = []
    newer: list[int] = []
    for name, result in zip(names, results, strict=True):
        match result:
            case Ok():
                pass
            case Stale():
                if result.newer != int(token):  # this very write, done before, is as good as Ok
                    newer.append(result.newer)
            case Reject():
                rejected.append((name, result.reason))
            case Retry():
                delayed.append((result.after, f"part {name}: {result.reason}"))
            case _:
                raise SinkContract(f"the sink answered {result!r} for part {name}, which is not a result")
    if newer:
        return Stale(max(newer))
    if rejected:
        others = f" (and parts {_listed([name for name, _ in rejected[1:]])})" if rejected[1:] else ""
        return Reject(f"part {rejected[0][0]}{others}: {rejected[0][1]}")
    return Retry(*max(delayed)) if delayed else OK


# --- the sink -----------------------------------------------------------------------------------


class PartsSink:
    """Splits each document into the parts that are declared, for any other sink.

    What is about the place, such as its mark, is asked of the other sink: see `place_of`.
    """

    def __init__(self, inner: Sink, parts: Parts) -> None:
        """`inner` gets the parts."""
        self.compares = inner.compares
        self.inner = inner
        self._parts = parts
        self._sent: WeakKeyDictionary[Batch, Batch] = WeakKeyDictionary()
        """The batch of parts that was sent for each batch that may still be abandoned."""
        self._strangers: dict[int, tuple[int, Id]] = {}
        """By shard: documents that the last scan has left out, and one of their ids."""

    async def open(self) -> None:
        """Open the other sink."""
        await self.inner.open()

    async def close(self) -> None:
        """Close the other sink."""
        await self.inner.close()

    async def abandon(self, batch: Batch) -> None:
        """Wait for the parts that were sent for this very batch."""
        sent = self._sent.get(batch)
        if sent is not None:
            await self.inner.abandon(sent)

    # --- writing ----------------------------------------------------------------------------

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Send all parts of all documents at once; unsplittable documents are rejected."""
        split = await self._split(batch)
        parts = [document for one in split if not isinstance(one, Reject) for document in one]
        sent = self._sent[batch] = batch.carrying(parts)
        results = await self.inner.send(sent)
        if len(results) != len(parts):
            raise SinkContract(f"the sink answered {len(results)} results for {len(parts)} parts")
        answers = iter(results)
        return [
            one
            if isinstance(one, Reject)
            else join_results(self._parts.names, [next(answers) for _ in one], batch.token)
            for one in split
        ]

    async def _split(self, batch: Batch) -> list[list[Document] | Reject]:
        """The parts of each document, or why it has none."""
        split: list[list[Document] | Reject] = []
        turn = time.monotonic()
        for document in batch:
            try:
                split.append(self._parts_of(document))
            except ValueError as error:
                split.append(Reject(f"it can't be split into parts: {error}"))
            if time.monotonic() - turn >= _SLICE:
                await asyncio.sleep(0)
                turn = time.monotonic()
        return split

    def _parts_of(self, document: Document) -> list[Document]:
        names = self._parts.names
        bodies = [None] * len(names) if document.body is None else self._parts.split(document.body)
        return [
            Document(document.shard, part_id(document.id, name), body, document.token, document.seq)
            for name, body in zip(names, bodies, strict=True)
        ]

    # --- scanning ---------------------------------------------------------------------------

    def cannot_scan(self) -> str | None:
        """As the other sink."""
        return why_no_scan(self.inner)

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        """The id of the whole document for each part that the other sink finds, so perhaps several times.

        To remember the ids for giving each once would take memory for all of them.
        """
        assert isinstance(self.inner, Scanning)
        self._strangers.pop(shard, None)
        scan = self.inner.scan(tube, shard, below_seq)
        try:
            async for page in scan:
                yield [key for key in (self._base(shard, found) for found in page) if key is not None]
        finally:
            if isinstance(scan, AsyncGenerator):  # so that the sink frees its resources now
                await scan.aclose()

    def _base(self, shard: int, found: Id) -> Id | None:
        """The id of the whole document; None for an undeclared part."""
        split = base_id(found)
        if split is None or not self._parts.has(split[1]):
            count, example = self._strangers.get(shard, (0, found))
            self._strangers[shard] = count + 1, example
            return None
        return split[0]

    def overlooked(self) -> str | None:
        """Documents that are not a declared part: no write would change or delete them."""
        if not self._strangers:
            return None
        count = sum(count for count, _ in self._strangers.values())
        shard, (_, example) = next(iter(self._strangers.items()))
        return (
            f"{count} documents at the sink are none of the configured parts, e.g. shard {shard} id "
            f"{str(example)[:50]!r}; `parts` was another when they were written: see docs/transforms.md"
        )

    # --- reading ----------------------------------------------------------------------------

    def cannot_read(self) -> str | None:
        """As the other sink."""
        return why_no_read(self.inner)

    async def read(self, tube: str, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        """The parts of each, all of one document in the same read of the other sink."""
        assert isinstance(self.inner, Reading)
        names = self._parts.names
        at_once = max(1, READ_MOST // len(names))
        found: dict[Key, Stored] = {}
        for start in range(0, len(keys), at_once):
            wanted = {
                (shard, key): [(shard, part_id(key, name)) for name in names]
                for shard, key in keys[start : start + at_once]
            }
            held = await self.inner.read(tube, [part for parts in wanted.values() for part in parts])
            for key, parts in wanted.items():
                found[key] = joined(self._parts, [held[part] for part in parts])
        return found

    async def as_held(self, bodies: Sequence[bytes]) -> Sequence[bytes | None]:
        """The parts as the other sink would hold them, joined as `read` joins them."""
        assert isinstance(self.inner, Reading)
        split: list[list[bytes | None] | None] = []
        for body in bodies:
            try:
                split.append(self._parts.split(body))
            except ValueError:
                split.append(None)
        sent = [part for parts in split if parts is not None for part in parts if part is not None]
        held = iter(await held_forms(self.inner, sent))
        return [None if parts is None else self._held(parts, held) for parts in split]

    def _held(self, parts: Sequence[bytes | None], held: Iterator[bytes | None]) -> bytes | None:
        """A document of what the other sink makes of its parts; None: it would reject one of them."""
        made = [None if part is None else next(held) for part in parts]
        if any(part is not None and form is None for part, form in zip(parts, made, strict=True)):
            return None
        return self._parts.join(made) if any(made) else HOLDS_NOTHING


# --- the sink without its parts -------------------------------------------------------------------


def place_of(sink: Sink) -> Sink:
    """The sink without its parts, which answers all questions about its place, such as the mark."""
    return sink.inner if isinstance(sink, PartsSink) else sink


async def open_existing(sink: Sink) -> str | None:
    """Open `sink` as `Making.open_existing` says, or by `open` where it makes nothing."""
    sink = place_of(sink)
    if isinstance(sink, Making):
        return await sink.open_existing()
    await sink.open()
    return None
