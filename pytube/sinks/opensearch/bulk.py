"""Bulk requests: documents as lines, in chunks, and what the server answered for each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from pytube.errors import SinkError, SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Document, Ok, Reject, Result, Retry, Stale
from pytube.sinks.base import in_groups, refuse_lapsed
from pytube.sinks.jsonl import on_one_line
from pytube.sinks.opensearch.client import Client, OpenSearchOptions, Refused
from pytube.sinks.opensearch.index import Index
from pytube.sinks.registry import KeyTemplate

_LONGEST_NAME = 512
"""Bytes of an `_id`. A longer or empty one makes the server refuse the whole request."""

RETRY_BUSY = 1.0
RETRY_BLOCKED = 5.0
"""Seconds."""

_OF_THE_DOCUMENT = (400, 413)
_NO_INDEX = "index_not_found_exception"
_NOT_OF_THE_DOCUMENT = {"index_closed_exception", "cluster_block_exception", _NO_INDEX}
"""Errors that have the status of a document's fault at some versions, but are about the whole index."""

_OF_THE_ALIAS = {_NO_INDEX, "illegal_argument_exception"}
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


GUARD = b'{"update":{"_id":"pytube","require_alias":true}}\n{"doc":{}}\n'
"""An action that writes nothing, and keeps the server from making an index for its neighbors.

The server makes an index that is missing unless some action on that name asks for an alias, and it does not
see that a delete asks. An index without an alias refuses this action alone; behind an alias, it finds no
such document, or nothing to change in it.
"""


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

    def __init__(self, options: OpenSearchOptions, keys: KeyTemplate) -> None:
        self._keys = keys
        self._stamp = orjson.dumps(options.stamp)
        self._by_shard = options.routing == "shard"
        self._limit = options.bulk_bytes

    def chunks(self, batch: Batch, results: list[Result]) -> Iterator[list[Item]]:
        """The items of each request, of at most `bulk_bytes`; other documents get their results at once.

        A larger document gets a separate request.
        """
        return in_groups(self._items(batch, results), lambda item: len(item.lines), self._limit)

    def _items(self, batch: Batch, results: list[Result]) -> Iterator[Item]:
        tube = orjson.dumps(batch.tube)
        for at, document in enumerate(batch):
            item = self._item(at, batch.tube, tube, document)
            if isinstance(item, Item):
                yield item
            else:
                results[at] = item

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
            return Reject("its body is not a JSON object, and only objects can be indexed")
        rest = on_one_line(body)[1:].lstrip()
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


def outcome(item: Mapping[str, Any], hide: Callable[[str], str]) -> Result | Conflict | Blocked:
    """What one item of a bulk answer says; `hide` takes secrets out of its words."""
    (answer,) = item.values()
    status, error = answer["status"], answer.get("error")
    if error is None:
        return OK  # 404 among them: there was nothing to delete
    kind = error.get("type") or "error"
    text = hide(_reason(kind, error))
    if status == 409:
        return Conflict(error.get("reason") or "")
    if status == 429 or status >= 500:
        return Retry(RETRY_BUSY, text)
    if status in _OF_THE_DOCUMENT and kind not in _NOT_OF_THE_DOCUMENT:
        return Reject(text)
    return Blocked(text)


def _error_type(item: Mapping[str, Any]) -> str | None:
    """By which error one item of a bulk answer failed; None where it did not."""
    (answer,) = item.values()
    return (answer.get("error") or {}).get("type")


def _reason(kind: str, error: Mapping[str, Any]) -> str:
    """The error in words, without values of the document."""
    reason = error.get("reason") or ""
    cause = error.get("caused_by") or {}
    if reason == "failed to parse" and cause:
        # This alone does not help. Its cause names tokens and fields.
        reason = f"{reason}: {cause.get('reason') or cause.get('type')}"
    return f"{kind}: {_VALUE.sub('', reason)}"[:_LONGEST_REASON]


_HELD = re.compile(r"current version \[(\d+)\] is higher or equal to the one provided \[\d+\]$")


def held_token(found: Mapping[str, Any], stamp: str, document: Document, reason: str) -> int | None:
    """The token of the write that the server holds instead of `document`; None when that is not known.

    For an existing document the stamp has it: an update by others counts the version up, and if they reach
    one of pytube's versions, that is not pytube's write. For a tombstone the server only gives the version in
    its message.
    """
    own = int(document.token)
    if found.get("found"):
        stamped = found.get("_source", {}).get(stamp, {}).get("token")
        held = int(stamped) if stamped is not None else int(found["_version"])
        return held if held >= own else None
    said = _HELD.search(reason)
    held = int(said[1]) if said else -1
    # With this write's token, it is another client's tombstone, unless this write is a delete, too.
    return held if held > own or (held == own and document.is_delete) else None


def reference(options: OpenSearchOptions, name: str, shard: int) -> dict[str, str]:
    """How a request to `_mget` names a document."""
    return {"_id": name} | ({"routing": str(shard)} if options.routing == "shard" else {})


# --- one batch on its way -------------------------------------------------------------------------


_REFRESH = {"no": "false", "wait_for": "wait_for", "yes": "true"}
_SHARD_WAIT = "5s"
"""How long the server waits for a shard that is being moved, instead of a minute."""

_UNSENT = Retry(RETRY_BLOCKED, "it was not sent")

_NOTHING_DONE = {401, 403, 404, 503}
"""Statuses of a whole request that say: not now, and nothing was written."""
_UNKNOWN = 500
"""From this status on, a proxy may answer for a server that has written."""


_WORST_FIRST = (Stale, Retry, Reject, Ok)


class Delivery:
    """Sends one batch to one index; one is made for each."""

    def __init__(self, client: Client, index: Index, options: OpenSearchOptions, batch: Batch) -> None:
        self._client = client
        self._index = index
        self._options = options
        self._batch = batch
        self._results: list[Result] = [_UNSENT] * len(batch)
        self._answered = False
        """Whether a request of this batch was answered: from then on, not all of it can be untaken."""
        self._blocked: list[str] = []
        self.may_have_moved = False
        """Whether the alias perhaps refused documents: then they may have to go elsewhere."""

    @property
    def index_name(self) -> str:
        """The name that it writes to."""
        return self._index.name

    async def run(self, lines: Lines) -> list[Result]:
        """One result for each document, in order."""
        unsent = _UNSENT
        try:
            for items in lines.chunks(self._batch, self._results):
                await self._write(items)
        except SinkUnavailable as error:
            if not self._answered:
                raise
            unsent = Retry(RETRY_BLOCKED, str(error))
        if self._blocked and len(self._blocked) == len(self._batch):
            raise SinkUnavailable(f"{self._client.where} takes nothing: {self._blocked[0]}")
        return [unsent if result is _UNSENT else result for result in self._results]

    async def _write(self, items: Sequence[Item]) -> None:
        """Write them by one request."""
        # Writes to an alias are guards themselves.
        needs_guard = not self._index.is_alias or all(item.document.is_delete for item in items)
        guard = [GUARD] if needs_guard else []
        lines = [*guard, *(item.lines for item in items)]
        try:
            answer = await self._client.request(
                "POST",
                f"{self._index.path}/_bulk",
                params={
                    "filter_path": "errors,items.*.status,items.*.error",
                    "refresh": _REFRESH[self._options.refresh],
                    "timeout": _SHARD_WAIT,
                    # Else a deleted index comes back without settings and mappings.
                    "require_alias": "true" if self._index.is_alias else "false",
                },
                body=b"".join(lines),
                begin=lambda: refuse_lapsed(self._client.where, self._batch),
            )
        except Refused as error:
            await self._handle_refusal(items, error)
            return
        answers = answer.get("items", []) if isinstance(answer, dict) else []
        if len(answers) != len(lines):
            raise SinkTimeout(f"{self._client.where}: not one answer for each of {len(items)} documents")
        self._answered = True
        conflicts: list[tuple[Item, str]] = []
        is_misplaced = (
            self._index.is_alias and answer.get("errors") and _NO_INDEX in map(_error_type, answers)
        )
        for item, found in zip(items, answers[len(guard) :], strict=True):
            came = OK if not answer.get("errors") else outcome(found, self._client.hide)
            if is_misplaced and not isinstance(came, Blocked):
                # The server does not see that a delete asks for an alias: it went to an index of that name.
                came = Blocked(f"{self._index.name} is no longer an alias")
            if came is not OK:
                moved = _OF_THE_ALIAS if self._index.is_alias else {_NO_INDEX}
                self.may_have_moved |= bool(is_misplaced) or _error_type(found) in moved
            if isinstance(came, Conflict):
                conflicts.append((item, came.reason))
            elif isinstance(came, Blocked):
                self._blocked.append(came.reason)
                self._results[item.at] = Retry(RETRY_BLOCKED, came.reason)
            else:
                self._results[item.at] = came
        if conflicts:
            await self._resolve(conflicts)

    async def _handle_refusal(self, items: Sequence[Item], error: Refused) -> None:
        """The whole request was refused."""
        if error.status == 413:
            if len(items) > 1:
                middle = len(items) // 2
                await self._write(items[:middle])
                await self._write(items[middle:])
                return
            (item,) = items
            self._results[item.at] = Reject(f"its {len(item.lines)} bytes are more than the server takes")
        elif error.status == 429:  # the server is up, and asks for fewer requests
            for item in items:
                self._results[item.at] = Retry(RETRY_BUSY, f"{self._client.where} is busy: {error}")
        elif error.status in _NOTHING_DONE:
            raise SinkUnavailable(f"{self._client.where} takes nothing: {error}") from error
        elif error.status >= _UNKNOWN:
            raise SinkTimeout(f"{self._client.where} failed: {error}") from error
        else:
            raise SinkError(f"{self._client.where} refused the batch: {error}") from error

    async def _resolve(self, conflicts: list[tuple[Item, str]]) -> None:
        """Documents that were refused because of a write that is not older: answer which."""
        found = await self._held([item for item, _ in conflicts])
        for (item, reason), held in zip(conflicts, found, strict=True):
            token = held_token(held, self._options.stamp, item.document, reason)
            if token is None:
                why = f"refused for another write, whose token is unknown: {reason}"
                self._results[item.at] = Retry(RETRY_BUSY, why)
            elif token == int(item.document.token):
                self._results[item.at] = OK  # this very write was done before
            else:
                self._results[item.at] = Stale(token)

    async def _held(self, items: list[Item]) -> Sequence[Mapping[str, Any]]:
        """The server's document for each; an empty answer if it does not know."""
        unknown: list[Mapping[str, Any]] = [{}] * len(items)
        wanted = [reference(self._options, item.name, item.document.shard) for item in items]
        try:
            answer = await self._client.request(
                "POST",
                f"{self._index.path}/_mget",
                params={
                    "_source_includes": f"{self._options.stamp}.token",
                    # With the _id, because an object of which nothing is left is left out itself.
                    "filter_path": "docs._id,docs.found,docs._version,docs._source",
                },
                body={"docs": wanted},
            )
        except (Refused, SinkError):
            return unknown
        found: Sequence[Mapping[str, Any]] = answer.get("docs", [])
        return found if len(found) == len(items) else unknown


async def deliver(deliveries: Sequence[Delivery], lines: Lines) -> list[Result]:
    """Send one batch by each of the deliveries, and answer each document with the worst of its results.

    If one index of two takes nothing, none counts as taken: the worker sends it all again later, under a
    higher token, as to a sink that is down. What the other index has taken does no harm.
    """
    if len(deliveries) == 1:  # as a rule
        return await deliveries[0].run(lines)
    came = await asyncio.gather(*(one.run(lines) for one in deliveries), return_exceptions=True)
    failures = [one for one in came if isinstance(one, BaseException)]
    if failures:
        raise min(failures, key=_certainty)
    answers = [one for one in came if not isinstance(one, BaseException)]
    return [_worst(results, deliveries) for results in zip(*answers, strict=True)]


def _certainty(error: BaseException) -> int:
    """How certain the result of the write is: the least certain part counts."""
    return 0 if isinstance(error, SinkTimeout) else 2 if isinstance(error, SinkUnavailable) else 1


def _worst(results: Sequence[Result], deliveries: Sequence[Delivery]) -> Result:
    at = min(range(len(results)), key=lambda at: _WORST_FIRST.index(type(results[at])))
    worst = results[at]
    if isinstance(worst, Reject):
        return Reject(f"{deliveries[at].index_name}: {worst.reason}")
    return worst
