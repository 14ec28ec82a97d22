"""One batch on its way: bulk requests, and what becomes of each document."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pytube.errors import SinkError, SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Ok, Reject, Result, Retry, Stale
from pytube.sinks.opensearch import bulk
from pytube.sinks.opensearch.bulk import Blocked, Chunk, Conflict, Item
from pytube.sinks.opensearch.client import Client, Refused
from pytube.sinks.opensearch.options import OpenSearchOptions
from pytube.sinks.opensearch.pair import Index

_REFRESH = {"no": "false", "wait_for": "wait_for", "yes": "true"}
_SHARD_WAIT = "5s"
"""How long the server waits for a shard that is being moved, instead of a minute."""

_UNSENT = Retry(bulk.RETRY_BLOCKED, "it was not sent")

_NOTHING_DONE = {401, 403, 404, 429, 503}
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

    async def run(self, lines: bulk.Lines) -> list[Result]:
        """One result for each document, in order."""
        unsent = _UNSENT
        try:
            for chunk in lines.chunks(self._batch, self._results):
                await self._write(chunk)
        except SinkUnavailable as error:
            if not self._answered:
                raise
            unsent = Retry(bulk.RETRY_BLOCKED, str(error))
        if self._blocked and len(self._blocked) == len(self._batch):
            raise SinkUnavailable(f"{self._client.where} takes nothing: {self._blocked[0]}")
        return [unsent if result is _UNSENT else result for result in self._results]

    async def _write(self, chunk: Chunk) -> None:
        try:
            answer = await self._client.request(
                "POST",
                f"{self._index.path}/_bulk",
                params={
                    "filter_path": "errors,items.*.status,items.*.error",
                    "refresh": _REFRESH[self._options.refresh],
                    "timeout": _SHARD_WAIT,
                    # Else an index that somebody has deleted comes back without settings and mappings.
                    "require_alias": "true" if self._index.is_alias else "false",
                },
                body=chunk.body,
                may_begin=lambda: not self._batch.has_lapsed(),
            )
        except Refused as error:
            await self._handle_refusal(chunk, error)
            return
        items = bulk.items_of(answer, len(chunk.items))
        if items is None:
            raise SinkTimeout(
                f"{self._client.where}: not one answer for each of {len(chunk.items)} documents"
            )
        self._answered = True
        conflicts: list[tuple[Item, str]] = []
        for item, found in zip(chunk.items, items, strict=True):
            outcome = OK if not answer.get("errors") else bulk.outcome(found)
            if outcome is not OK and self._index.is_alias:
                self.may_have_moved |= bulk.may_be_of_the_alias(found)
            if isinstance(outcome, Conflict):
                conflicts.append((item, outcome.reason))
            elif isinstance(outcome, Blocked):
                self._blocked.append(outcome.reason)
                self._results[item.at] = Retry(bulk.RETRY_BLOCKED, outcome.reason)
            else:
                self._results[item.at] = outcome
        if conflicts:
            await self._resolve(conflicts)

    async def _handle_refusal(self, chunk: Chunk, error: Refused) -> None:
        """The whole request was refused."""
        if error.status == 413:
            if len(chunk.items) > 1:
                for half in chunk.halves():
                    await self._write(half)
                return
            (item,) = chunk.items
            self._results[item.at] = Reject(f"its {len(item.lines)} bytes are more than the server takes")
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
            token = bulk.held_token(held, self._options.stamp, item.document, reason)
            if token is None:
                why = f"refused for another write, whose token can't be told: {reason}"
                self._results[item.at] = Retry(bulk.RETRY_BUSY, why)
            elif token == int(item.document.token):
                self._results[item.at] = OK  # this very write was done before
            else:
                self._results[item.at] = Stale(token)

    async def _held(self, items: list[Item]) -> Sequence[Mapping[str, Any]]:
        """What the server holds for each; an empty answer where it can't tell."""
        unknown: list[Mapping[str, Any]] = [{}] * len(items)
        wanted = [
            {"_id": item.name}
            | ({"routing": str(item.document.shard)} if self._options.routing == "shard" else {})
            for item in items
        ]
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


async def deliver(deliveries: Sequence[Delivery], lines: bulk.Lines) -> list[Result]:
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
    """How much is known of what was written: what is least certain counts."""
    return 0 if isinstance(error, SinkTimeout) else 2 if isinstance(error, SinkUnavailable) else 1


def _worst(results: Sequence[Result], deliveries: Sequence[Delivery]) -> Result:
    at = min(range(len(results)), key=lambda at: _WORST_FIRST.index(type(results[at])))
    worst = results[at]
    if isinstance(worst, Reject):
        return Reject(f"{deliveries[at].index_name}: {worst.reason}")
    return worst
