"""The checker of journals: what was committed, what the sink was given, and what each term did.

It knows nothing of workers. A tube has one table of its own name, and one partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from pytube.model import Token
from pytube.sinks.jsonl import Line, LineKey, Replay
from tests.crash.journal_sink import accepted, rejected
from tests.crash.judge import compare, source


@dataclass
class Findings:
    """What is wrong with one tube; nothing, when all of it is empty."""

    wrong: list[str] = field(default_factory=list)
    """Where the sink differs from the source, whether or not it compares tokens."""
    parked: list[str] = field(default_factory=list)
    """Keys that are parked and were not rejected last, or the other way round."""
    unknown_terms: list[str] = field(default_factory=list)
    """Terms that wrote or spoke, and that the database has not heard of."""
    late: list[str] = field(default_factory=list)
    """Lines of a term that came after a line of a later one."""
    left: int = 0
    """Pods that are still there."""
    lines: int = 0

    @property
    def is_good(self) -> bool:
        return not (self.wrong or self.parked or self.unknown_terms or self.late or self.left)


def check(dsn: str, tube: str, folder: Path, leader_ids: Iterable[str]) -> Findings:
    """Compare all journals of a tube that is quiet. `leader_ids`: the terms that workers spoke of."""
    findings = Findings()
    with psycopg.connect(dsn, options="-c search_path=tube,public") as connection:
        terms = connection.execute("SELECT leader_id::text, epoch FROM tube_terms(%s)", (tube,)).fetchall()
        parked = {
            (int(shard), int(key))
            for shard, key in connection.execute("SELECT shard, id FROM tube_parked WHERE tube = %s", (tube,))
        }
        row = connection.execute("SELECT count(*) FROM " + tube).fetchone()
        findings.left = row[0] if row else -1
    epochs = {epoch for _, epoch in terms}
    findings.unknown_terms = sorted(set(leader_ids) - {leader_id for leader_id, _ in terms})

    order = _Order(findings, epochs)
    rejections = _rejections(rejected(tube, folder))
    rows = source(dsn, tube)
    for by_token in (False, True):
        replay = Replay(
            [accepted(tube, folder)], compare=by_token, on_line=None if by_token else order.arrived
        )
        replay.finish()
        refused = _refused(replay.lines, rejections, tube)
        # What was refused last is not at the sink, or is as it was before.
        kept = {key: line for key, line in replay.lines.items() if key[1:] not in refused}
        wanted = {key: row for key, row in rows.items() if (0, key) not in refused}
        findings.wrong += compare(wanted, kept, shards=1)[:5]
        findings.parked += [f"{key}, by token: {by_token}" for key in sorted(parked ^ refused)][:5]
        findings.lines = replay.applied
    return findings


def _rejections(path: Path) -> dict[tuple[int, int], Token]:
    """The highest token with which each key was rejected."""
    highest: dict[tuple[int, int], Token] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        shard, key, token = json.loads(line)
        highest[shard, key] = max(Token.parse(token), highest.get((shard, key), Token(0, 0)))
    return highest


def _refused(
    lines: dict[LineKey, Line], rejections: dict[tuple[int, int], Token], tube: str
) -> set[tuple[int, int]]:
    """The keys that the sink was last asked to write in vain."""
    return {
        key
        for key, token in rejections.items()
        if (line := lines.get((tube, *key))) is None or line.token < token
    }


class _Order:
    """Looks at lines in the order of their arrival: once a term has written, no earlier one may."""

    def __init__(self, findings: Findings, epochs: set[int]) -> None:
        self._findings = findings
        self._epochs = epochs
        self._latest = 0

    def arrived(self, line: Line) -> None:
        epoch = line.token.epoch
        if epoch not in self._epochs:
            self._findings.unknown_terms.append(f"epoch {epoch}")
        if epoch < self._latest:
            self._findings.late.append(f"id {line.id}: epoch {epoch} after {self._latest}")
        self._latest = max(self._latest, epoch)
