"""Reads what was written down about a tube, from the sink's files and the database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from pytube.model import Token
from pytube.sinks.jsonl import Line, Replay
from tests.crash.chaos.records import Call, Change, Key, Pod, Purge, Term, Window
from tests.crash.chaos.sink import calls_of, lines_of
from tests.crash.chaos.source import PREDICATE, Tube

Conn = psycopg.Connection[Any]

_TERMS = """
SELECT leader_id::text, epoch, partitions, partition, extract(epoch FROM hold)::float8,
    extract(epoch FROM acquired_at)::float8, extract(epoch FROM renewed_at)::float8,
    extract(epoch FROM ended_at)::float8, outcome
FROM tube_terms(%s)
"""
_ROWS = """
SELECT i.id, row_to_json(i.*) FROM public.{} i WHERE {}
"""


_REMEMBERED = 60.0
"""Seconds: longer than any right to send lasts after a renewal."""


def read(
    conn: Conn,
    tube: Tube,
    folder: Path,
    told: Mapping[str, float],
    receive_deadline: float,
    request_timeout: float,
) -> Window:
    """The window of a tube that is quiet. `folder`: the journals of the sink, which nobody writes to now."""
    left = conn.execute(
        sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("tube", tube.name))
    ).fetchone()
    return Window(
        tube.name,
        receive_deadline,
        request_timeout,
        lines=read_lines(lines_of(tube.name, folder)),
        calls=read_calls(calls_of(tube.name, folder)),
        pods=_pods(conn, tube),
        purges=_purges(conn, tube),
        changes=list(_changes(conn, tube)),
        terms=terms(conn, tube.name),
        renewals=_renewals(conn),
        told=told,
        parked=_parked(conn, tube),
        rows=dict(_rows(conn, tube)),
        follows_all=tube.predicate is None,
        left=left[0] if left else -1,
    )


def terms(conn: Conn, name: str) -> list[Term]:
    """All that there ever were, of a tube or an outbox."""
    return [Term(*row) for row in conn.execute(_TERMS, (name,))]


def forget(conn: Conn) -> None:
    """Empty the database's journals; renewals stay while the right to send may rest on them."""
    conn.execute("TRUNCATE chaos.change, chaos.pod, chaos.purge")
    conn.execute(
        "DELETE FROM chaos.renewal WHERE at < extract(epoch FROM clock_timestamp()) - %s", (_REMEMBERED,)
    )


def read_lines(path: Path) -> list[Line]:
    """The lines of a file, in order of arrival."""
    lines: list[Line] = []
    Replay([path], on_line=lines.append).finish()
    return lines


def read_calls(paths: list[Path]) -> list[Call]:
    """The calls that all processes wrote down. What a process was killed in writing is passed over."""
    calls: dict[str, Call] = {}
    endings = []
    for path in paths:
        for record in _records(path):
            if "began" in record:
                calls[record["call"]] = Call(
                    record["call"],
                    Token.parse(record["token"]),
                    record["began"],
                    {(shard, key): n for shard, key, n in record["keys"]},
                    pid=int(path.name.rpartition(".")[2]),
                )
            else:
                endings.append(record)
    for record in endings:
        call = calls.get(record["call"])
        if call is not None:
            call.ended = record["ended"]
            call.failed = record["failed"]
            call.refused = frozenset((shard, key) for shard, key in record["refused"])
            call.delayed = frozenset((shard, key) for shard, key in record["delayed"])
    return list(calls.values())


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def _pods(conn: Conn, tube: Tube) -> list[Pod]:
    rows = conn.execute("SELECT seq, xid, shard, ids, ts FROM chaos.pod WHERE tube = %s", (tube.name,))
    return [Pod(*row) for row in rows]


def _purges(conn: Conn, tube: Tube) -> list[Purge]:
    rows = conn.execute("SELECT seq, leader_id, at FROM chaos.purge WHERE tube = %s", (tube.name,))
    return [Purge(*row) for row in rows]


def _changes(conn: Conn, tube: Tube) -> Iterator[Change]:
    rows = conn.execute("SELECT xid, tbl, id, n, hidden FROM chaos.change ORDER BY place")
    for xid, table, key, n, hidden in rows:
        yield Change(xid, _key(tube, table, key), None if hidden and tube.predicate == PREDICATE else n)


def _renewals(conn: Conn) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for leader_id, at in conn.execute("SELECT leader_id, at FROM chaos.renewal ORDER BY at"):
        found.setdefault(leader_id, []).append(at)
    return found


def _parked(conn: Conn, tube: Tube) -> frozenset[Key]:
    rows = conn.execute("SELECT shard, id FROM tube_parked WHERE tube = %s", (tube.name,))
    return frozenset((shard, int(key or -1)) for shard, key in rows)


def _rows(conn: Conn, tube: Tube) -> Iterator[tuple[Key, Any]]:
    for table in ("items", "extras"):
        statement = sql.SQL(_ROWS).format(sql.Identifier(table), sql.SQL(tube.predicate or "true"))
        for key, row in conn.execute(statement):
            yield _key(tube, table, key), row


def _key(tube: Tube, table: str, key: int) -> Key:
    first, shards = tube.items if table == "items" else (tube.extras, 1)
    return first + key % shards, key
