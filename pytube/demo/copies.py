"""The copies of a demonstration: how workers are told of one, what comes there, and what it holds.

Each is read back by code of its own, not by that of our sinks.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import psycopg

from pytube.db.connect import connect_sync
from pytube.demo.screen import WORKERS
from pytube.demo.source import TELLER, TELLER_SHARD, TUBE, Arrival, Key, number_in
from pytube.demo.stage import TIMEOUT, Topic
from pytube.embedded import redis as embedded_redis
from pytube.embedded.postgres import Postgres
from pytube.embedded.search_server import VERSION, OpenSearch
from pytube.errors import PytubeError, UsageError
from pytube.sinks.jsonl import Line, Replay, Tail

SinkType = Literal["jsonl", "opensearch", "redis", "kafka", "postgres"]

_PAGE = 10_000
_PACKAGES = {"opensearch": "aiohttp", "redis": "redis", "kafka": "confluent_kafka"}
"""What the sink needs, by its type; each has an extra of the same name as the type."""


def check(sink: SinkType) -> None:
    """Raise a `PytubeError` if the demonstration can't have this sink, before anything was started."""
    package = _PACKAGES.get(sink)
    if package is not None and find_spec(package) is None:
        raise UsageError(
            f"the demo with {sink} needs the package {package}: pip install 'pytube-pg[embedded,{sink}]' "
            f"(in a clone: make demo SINK={sink})"
        )
    if sink == "redis":
        embedded_redis.program()


class Copy(ABC):
    """A copy that workers write."""

    session_timeout = 8.0
    """Of the workers; a request may take 5 seconds."""

    def __init__(self, name: str, options: Mapping[str, object]) -> None:
        """`name`: the server and where it is, for people; `options`: the section of the sink."""
        self.name = name
        self.options = {"request_timeout": 5.0, **options}

    def arrivals(self) -> Iterator[Arrival]:
        """What has come of the probe's row."""
        if (number := number_in(self.document((TELLER_SHARD, TELLER)))) is not None:
            yield Arrival(number, time.time())

    @abstractmethod
    def document(self, key: Key) -> Any:
        """One document, decoded, None when it is not there (yet)."""

    @abstractmethod
    def documents(self) -> dict[Key, Any]:
        """All documents, decoded, by shard and id."""


class InFile(Copy):
    """A file, which tells of each line when it was written."""

    session_timeout = 4.0

    def __init__(self, path: Path) -> None:
        super().__init__(f"the file {path}", {"type": "jsonl", "path": str(path), "request_timeout": 2.0})
        self._arrived: list[Arrival] = []
        self.moves = False
        """Whether the last look found lines."""
        self._replay = Replay([path], on_line=self._take)

    def _take(self, line: Line) -> None:
        if line.shard == TELLER_SHARD and (number := number_in(line.doc)) is not None:
            self._arrived.append(Arrival(number, line.at))

    def arrivals(self) -> Iterator[Arrival]:
        """Read what has come, little by little, so that a flood does not keep the screen waiting."""
        self.moves = self._replay.poll(pieces=1) > 0
        yield from self._arrived
        self._arrived.clear()

    def document(self, key: Key) -> Any:
        """Of what was read."""
        line = self._replay.lines.get((TUBE, *key))
        return None if line is None or line.is_delete else line.doc

    def documents(self) -> dict[Key, Any]:
        """The last line of each key counts."""
        self._replay.finish()
        lines = self._replay.lines.items()
        return {(shard, key): line.doc for (_, shard, key), line in lines if not line.is_delete}


@contextmanager
def running(sink: SinkType, directory: Path, bootstrap: str | None) -> Iterator[Copy]:
    """The copy in a server of its own below `directory`; that of Kafka is the one at `bootstrap`."""
    with ExitStack() as stack:
        match sink:
            case "jsonl":
                yield InFile(directory / "sink.jsonl")
            case "opensearch":
                yield InOpenSearch(stack.enter_context(OpenSearch(directory / sink)).url)
            case "redis":
                from redis import RedisError

                server = stack.enter_context(embedded_redis.Redis(directory / sink))
                with _translated(RedisError):
                    yield InRedis(server.url, stack)
            case "kafka":
                from confluent_kafka import KafkaException

                assert bootstrap is not None, "Kafka runs when the copy is there"
                with _translated(KafkaException):
                    yield InKafka(bootstrap, stack)
            case "postgres":
                yield InPostgres(stack.enter_context(Postgres(directory / "copy")).dsn(), stack)


class CopyUnreadable(PytubeError):
    """The server of the copy does not answer the demonstration; the message says what it said."""


@contextmanager
def _translated(kind: type[Exception]) -> Iterator[None]:
    """Errors of a client become `CopyUnreadable`, which ends the demonstration with a sentence."""
    try:
        yield
    except kind as error:
        raise CopyUnreadable(f"the server of the copy does not answer: {error}") from error


# --- OpenSearch ---------------------------------------------------------------------------------


class InOpenSearch(Copy):
    """An index, asked over HTTP."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"OpenSearch {VERSION} on {url}",
            {
                "type": "opensearch",
                "url": url,
                "index": TUBE,
                "key": "{shard}:{id}",
                "settings": {"number_of_shards": 1, "number_of_replicas": 0},
                "mappings": {"dynamic": False},
            },
        )
        self._url = url

    def document(self, key: Key) -> Any:
        """Read by its id, which needs no refresh."""
        shard, number = key
        try:
            document = self._ask(f"{TUBE}/_doc/{shard}:{number}").get("_source")
        except CopyUnreadable:
            return None  # a new index takes a moment
        return document and _without_stamp(document)

    def documents(self) -> dict[Key, Any]:
        """Scroll through the index."""
        found: dict[Key, Any] = {}
        self._ask(f"{TUBE}/_refresh", {})
        page = self._ask(f"{TUBE}/_search?scroll=1m", {"size": _PAGE, "sort": ["_doc"]})
        while hits := page["hits"]["hits"]:
            for hit in hits:
                stamp = hit["_source"]["_pytube"]
                found[stamp["shard"], stamp["id"]] = _without_stamp(hit["_source"])
            page = self._ask("_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]})
        return found

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(  # noqa: S310 # ours
            f"{self._url}/{path}", data, {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(asked, timeout=TIMEOUT) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:  # no worker has made the index, or the document, yet
                return {}
            raise CopyUnreadable(f"{self.name} answered {error.code} to {path}") from error


def _without_stamp(document: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in document.items() if field != "_pytube"}


# --- Redis --------------------------------------------------------------------------------------


class InRedis(Copy):
    """A key for each document."""

    _PREFIX = "demo:"

    def __init__(self, url: str, stack: ExitStack) -> None:
        import redis

        key = self._PREFIX + "{shard}:{id}"
        super().__init__(f"Redis on {url}", {"type": "redis", "url": url, "key": key})
        client = redis.Redis.from_url(url, socket_timeout=TIMEOUT)
        self._client: Any = client  # its answers are typed for all of its settings
        stack.callback(self._client.close)

    def document(self, key: Key) -> Any:
        """Read by its key."""
        shard, number = key
        text = self._client.get(f"{self._PREFIX}{shard}:{number}")
        return None if text is None else json.loads(text)

    def documents(self) -> dict[Key, Any]:
        """Walk over all keys."""
        found: dict[Key, Any] = {}
        cursor = 0
        while True:
            cursor, names = self._client.scan(cursor, match=f"{self._PREFIX}*", count=_PAGE)
            for name, text in zip(names, self._client.mget(names) if names else [], strict=True):
                _, shard, key = name.decode().split(":")
                found[int(shard), int(key)] = json.loads(text)
            if not cursor:
                return found


# --- Kafka --------------------------------------------------------------------------------------


class InKafka(Copy):
    """A topic, read as its consumers read it: the last record of a key counts."""

    _PARTITIONS = 4

    def __init__(self, bootstrap: str, stack: ExitStack) -> None:
        super().__init__(
            f"Kafka on {bootstrap}",
            {
                "type": "kafka",
                "bootstrap_servers": bootstrap,
                "topic": TUBE,
                "key_format": "json",
                "timeout": 4.0,
                "create_topic": True,
                "partitions": self._PARTITIONS,
                "replication_factor": 1,
            },
        )
        self._topic = Topic(
            bootstrap,
            TUBE,
            range(self._PARTITIONS),
            isolation_level="read_committed",
            topic_metadata_refresh_interval_ms=500,  # a worker makes the topic later
        )
        stack.callback(self._topic.close)
        self._held: dict[Key, Any] = {}

    def document(self, key: Key) -> Any:
        """Read the new records."""
        self._read()
        return self._held.get(key)

    def documents(self) -> dict[Key, Any]:
        """Read to the end of the topic as it is now."""
        too_late = CopyUnreadable(f"{self.name} did not give all records within {TIMEOUT:g} s")
        self._topic.read_to_end(lambda: self._read(wait=0.1), too_late)
        return self._held

    def _read(self, wait: float = 0.0) -> None:
        for message in self._topic.records(wait):
            key, value = json.loads(message.key() or b""), message.value()
            where = key["shard"], key["id"]
            if value is None:
                self._held.pop(where, None)
            else:
                self._held[where] = json.loads(value)


# --- Postgres -----------------------------------------------------------------------------------


class InPostgres(Copy):
    """A table of another server."""

    def __init__(self, dsn: str, stack: ExitStack) -> None:
        super().__init__(
            "a second Postgres 18", {"type": "postgres", "dsn": dsn, "table": "copy", "create": True}
        )
        self._connection = connect_sync(dsn, application_name="pytube demo copy")
        stack.callback(self._connection.close)

    def document(self, key: Key) -> Any:
        """Read by its key."""
        found = self._rows("SELECT doc FROM public.copy WHERE shard = %s AND id = %s", *key)
        return found[0][0] if found else None

    def documents(self) -> dict[Key, Any]:
        """Read the table."""
        rows = self._rows("SELECT shard, id, doc FROM public.copy")
        return {(shard, key): document for shard, key, document in rows}

    def _rows(self, query: Any, *arguments: object) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query, arguments).fetchall()
        except psycopg.errors.UndefinedTable:
            return []  # no worker has made it yet


# --- what came there ------------------------------------------------------------------------------


class Feed:
    """Watches a copy grow. Who delivered how much is in the logs of the workers, five times a second."""

    def __init__(self, copy: Copy, logs: Path) -> None:
        """`logs`: the folder of the workers' logs."""
        self.copy = copy
        self.documents = 0
        self.by_client: Counter[str] = Counter()
        self.arrivals: list[Arrival] = []
        """Of the probe's row."""
        self.first: dict[tuple[int, int], float] = {}
        """When each term, as (partition, epoch), first wrote; Unix time."""
        self._logs = {name: Tail(logs / f"{name}.log") for name in WORKERS}
        self._epochs: dict[tuple[str, int], int] = {}
        """The present term of each worker and partition."""

    def poll(self) -> bool:
        """Take in what has come; whether there was something."""
        before = self.documents
        for client, log in self._logs.items():
            for line in log.lines(pieces=1):
                self._take(client, line)
        self.arrivals += self.copy.arrivals()
        if isinstance(self.copy, InFile):
            return self.copy.moves or self.documents != before
        return self.documents > before  # a server has the probe's number each time

    def _take(self, client: str, line: bytes) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            return  # cut short by the kill
        event = said.get("event")
        if event == "leader_acquired":
            self._epochs[client, said["partition"]] = said["epoch"]
        elif event == "meter_read" and said["documents"]:
            at = datetime.fromisoformat(said["timestamp"]).timestamp()
            self.documents += said["documents"]
            self.by_client[client] += said["documents"]
            self.first.setdefault((said["partition"], self._epochs[client, said["partition"]]), at)
