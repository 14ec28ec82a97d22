"""Somebody who tries to get rights of others: what they have, and what others do day by day.

`evil.strike()` warns of whom it runs as, and makes use of it. Who runs it unawares is a victim.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from tests.helpers.capture import Conn, attach, make_tube, open_session, ops, scalar
from tests.helpers.database import TestServer
from tests.helpers.roles import as_role, drop_roles

MALLORY, KEEPER = "mallory", "keeper"
CAST = (MALLORY, KEEPER, "worker", "writer")
MEMBERS = "GRANT tube_worker TO worker; GRANT tube_writer TO writer"

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

SHADOW = """
    CREATE FUNCTION evil.tube_private_owner_ddl(tube.tube_attachment, boolean)
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
"""Functions of theirs by names that ours call; found where a search path of theirs is followed."""
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
"""Casts from a type of theirs."""


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


def make_world(dsn: str) -> None:
    """Attached: a table of mallory's, one of keeper's, and one of a superuser's.

    The roles are the server's, and stay until `end_worlds`: databases to come are copies of this one.
    """
    with open_session(dsn) as admin:
        for name in CAST:
            admin.execute(f"CREATE ROLE {name} LOGIN".encode())
        admin.execute(TABLES)
        admin.execute(STRIKE)
        admin.execute(MEMBERS)
        admin.execute("GRANT USAGE ON SCHEMA app, bank TO worker, writer")
        admin.execute("GRANT INSERT, UPDATE, DELETE ON app.t, bank.acct, bank.vault TO writer")
        make_tube(admin)
        attach(admin, "app.t", 0)
        attach(admin, "bank.acct", 1)
        attach(admin, "bank.vault", 2)


@contextmanager
def attacked(dsn: str) -> Iterator[World]:
    """What `make_world` has made; afterwards the roles are as they were."""
    try:
        with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as admin:
            yield World(dsn, admin)
    finally:
        with psycopg.connect(dsn, autocommit=True) as admin:
            _restore_roles(admin)


def _restore_roles(admin: psycopg.Connection) -> None:
    for name in CAST:
        admin.execute(f"ALTER ROLE {name} NOSUPERUSER NOCREATEROLE NOCREATEDB".encode())
        admin.execute(f"ALTER ROLE {name} RESET ALL".encode())
    granted = admin.execute(
        "SELECT r.rolname, m.rolname, g.rolname FROM pg_auth_members AS a"
        " JOIN pg_roles AS r ON r.oid = a.roleid"
        " JOIN pg_roles AS m ON m.oid = a.member LEFT JOIN pg_roles AS g ON g.oid = a.grantor"
        " WHERE r.rolname = ANY (%(cast)s) OR m.rolname = ANY (%(cast)s)",
        {"cast": list(CAST)},
    ).fetchall()
    for role, member, grantor in granted:
        by = f" GRANTED BY {grantor}" if admin.info.server_version >= 160000 else ""
        admin.execute(f"REVOKE {role} FROM {member}{by} CASCADE".encode())
    admin.execute(MEMBERS)


def end_worlds(server: TestServer) -> None:
    """Take away what the copies are made of, and the roles: their names are those of other files, too."""
    server.forget(make_world)
    with psycopg.connect(server.postgres.dsn(), autocommit=True) as admin:
        drop_roles(admin, list(CAST))


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


def plant_in_vault(world: World) -> None:
    """Make any role that plans a query over bank.vault run mallory's code; the table was given to her."""
    world.run(
        MALLORY,
        "INSERT INTO bank.vault SELECT g, g FROM generate_series(1, 10) g",
        "CREATE STATISTICS bank.st ON (evil.inlined(v)), id FROM bank.vault",
        "ANALYZE bank.vault",
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
