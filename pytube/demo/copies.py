"""The copies of a demonstration: how workers are told of one, and what it holds.

Each is read back by code of its own, not by that of our sinks.
"""

from __future__ import annotations

import fcntl
import json
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psycopg

from pytube.db.connect import connect_sync
from pytube.demo.stage import TIMEOUT
from pytube.embedded import redis as embedded_redis
from pytube.embedded.postgres import Postgres
from pytube.embedded.search_server import VERSION, OpenSearch
from pytube.errors import PytubeError, UsageError

if TYPE_CHECKING:
    from confluent_kafka import Message

Key = tuple[int, int]
"""Shard and id."""
SinkType = Literal["jsonl", "opensearch", "redis", "kafka", "postgres"]

TUBE = "es-live"
_PAGE = 10_000
_PIECE = 1 << 20
"""Bytes."""
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

    def poll(self) -> bool:
        """Read what has come, where it comes by itself; whether there was something."""
        return False

    @abstractmethod
    def document(self, key: Key) -> Any:
        """One document, decoded, None when it is not there (yet)."""

    def came(self, key: Key) -> float:
        """When a document came; Unix time. A server does not show it, so it is now."""
        del key
        return time.time()

    @abstractmethod
    def documents(self) -> dict[Key, Any]:
        """All documents, decoded, by shard and id."""


class Lines:
    """What processes append to a file as lines of JSON, read as it comes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0

    def new(self) -> Iterator[Any]:
        """What has come, little by little, so that a flood does not keep the screen waiting."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # a writer that fails takes its bytes back
            file.seek(self._place)
            whole = file.read(_PIECE).rpartition(b"\n")[0]
            if whole:
                self._place += len(whole) + 1
            for line in whole.splitlines():
                with suppress(ValueError):  # cut short by a kill
                    yield json.loads(line)


class InFile(Copy):
    """A file, which tells of each line when it was written; the line with the greatest token counts."""

    session_timeout = 4.0

    def __init__(self, path: Path) -> None:
        super().__init__(f"the file {path}", {"type": "jsonl", "path": str(path), "request_timeout": 2.0})
        self._lines = Lines(path)
        self._held: dict[Key, Any] = {}

    def poll(self) -> bool:
        """Read on."""
        has_come = False
        for line in self._lines.new():
            has_come = True
            held = self._held.setdefault((line["shard"], line["id"]), line)
            if (held["epoch"], held["counter"]) <= (line["epoch"], line["counter"]):
                self._held[line["shard"], line["id"]] = line
        return has_come

    def document(self, key: Key) -> Any:
        """Of what was read."""
        line = self._held.get(key)
        return line and line["doc"]

    def came(self, key: Key) -> float:
        """When its line was written."""
        return float(self._held[key]["at"])

    def documents(self) -> dict[Key, Any]:
        """Read to the end."""
        while self.poll():
            pass
        return {key: line["doc"] for key, line in self._held.items() if line["op"] != "delete"}


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


class Topic:
    """A topic of Kafka, read from its beginning, as its consumers read it."""

    def __init__(self, bootstrap: str, name: str, partitions: Iterable[int], **settings: object) -> None:
        """`settings`: more of librdkafka's, with underscores for the dots."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        own = {name.replace("_", "."): value for name, value in settings.items()}
        common = {"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False}
        self._consumer = Consumer({**common, "log_level": 0, **own})
        self._places = [TopicPartition(name, number, OFFSET_BEGINNING) for number in partitions]
        self._consumer.assign(self._places)
        self.close = self._consumer.close

    def records(self, wait: float) -> list[Message]:
        """What has come."""
        messages = self._consumer.consume(_PAGE, timeout=wait)
        return [message for message in messages if message.error() is None]

    def read_to_end(self, read: Callable[[], object], too_late: PytubeError) -> None:
        """Call `read`, which takes `records`, to the end of the topic as it is now; else raise `too_late`."""
        ends = [self._consumer.get_watermark_offsets(place, timeout=TIMEOUT)[1] for place in self._places]
        deadline = time.monotonic() + TIMEOUT
        while not self._is_at(ends):
            if time.monotonic() > deadline:
                raise too_late
            read()

    def _is_at(self, ends: Sequence[int]) -> bool:
        """Whether all was read up to there; a position is negative until something was."""
        positions = self._consumer.position(self._places)
        return all(not end or at.offset >= end for at, end in zip(positions, ends, strict=True))


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

    def poll(self) -> bool:
        """Read the new records."""
        return self._read(wait=0.0)

    def document(self, key: Key) -> Any:
        """Of what was read."""
        return self._held.get(key)

    def documents(self) -> dict[Key, Any]:
        """Read to the end of the topic as it is now."""
        too_late = CopyUnreadable(f"{self.name} did not give all records within {TIMEOUT:g} s")
        self._topic.read_to_end(lambda: self._read(wait=0.1), too_late)
        return self._held

    def _read(self, wait: float) -> bool:
        records = self._topic.records(wait)
        for message in records:
            key, value = json.loads(message.key() or b""), message.value()
            where = key["shard"], key["id"]
            if value is None:
                self._held.pop(where, None)
            else:
                self._held[where] = json.loads(value)
        return bool(records)


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
