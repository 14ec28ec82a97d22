"""Administration over a session of the application, within its transaction."""

from __future__ import annotations

import json
import logging
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from pytube.config import parse
from pytube.db.database import borrowed
from pytube.declarations.apply import Declarations
from pytube.declarations.model import Kind, State
from pytube.declarations.survey import survey
from pytube.errors import UnknownTable
from pytube.outbox.admin import Outboxes
from pytube.tubes.admin import Tubes
from pytube.tubes.tables import LockBusy
from tests.conftest import Connect
from tests.helpers.terms import Conn, scalar

FILE = """
[postgres]
dsn = ""
[tube.notes.sink]
type = "jsonl"
[document.notes]
table = "public.notes"
fields = ["id", "body"]
"""
THEIRS = ["public", "50s", "log", "0"]
LEFT = """
    SELECT (SELECT count(*) FROM tube_list()) + (SELECT count(*) FROM outbox_list())
        + (SELECT count(*) FROM pg_trigger WHERE tgrelid = 'public.notes'::regclass)
"""


@pytest.fixture
def notes(conn: Conn) -> Conn:
    conn.execute("CREATE TABLE public.notes (id bigint PRIMARY KEY, body text)")
    return conn


@pytest.fixture
def theirs(dsn: str) -> Any:
    """A session as frameworks have them: no autocommit, other factories, settings of its own."""
    with psycopg.connect(
        dsn,
        row_factory=dict_row,
        cursor_factory=psycopg.ClientCursor,
        options="-c search_path=public -c statement_timeout=50s -c client_min_messages=log",
    ) as session:
        yield session


def settings(session: psycopg.Connection[Any]) -> list[Any]:
    names = ("search_path", "statement_timeout", "client_min_messages", "lock_timeout")
    rows = [session.execute("SELECT current_setting(%s) AS value", [name]).fetchone() for name in names]
    return [row and row["value"] for row in rows]


def test_all_of_it_is_part_of_the_transaction(notes: Conn, theirs: psycopg.Connection[Any]) -> None:
    config = parse(FILE)
    with borrowed(theirs) as session:
        tubes = Tubes(session)
        tubes.create("live", 2)
        tubes.attach("live", "public.notes", shards=4)
        Outboxes(session).create("events")
        there = Declarations(session)
        (plan,) = survey(config, session, "tube", ["notes"], [Kind.DOCUMENT])
        there.check([plan])
        assert there.apply(plan, backfill=True).backfills
        (plan,) = survey(config, session, "tube", ["notes"], [Kind.DOCUMENT])
        assert plan.state is State.APPLIED
        assert {one.tube for one in tubes.list()} == {"live", "notes"}
    assert settings(theirs) == THEIRS
    assert scalar(notes, LEFT) == 0
    theirs.rollback()
    assert scalar(notes, LEFT) == 0
    with borrowed(theirs) as session:
        Tubes(session).create("live")
    theirs.commit()
    assert scalar(notes, LEFT) == 1


def test_an_error_leaves_the_transaction_usable(
    notes: Conn, theirs: psycopg.Connection[Any], connect: Connect
) -> None:
    theirs.execute("INSERT INTO public.notes VALUES (1, 'theirs')")
    with pytest.raises(UnknownTable), borrowed(theirs) as session:  # noqa: PT012 # all of it is undone
        tubes = Tubes(session)
        tubes.create("live")
        tubes.attach("live", "no schema.no table")
    with borrowed(theirs) as session:
        tubes = Tubes(session)
        assert tubes.list() == []
        tubes.create("live")
        tubes.attach("live", "public.notes")
    theirs.commit()
    with connect(autocommit=False) as other:
        other.execute("LOCK TABLE public.notes")
        with pytest.raises(LockBusy), borrowed(theirs) as session:
            Tubes(session).detach("live", "public.notes", limit=1.0)
    assert settings(theirs) == THEIRS
    theirs.commit()
    assert scalar(notes, "SELECT count(*) FROM public.notes") == 1


def test_an_index_that_is_missing_is_left_to_workers(
    notes: Conn, connect: Connect, theirs: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    notes.execute("SELECT tube_ensure_exists('live')")
    with connect(autocommit=False) as writer, caplog.at_level(logging.WARNING):
        writer.execute("SELECT live_touch(0, '{1}', 'U')")  # the table can't be had at once
        with borrowed(theirs) as session:
            Tubes(session).create("live", 4)
        theirs.commit()
    assert "CONCURRENTLY" in json.dumps([vars(record) for record in caplog.records], default=str)
    assert scalar(notes, "SELECT partitions FROM tube_list() WHERE tube = 'live'") == 4
    assert scalar(notes, "SELECT tube_index_sql('live', 4) IS NOT NULL")
    Tubes(notes).create("live", 4)
    assert scalar(notes, "SELECT tube_index_sql('live', 4) IS NULL")
