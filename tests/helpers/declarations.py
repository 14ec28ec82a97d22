"""A file that declares tubes and outboxes, and a database: what is planned, done, refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import SecretStr

from pytube.config import Config
from pytube.config.loader import parse
from pytube.db.database import Database
from pytube.declarations.apply import Declarations
from pytube.declarations.model import Kind, Plan, State
from pytube.declarations.survey import survey
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


def surveyed(dsn: str, text: str) -> list[Plan]:
    """What is planned of tubes and outboxes."""
    with Database(SecretStr(dsn)).connect() as connection:
        return list(survey(config(text), connection, kinds=(Kind.TUBE, Kind.OUTBOX)))


def plans(dsn: str, text: str) -> dict[str, Plan]:
    found = surveyed(dsn, text)
    refused = [one.problem for one in found if one.problem is not None]
    assert not refused, refused
    return {one.name: one for one in found}


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
    (said,) = [one.problem for one in surveyed(dsn, text) if one.problem is not None]
    return said


def backfills(conn: Conn) -> list[tuple[str, str]]:
    return conn.execute("SELECT tube, table_name FROM tube.tube_backfill ORDER BY backfill_id").fetchall()
