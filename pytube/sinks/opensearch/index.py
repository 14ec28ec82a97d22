"""The index: created at open if it does not exist, else checked for what the sink relies on.

Every request here is the same at OpenSearch and Elasticsearch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytube.errors import ConfigError, SinkUnavailable
from pytube.sinks.opensearch.client import Client, Refused
from pytube.sinks.opensearch.options import OpenSearchOptions, flat, seconds
from pytube.sinks.opensearch.pair import Index, Pair, Targets, path_of, takes_no_writes

_FIRST = "-000001"
_SERVERS_GC_DELETES = "60s"
"""What index.gc_deletes is where nobody has set it."""

_UNSEARCHED: dict[str, Any] = {"type": "keyword", "index": False, "doc_values": False}
STAMP: dict[str, dict[str, Any]] = {
    "tube": {"type": "keyword"},
    "shard": {"type": "long"},
    # The id as a word, which a scan goes along; "text" says that it is one in the tube, too.
    "id": {"type": "keyword"},
    "text": {"type": "boolean"},
    "seq": {"type": "long"},
    "token": _UNSEARCHED,
}
"""The mapping of the stamp, field by field."""


async def ensure(client: Client, options: OpenSearchOptions) -> Targets:
    """Find the index or create it, and check it; while it is reindexed, both.

    Raises:
        ConfigError: it can't serve as it is; the message says what to change.
        SinkUnavailable: it may be there later.
    """
    found = await find(client, options)
    if found is None:
        if options.create == "never":
            raise SinkUnavailable(
                f'sink "opensearch": there is no index or alias "{options.index}"; create it, or set '
                'create = "alias"'
            )
        await _create(client, options)
        found = await find(client, options)
        if found is None:
            raise SinkUnavailable(
                f'sink "opensearch": there is an index "{options.index}{_FIRST}", but no alias '
                f'"{options.index}" for it; add the alias, or delete the index'
            )
    targets = _targets(options, *found)
    checked = dict([found])
    if len(targets.written) > 1:
        checked = await describe(client, ",".join(index.name for index in targets.written))
        if len(checked) < len(targets.written):
            raise SinkUnavailable(
                f'sink "opensearch": "{options.index}" is being reindexed, and one of the two indices is '
                "gone; run `pytube reindex abandon`"
            )
    for name, about in checked.items():
        await _check_settings(client, options, name, about)
        await _check_mapping(client, options, name, about)
    return targets


async def look_up(client: Client, options: OpenSearchOptions) -> Targets:
    """Where documents go now. Nothing is created or checked.

    Raises:
        SinkUnavailable: there is no such index now.
        ConfigError: as `ensure`.
    """
    found = await find(client, options)
    if found is None:
        raise SinkUnavailable(f'sink "opensearch": the index or alias "{options.index}" is gone')
    return _targets(options, *found)


def _targets(options: OpenSearchOptions, name: str, about: Mapping[str, Any]) -> Targets:
    if takes_no_writes(about["aliases"], options.index):
        pair = Pair.among(options.index, about["aliases"])
        if pair is None:
            raise SinkUnavailable(
                f'sink "opensearch": the alias "{options.index}" takes no writes: its is_write_index is false'
            )
        return pair.targets
    index = Index(options.index, is_alias=name != options.index)
    return Targets(index, (index,))


async def delete(client: Client, name: str) -> None:
    """Delete an index, if there is one."""
    try:
        await client.request("DELETE", path_of(name))
    except Refused as error:
        if error.status != 404:
            raise explain(client, f'delete "{name}"', error) from error


def explain(client: Client, what: str, error: Refused) -> ConfigError | SinkUnavailable:
    """The server's refusal to do `what` at open, as an error of ours.

    What the server's side can heal while the worker runs is `SinkUnavailable`.
    """
    where = f'sink "opensearch": {client.where} refused to {what}'
    if error.status == 401:
        return ConfigError(f"{where}: it does not know who we are; check user and password, or api_key")
    if error.status == 403:
        return SinkUnavailable(f"{where}: this user lacks the right; grant it ({error})")
    if error.status == 400:
        return ConfigError(f"{where}: {error}")
    return SinkUnavailable(f"{where}: {error}")


async def find(client: Client, options: OpenSearchOptions) -> tuple[str, dict[str, Any]] | None:
    """The name of the index itself, and its settings, mappings and aliases; None when there is none."""
    answer = await describe(client, options.index)
    if not answer:
        return None
    if len(answer) != 1:
        names = ", ".join(sorted(answer))
        raise ConfigError(
            f'sink "opensearch": "{options.index}" stands for {names}; '
            "name an index, or an alias of exactly one"
        )
    ((name, about),) = answer.items()
    if "data_stream" in about:
        raise ConfigError(
            f'sink "opensearch": "{options.index}" is a data stream, which takes no changes; name an index'
        )
    return name, about


async def describe(client: Client, names: str) -> dict[str, Any]:
    """The settings, mappings and aliases of each index of these names, joined by commas."""
    try:
        found: dict[str, Any] = await client.request("GET", path_of(names), params={"flat_settings": "true"})
    except Refused as error:
        if error.status == 404:
            return {}
        raise explain(client, f'describe "{names}"', error) from error
    return found


async def _create(client: Client, options: OpenSearchOptions) -> None:
    alias = options.create == "alias"
    name = options.index + (_FIRST if alias else "")
    try:
        await create(client, options, name, {options.index: {}} if alias else {})
    except Refused as error:
        if error.kind != "resource_already_exists_exception":
            raise explain(client, f'create the index "{name}"', error) from error
        # Another worker was quicker; or an index of that name is there, without the alias.


async def create(
    client: Client,
    options: OpenSearchOptions,
    name: str,
    aliases: Mapping[str, Mapping[str, Any]],
    meta: Mapping[str, Any] | None = None,
) -> None:
    """Create an index with the settings and mappings of the options, and `meta` among the mapping's own."""
    mappings = dict(options.mappings)
    if meta is not None:
        mappings["_meta"] = {**mappings.get("_meta", {}), **meta}
    body: dict[str, Any] = {
        "settings": {"index.gc_deletes": f"{options.tombstone_seconds}s", **flat(options.settings)},
        "mappings": {
            **mappings,
            "properties": {
                **mappings.get("properties", {}),
                options.stamp: {"dynamic": False, "properties": STAMP},
            },
        },
        "aliases": dict(aliases),
    }
    await client.request("PUT", path_of(name), body=body)


async def _check_settings(
    client: Client, options: OpenSearchOptions, name: str, about: Mapping[str, Any]
) -> None:
    kept = str(about.get("settings", {}).get("index.gc_deletes", _SERVERS_GC_DELETES))
    if seconds(kept) >= options.tombstone_seconds:
        return
    wanted = f"{options.tombstone_seconds}s"
    if not options.raise_gc_deletes:
        raise ConfigError(
            f'sink "opensearch": index "{name}" remembers deletes for {kept} (index.gc_deletes), and late '
            f"writes have to be refused for {wanted}: set index.gc_deletes to {wanted}, or "
            "raise_gc_deletes = true"
        )
    try:
        await client.request("PUT", f"{path_of(name)}/_settings", body={"index.gc_deletes": wanted})
    except Refused as error:
        raise explain(client, f'set index.gc_deletes of "{name}"', error) from error


async def _check_mapping(
    client: Client, options: OpenSearchOptions, name: str, about: Mapping[str, Any]
) -> None:
    """Add the fields of the stamp that are not mapped; refuse those that are mapped in another way."""
    mappings = about.get("mappings", {})
    if mappings.get("enabled") in (False, "false"):
        raise ConfigError(
            f'sink "opensearch": index "{name}" has mappings with enabled = false, so that its documents '
            'can\'t be scanned; create it again with dynamic = "false" instead'
        )
    there = mappings.get("properties", {}).get(options.stamp, {}).get("properties", {})
    for field, wanted in STAMP.items():
        kind = there.get(field, wanted).get("type", "object")
        if kind != wanted["type"]:
            raise ConfigError(
                f'sink "opensearch": index "{name}" has the field {options.stamp}.{field} as {kind}, and it '
                f"has to be {wanted['type']}: give another name as stamp, or create the index again"
            )
    if STAMP.keys() <= there.keys():
        return
    body = {"properties": {options.stamp: {"properties": STAMP}}}
    try:
        await client.request("PUT", f"{path_of(name)}/_mapping", body=body)
    except Refused as error:
        raise explain(client, f'map the field "{options.stamp}" of "{name}"', error) from error
