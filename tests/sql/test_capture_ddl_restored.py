"""Attached tables that are dumped and restored, and types of a predicate that are renamed or moved."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.helpers.capture import (
    Touch,
    attach,
    make_tube,
    open_session,
    ops,
    scalar,
    take,
)
from tests.helpers.database import TestServer, psql_file
from tests.sql.test_capture_ddl import missed, sync

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]


def dump_and_restore(server: TestServer, source: str, target: str) -> None:
    """`pg_dump` and `psql`, as an operator runs them."""
    done = subprocess.run(
        [str(server.postgres.bin("pg_dump")), "-d", source],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    )
    assert "tube_private_capture_body" in done.stdout
    with tempfile.TemporaryDirectory(prefix="pytube-test-", dir="/tmp") as folder:
        file = Path(folder) / "dump.sql"
        file.write_text("\\set ON_ERROR_STOP 1\n" + done.stdout)
        psql_file(server.postgres, target, file)


@pytest.mark.parametrize("synced", [True, False], ids=["synced", "not synced"])
def test_a_database_that_is_dumped_and_restored_works(any_server: TestServer, synced: bool) -> None:
    with any_server.database(installed=True) as source, any_server.database(installed=False) as target:
        with open_session(source) as old:
            old.execute("SET search_path = public, tube")
            # What is dropped shifts the numbers of columns and tables in the copy.
            old.execute("CREATE TABLE pad (a int); DROP TABLE pad")
            old.execute("CREATE TABLE item (gone int, id bigint PRIMARY KEY, other bigint, deleted boolean)")
            old.execute("ALTER TABLE item DROP gone")
            old.execute("CREATE TABLE log (id int, day int) PARTITION BY LIST (day)")
            old.execute("CREATE TABLE log_1 PARTITION OF log FOR VALUES IN (1)")
            make_tube(old, predicate="deleted IS NOT TRUE")
            make_tube(old, "es-log")
            attach(old, "public.item", 3, 2)
            attach(old, "public.log", 7, tube="es-log")
            old.execute("INSERT INTO item VALUES (1, 91), (2, 92)")
        dump_and_restore(any_server, source, target)
        with open_session(target) as new:
            new.execute("SET search_path = public, tube")
            if synced:
                assert scalar(new, "SELECT tube_sync()") == 2
            assert take(new) == [Touch("I", 3, 2), Touch("I", 4, 1)], "the pods came along"
            new.execute("INSERT INTO item VALUES (3, 93), (4, 94)")
            new.execute("UPDATE item SET other = 0 WHERE id = 1")
            new.execute("SELECT item_touch('{9}')")
            new.execute("INSERT INTO log_1 VALUES (1, 1)")
            new.execute("INSERT INTO log VALUES (2, 1)")
            assert {(touch.shard, touch.id) for touch in take(new)} == {(4, 1), (4, 3), (3, 4), (4, 9)}
            assert {key for _, key in ops(new, "es-log")} == {1, 2}
            new.execute("SELECT tube_sync()")
            assert scalar(new, "SELECT tube_sync()") == 0
            new.execute("ALTER TABLE item RENAME id TO ident")
            new.execute("CREATE TABLE log_2 PARTITION OF log FOR VALUES IN (2)")
            new.execute("SELECT tube_sync()")
            new.execute("INSERT INTO item VALUES (5)")
            new.execute("INSERT INTO log_2 VALUES (3, 2)")
            assert take(new) == [Touch("I", 4, 5)]
            assert ops(new, "es-log") == [("I", 3)]


def test_an_enum_in_the_predicate_of_a_restored_database(any_server: TestServer) -> None:
    """Its type has another number there; writes work at once, and only by the predicate."""
    with any_server.database(installed=True) as source, any_server.database(installed=False) as target:
        with open_session(source) as old:
            old.execute("CREATE TYPE public.pad AS ENUM ('x'); DROP TYPE public.pad")
            old.execute(
                "CREATE TYPE public.mood AS ENUM ('sad', 'ok'); CREATE DOMAIN public.tone AS public.mood"
            )
            old.execute(
                "CREATE TABLE public.item (id bigint PRIMARY KEY, mood public.mood, tone public.tone)"
            )
            make_tube(old, predicate="mood = 'ok' OR tone = 'ok'")
            attach(old)
        dump_and_restore(any_server, source, target)
        with open_session(target) as new:
            new.execute("INSERT INTO public.item VALUES (1, 'ok', NULL), (2, 'sad', NULL), (3, NULL, 'ok')")
            assert ops(new) == [("I", 1), ("I", 3)]
            new.execute("UPDATE public.item SET mood = 'ok' WHERE id = 2")
            new.execute("DELETE FROM public.item WHERE id = 1")
            assert ops(new) == [("D", 1), ("I", 2)]
            new.execute("TRUNCATE public.item")
            assert ops(new) == [("D", 2), ("D", 3)]
            new.execute("SELECT tube_sync()")


@pytest.mark.parametrize("renamed", ["TYPE public.mood", "DOMAIN public.tone"])
def test_a_type_in_the_predicate_that_is_renamed_and_moved(any_dsn: str, renamed: str) -> None:
    """The name of a type stands in what writers run; no write fails, and none is missed."""
    with open_session(any_dsn) as db:
        db.execute("CREATE TYPE public.mood AS ENUM ('sad', 'ok'); CREATE DOMAIN public.tone AS public.mood")
        db.execute("CREATE TABLE public.item (id bigint PRIMARY KEY, mood public.mood, tone public.tone)")
        make_tube(db, predicate="mood = 'ok' OR tone = 'ok'")
        attach(db)
        db.execute(f"ALTER {renamed} RENAME TO other; CREATE SCHEMA away".encode())
        db.execute(f"ALTER {renamed.split(maxsplit=1)[0]} public.other SET SCHEMA away".encode())
        with open_session(any_dsn) as fresh:
            fresh.execute("INSERT INTO public.item VALUES (1, 'ok', 'sad'), (2, 'sad', 'sad')")
        assert missed(db)
        sync(db)
        db.execute("INSERT INTO public.item VALUES (4, 'ok'), (5, 'sad')")
        assert ops(db) == [("I", 4)]
        assert scalar(db, "SELECT tube_sync()") == 0


def test_an_enum_in_the_predicate_that_is_renamed(any_dsn: str) -> None:
    """Without a domain over it, neither the type's name nor those of its values stand in what writers run."""
    with open_session(any_dsn) as db:
        db.execute("CREATE TYPE public.mood AS ENUM ('sad', 'ok')")
        db.execute("CREATE TABLE public.item (id bigint PRIMARY KEY, mood public.mood)")
        make_tube(db, predicate="mood = 'ok'")
        attach(db)
        db.execute("ALTER TYPE public.mood RENAME VALUE 'ok' TO 'fine'")
        db.execute("ALTER TYPE public.mood RENAME TO other")
        with open_session(any_dsn) as fresh:
            fresh.execute("INSERT INTO public.item VALUES (1, 'fine'), (2, 'sad')")
        assert ops(db) == [("I", 1)]
