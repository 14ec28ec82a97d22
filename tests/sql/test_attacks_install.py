"""Somebody who prepares roles, schemas or names, and waits for a superuser to install or uninstall."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from pytube.db.install import install, uninstall, upgrade
from pytube.errors import PytubeError
from tests.helpers.capture import Conn, scalar
from tests.helpers.database import ROOT, TestServer, psql_file
from tests.helpers.roles import as_role, database_name, drop_roles, roles
from tests.helpers.waiting import wait_until

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]

UNINSTALL_SQL = ROOT / "sql" / "uninstall.sql"

PLANNED = """
    CREATE SCHEMA tube;
    GRANT ALL ON SCHEMA tube TO PUBLIC;
    CREATE FUNCTION tube.grasp() RETURNS integer LANGUAGE plpgsql AS $$
    BEGIN
        IF (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user) THEN
            EXECUTE 'CREATE ROLE struck_' || current_database();
        END IF;
        RETURN 1;
    END $$;
    CREATE FUNCTION tube.strike(integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS
        'BEGIN PERFORM tube.grasp(); RETURN 1; END';
    -- Its constant part is computed as soon as a query over the table is planned.
    CREATE FUNCTION tube.inlined(text) RETURNS integer LANGUAGE sql IMMUTABLE AS
        'SELECT tube.strike(1) + pg_catalog.length($1)';
    CREATE TABLE tube.tube_version (version_num varchar(32) NOT NULL);
    INSERT INTO tube.tube_version SELECT '0001' FROM generate_series(1, 10);
    CREATE STATISTICS tube.st ON (tube.inlined(version_num)), version_num FROM tube.tube_version;
    CREATE INDEX ON tube.tube_version (tube.inlined(version_num));
    ANALYZE tube.tube_version;
"""


@pytest.fixture
def mallory(any_bare_dsn: str) -> Iterator[tuple[Conn, Conn, str]]:
    """A superuser's session, one of a role that may make roles and schemas, and its name."""
    name = database_name(any_bare_dsn)
    own_name = f"mallory_{name}"
    with roles(any_bare_dsn, f"{own_name} CREATEROLE", ours=f"ours_{name}") as admin:
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO {own_name}".encode())
        try:
            with psycopg.connect(as_role(any_bare_dsn, own_name), autocommit=True) as own:
                yield admin, own, own_name
        finally:
            drop_roles(admin, [f"struck_{name}"])


@pytest.mark.parametrize("is_member", [True, False])
def test_an_owner_that_others_may_act_for(
    any_bare_dsn: str, mallory: tuple[Conn, Conn, str], is_member: bool
) -> None:
    """Event triggers run functions of tube_owner's with the rights of superusers: who acts for it is one."""
    admin, own, name = mallory
    ours = f"ours_{database_name(any_bare_dsn)}"
    owner = f"{ours}_owner"
    if is_member:
        admin.execute(f"CREATE ROLE {owner}; GRANT {owner} TO {name}".encode())
    else:
        own.execute(f"CREATE ROLE {owner}".encode())  # from Postgres 16 on with ADMIN OPTION
    if is_member or admin.info.server_version >= 160000:
        with pytest.raises(PytubeError, match=f"{name}.* could act as {owner}") as refused:
            install(any_bare_dsn, roles=ours)
        assert f"REVOKE {owner} FROM {name}" in str(refused.value)
        assert scalar(admin, "SELECT to_regnamespace('tube')") is None
        admin.execute(f"REVOKE {owner} FROM {name}".encode())
    install(any_bare_dsn, roles=ours)
    uninstall(any_bare_dsn)


@pytest.mark.parametrize("attribute", ["", "LOGIN"])
def test_an_owner_that_somebody_makes_meanwhile(
    any_bare_dsn: str, mallory: tuple[Conn, Conn, str], attribute: str
) -> None:
    """In a transaction that ends when the installation waits for it."""
    admin, own, _ = mallory
    ours = f"ours_{database_name(any_bare_dsn)}"
    if not attribute and admin.info.server_version < 160000:
        pytest.skip("whoever may make roles may act for each of them at any time")
    with ThreadPoolExecutor() as pool:
        with own.transaction():
            own.execute(f"CREATE ROLE {ours}_owner {attribute}".encode())
            installation = pool.submit(install, any_bare_dsn, roles=ours)
            wait_until(lambda: someone_waits(admin) or installation.done(), what="the installation waits")
        refusal = f"the role {ours}_owner may log in" if attribute else "other roles may be able to act as it"
        with pytest.raises(PytubeError, match=refusal):
            installation.result()
    assert scalar(admin, "SELECT to_regnamespace('tube')") is None


@pytest.mark.parametrize("way", [install, uninstall])
def test_a_schema_that_is_prepared_while_the_installation_waits(
    any_bare_dsn: str, mallory: tuple[Conn, Conn, str], way: Callable[[str], object]
) -> None:
    """Anybody may hold the lock that installations take."""
    admin, own, name = mallory
    with ThreadPoolExecutor() as pool:
        with own.transaction():
            own.execute("SELECT pg_advisory_xact_lock(hashtextextended('pytube install tube', 0))")
            waiting = pool.submit(way, any_bare_dsn)
            wait_until(lambda: someone_waits(admin) or waiting.done(), what="it waits")
            own.execute(PLANNED)
        with pytest.raises(PytubeError, match=f"the schema tube belongs to {name}"):
            waiting.result()
    assert scalar(admin, "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'struck%'") == 0


def someone_waits(admin: Conn) -> bool:
    """For a lock, in this database."""
    of_this = "JOIN pg_stat_activity AS a USING (pid) WHERE NOT granted AND a.datname = current_database()"
    return bool(scalar(admin, f"SELECT count(*) FROM pg_locks {of_this}"))


def test_who_has_the_rights_of_the_owner_by_way_of_another_role(
    any_bare_dsn: str, mallory: tuple[Conn, Conn, str]
) -> None:
    """A schema of theirs would be taken for ours, since its owner's name ends as that of ours."""
    admin, own, name = mallory
    ours = f"ours_{database_name(any_bare_dsn)}"
    admin.execute(f"CREATE ROLE {ours}_owner; GRANT {ours}_owner TO {name}".encode())
    own.execute(PLANNED)
    own.execute("CREATE FUNCTION tube.tube_private_role() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    admin.execute(f"GRANT CREATE ON DATABASE {database_name(any_bare_dsn)} TO {ours}_owner".encode())
    for change in ("SCHEMA tube", "TABLE tube.tube_version", "FUNCTION tube.tube_private_role"):
        own.execute(f"ALTER {change} OWNER TO {ours}_owner".encode())
    with pytest.raises(PytubeError, match=f"{name}.* could act as {ours}_owner"):
        install(any_bare_dsn)
    assert scalar(admin, "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'struck%'") == 0


@pytest.mark.parametrize("way", [install, upgrade, uninstall])
def test_a_version_that_somebody_else_prepared_is_not_read(
    any_bare_dsn: str, mallory: tuple[Conn, Conn, str], way: object
) -> None:
    admin, own, name = mallory
    own.execute(PLANNED)
    assert callable(way)
    with pytest.raises(PytubeError, match=f"the schema tube belongs to {name}"):
        way(any_bare_dsn)
    assert scalar(admin, "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'struck%'") == 0


def test_psql_uninstalls_nothing_of_somebody_elses(
    any_server: TestServer, any_bare_dsn: str, mallory: tuple[Conn, Conn, str]
) -> None:
    admin, own, name = mallory
    own.execute(PLANNED)
    with pytest.raises(AssertionError, match=f"the schema tube belongs to {name}"):
        psql_file(any_server.postgres, any_bare_dsn, UNINSTALL_SQL)
    assert scalar(admin, "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'struck%'") == 0
