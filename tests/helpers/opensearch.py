"""An index of a test: its sinks, and what it holds, asked without the sink."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from pytube.model import Key
from pytube.sinks.opensearch import OpenSearchSink

SMALL = {"number_of_shards": 1, "number_of_replicas": 0}


def request(
    url: str,
    method: str = "GET",
    body: Mapping[str, Any] | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Any:
    """One request; the decoded answer, of an error too."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(  # noqa: S310 # ours
        url, data, {"content-type": "application/json", **(headers or {})}, method=method
    )
    try:
        with urllib.request.urlopen(asked, timeout=60, context=tls) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


class Index:
    """One index, behind an alias as the sink makes it."""

    def __init__(self, server: str, name: str) -> None:
        self.server = server
        self.name = name

    @property
    def url(self) -> str:
        return f"{self.server}/{self.name}"

    def options(self, **more: Any) -> dict[str, Any]:
        """The options of a sink, with `more` of them."""
        mappings = {"dynamic": False}
        return {"url": self.server, "index": self.name, "settings": SMALL, "mappings": mappings, **more}

    def sink(self, **more: Any) -> OpenSearchSink:
        """A sink, not open."""
        return OpenSearchSink.from_options(self.options(**more))

    def hits(self) -> list[dict[str, Any]]:
        """All documents as they are stored."""
        request(f"{self.url}/_refresh", "POST")
        found = request(f"{self.url}/_search", "POST", {"size": 10_000, "version": True})
        hits: list[dict[str, Any]] = found.get("hits", {}).get("hits", [])
        return hits

    def values(self, stamp: str = "_pytube") -> dict[Key, Any]:
        """The documents without their stamps, by the keys in them."""
        found = {}
        for hit in self.hits():
            own = hit["_source"].pop(stamp)
            found[own["shard"], own["id"]] = hit["_source"]
        return found


@contextmanager
def an_index(server: str) -> Iterator[Index]:
    """An index that nobody has made yet; it is deleted afterwards."""
    index = Index(server, f"t-{uuid.uuid4().hex}")
    try:
        yield index
    finally:
        for name in (index.name, *request(f"{server}/{index.name}*/_alias")):
            request(f"{server}/{name}", "DELETE")


@asynccontextmanager
async def opened(index: Index, **more: Any) -> AsyncIterator[Any]:
    """A sink of the index, open within the block."""
    sink = index.sink(**more)
    await sink.open()
    try:
        yield sink
    finally:
        await sink.close()
