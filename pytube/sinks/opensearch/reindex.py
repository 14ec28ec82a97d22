"""Blue/green reindex: a new index beside the live one, until it takes its place or is deleted.

Every change of what workers write and readers see is one request to `_aliases`, which the cluster makes as a
whole. How workers notice, see `index`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pytube.counts import say_count
from pytube.errors import SinkUnavailable, UsageError
from pytube.sinks.opensearch.client import Client, OpenSearchOptions, Refused
from pytube.sinks.opensearch.index import (
    GREEN,
    REINDEX,
    Indices,
    Pair,
    handed_on,
    meta_of,
    path_of,
    takes_no_writes,
)

_MOMENT = "%Y%m%d%H%M%S"
"""Of the start, in names."""

Action = dict[str, dict[str, Any]]
About = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReindexState:
    """A reindex that is under way."""

    tube: str
    old: str | None
    """The name of the index from which to move; None if it was deleted."""
    new: str | None
    """The name of the index that is filled; None if it was deleted."""
    is_switched: bool
    """Whether readers see the new index."""
    started_at: datetime
    backfills: tuple[int, ...]
    """The ids of the backfills that fill the new index; none while it is unknown whether one began."""


class IndexReindexer:
    """Moves the alias that the options name to a new index, step by step.

    All state is in the cluster. Each step that changes what workers write or readers see is one change there,
    which is made as a whole or not at all. Methods raise `SinkUnavailable` and `SinkTimeout`, and
    `UsageError` when the alias is not in the state that they need.
    """

    def __init__(self, options: OpenSearchOptions) -> None:
        self._options = options
        self._indices = Indices(Client(options), options)

    # --- steps ----------------------------------------------------------------------------

    async def look(self) -> ReindexState | None:
        """The reindex under way; None without one."""
        return await self._state(*await self._find())

    async def begin(self, tube: str) -> ReindexState:
        """Make the new index, and have every write from now on go to both; continues an earlier start.

        Both are written through separate aliases. It returns when all nodes know them: any write to the old
        index alone was read from the source before. So a backfill that begins then misses nothing.
        """
        pair, name, about = await self._find()
        if pair is None:
            await self._delete_leftovers()
            await self._refuse_others(name, tube)
            pair = Pair(self._options.index, datetime.now(UTC).strftime(_MOMENT))
            await self._refuse_old_servers(name, pair.blue)
            await self._create(pair, about, tube)
            searched = {**about["aliases"][self._options.index], "is_write_index": False}
            await self._change(
                [_add(name, pair.blue, _routing(about, pair.index)), _add(name, pair.index, searched)]
            )
        state = await self._state(*await self._find())
        assert state is not None
        if state.new is not None and state.tube != tube:
            raise UsageError(
                f'"{self._options.index}" is being reindexed by tube {state.tube!r}, not {tube!r}'
            )
        await self._confirm(pair)
        return state

    async def record(self, backfills: Sequence[int]) -> None:
        """Keep the numbers of the backfills that fill the new index in it, so that they go with it."""
        pair, _, _ = await self._find()
        new, about = await self._new(pair)
        await self._put_meta(new, about, {**meta_of(about)[REINDEX], "backfills": list(backfills)})

    async def count(self, name: str) -> int:
        """The documents of an index that can be searched after a refresh."""
        return await self._count(name, {"match_all": {}})

    async def switch(self, *, back: bool = False) -> None:
        """Have readers see the new index, or the old one again, by all aliases of the other, as they are."""
        pair, searched, about = await self._find()
        pair = _required(pair, self._options.index)
        other = await self._holder(pair.blue if back else pair.green)
        if other is None or other[0] == searched:
            raise UsageError(
                f'the alias "{pair.index}" is on "{searched}", and there is no other index to move it to'
            )
        moved = {name: body for name, body in about["aliases"].items() if name not in (pair.blue, pair.green)}
        await self._change(
            [action for name, body in moved.items() for action in _move(name, body, searched, other[0])]
        )

    async def finish(self, *, force: bool = False) -> None:
        """Delete the old index, and let the alias take writes again.

        Raises:
            UsageError: writes that began before the reindex might still come; `force` does it all the same.
        """
        pair, searched, about = await self._find()
        pair = _required(pair, self._options.index)
        if pair.green not in about["aliases"]:
            raise UsageError(
                f'the alias "{pair.index}" is still on the old index; `pytube reindex switch` first'
            )
        left = _started(pair) + timedelta(seconds=self._options.tombstone_seconds) - datetime.now(UTC)
        if left > timedelta(0) and not force:
            raise UsageError(
                "a write that began before the reindex could still arrive through the alias, and bring back "
                f"a document that is deleted by now; finish in {left.total_seconds():.0f} s, when "
                "tombstone_seconds have passed since the start, or use --force"
            )
        await self._put_meta(searched, about, None)
        old = await self._holder(pair.blue)
        await self._change(
            [
                _remove(searched, pair.green),
                _add(searched, pair.index, _writable(about, pair.index)),
                *([] if old is None else [{"remove_index": {"index": old[0]}}]),
            ]
        )

    async def abandon(self) -> bool:
        """Delete the new index, and let the alias take writes again; False when there was none."""
        pair, searched, about = await self._find()
        if pair is None:
            return await self._delete_leftovers()
        if pair.blue not in about["aliases"]:
            raise UsageError(
                f'the alias "{pair.index}" is on the new index already; '
                "`pytube reindex switch --back` first, or `pytube reindex finish`"
            )
        new = await self._holder(pair.green)
        await self._change(
            [
                _remove(searched, pair.blue),
                _add(searched, pair.index, _writable(about, pair.index)),
                *([] if new is None else [{"remove_index": {"index": new[0]}}]),
            ]
        )
        return True

    def options_of(self, name: str) -> Mapping[str, object]:
        """Options that, in place of the configured ones, make a sink of one index alone, to read it."""
        return {"index": name, "create": "never"}

    async def close(self) -> None:
        """Close the connections."""
        await self._indices.client.close()

    # --- the present state --------------------------------------------------------------------

    async def _find(self) -> tuple[Pair | None, str, About]:
        """The reindex that is under way, and the index that the alias is on."""
        index = self._options.index
        found = await self._indices.find()
        if found is None:
            raise UsageError(f'there is no alias "{index}" yet; start a worker, which creates it')
        name, about = found
        if name == index:
            raise UsageError(
                f'"{index}" is an index, and only an alias can be moved to another one; see docs/reindex.md '
                "for how to put an alias in its place"
            )
        pair = Pair.among(index, about["aliases"]) if takes_no_writes(about["aliases"], index) else None
        return pair, name, about

    async def _state(self, pair: Pair | None, _: str, about: About) -> ReindexState | None:
        if pair is None:
            return None
        old, new = [await self._holder(alias) for alias in (pair.blue, pair.green)]
        kept = {} if new is None else meta_of(new[1]).get(REINDEX, {})
        return ReindexState(
            tube=str(kept.get("tube", "")),
            old=None if old is None else old[0],
            new=None if new is None else new[0],
            is_switched=pair.green in about["aliases"],
            started_at=_started(pair),
            backfills=tuple(kept.get("backfills", ())),
        )

    async def _holder(self, alias: str) -> tuple[str, About] | None:
        """The index that the alias is on, and its data; None without the alias."""
        return next(iter((await self._indices.describe(alias)).items()), None)

    async def _new(self, pair: Pair | None) -> tuple[str, About]:
        pair = _required(pair, self._options.index)
        found = await self._holder(pair.green)
        if found is None:
            raise UsageError(f'the new index of "{pair.index}" is gone; run `pytube reindex abandon`')
        return found

    async def _refuse_others(self, name: str, tube: str) -> None:
        """Documents of others would not be in the new index: the tube's backfill does not write them."""
        mine = {"term": {f"{self._options.stamp}.tube": tube}}
        others = await self._count(name, {"bool": {"must_not": mine}})
        if others:
            raise UsageError(
                f'"{name}" holds {say_count(others, "document")} that tube {tube!r} has not written, '
                "and the new index would not have them; see docs/reindex.md for what to do"
            )

    async def _count(self, name: str, query: Mapping[str, Any]) -> int:
        ask, path = self._indices.ask, path_of(name)
        await ask(f'refresh "{name}"', "POST", f"{path}/_refresh")
        answer = await ask(f'count in "{name}"', "POST", f"{path}/_count", body={"query": query})
        return int(answer["count"])

    async def _refuse_old_servers(self, name: str, unused: str) -> None:
        """Older servers don't know `must_exist`, without which an alias could be on both indices, or on none.

        Tested by removing an alias that does not exist: the version would say less, since forks count their
        own.
        """
        action, client = _remove(name, unused), self._indices.client
        with self._indices.explained("change aliases", missing_ok=True):
            try:
                await client.request("POST", "/_aliases", body={"actions": [action]})
            except Refused as error:
                if error.status != 400:
                    raise
                raise UsageError(
                    f"{client.where} can't move an alias safely: its `_aliases` does not know "
                    "must_exist; a reindex needs OpenSearch 2.12 or newer, or Elasticsearch 7.11 or newer"
                ) from error

    # --- changes --------------------------------------------------------------------------

    async def _create(self, pair: Pair, about: About, tube: str) -> None:
        """The new index with its own alias, which shows whose it is if nothing else is done."""
        aliases = {pair.green: _routing(about, pair.index)}
        meta = {REINDEX: {"tube": tube}, **handed_on(about)}
        with self._indices.explained(f'create the index "{pair.new_index}"'):
            await self._indices.create(pair.new_index, aliases, meta)

    async def _delete_leftovers(self) -> bool:
        """Delete new indices of starts that were interrupted before anything was written; whether any was."""
        found = await self._indices.describe(f"{self._options.index}{GREEN}*")
        mine = [
            name
            for name, about in found.items()
            if Pair.among(self._options.index, about["aliases"]) and REINDEX in meta_of(about)
        ]
        for name in mine:
            await self._indices.delete(name)
        return bool(mine)

    async def _change(self, actions: Sequence[Action]) -> bool:
        """All of it or nothing; whether every node has confirmed it."""
        body = {"actions": list(actions)}
        answer = await self._indices.ask("change aliases", "POST", "/_aliases", body=body)
        return bool(answer.get("acknowledged"))

    async def _confirm(self, pair: Pair) -> None:
        """Return once every node knows the earlier change: until then, a node might let old writes through.

        A change that changes nothing is confirmed without asking the nodes. So the new index's alias gets a
        mark that has no effect, or loses it.
        """
        new, about = await self._new(pair)
        body = dict(about["aliases"][pair.green])
        if not body.pop("is_write_index", False):
            body["is_write_index"] = True
        if not await self._change([_add(new, pair.green, body)]):
            raise SinkUnavailable(
                "not every node of the cluster has confirmed the aliases in time; run the command again"
            )

    async def _put_meta(self, name: str, about: About, kept: Mapping[str, Any] | None) -> None:
        meta = {key: value for key, value in meta_of(about).items() if key != REINDEX}
        body = {"_meta": meta if kept is None else {**meta, REINDEX: kept}}
        await self._indices.put_mapping(name, body, f'map "{name}"')


def _required(pair: Pair | None, index: str) -> Pair:
    if pair is None:
        raise UsageError(f'"{index}" is not being reindexed; `pytube reindex start` begins it')
    return pair


def _started(pair: Pair) -> datetime:
    return datetime.strptime(pair.generation, _MOMENT).replace(tzinfo=UTC)


def _add(index: str, alias: str, body: Mapping[str, Any]) -> Action:
    return {"add": {"index": index, "alias": alias, **body}}


def _remove(index: str, alias: str) -> Action:
    return {"remove": {"index": index, "alias": alias, "must_exist": True}}


def _move(alias: str, body: Mapping[str, Any], source: str, target: str) -> Sequence[Action]:
    return [_remove(source, alias), _add(target, alias, body)]


def _routing(about: About, alias: str) -> dict[str, Any]:
    """The routing of writes through an alias: the same for the aliases that stand in for it."""
    return {key: value for key, value in about["aliases"][alias].items() if key == "index_routing"}


def _writable(about: About, alias: str) -> dict[str, Any]:
    return {key: value for key, value in about["aliases"][alias].items() if key != "is_write_index"}
