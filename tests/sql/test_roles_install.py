"""Installing as a role that is no superuser, on every version, by psql and without."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from pytube.db.install import ScriptError, install, uninstall, upgrade
from pytube.embedded.postgres import Postgres
from tests.helpers.capture import TABLE, attach, make_tube, open_session, scalar, take
from tests.helpers.database import INSTALL_SQL, TestServer, psql_file
from tests.helpers.roles import KINDS, as_role, database_name, roles

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]

Install = Callable[[Postgres, str, str], None]


def by_psql(postgres: Postgres, dsn: str, prefix: str) -> None:
    psql_file(postgres, dsn, INSTALL_SQL, roles=prefix)


def by_pytube(_: Postgres, dsn: str, prefix: str) -> None:
    install(dsn, roles=prefix)


def by_alembic(_: Postgres, dsn: str, prefix: str) -> None:
    upgrade(dsn, roles=prefix)


WAYS = pytest.mark.parametrize("way", [by_psql, by_pytube, by_alembic])


def owners(conn: psycopg.Connection) -> set[str]:
    """Who owns anything of ours, in our schema."""
    rows = conn.execute(
        "SELECT pg_get_userbyid(relowner)::text FROM pg_class WHERE relnamespace = 'tube'::regnamespace"
        " UNION SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE pronamespace = 'tube'::regnamespace"
        " UNION SELECT pg_get_userbyid(typowner) FROM pg_type WHERE typnamespace = 'tube'::regnamespace"
        " UNION SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname IN ('tube', 'tube_capture')"
    )
    return {row[0] for row in rows}


def owners_of_captured(conn: psycopg.Connection) -> set[str]:
    """Who owns functions of attached tables, and those beside them."""
    rows = conn.execute(
        "SELECT DISTINCT pg_get_userbyid(proowner)::text FROM pg_proc"
        " WHERE pronamespace = 'tube_capture'::regnamespace OR proname = 'item_touch'"
    )
    return {row[0] for row in rows}


def use(dsn: str) -> None:
    """Make a tube, attach a table of one's own, touch it, and take it off again."""
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE app.item (id int PRIMARY KEY)")
        make_tube(conn, predicate="id <> 0")
        attach(conn, "app.item")
        conn.execute("INSERT INTO app.item VALUES (0), (1)")
        assert take(conn) == [("I", 0, 1)]
        make_tube(conn, partitions=8, predicate="id > 0")
        conn.execute("SELECT app.item_touch('{5}')")
        assert take(conn) == [("T", 0, 5)]


@WAYS
def test_with_createrole(any_server: TestServer, any_bare_dsn: str, way: Install) -> None:
    name = database_name(any_bare_dsn)
    app, ours = f"app_{name}", f"ours_{name}"
    own = as_role(any_bare_dsn, app)
    with roles(any_bare_dsn, f"{app} CREATEROLE", ours=ours) as admin:
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO {app}".encode())
        admin.execute(f"CREATE SCHEMA app AUTHORIZATION {app}".encode())
        way(any_server.postgres, own, ours)
        use(own)
        assert owners(admin) == {f"{ours}_owner"}
        assert owners_of_captured(admin) == {app}
        psql_file(any_server.postgres, own, INSTALL_SQL)
        assert owners(admin) == {f"{ours}_owner"}, "it keeps the roles that it has"
        log_in = "SELECT count(*) FROM pg_roles WHERE rolname LIKE %s AND (rolcanlogin OR rolsuper)"
        assert scalar(admin, log_in, [f"{ours}%"]) == 0
        uninstall(own, force=True)


@WAYS
def test_with_roles_made_beforehand(any_server: TestServer, any_bare_dsn: str, way: Install) -> None:
    name = database_name(any_bare_dsn)
    app, ours = f"app_{name}", f"ours_{name}"
    own = as_role(any_bare_dsn, app)
    with roles(any_bare_dsn, app, ours=ours) as admin:
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO {app}".encode())
        admin.execute(f"CREATE SCHEMA app AUTHORIZATION {app}".encode())
        with pytest.raises(ScriptError) as refused:
            install(own, roles=ours)
        message = str(refused.value)
        assert "there is no role " + ", ".join(f"{ours}_{kind}" for kind in KINDS) in message
        # What the hint says is what there is to do.
        for statement in message.split("has to run: ")[1].rstrip(")").split("; "):
            admin.execute(statement.encode())
        way(any_server.postgres, own, ours)
        use(own)
        assert owners(admin) == {f"{ours}_owner"}
        uninstall(own, force=True)


def test_roles_that_are_there_but_not_ones_own(any_bare_dsn: str) -> None:
    name = database_name(any_bare_dsn)
    app, ours = f"app_{name}", f"ours_{name}"
    with roles(any_bare_dsn, app, ours=ours) as admin:
        for kind in KINDS:
            admin.execute(f"CREATE ROLE {ours}_{kind}".encode())
        with pytest.raises(ScriptError, match=f"{app} does not have the rights of {ours}_owner") as refused:
            install(as_role(any_bare_dsn, app), roles=ours)
        statements = str(refused.value).split("has to run: ")[1].rstrip(")")
        assert statements.startswith(f"GRANT {ours}_owner TO {app}")
        assert scalar(admin, "SELECT to_regnamespace('tube')") is None


def test_an_owner_who_may_log_in_is_refused(bare_dsn: str) -> None:
    ours = f"ours_{database_name(bare_dsn)}"
    with (
        roles(bare_dsn, f"{ours}_owner", ours=ours),
        pytest.raises(ScriptError, match=f"the role {ours}_owner may log in .* NOLOGIN"),
    ):
        install(bare_dsn, roles=ours)


def test_strange_names(bare_dsn: str) -> None:
    schema = 'My "own" tube\'s'
    with roles(bare_dsn, ours=schema) as admin:
        install(bare_dsn, schema)
        install(bare_dsn, schema)
        found = admin.execute(
            "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = %s", [schema]
        ).fetchone()
        assert found == (f"{schema}_owner",)
        uninstall(bare_dsn, schema)


def test_two_installations_may_have_roles_of_their_own(bare_dsn: str) -> None:
    name = database_name(bare_dsn)
    with roles(bare_dsn, ours=f"a_{name}") as admin, roles(bare_dsn, ours=f"b_{name}"):
        install(bare_dsn, "a", f"a_{name}")
        install(bare_dsn, "b", f"b_{name}")
        for ours, theirs in (("a", "b"), ("b", "a")):
            row = admin.execute(
                "SELECT has_function_privilege(%s, %s, 'EXECUTE'), has_function_privilege(%s, %s, 'EXECUTE')",
                [
                    f"{ours}_{name}_admin",
                    f"{ours}.tube_list(regclass)",
                    f"{ours}_{name}_admin",
                    f"{theirs}.tube_list(regclass)",
                ],
            ).fetchone()
            assert row == (True, False)
        uninstall(bare_dsn, "a")
        uninstall(bare_dsn, "b")


def test_the_installing_role_attaches_for_others_it_has_the_rights_of(any_bare_dsn: str) -> None:
    """It is in tube_owner, and gets no right on anybody's tables by that."""
    name = database_name(any_bare_dsn)
    app, other, ours = f"app_{name}", f"other_{name}", f"ours_{name}"
    own = as_role(any_bare_dsn, app)
    with roles(any_bare_dsn, f"{app} CREATEROLE", other, ours=ours) as admin:
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO {app}".encode())
        admin.execute(f"CREATE SCHEMA shop AUTHORIZATION {other}".encode())
        admin.execute(f"GRANT USAGE ON SCHEMA shop TO {app}".encode())
        install(own, roles=ours)
        with open_session(as_role(any_bare_dsn, other)) as keeper, open_session(own) as conn:
            keeper.execute("CREATE TABLE shop.goods (id int PRIMARY KEY)")
            make_tube(conn)
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"belongs to {other}"):
                attach(conn, "shop.goods")
            admin.execute(f"GRANT {other} TO {app}".encode())
            attach(conn, "shop.goods")
            keeper.execute("INSERT INTO shop.goods VALUES (1)")
            keeper.execute("TRUNCATE shop.goods")
            assert take(conn) == [("D", 0, 1), ("I", 0, 1)]
        uninstall(own, force=True)


def test_it_is_upgraded_by_a_role_without_any_right_on_an_attached_table(
    any_server: TestServer, any_bare_dsn: str
) -> None:
    """Not even on the schema of the table, which somebody else attached."""
    name = database_name(any_bare_dsn)
    app, keeper, ours = f"app_{name}", f"keeper_{name}", f"ours_{name}"
    own = as_role(any_bare_dsn, app)
    with roles(any_bare_dsn, f"{app} CREATEROLE", keeper, ours=ours) as admin:
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO {app}".encode())
        admin.execute(f"CREATE SCHEMA shop AUTHORIZATION {keeper}".encode())
        install(own, roles=ours)
        with open_session(any_bare_dsn) as conn:
            make_tube(conn)
            conn.execute("CREATE TABLE shop.goods (id int PRIMARY KEY)")
            conn.execute(f"ALTER TABLE shop.goods OWNER TO {keeper}".encode())
            attach(conn, "shop.goods")
            psql_file(any_server.postgres, own, INSTALL_SQL)
            install(own)
            conn.execute("INSERT INTO shop.goods VALUES (1)")
            assert take(conn) == [("I", 0, 1)]
        uninstall(own, force=True)


def test_what_somebody_else_owns_changes_hands(any_server: TestServer, any_dsn: str) -> None:
    """As after a restore without owners: everything belongs to whoever restored it."""
    with psycopg.connect(any_dsn, autocommit=True, options="-c search_path=tube,public") as conn:
        conn.execute(f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY)".encode())
        make_tube(conn)
        attach(conn)
        conn.execute("REASSIGN OWNED BY tube_owner TO postgres")
        assert owners(conn) == {"postgres"}
        psql_file(any_server.postgres, any_dsn, INSTALL_SQL)
        assert owners(conn) == {"tube_owner"}
        conn.execute(f"INSERT INTO {TABLE} VALUES (1)".encode())
        assert take(conn) == [("I", 0, 1)]
        conn.execute("SELECT public.item_touch('{2}')")
        assert take(conn) == [("T", 0, 2)]
