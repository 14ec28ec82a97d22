"""What `pytube top` does for an operator, by a session for each act. These calls block."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import psycopg

from pytube import admin
from pytube.cli.acting import session
from pytube.cli.context import Database
from pytube.cli.output import key_shown
from pytube.cli.workers import printable
from pytube.config import Config
from pytube.db.errors import describe
from pytube.errors import PytubeError, UsageError
from pytube.health.fleet import Partition, Queue
from pytube.outbox.admin import Outboxes
from pytube.verify.explain import explain

_MOST = 500
"""Parked keys that are listed."""


@dataclass(frozen=True, slots=True)
class ParkEntry:
    """A parked key of a tube, or record of an outbox."""

    kind: str
    name: str
    key: str
    """For people."""
    error: str
    attempts: int
    parked_at: datetime
    details: str
    """All that is known of it."""
    shard: int | None = None
    id: str | None = None
    """With the shard, the key of a document; None for others."""
    record: int | None = None
    """The id of a record of an outbox; None for others."""


class Operator:
    """Acts on the databases that are watched."""

    def __init__(self, databases: Sequence[Database], config: Config | None) -> None:
        """`config`: as workers have it; None: there is none, and documents can't be read."""
        self._databases = {database.host: database for database in databases}
        self._config = config

    def pause(self, of: Queue | Partition, reason: str) -> str:
        """Pause it; what was done."""
        with self._session(of.host) as (connection, schema):
            admin.pause(connection, of.name, schema, partition=_number(of), reason=reason or None)
        return f"{what(of)} is paused"

    def resume(self, of: Queue | Partition) -> str:
        """End its pauses; what was done."""
        with self._session(of.host) as (connection, schema):
            ended = admin.resume(connection, of.name, schema, partition=_number(of))
            left = [
                one.reason
                for one in admin.pauses(connection, of.name, schema)
                if _number(of) in (None, one.partition)
            ]
        done = "is resumed" if ended else "was not paused by itself"
        return f"{what(of)} {done}" + (f"; still paused {left[0]}: resume the whole tube" if left else "")

    def parked(self, of: Queue | Partition) -> list[ParkEntry]:
        """What is parked there, the latest first."""
        with self._session(of.host) as (connection, schema):
            if of.kind == "outbox":
                return [
                    _of_record(of.name, row) for row in Outboxes(connection, schema).parked(of.name, _MOST)
                ]
            found = admin.list_parked(connection, admin.Parking(of.name), schema, _MOST)
        return [_of_key(one) for one in found]

    def retry(self, host: str | None, entry: ParkEntry) -> str:
        """Have one entry tried again; what was done."""
        if entry.record is None and entry.id is None:
            raise UsageError(
                f"a control pod has no key, so it is tried again with all of its shard: "
                f"pytube park retry --tube {entry.name} --shard {entry.shard}"
            )
        with self._session(host) as (connection, schema):
            if entry.record is not None:
                done = Outboxes(connection, schema).retry(entry.name, [entry.record])
            else:
                parking = admin.Parking(entry.name, entry.shard, entry.id)
                done = admin.retry_parked(connection, parking, schema)
        if not done:
            raise UsageError(f"{entry.key} is not parked any more, or somebody else has it tried again now")
        more = f", with {done - 1} others of its key" if done > 1 else ""
        return f"{entry.key} of {entry.kind} {entry.name} is to be tried again{more}"

    def explain(self, host: str | None, tube: str, shard: int | None, key: str) -> str:
        """Where the key is now, and its document on both sides."""
        if self._config is None:
            raise UsageError(
                "to read the document on both sides, pytube top needs the configuration: --config"
            )
        config = self._config.of_host(host)
        database = self._databases[host]
        postgres = config.postgres.model_copy(update={"dsn": database.dsn, "schema_name": database.schema})
        found = asyncio.run(explain(config.model_copy(update={"postgres": postgres}), tube, key, shard=shard))
        lines = [f"- {sentence}" for sentence in found.sentences]
        for name, side in (("source", found.source), ("sink", found.sink)):
            if side.exists:
                lines += ["", f"{name}:", json.dumps(side.document, ensure_ascii=False, indent=2)]
            else:
                lines += ["", f"{name}: {side.unknown or 'has no such document'}"]
        return "\n".join(map(printable, "\n".join(lines).split("\n")))

    @contextmanager
    def _session(self, host: str | None) -> Iterator[tuple[psycopg.Connection, str]]:
        database = self._databases[host]
        with session(database) as connection:
            yield connection, database.schema


def what(of: Queue | Partition) -> str:
    """How it is named to people."""
    host = "" if of.host is None else f" on host {of.host}"
    partition = "" if isinstance(of, Queue) else f"partition {of.partition} of "
    return f"{partition}{of.kind} {of.name}{host}"


def refusal(error: Exception) -> str:
    """Why something was not done, in a sentence."""
    if isinstance(error, PytubeError):
        return printable(str(error))
    if isinstance(error, psycopg.Error):
        return printable(f"Postgres refused: {describe(error)}")
    raise error


def _number(of: Queue | Partition) -> int | None:
    return of.partition if isinstance(of, Partition) else None


def _of_key(one: admin.Parked) -> ParkEntry:
    key = "control pod" if one.id is None else f"{one.shard}/{key_shown(one.id)}"
    retried = "nobody has since" if one.retried_at is None else f"{one.retried_at:%Y-%m-%d %H:%M:%S}"
    details = [
        f"key:         {key} (shard {one.shard})",
        f"attempts:    {one.attempts}",
        f"first error: {one.first_at:%Y-%m-%d %H:%M:%S}",
        f"parked:      {one.parked_at:%Y-%m-%d %H:%M:%S}",
        f"retried:     {retried}",
        f"touch:       {one.op}, seq {one.seq}",
        *([] if one.payload is None else [f"payload:     {json.dumps(one.payload)}"]),
        "",
        *map(printable, one.error.split("\n")),
    ]
    text = "\n".join(details)
    return ParkEntry(
        "tube", one.tube, key, printable(one.error), one.attempts, one.parked_at, text, one.shard, one.id
    )


def _of_record(outbox: str, row: dict[str, object]) -> ParkEntry:
    error, attempts, parked_at = str(row["error"]), row["attempts"], row["parked_at"]
    assert isinstance(attempts, int)
    assert isinstance(parked_at, datetime)
    held = (
        "waits behind an earlier one of its key"
        if row["behind"]
        else "its key is held"
        if row["hold"]
        else "no"
    )
    key = f"{row['topic']} {row['key'] if row['key'] is not None else '-'}"
    details = [
        f"record:   {row['id']}",
        f"topic:    {row['topic']}",
        f"key:      {row['key'] if row['key'] is not None else '-'}",
        f"held:     {held}",
        f"attempts: {attempts}",
        f"parked:   {parked_at:%Y-%m-%d %H:%M:%S}",
        "",
        error,
    ]
    text = "\n".join(map(printable, details))
    return ParkEntry(
        "outbox",
        outbox,
        printable(f"{row['id']} {key}"),
        printable(error),
        attempts,
        parked_at,
        text,
        record=int(str(row["id"])),
    )
