"""The index: created if it does not exist, else checked for what the sink relies on. Nothing else makes one.

Every request here is the same at OpenSearch and Elasticsearch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote

from pytube.errors import ConfigError, SinkUnavailable
from pytube.sinks.opensearch.client import Client, OpenSearchOptions, Refused, flat, seconds

# --- where documents go ---------------------------------------------------------------------------
# The state of a reindex is in the cluster's aliases, and nowhere else. Without one, documents go through the
# alias that is searched. While there is one, that alias takes no writes (`is_write_index: false`), and each
# of the two indices has an alias to be written through. So the server itself refuses a worker that has not
# noticed: there is no moment at which a write can miss one of the indices unseen.
#
# The names of the two hold the moment of the start, so that a write that was meant for an earlier reindex,
# and comes late, finds no alias.

BLUE = "--blue-"
"""Of the index from which documents move."""
GREEN = "--green-"
"""Of the index that is filled."""
_GENERATION = r"\d{14}"


def path_of(name: str) -> str:
    """The path of requests to an index or an alias, or to several, joined by commas."""
    return "/" + quote(name, safe=",")


@dataclass(frozen=True, slots=True)
class Index:
    """Where documents go."""

    name: str
    """Of the index, or of an alias."""
    is_alias: bool

    @property
    def path(self) -> str:
        """Of requests."""
        return path_of(self.name)


@dataclass(frozen=True, slots=True)
class Targets:
    """The names that the sink searches and writes to."""

    searched: Index
    written: tuple[Index, ...]
    """Each gets every document: one index, or both of a reindex."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One reindex of the alias `index`."""

    index: str
    generation: str

    @classmethod
    def among(cls, index: str, aliases: Iterable[str]) -> Self | None:
        """The reindex that the aliases of an index belong to; None when to none."""
        pattern = re.compile(f"{re.escape(index)}(?:{BLUE}|{GREEN})({_GENERATION})")
        found = next((match for name in aliases if (match := pattern.fullmatch(name))), None)
        return None if found is None else cls(index, found[1])

    @property
    def blue(self) -> str:
        """The alias of the old index."""
        return f"{self.index}{BLUE}{self.generation}"

    @property
    def green(self) -> str:
        """The alias of the new index."""
        return f"{self.index}{GREEN}{self.generation}"

    @property
    def new_index(self) -> str:
        """The name of the new index."""
        return f"{self.index}-{self.generation}"

    @property
    def targets(self) -> Targets:
        """While the reindex is under way."""
        return Targets(Index(self.index, True), (Index(self.blue, True), Index(self.green, True)))


def takes_no_writes(aliases: Mapping[str, Any], index: str) -> bool:
    """Whether the alias `index` refuses writes."""
    return aliases.get(index, {}).get("is_write_index") is False


# --- the index ------------------------------------------------------------------------------------


_FIRST = "-000001"
_SERVERS_GC_DELETES = "60s"
"""The default of index.gc_deletes."""

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

_ORIGIN = "pytube_origin"
"""In `_meta` of an index that a reindex has filled: the mark of the one whose documents it took over."""
_IDENTITY = "*.settings.index.uuid,*.settings.index.history.uuid,*.mappings._meta." + _ORIGIN
_NOTES = "pytube_notes"
"""In `_meta` of an index: what workers have noted there, by the key of each note."""
REINDEX = "pytube_reindex"
"""In `_meta` of the new index, until the end: what a reindex keeps."""


class Indices:
    """The index that the options name, and indices that are made beside it."""

    def __init__(self, client: Client, options: OpenSearchOptions) -> None:
        self.client = client
        self.options = options

    async def ensure(self) -> Targets:
        """Find the index or create it, and check it; while it is reindexed, both.

        Raises:
            ConfigError: it can't serve as it is; the message says what to change.
            SinkUnavailable: it may be there later.
        """
        found = await self.find()
        if found is None:
            self.refuse_missing()
            await self._create_first()
            found = await self.find()
            if found is None:
                raise SinkUnavailable(
                    f'sink "opensearch": there is an index "{self.options.index}{_FIRST}", but no alias '
                    f'"{self.options.index}" for it; add the alias, or delete the index'
                )
        return await self.inspect(found, mends=True)

    def refuse_missing(self) -> None:
        """Raise `SinkUnavailable` if an index that is missing must not be created."""
        if self.options.create == "never":
            raise SinkUnavailable(
                f'sink "opensearch": there is no index or alias "{self.options.index}"; create it, or set '
                'create = "alias"'
            )

    async def inspect(self, found: tuple[str, dict[str, Any]], *, mends: bool) -> Targets:
        """Check what `find` has found; while it is reindexed, both indices. Raises as `ensure`.

        `mends`: whether to map the stamp where it is not mapped; else that is passed over.
        """
        targets = self._targets(*found)
        checked = dict([found])
        if len(targets.written) > 1:
            checked = await self.describe(",".join(index.name for index in targets.written))
            if len(checked) < len(targets.written):
                raise SinkUnavailable(
                    f'sink "opensearch": "{self.options.index}" is being reindexed, and one of the two '
                    "indices is gone; run `pytube reindex abandon`"
                )
        faults = [fault for name, about in checked.items() for fault in self._faults(name, about)]
        if faults:
            raise ConfigError(f'sink "opensearch": {"; ".join(faults)}')
        if mends:
            for name, about in checked.items():
                await self._mend(name, about)
        return targets

    async def look_up(self, tube: str) -> Targets:
        """Where documents of `tube` go now. Nothing is created or checked.

        Raises:
            SinkUnavailable: there is no such index now.
            ConfigError: as `ensure`.
        """
        found = await self.find()
        if found is None:
            raise SinkUnavailable(
                f'sink "opensearch": the index or alias "{self.options.index}" is gone, and only a tube that '
                f"is to be filled again gets a new one: restore it, or run `pytube backfill start {tube}`"
            )
        return self._targets(*found)

    def _targets(self, name: str, about: Mapping[str, Any]) -> Targets:
        alias = self.options.index
        if takes_no_writes(about["aliases"], alias):
            pair = Pair.among(alias, about["aliases"])
            if pair is None:
                raise SinkUnavailable(
                    f'sink "opensearch": the alias "{alias}" takes no writes: its is_write_index is false'
                )
            return pair.targets
        index = Index(alias, is_alias=name != alias)
        return Targets(index, (index,))

    async def find(self) -> tuple[str, dict[str, Any]] | None:
        """The name of the index itself, and its settings, mappings and aliases; None when there is none."""
        answer = await self.describe(self.options.index)
        if not answer:
            return None
        if len(answer) != 1:
            names = ", ".join(sorted(answer))
            raise ConfigError(
                f'sink "opensearch": "{self.options.index}" stands for {names}; '
                "name an index, or an alias of exactly one"
            )
        ((name, about),) = answer.items()
        if "data_stream" in about:
            raise ConfigError(
                f'sink "opensearch": "{self.options.index}" is a data stream, which takes no changes; '
                "name an index"
            )
        return name, about

    # --- the mark, and notes ------------------------------------------------------------------

    async def read_mark(self) -> str | None:
        """The mark of the index, without the rest that `find` asks for; None when there is none."""
        path = path_of(self.options.index)
        try:
            found = await self.client.request("GET", path, params={"filter_path": _IDENTITY})
        except Refused as error:
            if error.status == 404:
                return None
            where = self.client.where
            raise SinkUnavailable(f"{where}: the mark of the index can't be read: {error}") from error
        return " ".join(sorted(map(mark_of, found.values()))) or None

    async def read_note(self, key: str) -> str | None:
        """The note of that key at the index; None when there is none."""
        found = await self.find()
        return None if found is None else _notes_of(found[1]).get(key)

    async def write_note(self, key: str, text: str) -> None:
        """Note it; not at an index at which a reindex keeps its own state: each writes all of `_meta`.

        Of two who write at once, one may put back the note of the other, who writes it again a minute later.
        """
        found = await self.find()
        if found is None or REINDEX in meta_of(found[1]):
            raise SinkUnavailable(
                f'{self.client.where}: "{self.options.index}" is being made, and takes no note'
            )
        name, about = found
        meta = {**meta_of(about), _NOTES: {**_notes_of(about), key: text}}
        await self.put_mapping(name, {"_meta": meta}, f'note the state of the source at "{name}"')

    # --- requests ---------------------------------------------------------------------------------

    @contextmanager
    def explained(self, what: str, *, missing_ok: bool = False) -> Iterator[None]:
        """Raise the server's refusal to do `what` as an error of pytube.

        Faults that can be fixed at the server while the worker runs are `SinkUnavailable`. `missing_ok`: a
        missing index or alias is not an error.
        """
        try:
            yield
        except Refused as error:
            where = f'sink "opensearch": {self.client.where} refused to {what}'
            if error.status == 401:
                raise ConfigError(
                    f"{where}: it rejects the credentials; check user and password, or api_key"
                ) from error
            if error.status == 403:
                raise SinkUnavailable(
                    f"{where}: this user does not have the right; grant it ({error})"
                ) from error
            if error.status == 400:
                raise ConfigError(f"{where}: {error}") from error
            if error.status != 404 or not missing_ok:
                raise SinkUnavailable(f"{where}: {error}") from error

    async def ask(
        self, what: str, method: str, path: str, *, missing_ok: bool = False, **request: Any
    ) -> dict[str, Any]:
        """The answer of `Client.request`, as `explained`; empty if the index is missing."""
        found: dict[str, Any] = {}
        with self.explained(what, missing_ok=missing_ok):
            found |= await self.client.request(method, path, **request)
        return found

    async def describe(self, names: str) -> dict[str, Any]:
        """The settings, mappings and aliases of each index of these names, joined by commas."""
        params = {"flat_settings": "true"}
        return await self.ask(f'describe "{names}"', "GET", path_of(names), missing_ok=True, params=params)

    async def delete(self, name: str) -> None:
        """Delete an index, if there is one."""
        await self.ask(f'delete "{name}"', "DELETE", path_of(name), missing_ok=True)

    async def put_mapping(self, name: str, body: Mapping[str, Any], what: str) -> None:
        """Change the mapping of an index."""
        await self.ask(what, "PUT", f"{path_of(name)}/_mapping", body=body)

    async def _create_first(self) -> None:
        alias = self.options.create == "alias"
        name = self.options.index + (_FIRST if alias else "")
        with self.explained(f'create the index "{name}"'):
            try:
                await self.create(name, {self.options.index: {}} if alias else {})
            except Refused as error:
                # Another worker was quicker; or an index of that name is there, without the alias.
                if error.kind != "resource_already_exists_exception":
                    raise

    async def create(
        self, name: str, aliases: Mapping[str, Mapping[str, Any]], meta: Mapping[str, Any] | None = None
    ) -> None:
        """Create an index with the settings and mappings of the options, and `meta` among the mapping's own.

        Raises:
            Refused: by the server.
        """
        options, mappings = self.options, dict(self.options.mappings)
        if meta is not None:
            mappings["_meta"] = {**mappings.get("_meta", {}), **meta}
        stamp = {options.stamp: {"dynamic": False, "properties": STAMP}}
        body: dict[str, Any] = {
            "settings": {"index.gc_deletes": f"{options.tombstone_seconds}s", **flat(options.settings)},
            "mappings": {**mappings, "properties": {**mappings.get("properties", {}), **stamp}},
            "aliases": dict(aliases),
        }
        await self.client.request("PUT", path_of(name), body=body)

    # --- what an index has to be like -------------------------------------------------------------

    def _faults(self, name: str, about: Mapping[str, Any]) -> Iterator[str]:
        """All for which an index can't serve as it is."""
        needed, stamp = self.options.tombstone_seconds, self.options.stamp
        kept = str(about.get("settings", {}).get("index.gc_deletes", _SERVERS_GC_DELETES))
        if seconds(kept) < needed:
            yield (
                f'index "{name}" remembers deletes for {kept} (index.gc_deletes), and late writes have to be '
                f"refused for {needed}s: set index.gc_deletes to that"
            )
        if about.get("mappings", {}).get("enabled") in (False, "false"):
            yield (
                f'index "{name}" has mappings with enabled = false, so that its documents can\'t be scanned; '
                'create it again with dynamic = "false" instead'
            )
        there = self._stamp_fields(about)
        for field, wanted in STAMP.items():
            kind = there.get(field, wanted).get("type", "object")
            if kind != wanted["type"]:
                yield (
                    f'index "{name}" has the field {stamp}.{field} as {kind}, and it has to be '
                    f"{wanted['type']}: give another name as stamp, or create the index again"
                )

    def _stamp_fields(self, about: Mapping[str, Any]) -> Mapping[str, Any]:
        properties = about.get("mappings", {}).get("properties", {})
        found: Mapping[str, Any] = properties.get(self.options.stamp, {}).get("properties", {})
        return found

    async def _mend(self, name: str, about: Mapping[str, Any]) -> None:
        """Add the fields of the stamp that are not mapped."""
        stamp = self.options.stamp
        if not STAMP.keys() <= self._stamp_fields(about).keys():
            body = {"properties": {stamp: {"properties": STAMP}}}
            await self.put_mapping(name, body, f'map the field "{stamp}" of "{name}"')


def mark_of(about: Mapping[str, Any]) -> str:
    """The mark that identifies the documents of an index; a reindex hands it on."""
    origin = meta_of(about).get(_ORIGIN)
    settings = flat(about["settings"])
    # A snapshot that is restored into an index leaves its uuid, and renews that of its history.
    ids = [settings["index.uuid"], settings.get("index.history.uuid")]
    return str(origin or ":".join(filter(None, ids)))


def meta_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """The `_meta` of an index."""
    meta: dict[str, Any] = about.get("mappings", {}).get("_meta", {})
    return meta


def _notes_of(about: Mapping[str, Any]) -> dict[str, str]:
    notes: dict[str, str] = meta_of(about).get(_NOTES, {})
    return notes


def handed_on(about: Mapping[str, Any]) -> dict[str, Any]:
    """The content for `_meta` of the index that takes over the documents of this one."""
    notes = _notes_of(about)
    return {_ORIGIN: mark_of(about), **({_NOTES: notes} if notes else {})}
