"""A file that declares tubes and outboxes, and a database: what is planned, done, refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import SecretStr

from pytube.config import Config
from pytube.config.loader import parse
from pytube.db.database import Database
from pytube.declarations.apply import Declarations
from pytube.declarations.model import Plan, Refused
from pytube.declarations.survey import survey
from pytube.documents.plan import State
from tests.helpers.terms import Conn

BASE = """
[postgres]
dsn = "${PYTUBE_DSN}"
[kafka]
bootstrap_servers = "127.0.0.1:1"
[worker]
election = "lease"
"""
"""Where servers are."""


def config(text: str, dsn: str = "postgresql://x") -> Config:
    return parse(text, environment={"PYTUBE_DSN": dsn})


@contextmanager
def session(dsn: str) -> Iterator[Declarations]:
    with Database(SecretStr(dsn)).connect() as connection:
        yield Declarations(connection, "tube")


def plans(dsn: str, text: str) -> dict[str, Plan]:
    with session(dsn) as declarations:
        found = survey(config(text), declarations)
    refused = [one.problem for one in found if isinstance(one, Refused)]
    assert not refused, refused
    return {one.name: one for one in found if isinstance(one, Plan)}


def apply(dsn: str, text: str, *, backfill: bool = False) -> list[str]:
    """Do all that is not asked for by --prune; the steps."""
    done: list[str] = []
    for one in plans(dsn, text).values():
        if one.state is not State.GONE:
            with session(dsn) as declarations:
                done += [step.text for step in declarations.apply(one, backfill=backfill).steps]
    return done


def problem(dsn: str, text: str) -> str:
    """What is refused, and that it is all."""
    with session(dsn) as declarations:
        (said,) = [one.problem for one in survey(config(text), declarations) if isinstance(one, Refused)]
    return said


def backfills(conn: Conn) -> list[tuple[str, str]]:
    return conn.execute("SELECT tube, table_name FROM tube.tube_backfill ORDER BY backfill_id").fetchall()
