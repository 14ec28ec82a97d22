"""The judge: says whether a sink file equals its source.

It knows nothing of workers. It applies the lines in order of arrival, as a sink that compares
nothing would, and again by token, as one that compares; both must give what the table holds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from pytube.sinks.jsonl import Line, Replay

SHARDS = 16


@dataclass
class Verdict:
    """What is wrong, in numbers, with a few examples of each."""

    rows: int = 0
    lines: int = 0
    torn: int = 0
    older_term_after_newer: int = 0
    wrong_by_arrival: list[str] = field(default_factory=list)
    wrong_by_token: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not (self.wrong_by_arrival or self.wrong_by_token)

    def __str__(self) -> str:
        shown = asdict(self)
        for name in ("wrong_by_arrival", "wrong_by_token"):
            shown[name] = {"count": len(shown[name]), "examples": shown[name][:5]}
        return str(shown)


def source(dsn: str, table: str = "items") -> dict[int, Any]:
    """The rows of a table, as JSON, by id."""
    statement = sql.SQL("SELECT id, row_to_json(i.*) FROM public.{} i").format(sql.Identifier(table))
    with psycopg.connect(dsn) as connection:
        return dict(connection.execute(statement).fetchall())


def compare(rows: dict[int, Any], lines: dict[tuple[str, int, int], Line], shards: int = SHARDS) -> list[str]:
    """How what the sink holds differs from the rows."""
    held: dict[int, Any] = {}
    wrong: list[str] = []
    for line in lines.values():
        if line.shard != line.id % shards:
            wrong.append(f"id {line.id} is in shard {line.shard}")
        if not line.is_delete:
            held[line.id] = line.doc
    return wrong + [
        f"id {key}: source {rows.get(key)}, sink {held.get(key)}"
        for key in sorted(rows.keys() | held.keys())
        if rows.get(key) != held.get(key)
    ]


def judge(dsn: str, path: str) -> Verdict:
    """Compare the file with the table."""
    rows = source(dsn)
    verdict = Verdict(rows=len(rows))
    for by_token in (False, True):
        replay = Replay([path], compare=by_token)
        replay.finish()
        verdict.lines, verdict.torn = replay.applied, replay.torn
        wrong = compare(rows, replay.lines)
        if by_token:
            verdict.wrong_by_token = wrong
            verdict.older_term_after_newer = replay.stale
        else:
            verdict.wrong_by_arrival = wrong
    return verdict
