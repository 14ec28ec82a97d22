"""What `--print` prints does, run by psql, what the command does: `install` and `apply`, on every version."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from pytube.db.install import install
from pytube.embedded.postgres import Postgres
from tests.helpers.cli import run
from tests.helpers.database import TestServer
from tests.helpers.declarations import BASE
from tests.helpers.declared import SCHEMA
from tests.helpers.roles import as_role, database_name, roles
from tests.helpers.snapshot import dump
from tests.integration.test_declarations_adopt import TABLE

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]


def psql(server: TestServer, dsn: str, script: str, *options: str, code: int = 0) -> str:
    """What it says of a script that is piped into it."""
    done = subprocess.run(
        [str(server.postgres.bin("psql")), "-X", *options, "-f", "-", "-d", dsn],
        input=script,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


# --- install ---------------------------------------------------------------------------------------


def installed(postgres: Postgres, dsn: str, prefix: str) -> str:
    """All definitions, their owners and rights, and who is in its roles; without what differs by database."""
    with psycopg.connect(dsn) as conn:
        rows = conn.execute(
            "SELECT 'schema', nspname::text, nspowner::regrole::text, nspacl::text FROM pg_namespace"
            " WHERE nspname ~ '^tube'"
            " UNION ALL SELECT 'relation', relname, relowner::regrole::text, relacl::text FROM pg_class"
            " WHERE relnamespace = 'tube'::regnamespace"
            " UNION ALL SELECT 'function', oid::regprocedure::text, proowner::regrole::text, proacl::text"
            " FROM pg_proc WHERE pronamespace IN ('tube'::regnamespace, 'tube_capture'::regnamespace)"
            " UNION ALL SELECT 'event trigger', evtname, evtfoid::regproc::text, evtevent"
            " FROM pg_event_trigger"
            " UNION ALL SELECT 'member', roleid::regrole::text, member::regrole::text, admin_option::text"
            " FROM pg_auth_members WHERE roleid::regrole::text ~ %s"
            " UNION ALL SELECT 'version', version_num, '', '' FROM tube.tube_version ORDER BY 1, 2, 3",
            [f"^{prefix}_"],
        ).fetchall()
    text = "\n".join([dump(postgres, dsn), *map(str, rows)])
    return text.replace(prefix, "PREFIX").replace(f"dba_{database_name(dsn)}", "DBA")


@contextmanager
def bare(server: TestServer, *, managed: bool) -> Iterator[tuple[str, str]]:
    """An empty database, and a prefix for roles: of a superuser, or of a role with CREATEROLE."""
    with server.database(installed=False) as dsn:
        name = database_name(dsn)
        with roles(dsn, f"dba_{name} CREATEROLE", ours=f"ours_{name}") as admin:
            admin.execute(f"GRANT CREATE ON DATABASE {name} TO dba_{name}".encode())
            yield (as_role(dsn, f"dba_{name}") if managed else dsn), f"ours_{name}"


@pytest.mark.parametrize("managed", [False, True], ids=["superuser", "managed"])
def test_the_printed_install_is_the_install(
    any_server: TestServer, postgres: Postgres, managed: bool
) -> None:
    with bare(any_server, managed=managed) as ours, bare(any_server, managed=managed) as other:
        install(other[0], roles=other[1])
        wanted = installed(postgres, *other)
        assert wanted.count("CREATE FUNCTION") > 100
        printed = run("install", "--print", "--roles", ours[1]).stdout
        assert "installed: version " in psql(any_server, ours[0], printed)
        assert installed(postgres, *ours) == wanted
        asked = "SELECT 'after', current_setting('search_path'), current_setting('check_function_bodies');"
        within = f"BEGIN; SET search_path = public;\n{printed}{asked}\nCOMMIT;"
        assert "after|public|on" in psql(any_server, ours[0], within, "-At", "-v", "ON_ERROR_STOP=1")
        assert installed(postgres, *ours) == wanted, "twice is the same as once"
        psql(any_server, other[0], run("install", "--print").stdout)
        assert installed(postgres, *other) == wanted, "over another one, it finds its roles"


def test_strange_names_are_printed(any_server: TestServer, any_bare_dsn: str) -> None:
    schema = "My \\ \"own\"\n\\! 'tubes'"
    with roles(any_bare_dsn, ours="it's \\ ours") as admin:
        printed = run("install", "--print", "--schema", schema, "--roles", "it's \\ ours").stdout
        psql(any_server, any_bare_dsn, printed, "-q")
        owner = admin.execute("SELECT nspowner::regrole FROM pg_namespace WHERE nspname = %s", [schema])
        assert owner.fetchone() == ('"it\'s \\ ours_owner"',)


def test_a_refused_one_changes_nothing(any_server: TestServer, any_bare_dsn: str) -> None:
    with psycopg.connect(any_bare_dsn) as conn:
        conn.execute("CREATE SCHEMA tube CREATE TABLE theirs (id int)")
    printed = run("install", "--print").stdout
    said = psql(any_server, any_bare_dsn, printed, "-v", "ON_ERROR_STOP=1", code=3)
    assert "is not pytube's" in said
    assert "In prepare.sql" in said
    assert len(said.splitlines()) < 10, "not the whole file"
    with psycopg.connect(any_bare_dsn) as conn:
        assert conn.execute("SELECT to_regnamespace('tube_capture')").fetchone() == (None,)


def test_it_needs_no_database_and_the_schema_of_the_file(tmp_path: Path) -> None:
    assert "'pytube.install_schema', 'tube'" in run("install", "--print").stdout
    (tmp_path / "pytube.toml").write_text('[postgres]\ndsn = "host=nowhere"\nschema = "queues"\n')
    assert "'pytube.install_schema', 'queues'" in run("install", "--print", folder=tmp_path).stdout
    for command in ("install", "apply"):
        assert "can't be given with --json" in run(command, "--print", "--json", dsn="x", code=2).stderr
    assert "which database?" in run("install", code=2).stderr


# --- apply -----------------------------------------------------------------------------------------

FILE = (
    BASE
    + """
[tube.stock]
partitions = 2
key_type = "bigint"
predicate = "id > 0 AND 'it''s \\\\ :old' <> ''"
[tube.stock.sink]
type = "jsonl"
path = "stock.jsonl"
[tube.stock.tables."shop.products"]
shards = 4
[tube.orders.sink]
type = "jsonl"
path = "orders.jsonl"
[document.orders]
table = "shop.orders"
fields = ["id", "status"]
[document.orders.customer]
one = "shop.customers"
fields = ["name"]
[document.orders.items]
many = "shop.order_items"
fields = ["quantity"]
order_by = "id"
[outbox.events]
partitions = 2
[outbox.billing]
adopt = "shop.outbox"
wake = true
partitions = 2
"""
)
CHANGED = (
    FILE.replace("it''s", "\\nthat''s")
    .replace("partitions = 2\nkey_type", "partitions = 3\nkey_type")
    .replace("[outbox.events]\npartitions = 2", "[outbox.events]\npartitions = 4")
    .replace("wake = true\npartitions = 2", "wake = false\npartitions = 3")
    .replace('fields = ["id", "status"]', 'fields = ["id", "total"]')
    .replace('[document.orders.customer]\none = "shop.customers"\nfields = ["name"]\n', "")
    .replace("[tube.orders.sink]", '[tube.stock.tables."shop.notes"]\nshard = 9\n[tube.orders.sink]')
)
NOTHING = "the file declares no documents, tubes or outboxes, and none was applied"
# The digests of bodies, in which there are oids; and numbers of tubes: apply tries first to make them.
_NUMBERED = re.compile(r"(?<=AS )[0-9a-f]{16}(?=;)|\b[0-9]{5,}\b|(?<=tube_sleeps_)[0-9]+")
PRUNED = BASE + CHANGED[CHANGED.index("[tube.orders.sink]") : CHANGED.index("[document.orders]")]


def _shop(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SCHEMA.encode())
        connection.execute(TABLE.replace("CREATE SCHEMA shop;", "").encode())


def state(postgres: Postgres, dsn: str) -> dict[str, str]:
    """All that an apply changes; the definitions of triggers are in the dumps of their tables."""
    queries = {
        "tubes": "SELECT tube, partitions, predicate, tbl::text, shard, shards, columns, companion_of"
        " FROM tube.tube_list()",
        "applied": "SELECT tube, declared, applied, made, tbl::text, attached FROM tube.tube_applied()",
        "outboxes": "SELECT outbox, partitions, tbl::text, value_type::text, adopted, wakes"
        " FROM tube.outbox_list()",
        "backfills": "SELECT DISTINCT tube, table_name, by_worker FROM tube.tube_backfill ORDER BY 1, 2",
        "bodies": "SELECT proname, prosrc FROM pg_proc"
        " WHERE pronamespace IN ('tube_capture'::regnamespace, 'shop'::regnamespace) ORDER BY 1",
    }
    with psycopg.connect(dsn) as conn:
        found = {
            name: "\n".join(map(str, conn.execute(query.encode()).fetchall()))
            for name, query in queries.items()
        }
    found["definitions"] = dump(postgres, dsn, "tube", "tube_capture", "shop")
    return {name: _NUMBERED.sub("N", text) for name, text in found.items()}


@dataclass
class Pair:
    """Two databases with one file: `apply` works on the one, and psql on the other."""

    server: TestServer
    postgres: Postgres
    folder: Path
    applied: str
    """The DSN of the one, of a superuser."""
    scripted: str
    """Of the other."""
    role: str | None = None
    """Who runs both; None: a superuser."""
    last: dict[str, str] | None = None
    """What both were in the end, after they followed a file."""

    def by(self, dsn: str) -> str:
        return dsn if self.role is None else as_role(dsn, self.role)

    def run(self, dsn: str, *words: str, code: int = 0) -> str:
        return run(*words, dsn=self.by(dsn), folder=self.folder, code=code).output

    def printed(self, text: str, *options: str) -> str:
        (self.folder / "pytube.toml").write_text(text)
        return self.run(self.scripted, "apply", "--print", *options)

    def psql(self, script: str, *options: str, code: int = 0) -> str:
        return psql(self.server, self.by(self.scripted), script, "-q", *options, code=code)

    def follow(self, text: str, *options: str) -> None:
        """Both follow a file, and are the same then; the script is run twice, once with another default."""
        before = self.last or state(self.postgres, self.scripted)
        script = self.printed(text, *options)
        assert state(self.postgres, self.scripted) == before
        self.run(self.applied, "apply", "--yes", *options)
        wanted = state(self.postgres, self.applied)
        for default in ("off", "on"):
            assert self.psql(script, "-v", f"AUTOCOMMIT={default}") == ""
            assert state(self.postgres, self.scripted) == wanted
        for dsn in (self.applied, self.scripted):
            assert self.run(dsn, "plan").splitlines()[-1] in ("nothing to do", NOTHING)
        self.last = wanted


@pytest.fixture(params=["superuser", "owner"])
def pair(
    request: pytest.FixtureRequest, any_server: TestServer, postgres: Postgres, tmp_path: Path
) -> Iterator[Pair]:
    """As a superuser, who builds indexes CONCURRENTLY; or as the owner of the tables."""
    with (
        any_server.database(installed=True, prepare=_shop) as one,
        any_server.database(installed=True, prepare=_shop) as other,
    ):
        if request.param == "superuser":
            yield Pair(any_server, postgres, tmp_path, one, other)
            return
        name = f"dba_{database_name(one)}"
        with roles(one, f"{name} IN ROLE tube_admin"):
            for dsn in (one, other):
                with psycopg.connect(dsn, autocommit=True) as conn:
                    conn.execute(f"ALTER SCHEMA shop OWNER TO {name}".encode())
                    for (table,) in conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'shop'"):
                        conn.execute(f"ALTER TABLE shop.{table} OWNER TO {name}".encode())
            yield Pair(any_server, postgres, tmp_path, one, other, name)
            with psycopg.connect(other, autocommit=True) as conn:
                conn.execute(f"DROP OWNED BY {name} CASCADE".encode())


def test_the_printed_apply_is_the_apply(pair: Pair) -> None:
    pair.follow(FILE, "--backfill")
    pair.follow(FILE)
    pair.follow(CHANGED)
    pair.follow(PRUNED, "--prune")
    pair.follow(BASE, "--prune")


def test_a_script_that_is_cut_goes_on_when_it_is_run_again(pair: Pair) -> None:
    script = pair.printed(FILE)
    pair.run(pair.applied, "apply")
    attached = script.index("COMMIT;", script.index("-- attach shop.products"))
    assert "division by zero" in pair.psql(f"{script[:attached]}COMMIT; SELECT 1 / 0;", code=3)
    assert pair.psql(script) == ""
    assert state(pair.postgres, pair.scripted) == state(pair.postgres, pair.applied)


def test_a_script_of_yesterday_is_refused(pair: Pair) -> None:
    script = pair.printed(FILE)
    (pair.folder / "pytube.toml").write_text(CHANGED)
    pair.run(pair.scripted, "apply")
    before = state(pair.postgres, pair.scripted)
    assert "another declaration of it was applied since this was printed" in pair.psql(script, code=3)
    assert state(pair.postgres, pair.scripted) == before


def test_a_script_that_is_overtaken_stops(pair: Pair) -> None:
    """By another apply between two of its steps."""
    script = pair.printed(FILE)
    head = script[: script.index("SET client_min_messages")]
    cut = script.index("\n-- attach shop.products")
    assert pair.psql(script[:cut]) == ""
    (pair.folder / "pytube.toml").write_text(CHANGED)
    pair.run(pair.scripted, "apply", "--yes")
    before = state(pair.postgres, pair.scripted)
    said = pair.psql(f"{head}{script[cut:]}", code=3)
    assert "tube.stock: another declaration of it was applied since this was printed" in said
    assert state(pair.postgres, pair.scripted) == before


def test_a_renaming_that_nothing_has_followed_is_refused(
    dsn: str, conn: psycopg.Connection, tmp_path: Path
) -> None:
    _shop(dsn)
    (tmp_path / "pytube.toml").write_text(FILE)
    run("apply", dsn=dsn, folder=tmp_path)
    conn.execute("SET session_replication_role = replica")
    conn.execute("ALTER TABLE shop.orders RENAME status TO state")
    (tmp_path / "pytube.toml").write_text(FILE.replace('"status"', '"state"'))
    said = run("apply", "--print", dsn=dsn, folder=tmp_path, code=2).output
    assert "columns of shop.orders were renamed" in said
