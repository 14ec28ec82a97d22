"""The index: created at open if it does not exist, else checked for what the sink relies on.

Every request here is the same at OpenSearch and Elasticsearch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pytube.errors import ConfigError, SinkUnavailable
from pytube.sinks.opensearch.client import Client, Refused
from pytube.sinks.opensearch.options import OpenSearchOptions, flat, seconds

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


@dataclass(frozen=True, slots=True)
class Index:
    """Where documents go."""

    path: str
    """Of requests, `/name`."""
    is_alias: bool


async def ensure(client: Client, options: OpenSearchOptions) -> Index:
    """Find the index or create it, and check it.

    Raises:
        ConfigError: it can't serve as it is; the message says what to change.
        SinkUnavailable: it may be there later.
    """
    path = "/" + quote(options.index, safe="")
    found = await _find(client, options, path)
    if found is None:
        if options.create == "never":
            raise SinkUnavailable(
                f'sink "opensearch": there is no index or alias "{options.index}"; create it, or set '
                'create = "alias"'
            )
        await _create(client, options)
        found = await _find(client, options, path)
        if found is None:
            raise SinkUnavailable(
                f'sink "opensearch": there is an index "{options.index}{_FIRST}", but no alias '
                f'"{options.index}" for it; add the alias, or delete the index'
            )
    name, about = found
    await _check_settings(client, options, name, about)
    await _check_mapping(client, options, name, about)
    return Index(path, is_alias=name != options.index)


def explain(client: Client, what: str, error: Refused) -> ConfigError | SinkUnavailable:
    """The server's refusal to do `what` at open, as an error of ours.

    What the server's side can heal while the worker runs is `SinkUnavailable`.
    """
    where = f'sink "opensearch": {client.where} refused to {what}'
    if error.status == 401:
        return ConfigError(f"{where}: it does not know who we are; check user and password, or api_key")
    if error.status == 403:
        return SinkUnavailable(f"{where}: grant this user the right to ({error})")
    if error.status == 400:
        return ConfigError(f"{where}: {error}")
    return SinkUnavailable(f"{where}: {error}")


async def _find(
    client: Client, options: OpenSearchOptions, path: str
) -> tuple[str, Mapping[str, Any]] | None:
    """The name of the index itself, and its settings, mappings and aliases; None when there is none."""
    try:
        answer = await client.request("GET", path, params={"flat_settings": "true"})
    except Refused as error:
        if error.status == 404:
            return None
        raise explain(client, f'describe "{options.index}"', error) from error
    if len(answer) != 1:
        names = ", ".join(sorted(answer)) or "no index"
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


async def _create(client: Client, options: OpenSearchOptions) -> None:
    alias = options.create == "alias"
    body: dict[str, Any] = {
        "settings": {"index.gc_deletes": f"{options.tombstone_seconds}s", **flat(options.settings)},
        "mappings": {
            **options.mappings,
            "properties": {
                **options.mappings.get("properties", {}),
                options.stamp: {"dynamic": False, "properties": STAMP},
            },
        },
    }
    if alias:
        body["aliases"] = {options.index: {}}
    name = options.index + (_FIRST if alias else "")
    try:
        await client.request("PUT", "/" + quote(name, safe=""), body=body)
    except Refused as error:
        if error.kind != "resource_already_exists_exception":
            raise explain(client, f'create the index "{name}"', error) from error
        # Another worker was quicker; or an index of that name is there, without the alias.


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
        await client.request("PUT", f"/{quote(name, safe='')}/_settings", body={"index.gc_deletes": wanted})
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
            'can\'t be scanned; create it anew with dynamic = "false" instead'
        )
    there = mappings.get("properties", {}).get(options.stamp, {}).get("properties", {})
    for field, wanted in STAMP.items():
        kind = there.get(field, wanted).get("type", "object")
        if kind != wanted["type"]:
            raise ConfigError(
                f'sink "opensearch": index "{name}" has the field {options.stamp}.{field} as {kind}, and it '
                f"has to be {wanted['type']}: give another name as stamp, or create the index anew"
            )
    if STAMP.keys() <= there.keys():
        return
    body = {"properties": {options.stamp: {"properties": STAMP}}}
    try:
        await client.request("PUT", f"/{quote(name, safe='')}/_mapping", body=body)
    except Refused as error:
        raise explain(client, f'map the field "{options.stamp}" of "{name}"', error) from error
