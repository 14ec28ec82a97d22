"""What the demonstration learns of the copy while workers write to it, and what the copy holds in the end."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from pytube.demo.copies import Copy
from pytube.demo.settings import PARTITIONS, WORKERS, SinkSettings
from pytube.demo.source import TELLER_SHARD, Arrival, Key, number_in
from pytube.sinks.jsonl_replay import Line, Replay, Tail


class Tally:
    """Counts what came to the sink, in order of arrival."""

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self._partitions = partitions
        self.documents = 0
        self.by_client: Counter[str] = Counter()
        self.first: dict[tuple[int, int], float] = {}
        """When each term, as (partition, epoch), first wrote; Unix time."""
        self.arrivals: list[Arrival] = []
        """Documents of the probe's row."""
        self._by_second: Counter[int] = Counter()

    def take(self, line: Line) -> None:
        """Count one line of a file."""
        self.count(line.client or "?", line.shard % self._partitions, line.token.epoch, 1, line.at)
        if line.shard == TELLER_SHARD:
            self.arrive(line.doc, line.at)

    def count(self, client: str, partition: int, epoch: int, documents: int, at: float) -> None:
        """Count documents that a worker has written by the Unix time `at`."""
        self.documents += documents
        self.by_client[client] += documents
        self._by_second[int(at)] += documents
        self.first.setdefault((partition, epoch), at)

    def arrive(self, document: Any, at: float) -> None:
        """The probe's row is there as this document."""
        if (number := number_in(document)) is not None:
            self.arrivals.append(Arrival(number, at))

    @property
    def peak(self) -> int:
        """Documents in the best second."""
        return max(self._by_second.values(), default=0)

    def first_after(self, partition: int, epoch: int) -> float | None:
        """When a later term than `epoch` first wrote in the partition; None when none has yet."""
        times = [at for (p, e), at in self.first.items() if p == partition and e > epoch]
        return min(times, default=None)


class Feed(Protocol):
    """One way to watch a copy grow."""

    tally: Tally
    log_format: str
    """Of the workers."""

    def settings(self, client: str) -> SinkSettings:
        """What the worker `client` is configured with."""

    def poll(self) -> bool:
        """Take in what has come; whether there was something."""

    def documents(self) -> Mapping[Key, Any]:
        """All that the copy holds, when nothing writes any more."""

    def remarks(self) -> dict[str, str]:
        """What else is to be reported."""


class FileFeed:
    """The copy is a file, which tells of each line who wrote it, when, and under which term."""

    log_format = "human"

    def __init__(self, path: Path) -> None:
        self.tally = Tally()
        self._path = path
        self._replay = Replay([path], on_line=self.tally.take)

    def settings(self, client: str) -> SinkSettings:
        """All workers append to the file."""
        options = {"type": "jsonl", "path": str(self._path), "client": client, "request_timeout": 2.0}
        return SinkSettings(options)

    def poll(self) -> bool:
        """Read what has come, little by little, so that a flood does not keep the screen waiting."""
        return bool(self._replay.poll(pieces=1))

    def documents(self) -> Mapping[Key, Any]:
        """The last line of each key counts."""
        self._replay.finish()
        lines = self._replay.lines.items()
        return {(shard, key): line.doc for (_, shard, key), line in lines if not line.is_delete}

    def remarks(self) -> dict[str, str]:
        """Lines that a reader has to know how to take."""
        replay = self._replay
        return {
            "lines at the sink": f"{replay.torn:,} cut short by the kill, {replay.stale:,} out of order",
        }


class ServerFeed:
    """The copy is in a server. Who delivered how much is in the logs of the workers, five times a second."""

    log_format = "json"

    def __init__(self, copy: Copy, logs: Path) -> None:
        """`logs`: the folder of the workers' logs."""
        self.tally = Tally()
        self._copy = copy
        self._logs = {name: Tail(logs / f"{name}.log") for name in WORKERS}
        self._epochs: dict[tuple[str, int], int] = {}
        """The present term of each worker and partition."""

    def settings(self, client: str) -> SinkSettings:  # noqa: ARG002 # a document at a server names no worker
        """A request may take longer than one to a file."""
        return SinkSettings(self._copy.options | {"request_timeout": 5.0}, 8.0, 0.2)

    def poll(self) -> bool:
        """Read the logs, and the row of the probe."""
        before = self.tally.documents
        for client, log in self._logs.items():
            for line in log.lines(pieces=1):
                self._take(client, line)
        self.tally.arrive(self._copy.probe(), time.time())
        return self.tally.documents > before

    def documents(self) -> Mapping[Key, Any]:
        """Read the whole copy back."""
        return self._copy.documents()

    def remarks(self) -> dict[str, str]:
        """Where it was read back from."""
        return {"read back from": self._copy.name}

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
            where = client, said["partition"]
            self.tally.count(*where, self._epochs[where], said["documents"], at)
