"""The sink `postgres` passes the suite, on tables of its own making and on those of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pytube.model import Key
from pytube.sinks.base import Sink
from pytube.sinks.postgres import PostgresSink
from pytube.testing import SinkContract


def parse(text: str) -> Any:
    """Postgres writes 1e300 in full; as a float it is what it was."""
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 20 else float(digits))


class TestDocument(SinkContract):
    """A table of keys and documents, which the sink creates."""

    limit = 30.0

    @pytest.fixture(autouse=True)
    def _table(self, bare_dsn: str, request: pytest.FixtureRequest) -> Iterator[None]:
        self.dsn = bare_dsn
        self.id_type = "text" if "texts" in request.node.name else "bigint"
        with psycopg.connect(bare_dsn, autocommit=True) as self.eye, psycopg.connect(bare_dsn) as self.locker:
            yield

    def options(self) -> dict[str, object]:
        return {"dsn": self.dsn, "table": "Copy of it", "create": True, "id_type": self.id_type}

    def make_sink(self) -> Sink:
        return PostgresSink.from_options(self.options())

    def unopenable_sink(self) -> Sink:
        return PostgresSink.from_options({**self.options(), "create": False})

    def read_back(self) -> dict[Key, Any]:
        if not self.eye.execute("SELECT 1 FROM pg_class WHERE relname = 'Copy of it'").fetchall():
            return {}
        rows = self.eye.execute('SELECT shard, id, doc::text FROM "Copy of it"').fetchall()
        return {(shard, key): parse(doc) for shard, key, doc in rows}

    def rejected_value(self) -> Any:
        return b'"\\u0000"'

    async def lose(self) -> bool:
        self.eye.execute('TRUNCATE "Copy of it"')
        return True

    def stall(self) -> bool:
        self.locker.execute('LOCK TABLE "Copy of it"')
        return True

    def unstall(self) -> None:
        self.locker.rollback()


class TestTableOfOthers(TestDocument):
    """A table that was there, whose names need quotes, and whose documents are json."""

    @pytest.fixture(autouse=True)
    def _made(self, _table: None) -> None:
        self.eye.execute(
            'CREATE TABLE "Copy of it" (note text DEFAULT \'%\', "the ""id" {} NOT NULL, shard int NOT NULL, '
            'doc json, UNIQUE ("the ""id", shard))'.format(
                {"bigint": "int8", "text": "varchar"}[self.id_type]
            )
        )

    def options(self) -> dict[str, object]:
        return {**super().options(), "key": ["shard", 'the "id'], "stamps": "Stämpel %s"}

    def unopenable_sink(self) -> Sink:
        return PostgresSink.from_options({**self.options(), "table": "another", "create": False})

    def read_back(self) -> dict[Key, Any]:
        rows = self.eye.execute('SELECT shard, "the ""id", doc::text FROM "Copy of it"').fetchall()
        return {(shard, key): json.loads(doc) for shard, key, doc in rows}

    def rejected_value(self) -> Any:
        return b"{"  # json keeps what jsonb refuses
