"""Installing into a schema that somebody else has prepared: nothing of theirs is run, or taken for ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from pytube.db.install import install, upgrade
from pytube.db.version import needed
from pytube.embedded.postgres import Postgres
from pytube.errors import PytubeError, SchemaMismatch
from pytube.tubes.admin import Tubes
from tests.helpers import cli
from tests.helpers.capture import Conn, scalar
from tests.helpers.database import INSTALL_SQL, psql_file
from tests.helpers.roles import as_role, database_name, roles

Install = Callable[[Postgres, str], None]

STRIKE = """
    CREATE FUNCTION tube.strike() RETURNS text LANGUAGE plpgsql AS
        'BEGIN EXECUTE ''CREATE ROLE struck_'' || current_user; RETURN NULL; END';
    GRANT ALL ON SCHEMA tube TO PUBLIC;
"""
TRAPS = {
    "view": STRIKE + "CREATE VIEW tube.tube_version AS SELECT tube.strike() AS version_num",
    "policy": STRIKE
    + "CREATE TABLE tube.tube_version (version_num varchar); INSERT INTO tube.tube_version VALUES ('0001');"
    + "ALTER TABLE tube.tube_version ENABLE ROW LEVEL SECURITY;"
    + "CREATE POLICY p ON tube.tube_version USING (tube.strike() IS NULL);"
    + "GRANT ALL ON tube.tube_version TO PUBLIC",
    # more exact than what Postgres has
    "overload": STRIKE
    + "CREATE FUNCTION tube.hashtextextended(text, integer) RETURNS bigint LANGUAGE plpgsql AS"
    + " 'BEGIN PERFORM tube.strike(); RETURN 1; END'",
    "empty table": STRIKE
    + "CREATE TABLE tube.tube_version (version_num varchar(32) CONSTRAINT tube_version_pkc PRIMARY KEY);"
    + "CREATE FUNCTION tube.run(s text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS"
    + " 'BEGIN EXECUTE s; RETURN current_user; END'",
}


def by_psql(postgres: Postgres, dsn: str) -> None:
    psql_file(postgres, dsn, INSTALL_SQL)


def by_pytube(_: Postgres, dsn: str) -> None:
    install(dsn)


def by_alembic(_: Postgres, dsn: str) -> None:
    upgrade(dsn)


def test_a_database_with_another_encoding(bare_dsn: str) -> None:
    """What is sent has to be in any: a server converts literals, and function bodies as a whole."""
    name = f"latin_{database_name(bare_dsn)}"
    dsn = psycopg.conninfo.make_conninfo(bare_dsn, dbname=name)
    with psycopg.connect(bare_dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} ENCODING latin1 LOCALE 'C' TEMPLATE template0".encode())
        try:
            install(dsn)
            with psycopg.connect(dsn, autocommit=True) as conn:
                conn.execute("CREATE TABLE public.item (tenant text, id int, PRIMARY KEY (tenant, id))")
                conn.execute("SELECT tube.tube_ensure_exists('t', 1, key_type => 'text')")
                conn.execute(
                    "SELECT tube.tube_table_ensure_attached('t', 'item', 0, key_cols => '{tenant,id}')"
                )
                conn.execute("INSERT INTO item VALUES ('\u00e9', 1)")
                assert scalar(conn, "SELECT ids FROM tube.t") == ['["\u00e9", 1]']
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def mallory(bare_dsn: str) -> Iterator[tuple[Conn, Conn]]:
    """A superuser's session, and one of a role that may make schemas."""
    name = database_name(bare_dsn)
    with roles(bare_dsn, f"mallory_{name}") as admin:
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO mallory_{name}".encode())
        with psycopg.connect(as_role(bare_dsn, f"mallory_{name}"), autocommit=True) as own:
            yield admin, own


@pytest.mark.parametrize("way", [by_psql, by_pytube, by_alembic])
@pytest.mark.parametrize("trap", TRAPS)
def test_a_schema_of_somebody_elses_is_refused(
    postgres: Postgres, bare_dsn: str, mallory: tuple[Conn, Conn], trap: str, way: Install
) -> None:
    admin, own = mallory
    own.execute("CREATE SCHEMA tube")
    own.execute(TRAPS[trap].encode())
    with pytest.raises((AssertionError, PytubeError), match="the schema tube belongs to mallory_"):
        way(postgres, bare_dsn)
    assert scalar(admin, "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'struck%'") == 0
    assert scalar(admin, "SELECT count(*) FROM pg_proc WHERE proowner::regrole::text = 'tube_admin'") == 0


def test_nothing_of_it_is_called_by_commands_of_a_superuser(
    bare_dsn: str, mallory: tuple[Conn, Conn]
) -> None:
    """It says the right version, and its functions have the names that commands call."""
    admin, own = mallory
    own.execute(f"CREATE SCHEMA tube; {STRIKE}".encode())
    own.execute(
        f"CREATE TABLE tube.tube_version AS SELECT text '{needed()}' AS version_num;"
        "CREATE FUNCTION tube.tube_list(regclass = NULL) RETURNS TABLE (tube text) LANGUAGE sql AS"
        " 'SELECT tube.strike()';"
        "GRANT ALL ON ALL TABLES IN SCHEMA tube TO PUBLIC".encode()
    )
    with pytest.raises(SchemaMismatch, match=r"the schema tube belongs to mallory_.*your superuser rights"):
        Tubes(admin, "tube").list()
    told = cli.run("doctor", "--dsn", bare_dsn, code=1)
    assert "belongs to mallory_" in told.stdout + told.stderr
    assert scalar(admin, "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'struck%'") == 0


def test_objects_of_somebody_elses_in_ones_own_schema(
    postgres: Postgres, bare_dsn: str, mallory: tuple[Conn, Conn]
) -> None:
    admin, own = mallory
    admin.execute("CREATE SCHEMA tube; GRANT ALL ON SCHEMA tube TO PUBLIC")
    own.execute(TRAPS["overload"].encode())
    with pytest.raises(AssertionError, match=r"function tube\.hashtextextended.* belongs to mallory_"):
        by_psql(postgres, bare_dsn)
    admin.execute("DROP FUNCTION tube.hashtextextended, tube.strike")
    by_psql(postgres, bare_dsn)
    # Again, later: a function that is between ours would be called by them.
    admin.execute("GRANT CREATE ON SCHEMA tube TO PUBLIC")
    own.execute("CREATE FUNCTION tube.format(text, name) RETURNS text LANGUAGE sql AS 'SELECT $1'")
    with pytest.raises(AssertionError, match=r"function tube\.format\(text,name\) belongs to mallory_"):
        by_psql(postgres, bare_dsn)


def test_a_table_that_says_no_version(postgres: Postgres, bare_dsn: str) -> None:
    with psycopg.connect(bare_dsn, autocommit=True) as admin:
        for table in (
            "TABLE tube.tube_version (version_num varchar)",
            "VIEW tube.tube_version AS SELECT 1 AS version_num",
        ):
            admin.execute("DROP SCHEMA IF EXISTS tube CASCADE; CREATE SCHEMA tube")
            admin.execute(f"CREATE {table}".encode())
            with pytest.raises(AssertionError, match=r"tube\.tube_version is not a table of pytube"):
                by_psql(postgres, bare_dsn)


def test_who_was_granted_too_much_loses_it(postgres: Postgres, dsn: str) -> None:
    """What is not ours and harmless stays whose it is, with the grants that it has."""
    mallory = f"mallory_{database_name(dsn)}"
    with roles(dsn, mallory) as admin:
        admin.execute(
            f"GRANT ALL ON SCHEMA tube TO {mallory};"
            f"GRANT EXECUTE ON FUNCTION tube.tube_private_key_type, tube.tube_list(regclass) TO {mallory};"
            "CREATE FUNCTION tube.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'".encode()
        )
        psql_file(postgres, dsn, INSTALL_SQL)
        found = admin.execute(
            "SELECT has_schema_privilege(%(role)s, 'tube', 'CREATE'),"
            " has_schema_privilege(%(role)s, 'tube', 'USAGE'),"
            " has_function_privilege(%(role)s, 'tube.tube_private_key_type(text)', 'EXECUTE'),"
            " has_function_privilege(%(role)s, 'tube.tube_list(regclass)', 'EXECUTE'),"
            " (SELECT proowner::regrole::text FROM pg_proc WHERE proname = 'mine')",
            {"role": mallory},
        ).fetchone()
        assert found == (False, True, False, True, "postgres")
