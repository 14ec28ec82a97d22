"""Bulk requests: documents as lines, in chunks, and what the server answered for each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from pytube.model import OK, Batch, Document, Ok, Reject, Result, Retry
from pytube.sinks.keys import KeyTemplate
from pytube.sinks.opensearch.options import OpenSearchOptions

_LONGEST_NAME = 512
"""Bytes of an `_id`. One that is longer, or empty, makes the server refuse the whole request."""

RETRY_BUSY = 1.0
RETRY_BLOCKED = 5.0
"""Seconds."""

_OF_THE_DOCUMENT = (400, 413)
_NOT_OF_THE_DOCUMENT = {"index_closed_exception", "cluster_block_exception", "index_not_found_exception"}
"""Errors that have the status of a document's fault at some versions, but are about the whole index."""

_OF_THE_ALIAS = {"index_not_found_exception", "illegal_argument_exception"}
"""Errors of an alias that is gone, or takes no writes. The second has other causes as well."""

_VALUE = re.compile(r"\s*(Preview of field's value|The prefix of the first immense term is): .*", re.DOTALL)
_LONGEST_REASON = 500


def is_possible(name: str) -> bool:
    """Whether the server can hold a document of this `_id`."""
    return 0 < len(name.encode()) <= _LONGEST_NAME


@dataclass(slots=True)
class Item:
    """One document of a batch as lines of a bulk request."""

    at: int
    """Its place in the batch."""
    name: str
    document: Document
    lines: bytes


@dataclass(slots=True)
class Chunk:
    """Items of one bulk request."""

    items: list[Item] = field(default_factory=list)
    size: int = 0

    @property
    def body(self) -> bytes:
        """The request's body."""
        return b"".join([item.lines for item in self.items])

    def halves(self) -> tuple[Chunk, Chunk]:
        """The items in two requests."""
        middle = len(self.items) // 2
        return Chunk(self.items[:middle]), Chunk(self.items[middle:])


@dataclass(frozen=True, slots=True)
class Conflict:
    """The server holds a write of the key that is not older."""

    reason: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """The server refused the document for a lasting reason that is not the document's own."""

    reason: str


class Lines:
    """Makes the lines of documents."""

    def __init__(self, options: OpenSearchOptions) -> None:
        self._keys = KeyTemplate(options.key)
        self._stamp = orjson.dumps(options.stamp)
        self._by_shard = options.routing == "shard"
        self._limit = options.bulk_bytes

    def chunks(self, batch: Batch, results: list[Result]) -> Iterator[Chunk]:
        """The batch in requests of at most `bulk_bytes`; what needs no request gets its result at once.

        A document that is larger by itself has a request of its own.
        """
        chunk = Chunk()
        tube = orjson.dumps(batch.tube)
        for at, document in enumerate(batch):
            item = self._item(at, batch.tube, tube, document)
            if not isinstance(item, Item):
                results[at] = item
                continue
            if chunk.items and chunk.size + len(item.lines) > self._limit:
                yield chunk
                chunk = Chunk()
            chunk.items.append(item)
            chunk.size += len(item.lines)
        if chunk.items:
            yield chunk

    def _item(self, at: int, tube_name: str, tube: bytes, document: Document) -> Item | Ok | Reject:
        name = self._keys.name(tube_name, document.shard, document.id)
        if not is_possible(name):
            if document.is_delete:
                return OK  # no such document was ever taken
            size = len(name.encode())
            return Reject(f"its _id would have {size} bytes: 1 to {_LONGEST_NAME} are possible")
        meta = b'"_id":%b,"version":%d,"version_type":"external"' % (orjson.dumps(name), int(document.token))
        if self._by_shard:
            meta += b',"routing":"%d"' % document.shard
        if document.body is None:
            return Item(at, name, document, b'{"delete":{%b}}\n' % meta)
        body = document.body.strip()
        if body[:1] != b"{":
            return Reject("its body is no JSON object, and only objects can be indexed")
        if b"\n" in body:
            # Within JSON a raw end of line is blank space; in a bulk request it ends the document.
            body = body.replace(b"\n", b" ")
        rest = body[1:].lstrip()
        stamp = self._stamped(tube, document)
        return Item(
            at,
            name,
            document,
            b'{"index":{%b}}\n{%b:%b%b%b\n' % (meta, self._stamp, stamp, b"" if rest == b"}" else b",", rest),
        )

    def _stamped(self, tube: bytes, document: Document) -> bytes:
        return b'{"tube":%b,"shard":%d,"id":%b,%b"seq":%d,"token":"%d"}' % (
            tube,
            document.shard,
            orjson.dumps(document.id),
            b'"text":true,' if isinstance(document.id, str) else b"",
            document.seq,
            int(document.token),
        )


def outcome(item: Mapping[str, Any]) -> Result | Conflict | Blocked:
    """What one item of a bulk answer says."""
    (answer,) = item.values()
    status, error = answer["status"], answer.get("error")
    if error is None:
        return OK  # 404 among them: there was nothing to delete
    kind = error.get("type") or "error"
    text = _reason(kind, error)
    if status == 409:
        return Conflict(error.get("reason") or "")
    if status == 429 or status >= 500:
        return Retry(RETRY_BUSY, text)
    if status in _OF_THE_DOCUMENT and kind not in _NOT_OF_THE_DOCUMENT:
        return Reject(text)
    return Blocked(text)


def may_be_of_the_alias(item: Mapping[str, Any]) -> bool:
    """Whether one item of a bulk answer failed perhaps because the alias does not take writes any more."""
    (answer,) = item.values()
    return (answer.get("error") or {}).get("type") in _OF_THE_ALIAS


def _reason(kind: str, error: Mapping[str, Any]) -> str:
    """The error in words, without values of the document."""
    reason = error.get("reason") or ""
    cause = error.get("caused_by") or {}
    if reason == "failed to parse" and cause:
        # This alone helps nobody. Its cause names tokens and fields.
        reason = f"{reason}: {cause.get('reason') or cause.get('type')}"
    return f"{kind}: {_VALUE.sub('', reason)}"[:_LONGEST_REASON]


_HELD = re.compile(r"current version \[(\d+)\] is higher or equal to the one provided \[\d+\]$")


def held_token(found: Mapping[str, Any], stamp: str, document: Document, reason: str) -> int | None:
    """The token of the write that the server holds instead of `document`; None when that is not known.

    Of a document that is there it is the stamp's: an update by others counts the version up, and a
    version of ours that they reached is no write of ours. Of a tombstone the server tells the version
    in words only.
    """
    own = int(document.token)
    if found.get("found"):
        stamped = found.get("_source", {}).get(stamp, {}).get("token")
        held = int(stamped) if stamped is not None else int(found["_version"])
        return held if held >= own else None
    said = _HELD.search(reason)
    held = int(said[1]) if said else -1
    # With our own token, it is a tombstone that somebody else made unless we delete, too.
    return held if held > own or (held == own and document.is_delete) else None


def items_of(answer: Any, count: int) -> Sequence[Mapping[str, Any]] | None:
    """The items of a bulk answer; None when they are not one for each document."""
    items = answer.get("items", []) if isinstance(answer, dict) else []
    return items if len(items) == count else None
