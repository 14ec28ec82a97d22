"""What keeps others from their work, or acts in their name, without any right of theirs."""

from __future__ import annotations

import psycopg
import pytest

from tests.helpers.capture import TUBE, Conn, asked, make_tube, ops, pods, scalar
from tests.helpers.terms import Claim, acquire
from tests.sql.attackers import KEEPER, MALLORY, World

# --- locks ----------------------------------------------------------------------------------------------


def test_a_login_keeps_no_worker_from_waking_and_no_term_from_beginning(world: World) -> None:
    """By all advisory locks of the session of a worker that begins, sleeps and wakes, whatever their keys."""
    with world.login(MALLORY) as mallory:
        world.admin.execute("SET lock_timeout = '5s'")
        world.admin.execute("BEGIN")
        term = acquire(world.admin, Claim(tube=TUBE, partitions=4))
        world.admin.execute("SELECT tube_sleep(%s, 4, 0, %s)", (TUBE, term.leader_id))
        world.admin.execute("SELECT tube_wake(%s, 0, %s)", (TUBE, term.leader_id))
        world.admin.execute("SELECT tube_sleep(%s, 4, 0, %s)", (TUBE, term.leader_id))
        taken = world.admin.execute(
            "SELECT classid::bigint << 32 | objid::bigint FROM pg_locks"
            " WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        ).fetchall()
        world.admin.execute("COMMIT")
        for (key,) in taken:
            mallory.execute("SELECT pg_advisory_lock(%s)", (key,))
        world.admin.execute("SELECT tube_wake(%s, 0, %s)", (TUBE, term.leader_id))
        world.admin.execute("SELECT tube_sleep(%s, 4, 0, %s)", (TUBE, term.leader_id))
        assert acquire(world.admin, Claim(tube=TUBE, partitions=4)).epoch > term.epoch


# --- limits of Postgres ---------------------------------------------------------------------------------


def test_a_table_with_more_columns_than_a_function_takes_arguments(any_dsn: str) -> None:
    names = [f"c{number}" for number in range(101)]
    with open_wide(any_dsn, names) as conn:
        make_tube(conn)
        conn.execute("SELECT tube_table_ensure_attached(%s, 'wide', 0, columns => %s::name[])", (TUBE, names))
        conn.execute("INSERT INTO wide (id) VALUES (1), (2)")
        conn.execute(f"UPDATE wide SET {names[-1]} = 1 WHERE id = 1".encode())
        conn.execute("UPDATE wide SET id = id")
        assert ops(conn) == [("I", 1), ("I", 2), ("U", 1)]


def test_a_predicate_of_as_many_columns_as_a_function_takes_arguments(any_dsn: str) -> None:
    names = [f"c{number}" for number in range(100)]
    with open_wide(any_dsn, names) as conn:
        make_tube(conn, predicate=" AND ".join(f"{name} IS NULL" for name in names))
        conn.execute("SELECT tube_table_ensure_attached(%s, 'wide', 0)", (TUBE,))
        conn.execute("INSERT INTO wide (id, c1) VALUES (1, NULL), (2, 2)")
        assert ops(conn) == [("I", 1)]


def test_a_predicate_of_more_columns(any_dsn: str) -> None:
    names = [f"c{number}" for number in range(101)]
    with open_wide(any_dsn, names) as conn:
        make_tube(conn, predicate=" AND ".join(f"{name} IS NULL" for name in names))
        with pytest.raises(psycopg.Error, match="it names more than 100 columns") as refused:
            conn.execute("SELECT tube_table_ensure_attached(%s, 'wide', 0)", (TUBE,))
        assert refused.value.sqlstate == "TU105"


def open_wide(dsn: str, names: list[str]) -> Conn:
    """A session, and a table with these columns besides its key."""
    conn = psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public")
    columns = "".join(f", {name} smallint" for name in names)
    conn.execute(f"CREATE TABLE public.wide (id bigint PRIMARY KEY{columns})".encode())
    return conn


# --- other people's DDL ---------------------------------------------------------------------------------


def test_an_enum_of_a_predicate_is_replaced_in_one_migration(world: World) -> None:
    world.admin.execute(
        "CREATE TYPE app.state AS ENUM ('new', 'gone'); ALTER TYPE app.state OWNER TO mallory"
    )
    world.admin.execute("CREATE TABLE app.e (id bigint PRIMARY KEY, s app.state)")
    world.admin.execute("ALTER TABLE app.e OWNER TO mallory")
    make_tube(world.admin, "enum", predicate="s <> 'gone'")
    world.admin.execute("SELECT tube_table_ensure_attached('enum', 'app.e', 0)")
    with world.login(MALLORY) as mallory, mallory.transaction():
        mallory.execute("ALTER TYPE app.state RENAME TO former")
        mallory.execute("CREATE TYPE app.state AS ENUM ('new', 'sent', 'gone')")
        mallory.execute("ALTER TABLE app.e ALTER s TYPE app.state USING s::text::app.state")
        mallory.execute("DROP TYPE app.former")
    world.run(MALLORY, "INSERT INTO app.e VALUES (1, 'sent')")
    assert asked(world.admin, "enum") == ["backfill_schedule"]
    world.admin.execute("SELECT tube_sync()")
    world.run(
        MALLORY, "INSERT INTO app.e VALUES (2, 'sent'), (3, 'gone')", "ALTER TABLE app.e ADD more integer"
    )
    world.run(MALLORY, "INSERT INTO app.e VALUES (4, 'sent')")
    assert [keys for _, _, keys, _ in pods(world.admin, "enum") if keys] == [[2], [4]]
    world.run(MALLORY, "ALTER TABLE app.e DROP s", "DROP TYPE app.state")


def test_a_view_keeps_no_partition_from_being_followed(world: World) -> None:
    """Of a predicate that no longer fits: it can't be dropped."""
    world.admin.execute("CREATE TABLE bank.whole (id bigint PRIMARY KEY, s integer) PARTITION BY LIST (id)")
    world.admin.execute("ALTER TABLE bank.whole OWNER TO keeper; GRANT CREATE ON SCHEMA bank TO keeper")
    make_tube(world.admin, "parts", predicate="s > 0")
    world.admin.execute("SELECT tube_table_ensure_attached('parts', 'bank.whole', 0)")
    passes = scalar(
        world.admin, "SELECT oid::regproc::text FROM pg_proc WHERE proname LIKE 'parts\\_whole\\_passes%'"
    )
    world.run(MALLORY, f"CREATE VIEW evil.looks AS SELECT {passes}(1)")
    world.run(
        KEEPER,
        "ALTER TABLE bank.whole ALTER s TYPE bigint",
        "CREATE TABLE bank.part (id bigint NOT NULL, s bigint)",
        "ALTER TABLE bank.whole ATTACH PARTITION bank.part FOR VALUES IN (1)",
    )
    of_part = "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgrelid = 'bank.part'::regclass"
    assert scalar(world.admin, of_part) > 0


def test_no_other_column_leads_the_key_of_anothers_table(world: World) -> None:
    """Backfills are ordered by the first column."""
    world.admin.execute("CREATE TABLE bank.two (a integer, b integer, v integer, PRIMARY KEY (a, b))")
    world.admin.execute("ALTER TABLE bank.two OWNER TO keeper")
    world.admin.execute("SELECT tube_ensure_exists('two', 1, NULL, 'text')")
    world.admin.execute("SELECT tube_table_ensure_attached('two', 'bank.two', 0, key_cols => '{a,b}')")
    world.try_all(
        "worker",
        *(
            "DO $do$ DECLARE a tube.tube_attachment := ("
            "SELECT t FROM tube.tube_attachment AS t WHERE t.tube = 'two');"
            f" BEGIN a.keys := '{keys}'; PERFORM tube.tube_private_store(a, false); END $do$"
            for keys in ("{nothing}", "{b,a}", "{b}")
        ),
    )
    assert scalar(world.admin, "SELECT keys[1] FROM tube_attachment WHERE tube = 'two'") == "a"


# --- in the name of others ------------------------------------------------------------------------------


def test_no_job_is_anothers_while_a_superuser_analyzes(world: World) -> None:
    """In autovacuum, too, the owner of a table runs code in a superuser's session."""
    world.run("writer", "SELECT tube.tube_job_begin('theirs', ARRAY['es-live'], 'direct', 'f', 2)")
    world.admin.execute("GRANT tube_writer TO mallory")
    tries = (
        "SELECT tube.tube_job_done('theirs', 0, 1, 1, 1)",
        "SELECT tube.tube_job_finish('theirs')",
        "SELECT tube.tube_job_forget('theirs')",
        "SELECT tube.tube_job_units('theirs')",
        "SELECT tube.tube_audit_add('in another name')",
    )
    world.run(
        MALLORY,
        "CREATE FUNCTION evil.act(statement text) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS"
        " 'BEGIN PERFORM evil.grasp(); EXECUTE statement; RETURN 0;"
        " EXCEPTION WHEN insufficient_privilege THEN RETURN 1; END'",
        "CREATE TABLE evil.bait (statement text)",
        *(f"INSERT INTO evil.bait VALUES ($${statement}$$)" for statement in tries),
        "CREATE INDEX ON evil.bait (evil.act(statement))",
    )
    before = work_of_others(world)
    world.struck.clear()
    world.admin.execute("ANALYZE evil.bait")
    assert world.struck == {MALLORY}, "the trap works"
    assert work_of_others(world) == before
    world.run("writer", "SELECT tube.tube_job_done('theirs', 0, 1, 1, 1)")


def work_of_others(world: World) -> list[object]:
    """The job, its units, and who did what."""
    return world.admin.execute(
        "SELECT j.state, (SELECT count(*) FROM tube_job_unit),"
        " (SELECT array_agg(a.done_by) FROM tube_audit AS a) FROM tube_job AS j"
    ).fetchall()
