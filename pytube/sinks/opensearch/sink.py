"""The sink `opensearch`: each document is written under its token as external version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any, Self

from pytube.comparison import encode
from pytube.errors import ConfigError, SinkError, SinkTimeout, SinkUnavailable
from pytube.model import Batch, Id, Key, KeyType, Result, Token
from pytube.sinks.base import PAGE, Stored, Trial, of_the_suite
from pytube.sinks.opensearch.bulk import Delivery, Lines, deliver, is_possible, reference
from pytube.sinks.opensearch.client import Client, OpenSearchOptions, Refused
from pytube.sinks.opensearch.index import Indices, Targets
from pytube.sinks.opensearch.reindex import IndexReindexer
from pytube.sinks.registry import KeyTemplate
from pytube.threads import Resolver


class OpenSearchSink:
    """An index that refuses writes whose token is not higher than the one it holds, deletes included.

    So a late write loses, and `abandon` has nothing to wait for.
    """

    compares = True

    def __init__(self, options: OpenSearchOptions) -> None:
        self._options = options
        self.template = KeyTemplate(options.key)
        self._lines = Lines(options, self.template)
        self._resolver = Resolver(options.connect_timeout)
        self._opened: tuple[Indices, Targets] | None = None
        self._looking = asyncio.Lock()
        self._mark: str | None = None
        """Of the index that was checked last."""
        self._fault: str | None = None
        """Why the index that has taken its place must not be written to; None while it may."""

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """The sink for these options; `ConfigError` names a bad one."""
        return cls(OpenSearchOptions.parse("opensearch", options))

    async def open(self) -> None:
        """Find, create and check the index."""
        await self._connect(makes=True)

    async def open_existing(self) -> str | None:
        """Find and check the index, and change nothing; why not, if there is none."""
        await self._connect(makes=False)
        if self._opened is not None:
            return None
        return f'sink "opensearch": there is no index or alias "{self._options.index}"'

    async def _connect(self, *, makes: bool) -> None:
        """Open, unless there is no index, and none is to be made."""
        if self._opened is not None:
            return
        indices = Indices(Client(self._options, self._resolver), self._options)
        try:
            if makes:
                self._opened = indices, await indices.ensure()
            elif (found := await indices.find()) is not None:
                self._opened = indices, await indices.inspect(found, mends=False)
            else:
                indices.refuse_missing()
        except SinkTimeout as error:
            raise SinkUnavailable(str(error)) from error
        finally:
            if self._opened is None:
                await indices.client.close()
        self._mark = self._fault = None

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Write the batch, in bulk requests of at most `bulk_bytes`; during a reindex, to both indices."""
        indices, targets = self._open()
        if self._fault is not None:
            raise SinkUnavailable(self._fault)
        while True:
            deliveries = [Delivery(indices.client, index, self._options, batch) for index in targets.written]
            results: Sequence[Result] | SinkError
            try:
                results = await deliver(deliveries, self._lines)
            except SinkError as error:
                results = error
            found = None
            if any(one.may_have_moved for one in deliveries):
                found = await self._look_again(indices, targets, batch.tube)
            if found is not None:
                targets = found  # accepted documents are recognized by their tokens
            elif isinstance(results, SinkError):
                raise results
            else:
                return results

    async def abandon(self, batch: Batch) -> None:
        """Return at once: a late write loses."""

    async def close(self) -> None:
        """Begin no more requests; running ones end on their own."""
        if self._opened is not None:
            (indices, _), self._opened = self._opened, None
            await indices.client.close()

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        """The ids of the documents of that tube and shard with a lower stamp, in the order of their words.

        Each page is a separate search after the last id of the page before, so that any time may pass
        between two, and the server keeps nothing open. During a reindex, both indices are looked through.
        """
        indices, _ = self._open()
        client, stamp = indices.client, self._options.stamp
        params = {
            **({"routing": str(shard)} if self._options.routing == "shard" else {}),
            # Without it, documents of a shard that is down are left out silently.
            "allow_partial_search_results": "false",
            "filter_path": "hits.hits.sort,hits.hits.fields",
        }
        search: dict[str, Any] = {
            "size": PAGE,
            "track_total_hits": False,
            "_source": False,
            "docvalue_fields": [f"{stamp}.text"],
            "query": {
                "bool": {
                    "filter": [
                        {"term": {f"{stamp}.tube": tube}},
                        {"term": {f"{stamp}.shard": shard}},
                        {"range": {f"{stamp}.seq": {"lt": below_seq}}},
                    ]
                }
            },
            "sort": [{f"{stamp}.id": "asc"}],
        }
        # Asked each time: only a write would notice that a reindex is over.
        for index in (await indices.look_up(tube)).written:
            # Makes everything searchable that was acknowledged.
            refreshed = await _ask(client, "scanned", f"{index.path}/_refresh")
            if failed := refreshed.get("_shards", {}).get("failed", 0):
                raise SinkUnavailable(
                    f"{client.where} could not be scanned: {failed} shards of the index failed"
                )
            after: Mapping[str, Any] = {}
            while True:
                path, body = f"{index.path}/_search", {**search, **after}
                page = await _ask(client, "scanned", path, params=params, body=body)
                hits = page.get("hits", {}).get("hits", [])
                if hits:
                    yield [_id(hit, f"{stamp}.text") for hit in hits]
                if len(hits) < PAGE:
                    break
                after = {"search_after": hits[-1]["sort"]}

    async def read(self, tube: str, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        """Get them by their `_id`, which needs no refresh. The server does not show tombstones."""
        indices, targets = self._open()
        client = indices.client
        names = [self.template.name(tube, *key) for key in keys]
        possible = [at for at, name in enumerate(names) if is_possible(name)]
        found: dict[Key, Stored] = dict.fromkeys(keys, Stored())
        if not possible:
            return found
        wanted = [reference(self._options, names[at], keys[at][0]) for at in possible]
        params = {"filter_path": "docs.found,docs._source,docs.error.type"}
        path = f"{targets.searched.path}/_mget"
        answer = await _ask(client, "read", path, params=params, body={"docs": wanted}, most=None)
        documents = answer.get("docs", [])
        if len(documents) != len(wanted):
            raise SinkUnavailable(f"{client.where} answered {len(documents)} of {len(wanted)} documents")
        for at, document in zip(possible, documents, strict=True):
            if "found" not in document:
                kind = document.get("error", {}).get("type")
                raise SinkUnavailable(f"{client.where} could not be read: {kind}")
            if document["found"]:
                found[keys[at]] = self._stored(document.get("_source", {}))
        return found

    def _stored(self, source: dict[str, Any]) -> Stored:
        stamp = source.pop(self._options.stamp, None)
        body = encode(source)
        if not isinstance(stamp, dict) or "token" not in stamp:
            return Stored(body)  # by others
        return Stored(body, Token.parse(stamp["token"]), stamp.get("seq"))

    async def read_mark(self, tube: str) -> str | None:
        """The uuid of the index; that of the first one, where a reindex has moved the alias since.

        An index that has taken the place of another is checked before more is written to it.
        """
        indices, targets = self._open()
        mark = await indices.read_mark()
        if mark is None:
            self._fault = None  # of an index that is gone: who sends finds that
        elif mark != self._mark or self._fault is not None:
            await self._inspect(indices, targets, tube)
            self._mark = mark
        return mark

    async def _inspect(self, indices: Indices, seen: Targets, tube: str) -> None:
        """See whether more may be written, and do what `open` would."""
        try:
            found = await indices.find()
            if found is not None:
                _refuse_index_for_alias(seen, tube, is_alias=found[0] != self._options.index)
                await indices.inspect(found, mends=True)
        except ConfigError as error:  # of the index, not of the documents
            self._fault = str(error)
        else:
            self._fault = None

    async def write_mark(self, tube: str, mark: str) -> None:
        """Create the index, which has its uuid by that."""
        del tube, mark
        indices, _ = self._open()
        try:
            self._opened = indices, await indices.ensure()
        except SinkTimeout as error:
            raise SinkUnavailable(str(error)) from error
        except (ConfigError, SinkUnavailable) as error:
            self._fault = str(error)  # for `send` to report: the reason why there is no index
            raise

    async def read_note(self, key: str) -> str | None:
        """From `_meta` of the index."""
        return await self._open()[0].read_note(key)

    async def write_note(self, key: str, text: str) -> None:
        """Into `_meta` of the index."""
        await self._open()[0].write_note(key, text)

    def reindexer(self) -> IndexReindexer:
        """What moves the alias to a new index."""
        return IndexReindexer(self._options)

    def trial(self, name: str, keys: KeyType) -> Trial:
        """A separate index, which takes documents of any form."""
        del keys  # an index takes both
        index = f"{self._options.index}-{name}"
        own = {
            "index": index,
            "create": "index",
            "key": "{tube}:{shard}:{id}",
            "mappings": {"dynamic": False},
        }
        options = self._options.model_copy(update=own)

        async def erase(_: str, __: Collection[Key]) -> None:
            client = Client(options)
            try:
                await Indices(client, options).delete(index)
            finally:
                await client.close()

        notes = (of_the_suite("the mapping"), of_the_suite("the template of _id"))
        return Trial(lambda: type(self)(options), f"index {index}", erase, notes)

    async def _look_again(self, indices: Indices, seen: Targets, tube: str) -> Targets | None:
        """Where documents of `tube` go now; None when that is still where they went."""
        async with self._looking:
            if self._open() == (indices, seen):
                try:
                    found = await indices.look_up(tube)
                    _refuse_index_for_alias(seen, tube, is_alias=found.searched.is_alias)
                except ConfigError as error:  # of the index, not of the documents
                    raise SinkUnavailable(str(error)) from error
                self._opened = indices, found
            _, now = self._open()
            return None if now == seen else now

    def _open(self) -> tuple[Indices, Targets]:
        if self._opened is None:
            raise SinkUnavailable('sink "opensearch" is not open')
        return self._opened


async def _ask(client: Client, what: str, path: str, **request: Any) -> Any:
    """The server's answer; that it can't be scanned or read, if it refuses."""
    try:
        return await client.request("POST", path, **request)
    except Refused as error:
        raise SinkUnavailable(f"{client.where} could not be {what}: {error}") from error


def _id(hit: Mapping[str, Any], text: str) -> Id:
    word: str = hit["sort"][0]
    return word if text in hit.get("fields", {}) else int(word)


def _refuse_index_for_alias(seen: Targets, tube: str, *, is_alias: bool) -> None:
    """Raise `ConfigError` if an index stands where there was an alias: not pytube's, without its mappings."""
    if seen.searched.is_alias and not is_alias:
        raise ConfigError(
            f'sink "opensearch": "{seen.searched.name}" was an alias, and is an index now that pytube has '
            f"not made; delete it, and run `pytube backfill start {tube}`"
        )
