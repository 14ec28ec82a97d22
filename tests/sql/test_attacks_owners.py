"""Owners of attached tables, admins, workers and writers who try to get rights of others.

`evil.strike()` warns of whom it runs as, and makes use of it. Who runs it unawares is a victim.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest

from tests.helpers.capture import Conn, attach, make_tube, ops, scalar
from tests.helpers.roles import as_role, roles

MALLORY, KEEPER = "mallory", "keeper"

STRIKE = """
    CREATE SCHEMA evil AUTHORIZATION mallory;
    GRANT USAGE ON SCHEMA evil TO PUBLIC;
    SET ROLE mallory;
    CREATE FUNCTION evil.grasp() RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
    BEGIN
        RAISE WARNING 'struck as %', current_user;
        IF (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user) THEN
            EXECUTE 'ALTER ROLE mallory SUPERUSER';
        END IF;
        RETURN 1;
    END $$;
    CREATE FUNCTION evil.strike(integer DEFAULT 1) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS
        'BEGIN PERFORM evil.grasp(); RETURN 1; END';
    -- Its constant part is computed as soon as a query that calls it is planned.
    CREATE FUNCTION evil.inlined(integer) RETURNS integer LANGUAGE sql IMMUTABLE AS
        'SELECT evil.strike(1) + coalesce($1, 0)';
    RESET ROLE;
"""
TABLES = """
    CREATE SCHEMA app AUTHORIZATION mallory;
    CREATE SCHEMA bank AUTHORIZATION keeper;
    CREATE TABLE app.t (id bigint PRIMARY KEY, v integer);
    ALTER TABLE app.t OWNER TO mallory;
    CREATE TABLE bank.acct (id bigint PRIMARY KEY, v integer);
    ALTER TABLE bank.acct OWNER TO keeper;
    CREATE TABLE bank.vault (id bigint PRIMARY KEY, v integer);
"""


DETACH_OTHERS = """
    SELECT tube_table_ensure_detached('es-live', t) FROM unnest('{bank.acct, bank.vault}'::regclass[]) AS t
"""


class World:
    """A superuser's session, those of others, and whom `evil.strike` was run as."""

    def __init__(self, dsn: str, admin: Conn) -> None:
        self._dsn = dsn
        self.admin = admin
        self.struck: set[str] = set()
        self._hear(admin)

    def _hear(self, conn: Conn) -> None:
        def heard(notice: psycopg.errors.Diagnostic) -> None:
            message = notice.message_primary or ""
            if message.startswith("struck as "):
                self.struck.add(message.removeprefix("struck as "))

        conn.add_notice_handler(heard)

    @contextmanager
    def login(self, role: str) -> Iterator[Conn]:
        """A session of `role`."""
        with psycopg.connect(as_role(self._dsn, role), autocommit=True) as conn:
            self._hear(conn)
            yield conn

    def run(self, role: str, *statements: str) -> None:
        """Run statements as `role`."""
        with self.login(role) as conn:
            for statement in statements:
                conn.execute(statement.encode())

    def try_all(self, role: str, *statements: str) -> None:
        """Run each of the statements as `role`; what is refused is none of this test's."""
        with self.login(role) as conn:
            for statement in statements:
                with suppress(psycopg.Error):
                    conn.execute(statement.encode())

    def nobody_was_robbed(self, *allowed: str) -> None:
        """See that nobody ran the code but those who are allowed, and that it gave mallory nothing."""
        assert self.struck - {MALLORY, *allowed} == set()
        row = self.admin.execute(
            "SELECT r.rolsuper, pg_has_role('mallory', 'tube_owner', 'MEMBER'),"
            " pg_has_role('mallory', 'keeper', 'MEMBER') FROM pg_roles AS r WHERE r.rolname = 'mallory'"
        ).fetchone()
        assert row == (False, False, False)


@pytest.fixture
def world(any_dsn: str) -> Iterator[World]:
    """Attached: a table of mallory's, one of keeper's, and one of a superuser's."""
    with roles(any_dsn, MALLORY, KEEPER, "worker", "writer") as admin:
        admin.execute("SET search_path = tube, public")
        admin.execute(TABLES)
        admin.execute(STRIKE)
        admin.execute("GRANT tube_worker TO worker; GRANT tube_writer TO writer")
        admin.execute("GRANT USAGE ON SCHEMA app, bank TO worker, writer")
        admin.execute("GRANT INSERT, UPDATE, DELETE ON app.t, bank.acct, bank.vault TO writer")
        make_tube(admin)
        attach(admin, "app.t", 0)
        attach(admin, "bank.acct", 1)
        attach(admin, "bank.vault", 2)
        yield World(any_dsn, admin)


def function_of(world: World, kind: str, table: str) -> str:
    """The name, with its schema, of a function that was generated for an attached table."""
    return str(
        scalar(
            world.admin,
            "SELECT format('%%I.%%I', p.pronamespace::regnamespace, p.proname) FROM pg_proc AS p"
            " WHERE p.proname LIKE %s ORDER BY p.oid DESC LIMIT 1",
            (f"%\\_{table}\\_{kind}%",),
        )
    )


VICTIMS = """
    INSERT INTO bank.vault SELECT g, g FROM generate_series(1, 3) AS g;
    UPDATE bank.vault SET v = 2;
    DELETE FROM bank.vault;
    INSERT INTO bank.acct SELECT g, g FROM generate_series(1, 3) AS g;
    UPDATE bank.acct SET id = id + 10 WHERE id = 1;
    TRUNCATE bank.acct, bank.vault
"""


def use_all(world: World) -> None:
    """What others do day by day: they write, follow DDL, set a predicate, attach and detach."""
    world.try_all("worker", "SELECT tube.tube_sync()")
    world.try_all("writer", "INSERT INTO bank.acct VALUES (5)", "DELETE FROM bank.acct")
    world.try_all(KEEPER, "INSERT INTO bank.acct VALUES (6)", "TRUNCATE bank.acct")
    world.try_all(
        "postgres",
        VICTIMS,
        "SELECT tube.tube_sync()",
        "SELECT tube.tube_ensure_exists('es-live', 4, 'v > 0')",
        VICTIMS,
        "SELECT tube.tube_table_ensure_attached('es-live', 'bank.vault', 3)",
        "SELECT tube.tube_ensure_exists('es-live', 4, '')",
        VICTIMS,
    )
    ops(world.admin)


# --- the reproductions of what the first build allowed --------------------------------------------


def test_what_a_truncate_plans_runs_as_the_owner(world: World) -> None:
    capture = function_of(world, "capture", "vault")
    world.run(
        MALLORY,
        "CREATE FUNCTION evil.g(integer) RETURNS integer LANGUAGE sql IMMUTABLE AS"
        " 'SELECT evil.strike(1) + $1'",
        "CREATE STATISTICS app.st ON (evil.g(v)), v FROM app.t",
        "CREATE INDEX ON app.t (evil.g(v))",
        "INSERT INTO app.t SELECT g, g FROM generate_series(1, 10) g",
        "ANALYZE app.t",
        "TRUNCATE app.t",
        "INSERT INTO app.t VALUES (1, 1)",
    )
    assert world.struck == {MALLORY}
    for name in (capture, function_of(world, "capture", "t")):
        with world.login(MALLORY) as mallory, pytest.raises(psycopg.errors.InsufficientPrivilege):
            mallory.execute(
                f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS ''"
                if name == capture
                else "SELECT * FROM tube.tube_registry"
            )
    # Writers and a TRUNCATE by somebody else run nothing but what mallory's table itself calls.
    use_all(world)
    world.nobody_was_robbed()


def test_an_admin_replaces_no_function_that_writers_run(world: World) -> None:
    world.admin.execute("GRANT tube_admin TO mallory")
    evil = "LANGUAGE plpgsql AS 'BEGIN PERFORM evil.grasp(); RETURN NULL; END'"
    with world.login(MALLORY) as mallory:
        for kind in ("capture", "agent", "put"):
            for table in ("acct", "vault"):
                name = function_of(world, kind, table)
                signature = scalar(
                    world.admin, "SELECT pg_get_function_identity_arguments(%s::regproc)", (name,)
                )
                result = scalar(world.admin, "SELECT pg_get_function_result(%s::regproc)", (name,))
                for statement in (
                    f"CREATE OR REPLACE FUNCTION {name}({signature}) RETURNS {result} {evil}",
                    f"ALTER FUNCTION {name} SECURITY INVOKER",
                    f"ALTER FUNCTION {name} SET search_path = evil",
                    f"DROP FUNCTION {name}",
                ):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        mallory.execute(statement.encode())
    use_all(world)
    world.nobody_was_robbed()


def test_an_admin_makes_no_trigger_and_nothing_beside_a_table(world: World) -> None:
    world.admin.execute("GRANT tube_admin TO mallory")
    with world.login(MALLORY) as mallory:
        mallory.execute(
            "CREATE FUNCTION evil.fire() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM evil.grasp(); RETURN NULL; END'"
        )
        for statement in (
            "CREATE TRIGGER zz AFTER INSERT ON bank.acct EXECUTE FUNCTION evil.fire()",
            "CREATE TRIGGER zz AFTER INSERT ON bank.vault EXECUTE FUNCTION evil.fire()",
            "CREATE FUNCTION bank.lower(varchar) RETURNS text LANGUAGE sql AS 'SELECT $1'",
            'CREATE TRIGGER zz AFTER INSERT ON tube."es-live" EXECUTE FUNCTION evil.fire()',
            "CREATE TRIGGER zz AFTER INSERT ON tube.tube_registry EXECUTE FUNCTION evil.fire()",
            "CREATE FUNCTION tube.lower(varchar) RETURNS text LANGUAGE sql AS 'SELECT $1'",
            "ALTER TABLE tube.tube_attachment ADD evil text",
            "UPDATE tube.tube_attachment SET row_filter = 'evil.strike() = 1'",
            "INSERT INTO tube.tube_registry (tube, predicate) VALUES ('x', 'evil.strike() = 1')",
            "SET ROLE tube_owner",
            "SET ROLE tube_nobody",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                mallory.execute(statement.encode())
    use_all(world)
    world.nobody_was_robbed()


# --- the agent of an owner ------------------------------------------------------------------------

BODY = "'BEGIN PERFORM evil.grasp(); RETURN true; END'"
REPLACE = "CREATE OR REPLACE FUNCTION {0} RETURNS boolean LANGUAGE plpgsql"
AGENTS = {
    "invoker": f"{REPLACE} SECURITY INVOKER AS {BODY}",
    "definer": f"{REPLACE} SECURITY DEFINER AS {BODY}",
    "our text, with other rights": "ALTER FUNCTION {0} SECURITY INVOKER SET search_path = evil, pg_catalog",
    "our text, with another path": "ALTER FUNCTION {0} SET search_path = evil, pg_catalog",
    # what tube_private_call_agent belongs to
    "a thief": (
        "CREATE OR REPLACE FUNCTION {0} RETURNS boolean LANGUAGE plpgsql SECURITY INVOKER AS $$ BEGIN"
        " PERFORM evil.grasp();"
        " ALTER FUNCTION tube.tube_private_call_agent(text, regclass, name[], text) SECURITY INVOKER;"
        " RETURN true; END $$"
    ),
    "a usurper": (
        "CREATE OR REPLACE FUNCTION {0} RETURNS boolean LANGUAGE plpgsql SECURITY INVOKER AS $$ BEGIN"
        " PERFORM evil.grasp(); SET ROLE tube_owner; PERFORM evil.grasp(); RETURN true; END $$"
    ),
    # A search path that is set for the session outlives the functions that pin their own.
    "a path that stays": (
        f"{REPLACE} SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ BEGIN"
        " PERFORM pg_catalog.set_config('search_path', 'evil, pg_catalog, tube', false); RETURN true; END $$"
    ),
    "a path for the transaction": (
        f"{REPLACE} SECURITY DEFINER AS $$ BEGIN"
        " PERFORM pg_catalog.set_config('search_path', 'evil, pg_catalog, tube', true); RETURN true; END $$"
    ),
    "none": (
        "CREATE OR REPLACE FUNCTION {0} RETURNS boolean LANGUAGE plpgsql SECURITY INVOKER AS $$ BEGIN"
        " DROP OWNED BY tube_nobody; RETURN true; END $$"
    ),
}
SHADOW = """
    CREATE FUNCTION evil.tube_private_owner_ddl(tube.tube_attachment)
        RETURNS TABLE (statement text, rel regclass) LANGUAGE plpgsql AS 'BEGIN PERFORM evil.grasp(); END';
    CREATE FUNCTION evil.tube_private_member_oids(regclass) RETURNS oid[] LANGUAGE plpgsql AS
        'BEGIN PERFORM evil.grasp(); RETURN NULL; END';
    CREATE FUNCTION evil.count(anyelement) RETURNS bigint LANGUAGE plpgsql AS
        'BEGIN PERFORM evil.grasp(); RETURN 0; END';
    CREATE FUNCTION evil.current_setting(text) RETURNS text LANGUAGE plpgsql AS
        'BEGIN PERFORM evil.grasp(); RETURN pg_catalog.current_setting($1); END';
    CREATE FUNCTION evil.has_table_privilege(regclass, text) RETURNS boolean LANGUAGE plpgsql AS
        'BEGIN PERFORM evil.grasp(); RETURN true; END';
    CREATE FUNCTION evil.pg_relation_size(regclass) RETURNS bigint LANGUAGE plpgsql AS
        'BEGIN PERFORM evil.grasp(); RETURN 8192; END';
"""


def a_tree(world: World) -> str:
    """Attach a partitioned table of mallory's; the signature of its agent."""
    world.run(
        MALLORY,
        "CREATE TABLE app.log (id bigint, day integer, PRIMARY KEY (id, day)) PARTITION BY LIST (day)",
    )
    attach(world.admin, "app.log", 7)
    return function_of(world, "agent", "log") + "(rel regclass, triggers name[], op text)"


def partition_comes(world: World, day: int) -> None:
    world.run(
        MALLORY,
        f"CREATE TABLE app.log_{day} PARTITION OF app.log FOR VALUES IN ({day})",
        f"INSERT INTO app.log_{day} VALUES ({day}, {day})",
    )


@pytest.mark.parametrize("alter", AGENTS.values(), ids=AGENTS.keys())
def test_an_agent_that_was_replaced_has_its_owners_rights_or_none(world: World, alter: str) -> None:
    agent = a_tree(world)
    world.admin.execute("SET ROLE mallory")
    world.admin.execute(SHADOW)
    world.admin.execute("RESET ROLE")
    world.run(MALLORY, alter.format(agent))
    partition_comes(world, 1)
    world.try_all("worker", "SELECT tube.tube_sync()")
    partition_comes(world, 2)
    world.try_all("postgres", "SELECT tube.tube_sync()")
    world.run(
        MALLORY, alter.format(agent), "DROP TABLE app.log_1", "ALTER TABLE app.log DETACH PARTITION app.log_2"
    )
    world.try_all("worker", "SELECT tube.tube_sync()")
    use_all(world)
    world.nobody_was_robbed("tube_nobody")
    assert scalar(world.admin, "SELECT prosecdef FROM pg_proc WHERE proname = 'tube_private_call_agent'")


def test_the_agents_of_others_can_not_be_called(world: World) -> None:
    for name, table in (("acct", "bank.acct"), ("vault", "bank.vault")):
        agent = function_of(world, "agent", name)
        for role in (MALLORY, "worker", "writer", KEEPER if name == "vault" else MALLORY):
            with world.login(role) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(f"SELECT {agent}('{table}', NULL, 'D')".encode())
    with world.login(MALLORY) as mallory, pytest.raises(psycopg.errors.InsufficientPrivilege):
        mallory.execute("SELECT tube.tube_private_call_agent('app.t', 'app.t', NULL, NULL)")


# --- what an owner makes in the schema of the owners' functions ------------------------------------


def test_overloads_beside_the_functions_of_others(world: World) -> None:
    make_tube(world.admin, predicate="v > 0 OR v IS NULL")
    names = [
        function_of(world, kind, table) for kind in ("capture", "agent", "p") for table in ("acct", "vault")
    ]
    statements = [
        f"CREATE FUNCTION {name}({arguments}) RETURNS boolean LANGUAGE sql IMMUTABLE AS"
        " 'SELECT evil.strike(1) = 1'"
        for name in names
        for arguments in (
            "smallint",
            "bigint",
            "anyelement",
            "numeric",
            "text",
            "regclass, text[], text",
            "VARIADIC integer[]",
        )
    ]
    statements += [
        f"CREATE TYPE tube_capture.{name} AS (a integer)"
        for name in ("bool", "int4", "pg_class", "old_table", "new_table", "text")
    ]
    statements += [
        f"CREATE FUNCTION tube_capture.{name}(bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS"
        " 'SELECT evil.strike(1)::bigint'"
        for name in ("tube_private_key_bigint", "cardinality", "array_agg")
    ]
    world.try_all(MALLORY, *statements)
    made = (
        "SELECT count(*) FROM pg_proc WHERE proowner = 'mallory'::regrole"
        " AND pronamespace = 'tube_capture'::regnamespace"
    )
    assert scalar(world.admin, made) > 20
    use_all(world)
    world.nobody_was_robbed()
    assert world.struck == set()


@pytest.mark.parametrize("by", ["postgres", KEEPER])
def test_functions_that_wait_under_the_names_to_come(world: World, by: str) -> None:
    """Names of functions can be told beforehand; settings of one that waits there are not taken over."""
    world.admin.execute("GRANT tube_admin TO keeper; GRANT USAGE ON SCHEMA evil TO keeper")
    world.admin.execute(
        "CREATE TABLE bank.fresh (id bigint PRIMARY KEY, v integer); ALTER TABLE bank.fresh OWNER TO keeper"
    )
    attach(world.admin, "bank.fresh", 9)
    found = world.admin.execute(
        "SELECT pg_get_functiondef(p.oid), p.oid::regprocedure::text FROM pg_proc AS p"
        " WHERE p.pronamespace = 'tube_capture'::regnamespace AND p.proname LIKE '%%fresh%%'"
    ).fetchall()
    world.admin.execute("SELECT tube_table_ensure_detached('es-live', 'bank.fresh')")
    world.admin.execute("SET ROLE mallory")
    world.admin.execute(SHADOW)
    for definition, signature in found:
        world.admin.execute(definition.encode())
        world.admin.execute(f"ALTER FUNCTION {signature} SET search_path = evil, pg_catalog".encode())
        world.admin.execute(f"REVOKE ALL ON FUNCTION {signature} FROM PUBLIC".encode())
        if "agent" in signature:
            world.admin.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO tube_nobody".encode())
    world.admin.execute("RESET ROLE")
    world.try_all(by, "SELECT tube.tube_table_ensure_attached('es-live', 'bank.fresh', 9)")
    world.try_all(KEEPER, "INSERT INTO bank.fresh VALUES (1, 1), (2, 2)", "TRUNCATE bank.fresh")
    world.try_all("postgres", "INSERT INTO bank.fresh VALUES (1, 1), (2, 2)", "TRUNCATE bank.fresh")
    world.nobody_was_robbed()
    assert world.struck == set()


def test_an_owner_who_leaves_settings_to_the_next_one(world: World) -> None:
    world.admin.execute("SET ROLE mallory")
    world.admin.execute(SHADOW)
    world.admin.execute("RESET ROLE")
    for kind in ("agent", "capture"):
        world.run(
            MALLORY, f"ALTER FUNCTION {function_of(world, kind, 't')} SET search_path = evil, pg_catalog"
        )
    world.admin.execute("ALTER TABLE app.t OWNER TO keeper; GRANT USAGE, CREATE ON SCHEMA app TO keeper")
    world.admin.execute("SELECT tube_sync()")
    world.try_all(KEEPER, "INSERT INTO app.t VALUES (1, 1), (2, 2)", "TRUNCATE app.t")
    world.nobody_was_robbed()
    assert world.struck == set()


@pytest.mark.xfail(
    strict=True,
    reason="who gives a table away has tube_sync called in the same transaction, or their rights go with it",
)
@pytest.mark.parametrize("synced_by", [None, "worker"])
def test_the_next_owner_of_a_table_gets_nothing_of_the_last_one(world: World, synced_by: str | None) -> None:
    """A superuser, or another owner, attached it; then it changed hands."""
    make_tube(world.admin, predicate="v > 0 OR v IS NULL")
    world.run(MALLORY, "CREATE TYPE evil.mood AS ENUM ('0', '1')", CASTS.format("mood"))
    world.admin.execute("GRANT USAGE, CREATE ON SCHEMA bank TO mallory; SET client_min_messages = error")
    for table in ("bank.vault", "bank.acct"):
        world.admin.execute(f"ALTER TABLE {table} OWNER TO mallory".encode())
        world.run(MALLORY, f"INSERT INTO {table} VALUES (1)")
    world.admin.execute("RESET client_min_messages")
    if synced_by is not None:
        world.run(synced_by, "SELECT tube.tube_sync()")
    for table in ("bank.vault", "bank.acct"):
        world.try_all(
            MALLORY,
            f"ALTER TABLE {table} DROP CONSTRAINT {table.removeprefix('bank.')}_pkey",
            f"CREATE STATISTICS bank.st_{table.removeprefix('bank.')} ON (evil.inlined(v)), id FROM {table}",
            f"ANALYZE {table}",
            f"TRUNCATE {table}",
            f"ALTER TABLE {table} ALTER v TYPE evil.mood USING NULL",
            f"INSERT INTO {table} VALUES (1, '1'), (2, '0')",
            f"ALTER TABLE {table} ALTER id DROP NOT NULL",
            f"ALTER TABLE {table} ALTER id TYPE evil.mood USING NULL",
            f"INSERT INTO {table} VALUES ('1', '1'), ('0', '0')",
            f"TRUNCATE {table}",
        )
    world.nobody_was_robbed()


def test_a_table_is_given_away_and_followed_in_one_transaction(world: World) -> None:
    make_tube(world.admin, predicate="v > 0 OR v IS NULL")
    world.admin.execute("GRANT USAGE, CREATE ON SCHEMA bank TO mallory")
    with world.admin.transaction():
        world.admin.execute("ALTER TABLE bank.vault OWNER TO mallory")
        world.admin.execute("SELECT tube_sync()")
    world.run(
        MALLORY,
        "ALTER TABLE bank.vault DROP CONSTRAINT vault_pkey",
        "CREATE STATISTICS bank.st ON (evil.inlined(v)), id FROM bank.vault",
        "INSERT INTO bank.vault VALUES (1)",
        "ANALYZE bank.vault",
        "TRUNCATE bank.vault",
    )
    assert ops(world.admin) == [("D", 1), ("I", 1)]
    world.nobody_was_robbed()


def test_a_table_that_changes_hands_is_written_to_before_and_after_a_worker_saw_it(world: World) -> None:
    world.admin.execute(
        "ALTER TABLE bank.acct OWNER TO mallory; GRANT USAGE, CREATE ON SCHEMA bank TO mallory"
    )
    world.run("writer", "INSERT INTO bank.acct VALUES (1)")
    world.run("worker", "SELECT tube.tube_sync()")
    world.run("writer", "INSERT INTO bank.acct VALUES (2)")
    world.run("postgres", "SELECT tube.tube_sync()")
    world.run("writer", "INSERT INTO bank.acct VALUES (3)")
    assert ops(world.admin) == [("I", 1), ("I", 2), ("I", 3)]


# --- predicates and types --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "predicate",
    [
        "v::evil.checked IS NOT NULL",
        "CAST(v AS evil.checked) > 0",
        "'{1}'::evil.checked[] IS NOT NULL",
        "ARRAY[v]::checked[] IS NOT NULL",
        "evil.strike(v) = 1",
        "strike(v) = 1",
        "v OPERATOR(evil.=) 1",
        "(v).evil = 1",
        "EXISTS (SELECT evil.strike(1))",
        "v = 1) IS NULL OR (evil.strike(1) = 1",
        "v = 1); SELECT evil.strike(1",
        "v = 1 /* . */ OR evil.strike(1) = 1",
        "v = 1 OR e'\\'' = '' OR evil.strike(1) = 1 --'",
        'U&"\\0065vil".strike(1) = 1',
        "query_to_xml('SELECT evil.strike(1)', true, true, '') IS NULL",
        "set_config('role', 'postgres', false) = ''",
    ],
)
def test_a_predicate_that_runs_code_of_ones_own(world: World, predicate: str) -> None:
    world.admin.execute("GRANT tube_admin TO mallory")
    world.admin.execute(DETACH_OTHERS)
    with world.login(MALLORY) as mallory:
        mallory.execute("CREATE DOMAIN evil.checked AS integer CHECK (evil.strike(VALUE) = 1)")
        mallory.execute("SET search_path = evil, pg_catalog")
        with pytest.raises(psycopg.Error) as refused:
            mallory.execute("SELECT tube.tube_ensure_exists('es-live', 4, %s)", (predicate,))
        assert refused.value.sqlstate == "TU105"
    assert world.struck == set()
    assert scalar(world.admin, "SELECT predicate FROM tube_registry") is None


CASTS = """
    CREATE FUNCTION evil.to_float(evil.{0}) RETURNS float8 LANGUAGE sql IMMUTABLE AS
        'SELECT evil.strike(1)::float8';
    CREATE CAST (evil.{0} AS float8) WITH FUNCTION evil.to_float(evil.{0}) AS IMPLICIT;
    CREATE FUNCTION evil.to_text(evil.{0}) RETURNS text LANGUAGE sql IMMUTABLE AS
        'SELECT evil.strike(1)::text';
    CREATE CAST (evil.{0} AS text) WITH FUNCTION evil.to_text(evil.{0}) AS IMPLICIT;
    CREATE FUNCTION evil.to_bool(evil.{0}) RETURNS boolean LANGUAGE sql IMMUTABLE AS
        'SELECT evil.strike(1) = 1';
    CREATE CAST (evil.{0} AS boolean) WITH FUNCTION evil.to_bool(evil.{0}) AS IMPLICIT;
    CREATE FUNCTION evil.to_int(evil.{0}) RETURNS bigint LANGUAGE sql IMMUTABLE AS
        'SELECT evil.strike(1)::bigint';
    CREATE CAST (evil.{0} AS bigint) WITH FUNCTION evil.to_int(evil.{0}) AS IMPLICIT;
"""
RENAMED = """
    ALTER TYPE evil.mood RENAME TO old_mood;
    CREATE DOMAIN evil.mood AS text CHECK (evil.strike(1) = 1);
"""


def write_moods(world: World) -> None:
    """Writes of the table with the enum: by its owner, a writer, and a superuser."""
    for role in (KEEPER, "writer", "postgres"):
        world.try_all(
            role,
            "INSERT INTO bank.feeling VALUES (1, 'good'), (2, 'bad')",
            "UPDATE bank.feeling SET state = 'good'",
            "UPDATE bank.feeling SET id = id + 100 WHERE id = 1",
            "DELETE FROM bank.feeling",
            "TRUNCATE bank.feeling",
        )


@pytest.mark.parametrize(
    "predicate", ["state = 'good'", "state IN ('good', 'bad')", "state > 'bad' AND id > 0"]
)
@pytest.mark.parametrize("plot", ["renamed", "casts", "both"])
def test_the_owner_of_an_enum_who_puts_something_else_in_its_place(
    world: World, predicate: str, plot: str
) -> None:
    world.run(
        MALLORY, "CREATE TYPE evil.mood AS ENUM ('bad', 'good'); GRANT USAGE ON TYPE evil.mood TO keeper"
    )
    world.admin.execute(
        "CREATE TABLE bank.feeling (id bigint PRIMARY KEY, state evil.mood);"
        " ALTER TABLE bank.feeling OWNER TO keeper"
    )
    world.admin.execute("GRANT ALL ON bank.feeling TO writer")
    make_tube(world.admin, "moods", predicate=predicate)
    attach(world.admin, "bank.feeling", 5, tube="moods")
    write_moods(world)
    ops(world.admin, "moods")
    if plot != "casts":
        world.run(MALLORY, RENAMED)
    if plot != "renamed":
        world.run(MALLORY, CASTS.format("mood" if plot == "casts" else "old_mood"))
    write_moods(world)
    world.run("worker", "SELECT tube.tube_sync()")
    world.run("postgres", "SELECT tube.tube_sync()")
    write_moods(world)
    world.try_all("postgres", f"SELECT tube.tube_ensure_exists('moods', 4, $$({predicate}) AND id > -1$$)")
    write_moods(world)
    world.try_all("postgres", "SELECT tube.tube_table_ensure_detached('moods', 'bank.feeling')")
    world.try_all("postgres", "SELECT tube.tube_table_ensure_attached('moods', 'bank.feeling', 5)")
    write_moods(world)
    world.nobody_was_robbed()
    assert world.struck == set()


@pytest.mark.parametrize("predicate", ["v > 0.5", "v = 1", "abs(v) > 0", "v IS NOT NULL", "v::text = '1'"])
@pytest.mark.parametrize("role", ["postgres", "worker", KEEPER])
def test_a_column_that_becomes_an_enum_with_casts_of_its_own(world: World, predicate: str, role: str) -> None:
    """Who follows that, or sets another predicate, is not the owner, and yet has the owner's rights."""
    world.admin.execute("GRANT tube_admin TO mallory; GRANT mallory TO keeper; GRANT tube_admin TO keeper")
    world.admin.execute(DETACH_OTHERS)
    make_tube(world.admin, predicate=predicate)
    world.run(MALLORY, "CREATE TYPE evil.mood AS ENUM ('0', '1')", CASTS.format("mood"))
    world.run(MALLORY, "ALTER TABLE app.t ALTER v TYPE evil.mood USING NULL")
    world.try_all(
        role,
        "SELECT tube.tube_sync()",
        f"SELECT tube.tube_ensure_exists('es-live', 4, $$({predicate}) AND id > -1$$)",
    )
    world.admin.execute("REVOKE mallory FROM keeper")
    world.nobody_was_robbed()


# --- partitions of somebody else --------------------------------------------------------------------


def test_the_owner_of_a_partition_gets_nothing_of_the_owner_of_the_table(world: World) -> None:
    world.admin.execute("GRANT CREATE ON SCHEMA bank TO mallory; GRANT USAGE ON SCHEMA app TO keeper")
    world.admin.execute(
        "CREATE TABLE bank.log (id bigint, day integer, PRIMARY KEY (id, day)) PARTITION BY LIST (day);"
        "CREATE TABLE app.log_1 PARTITION OF bank.log FOR VALUES IN (1);"
        "ALTER TABLE bank.log OWNER TO keeper; ALTER TABLE app.log_1 OWNER TO mallory"
    )
    attach(world.admin, "bank.log", 6)
    world.run(
        MALLORY,
        "CREATE STATISTICS app.st ON (evil.inlined(day)), id FROM app.log_1",
        "CREATE INDEX ON app.log_1 (evil.inlined(day))",
        "INSERT INTO app.log_1 VALUES (1, 1), (2, 1)",
        "UPDATE app.log_1 SET id = id + 1 WHERE id = 2",
        "TRUNCATE app.log_1",
    )
    # Who owns a table may let others read it, who then plan by what it has.
    world.run(
        MALLORY,
        "GRANT SELECT ON app.log_1 TO keeper",
        "INSERT INTO app.log_1 VALUES (1, 1), (2, 1)",
        "ANALYZE app.log_1",
        "TRUNCATE app.log_1",
        "DELETE FROM app.log_1",
    )
    world.nobody_was_robbed()


# --- what is granted to workers and writers ---------------------------------------------------------

HOSTILE = "x'; ALTER ROLE mallory SUPERUSER; SELECT evil.grasp(); --"
VALUES: dict[str, list[str]] = {
    "text": [HOSTILE, "es-live", "SELECT evil.grasp(), 1", 'x"; SELECT evil.grasp(); --', "evil.grasp()"],
    "name": [HOSTILE[:60], "v", 'x"; SELECT evil.grasp(); --'],
    "regclass": ["bank.vault", "tube.tube_registry", "pg_catalog.pg_authid"],
    "text[]": ['{"SELECT evil.grasp()"}', '{"x\'; SELECT evil.grasp(); --"}'],
    "name[]": ['{v,"x\\"; SELECT evil.grasp(); --"}'],
    "jsonb": ['{"type": "x\'; SELECT evil.grasp(); --"}', "[]"],
    "integer": ["0", "-1"],
    "bigint": ["1", "-1"],
    "bigint[]": ["{1}"],
    "integer[]": ["{0}"],
    "uuid": ["00000000-0000-0000-0000-000000000001"],
    "uuid[]": ["{00000000-0000-0000-0000-000000000001}"],
    "boolean": ["true"],
    "interval": ["1 ms"],
    "timestamp with time zone": ["2000-01-01"],
    "double precision": ["1"],
    "character": ["B", "'"],
    "regtype": ["bigint"],
    "tube.tube_attachment": [],
    "anyarray": [],
    "anyelement": [],
}


def forged(world: World, table: str) -> list[str]:
    """Attachments that somebody made up, as text."""
    return [
        str(
            scalar(
                world.admin,
                "SELECT (jsonb_populate_record(a, %s::jsonb))::text FROM tube_attachment AS a"
                " WHERE a.tbl = %s::regclass",
                (change, table),
            )
        )
        for change in (
            '{"row_filter": "evil.strike(1) = 1"}',
            '{"id_col": "id) FROM app.t; SELECT evil.grasp(); --"}',
            '{"trigger_function": "x\'; SELECT evil.grasp(); --"}',
            '{"touch_name": "x\\"; SELECT evil.grasp(); --"}',
            '{"columns": ["v", "x\\"; SELECT evil.grasp(); --"]}',
            '{"tube": "tube_registry"}',
        )
    ]


def calls(world: World, role: str) -> list[tuple[str, list[str]]]:
    """Each function of ours that `role` may call, with texts of hostile arguments for it."""
    found = world.admin.execute(
        "SELECT p.oid::regproc::text, ARRAY(SELECT t::regtype::text FROM unnest(p.proargtypes) AS t)"
        " FROM pg_proc AS p"
        " WHERE p.oid >= 16384 AND p.pronamespace = 'tube'::regnamespace AND p.prokind = 'f'"
        " AND has_function_privilege(%s, p.oid, 'EXECUTE') AND p.proname NOT IN ('tube_leader_wait')",
        (role,),
    ).fetchall()
    attachments = [text for table in ("app.t", "bank.acct", "bank.vault") for text in forged(world, table)]
    made = []
    for name, types in found:
        for kind in dict.fromkeys(types):
            values = (
                attachments
                if "tube_attachment" in kind
                else VALUES.get(kind.removeprefix("pg_catalog."), ["x"])
            )
            for value in values:
                first = {
                    other: ("es-live" if other == "text" else (VALUES.get(other) or [attachments[0]])[0])
                    for other in types
                }
                made.append((name, types, [value if other == kind else first[other] for other in types]))
        if not types:
            made.append((name, types, []))
    return [
        (
            f"SELECT {name}({', '.join(f'%s::{kind}' for kind in types)})".replace(
                "::anyarray", "::bigint[]"
            ).replace("::anyelement", "::bigint"),
            arguments,
        )
        for name, types, arguments in made
    ]


@pytest.mark.parametrize("role", ["worker", "writer"])
def test_hostile_arguments_of_all_that_a_role_may_call(world: World, role: str) -> None:
    """What runs text that it is given runs it with the caller's rights."""
    tried = calls(world, role)
    assert len(tried) > 50
    done = 0
    with world.login(role) as conn:
        conn.execute("SET statement_timeout = '2s'")
        for statement, arguments in tried:
            with suppress(psycopg.Error), conn.transaction(force_rollback=True):
                conn.execute(statement.encode(), arguments)
                done += 1
    assert done > 10
    world.nobody_was_robbed(role)


def test_a_predicate_that_was_not_parsed(world: World) -> None:
    """An admin calls what `tube_ensure_exists` calls; others then bind what is stored."""
    world.admin.execute("GRANT tube_admin TO mallory")
    evil = "true); ALTER ROLE mallory SUPERUSER; SELECT (true"
    world.try_all(
        MALLORY,
        *(
            f"SELECT tube.tube_private_ensure_tube('es-live', {partitions}, $${text}$$, NULL)"
            for text in (evil, "evil.strike() = 1")
            for partitions in (1, 4)
        ),
        *(
            "DO $do$ DECLARE a tube.tube_attachment := (SELECT t FROM tube.tube_attachment AS t"
            f" WHERE t.tbl = 'app.t'::regclass); BEGIN a.row_filter := $${text}$$;"
            f" PERFORM tube.{function}; END $do$"
            for text in (evil, "evil.strike() = 1")
            for function in ("tube_private_provide(a)", "tube_private_store(a, 'ordered')")
        ),
    )
    use_all(world)
    assert (
        scalar(world.admin, "SELECT count(*) FROM tube_registry WHERE predicate ~ 'evil|SUPERUSER'")
        + scalar(world.admin, "SELECT count(*) FROM tube_attachment WHERE row_filter ~ 'evil|SUPERUSER'")
        == 0
    )
    world.nobody_was_robbed()


@pytest.mark.parametrize("role", ["worker", MALLORY])
def test_a_forged_attachment_changes_nothing_of_others(world: World, role: str) -> None:
    """Private functions take an attachment from their caller, and mind what is stored."""
    world.admin.execute("GRANT tube_admin TO mallory; GRANT USAGE ON SCHEMA app, bank TO mallory")
    with world.login(role) as conn:
        for change in (
            "a.tbl := 'app.t'::regclass::oid",
            "a.shard := 77" if role == "worker" else "a.shards := 0",  # an admin may give another shard
            "a.trigger_function := 'tube_private_wake_sleepers'",
            "a.touch_name := 'tube_touch_forged'",
            "a.tube := 'other'",
        ):
            for table in ("bank.acct", "bank.vault"):
                for function in (
                    "tube_private_provide(a)",
                    "tube_private_store(a, 'late')",
                    "tube_private_bring_in_line(a, 'late')",
                ):
                    statement = f"""
                        DO $do$ DECLARE a tube.tube_attachment := (
                            SELECT t FROM tube.tube_attachment AS t WHERE t.tbl = '{table}'::regclass);
                        BEGIN {change}; PERFORM tube.{function}; END $do$
                    """
                    with suppress(psycopg.Error):
                        conn.execute(statement.encode())
    world.run(KEEPER, "INSERT INTO bank.acct VALUES (1)")
    world.run("writer", "INSERT INTO bank.vault VALUES (1)")
    assert {
        (shard, keys[0]) for shard, keys in world.admin.execute('SELECT shard, ids FROM "es-live"').fetchall()
    } == {(1, 1), (2, 1)}
    world.nobody_was_robbed()


# --- a writer ----------------------------------------------------------------------------------------


def test_a_writer_with_a_path_and_temporary_objects_of_their_own(world: World) -> None:
    make_tube(world.admin, predicate="v > 0 OR v IS NULL")
    world.admin.execute("GRANT INSERT, UPDATE, DELETE, SELECT, TRUNCATE ON bank.acct, bank.vault TO mallory")
    world.admin.execute("GRANT USAGE ON SCHEMA bank TO mallory")
    with world.login(MALLORY) as mallory:
        for statement in (
            "CREATE TEMP TABLE pg_attribute (attrelid oid)",
            "CREATE TEMP TABLE pg_proc (oid oid)",
            "CREATE TEMP VIEW tube_registry AS SELECT evil.strike(1) AS tube",
            "CREATE TEMP VIEW tube_attachment AS SELECT evil.strike(1) AS tube",
            'CREATE TEMP VIEW "es-live" AS SELECT evil.strike(1) AS op',
            "CREATE TEMP TABLE new_table AS SELECT evil.strike(1) AS id",
            "CREATE DOMAIN pg_temp.int8 AS integer CHECK (evil.strike(1) = 1)",
            "CREATE DOMAIN pg_temp.text AS integer CHECK (evil.strike(1) = 1)",
            (
                "CREATE FUNCTION evil.gt(integer, integer) RETURNS boolean LANGUAGE sql AS"
                " 'SELECT evil.strike(1) = 1'"
            ),
            "CREATE OPERATOR evil.> (LEFTARG = integer, RIGHTARG = integer, FUNCTION = evil.gt)",
            (
                "CREATE FUNCTION evil.tube_private_key_bigint(bigint) RETURNS bigint LANGUAGE sql AS"
                " 'SELECT evil.strike(1)::bigint'"
            ),
            (
                "CREATE FUNCTION evil.array_agg(bigint) RETURNS bigint[] LANGUAGE sql AS"
                " 'SELECT ARRAY[evil.strike(1)::bigint]'"
            ),
            "SET search_path = evil, pg_temp, pg_catalog, tube, bank",
            "SET standard_conforming_strings = off",
            "SET application_name = 'backfill''; SELECT evil.grasp(); --'",
            "SET datestyle = 'SQL, DMY'",
        ):
            mallory.execute(statement.encode())
        world.struck.clear()
        for table in ("bank.acct", "bank.vault"):
            for statement in (
                f"INSERT INTO {table} VALUES (1, 1), (2, 2)",
                f"UPDATE {table} SET v = 3",
                f"UPDATE {table} SET id = 9 WHERE id OPERATOR(pg_catalog.=) 1",
                f"DELETE FROM {table} WHERE id OPERATOR(pg_catalog.=) 9",
                f"TRUNCATE {table}",
            ):
                mallory.execute(statement.encode())
    assert world.struck == set()
    assert len(ops(world.admin)) > 8
    world.nobody_was_robbed()


def test_touch_functions_are_for_writers(world: World) -> None:
    with world.login(MALLORY) as mallory:
        mallory.execute("SELECT app.t_touch('{1}')")
        for statement in (
            "SELECT bank.acct_touch('{1}')",
            "SELECT tube.\"es-live_touch\"(0, '{1}', 'T')",
            f"SELECT {function_of(world, 'put', 'acct')}('I', '{{1}}')",
            f"SELECT {function_of(world, 'capture', 'acct')}()",
        ):
            with pytest.raises(psycopg.Error) as refused:
                mallory.execute(statement.encode())
            assert refused.value.sqlstate in ("42501", "0A000")
        # Of one's own, in its own shards, as a trigger would.
        mallory.execute(f"SELECT {function_of(world, 'put', 't')}('I', '{{5}}')".encode())
    assert ops(world.admin) == [("I", 5), ("T", 1)]
