"""Finds out where one key of a tube is now: waiting, in flight, parked, at the sink."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, LiteralString, TypeVar
from uuid import UUID

import orjson

from pytube.comparison import Difference, decode, equal
from pytube.config import Config
from pytube.db.session import SessionPool
from pytube.documents.resolve import RELATIONS
from pytube.enrich.statements import Roots
from pytube.errors import PytubeError, UsageError
from pytube.model import Id, Key, KeyType, partition_of
from pytube.sinks import Reading, Sink, Stored, why_no_read
from pytube.sinks.base import HOLDS_NOTHING, held_forms
from pytube.verify.compare import difference
from pytube.verify.explanation import (
    MOST_RELATIONS,
    Explanation,
    Failure,
    Leader,
    Parked,
    Pause,
    Relation,
    Relations,
    Side,
    WaitingPod,
    Writer,
)
from pytube.verify.sides import Source, chosen, open_to_read, opened

T = TypeVar("T")

_PODS = """
    SELECT seq, op, extract(epoch FROM clock_timestamp() - ts)::float8, marked_by, looked_at
    FROM tube_pods_of(%(tube)s, %(shard)s, %(id)s, %(most)s)
"""
_MOST = 100_000
_LEADER = """
    SELECT leader_id, client_id, epoch, lost,
        sink_down, extract(epoch FROM clock_timestamp() - sink_down_since)::float8 AS sink_down_for,
        source_down, extract(epoch FROM clock_timestamp() - source_down_since)::float8 AS source_down_for
    FROM tube_leaders(%(tube)s)
    WHERE partition = %(partition)s
"""
_PARKED = """
    SELECT error, attempts, parked_at FROM tube_parked
    WHERE tube = %(tube)s AND shard = %(shard)s AND md5(id) = md5(%(id)s) AND id = %(id)s
"""
_FAILURE = """
    SELECT error, attempts, extract(epoch FROM next_at - clock_timestamp())::float8 FROM tube_attempt
    WHERE tube = %(tube)s AND shard = %(shard)s AND md5(id) = md5(%(id)s) AND id = %(id)s
"""
_PAUSE = "SELECT reason, until FROM tube_pause_list(%(tube)s) WHERE partition = %(partition)s"
_TERM = """
    SELECT client_id, partition, acquired_at, ended_at, outcome FROM tube_terms(%(tube)s)
    WHERE epoch = %(epoch)s
"""
_RELATIONS = """
    SELECT companion, pods, links, extract(epoch FROM clock_timestamp() - since)::float8, parked
    FROM tube_relations_waiting(%(tube)s, %(most)s)
"""
_LINKS = """
    SELECT l.shard, pg_catalog.concat_ws('.', n.nspname, c.relname, a.keys[1]), array_agg(DISTINCT k.link)
    FROM tube_pods_list(%(companion)s, in_limit => %(most)s, in_keys => %(most)s) AS l
    CROSS JOIN LATERAL unnest(l.keys) AS k (link)
    JOIN tube_attachment AS a ON a.tube = %(companion)s AND a.shard = l.shard
    JOIN pg_catalog.pg_class AS c ON c.oid = a.tbl
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    GROUP BY 1, 2 ORDER BY 2
"""
_LEADING = """
    SELECT count(*) FROM unnest(%(keys)s::{links}[]) AS waiting_link (value)
    WHERE (SELECT EXISTS (SELECT FROM ({path}
        ) AS p (key) WHERE p.key = %(id)s::{keys}))
    AND EXISTS (SELECT FROM ({path_of_one}
        ) AS p (key) WHERE p.key = %(id)s::{keys})
"""
"""All at once first: mostly none leads to the key."""
_LAST_EPOCH = "SELECT last_epoch FROM tube_registry WHERE tube = %(tube)s"


async def explain(
    config: Config, tube: str, key: str | Sequence[str], *, shard: int | None = None, table: str | None = None
) -> Explanation:
    """Find out all that is known of a key. Changes nothing.

    Args:
        config: the worker's.
        tube: configured there.
        key: the id, as text; or the values of a key of several columns, as texts.
        shard: of the key; by default that of the root table that has it.
        table: the root table of the key, in place of a shard.

    Raises:
        UsageError: no such tube or table; no id of this tube's type; several tables have it, or none, and
            none is named.
        DatabaseUnavailable: Postgres can't be reached.
    """
    async with opened(config, tube, "explain") as (source, sink):
        roots = await source.roots()
        id_ = parsed(roots.keys, key if isinstance(key, str) else _text_of(roots, tube, key, table))
        places = _places(roots, tube, id_, shard, table)
        where = await _place_of(source, sink, places, id_)
        partition = partition_of(where, await source.partitions())
        found = Explanation(tube, where, id_, partition)
        found.table = places[where] if len(places) > 1 else None
        # The queue is looked at in one session: opening more takes longer than the queries.
        _, (body, stored) = await asyncio.gather(
            _look_at_queue(source.pool, found), _look_at_both(source, found, sink)
        )
        for relations in found.relations:
            await _look_at_relations(source.pool, config, relations, found.id)
        await _compare(source.pool, found, body, stored)
    return found


def parsed(keys: KeyType, text: str) -> Id:
    """The id that a text names in a tube of such keys; `UsageError` when it names none."""
    value: Id = text
    with suppress(ValueError):
        if keys is KeyType.BIGINT:
            value = int(text)
        elif keys is KeyType.UUID:
            value = str(UUID(text))
    if not keys.has(value):
        raise UsageError(f"{text!r} is not a valid id of this tube, whose keys are {keys.value}")
    return value


def _text_of(roots: Roots, tube: str, words: Sequence[str], table: str | None) -> str:
    """The key with these values of its columns, or the only word."""
    if len(words) == 1:
        return words[0]
    keys = [
        root.key for root in chosen(roots, tube, [] if table is None else [table]) if root.key is not None
    ]
    for key in keys:
        if (text := key.of_words(words)) is not None:
            return text
    columns = "; ".join(", ".join(f"{column.name} ({column.type})" for column in key.columns) for key in keys)
    raise UsageError(
        f"{' '.join(words)} is not a key of tube {tube!r}; "
        + (f"give its columns {columns}" if keys else "its keys have one column")
    )


def _places(roots: Roots, tube: str, key: Id, shard: int | None, table: str | None) -> dict[int, str]:
    """The shards that the key may have, each with its root table."""
    if shard is not None:
        if table is not None:
            raise UsageError("give a shard or a table, not both")
        if not 0 <= shard < 2**31:
            raise UsageError(f"{shard} is not a valid shard; expected 0 or more")
        return {shard: ""}
    found = chosen(roots, tube, [] if table is None else [table])
    places = {
        root.shard_of(key): root.name
        for root in found
        if root.key is None or root.key.values(str(key)) is not None
    }
    if not places:
        root = found[0]
        assert root.key is not None
        columns = ", ".join(f"{column.name} ({column.type})" for column in root.key.columns)
        raise UsageError(
            f'{key!r} is not a key of {root.name}; expected the JSON array of {columns}, as `[7, "a"]`'
        )
    return places


async def _place_of(source: Source, sink: Sink, places: Mapping[int, str], id_: Id) -> int:
    """The shard of the key: the one whose table has a row, or where none has, the one at the sink."""
    shards = list(places)
    if len(shards) == 1:
        return shards[0]
    gone = await source.without_row([(shard, id_) for shard in shards], {})
    there = [shard for shard in shards if (shard, id_) not in gone]
    what = "has a row"
    if not there and why_no_read(sink) is None:
        what = "has a row, nor the sink a document of it,"
        with suppress(PytubeError):
            stored = await (await open_to_read(sink)).read(source.tube, [(shard, id_) for shard in shards])
            there = [shard for shard in shards if stored[shard, id_].exists]
    if len(there) == 1:
        return there[0]
    names = ", ".join(places[shard] for shard in there or shards)
    found = f"{len(there)} root tables" if there else f"no root table of tube {source.tube!r} {what}"
    have = f" of tube {source.tube!r} have" if there else " for"
    raise UsageError(f"{found}{have} the key {id_}: give --table ({names}), or --shard")


async def _look_at_queue(pool: SessionPool, found: Explanation) -> None:
    where: Mapping[str, Any] = {"tube": found.tube, "shard": found.shard, "id": str(found.id)}
    rows = await pool.rows(_PODS, {**where, "most": _MOST})
    found.pods = [WaitingPod(*row[:4]) for row in rows if row[0] is not None]
    found.looked_at = rows[0][4]
    found.all_pods_seen = found.looked_at < _MOST
    relations = {"tube": found.tube, "most": MOST_RELATIONS}
    found.relations = [Relations(*row) for row in await pool.rows(_RELATIONS, relations)]
    partition = {"tube": found.tube, "partition": found.partition}
    found.leader = await _one(pool, Leader, _LEADER, partition)
    found.pause = await _one(pool, Pause, _PAUSE, partition)
    found.failure = await _one(pool, Failure, _FAILURE, where)
    found.parked = await _one(pool, Parked, _PARKED, where)


async def _look_at_relations(pool: SessionPool, config: Config, found: Relations, id_: Id) -> None:
    """Which of the links that wait in a companion lead to the key, by the paths of the configuration."""
    companion = config.tubes.get(found.companion)
    if not found.pods or companion is None or companion.sink.type != RELATIONS:
        return
    options = companion.sink.options
    where = {"companion": found.companion, "most": MOST_RELATIONS}
    each = []
    try:
        for shard, name, links in await pool.rows(_LINKS, where):
            path = options["paths"].get(str(shard))
            if path is not None:  # else its table is followed no more
                statement = _leading(path, options["key_type"], options["document_key_type"])
                leading = await pool.value(statement, {"keys": links, "id": str(id_)})
                each.append(Relation(name, len(links), int(leading)))
    except PytubeError as error:
        found.unknown = str(error)
        return
    found.each = each


def _leading(path: str, links: str, keys: str) -> Any:
    """The statement that counts the links which lead to a key."""
    one = re.sub(r"(?<!%)%\(keys\)s", f"ARRAY[waiting_link.value]::{links}[]", path)
    return _LEADING.format(path=path, path_of_one=one, links=links, keys=keys)


async def _one(
    pool: SessionPool, kind: Callable[..., T], query: LiteralString, where: Mapping[str, Any]
) -> T | None:
    row = await pool.row(query, where)
    return None if row is None else kind(*row)


async def _look_at_both(source: Source, found: Explanation, sink: Sink) -> tuple[bytes | None, Stored]:
    """The document as it would be sent now, in the sink's form, and what the sink holds."""
    key = found.shard, found.id
    body, (there, stored) = await asyncio.gather(
        _of_source(source, found.source, key), _of_sink(found, key, sink)
    )
    if body is not None and there is not None:
        (held,) = await held_forms(there, [body])
        if held is None:
            found.source.unknown = "the sink would reject the document"
        if held == HOLDS_NOTHING:  # as a transform's DELETE: there is nothing to be sent
            held, found.source.exists = None, False
        body = held
        found.held = None if held is None else _shown(held)
    return body, stored


async def _of_source(source: Source, side: Side, key: Key) -> bytes | None:
    try:
        now = await source.now([key])
    except PytubeError as error:
        side.unknown = str(error)
        return None
    if key in now.bodies:
        body = now.bodies[key]
        side.exists = body is not None
        side.document = None if body is None else _shown(body)
        return body
    if now.orphans:
        side.unknown = f"no attached table has shard {key[0]}"
    else:
        side.unknown = now.unsendable.get(key, "a transform lets nothing be sent of it")
    return None


async def _of_sink(found: Explanation, key: Key, sink: Sink) -> tuple[Reading | None, Stored]:
    """The sink as it is read, None where it can't be; and the document in it."""
    side = found.sink
    if (why := why_no_read(sink)) is not None:
        side.unknown = why
        return None, Stored()
    try:
        there = await open_to_read(sink)
        stored = (await there.read(found.tube, [key]))[key]
    except PytubeError as error:
        side.unknown = str(error)
        return None, Stored()
    side.exists = stored.exists
    try:
        side.document = None if stored.body is None else _shown(stored.body)
    except ValueError:
        side.document = "(no JSON)"
    found.seq = stored.seq
    if stored.token is not None:
        found.token, (found.epoch, found.counter) = str(stored.token), stored.token
    return there, stored


def _shown(body: bytes) -> Any:
    """The document, decoded; its text if it can't be written again: half a surrogate pair, deep nesting."""
    value = decode(body)
    with suppress(TypeError):
        orjson.dumps({"side": {"document": value}})  # as it stands in the explanation
        return value
    return body.decode(errors="replace")


async def _compare(pool: SessionPool, found: Explanation, body: bytes | None, stored: Stored) -> None:
    if found.epoch is not None:
        found.writer = await _one(pool, Writer, _TERM, {"tube": found.tube, "epoch": found.epoch})
        found.is_ahead = found.epoch > int(await pool.value(_LAST_EPOCH, {"tube": found.tube}) or 0)
    if found.source.unknown is None and found.sink.unknown is None:
        found.difference = difference(body, stored)
        if found.difference is Difference.DIFFERENT and body is not None:
            found.fields = _differing(decode(body), found.sink.document)


def _differing(one: Any, other: Any) -> list[str]:
    """The names of the top-level fields that differ."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return []
    return sorted(
        name
        for name in one.keys() | other.keys()
        if name not in one or name not in other or not equal(one[name], other[name])
    )
