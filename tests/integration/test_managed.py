"""The administrators of managed servers, simulated: none is a superuser, and each can do what a user needs.

Their attributes and groups are those in the services' manuals. A service's hook that lets them create event
triggers is played by making them superusers for one `install`, which creates only these: they own them then.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.helpers.cli import run, start
from tests.helpers.roles import as_role, database_name, drop_roles, roles
from tests.helpers.waiting import LIMIT, wait_until

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]

CONFIG = """
[postgres]
dsn = "${PYTUBE_DSN}"
[worker]
election = "lease"
[tube.t.sink]
type = "jsonl"
path = "${COPY}"
[document.t]
table = "app.goods"
fields = ["note"]
"""
TRIGGERS = "SELECT evtname FROM pg_event_trigger WHERE evtname LIKE 'pytube\\_%'"
LEFT = f"SELECT nspname FROM pg_namespace WHERE nspname ~ '^tube' UNION ALL {TRIGGERS}"


@dataclass(frozen=True)
class Service:
    """What its administrator is made of."""

    attributes: str
    group: str
    """The service's own role that it is a member of; with attributes, which members don't get."""
    in_groups: str
    """Postgres' predefined roles, by that group."""
    event_triggers: bool


SERVICES = {
    "rds": Service("CREATEDB CREATEROLE", "rds_superuser", "pg_monitor, pg_signal_backend", True),
    "cloud-sql": Service("CREATEDB CREATEROLE", "cloudsqlsuperuser CREATEDB CREATEROLE", "pg_monitor", True),
    "azure": Service(
        "CREATEDB CREATEROLE REPLICATION BYPASSRLS", "azure_pg_admin", "pg_monitor, pg_read_all_data", False
    ),
    "supabase": Service("CREATEDB CREATEROLE REPLICATION BYPASSRLS", "api", "pg_monitor", True),
    "neon": Service(
        "CREATEDB CREATEROLE REPLICATION BYPASSRLS",
        "neon_superuser CREATEDB CREATEROLE REPLICATION BYPASSRLS",
        "pg_read_all_data, pg_write_all_data, pg_monitor",
        True,
    ),
}


@dataclass(frozen=True)
class Managed:
    """A database of a service."""

    superuser: psycopg.Connection
    """The service's own session."""
    admin: str
    """The DSN of its administrator."""
    name: str
    """What the names of roles end with, which belong to the whole server."""

    @property
    def prefix(self) -> str:
        """Of the names of pytube's roles."""
        return f"ours_{self.name}"

    def login(self, kind: str) -> str:
        """Have the administrator make a login in one of pytube's roles; its DSN."""
        with psycopg.connect(self.admin, autocommit=True) as conn:
            conn.execute(f"CREATE ROLE {kind}_{self.name} LOGIN".encode())
            conn.execute(f"GRANT {self.prefix}_{kind} TO {kind}_{self.name}".encode())
        return as_role(self.admin, f"{kind}_{self.name}")

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """As if the administrator were let create event triggers."""
        self.superuser.execute(f"ALTER ROLE dba_{self.name} SUPERUSER".encode())
        yield
        self.superuser.execute(f"ALTER ROLE dba_{self.name} NOSUPERUSER".encode())


@contextmanager
def managed(dsn: str, service: Service) -> Iterator[Managed]:
    """The database belongs to its administrator, as the ones that a service creates."""
    name = database_name(dsn)
    group, _, rest = service.group.partition(" ")
    with roles(dsn, ours=f"ours_{name}") as superuser:
        superuser.execute(f"CREATE ROLE {group}_{name} NOLOGIN {rest}".encode())
        superuser.execute(f"GRANT {service.in_groups} TO {group}_{name}".encode())
        attributes = f"LOGIN {service.attributes} IN ROLE {group}_{name}"
        superuser.execute(f"CREATE ROLE dba_{name} {attributes}".encode())
        superuser.execute(f"ALTER DATABASE {name} OWNER TO dba_{name}".encode())
        try:
            yield Managed(superuser, as_role(dsn, f"dba_{name}"), name)
        finally:
            superuser.execute(sql.SQL("ALTER DATABASE {} OWNER TO CURRENT_USER").format(sql.Identifier(name)))
            logins = [f"{kind}_{name}" for kind in ("worker", "monitor")]
            drop_roles(superuser, [*logins, f"dba_{name}", f"{group}_{name}"])


@pytest.mark.parametrize("service", SERVICES)
def test_an_administrator_needs_no_superuser(
    any_bare_dsn: str, service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPY", str(tmp_path / "t.jsonl"))
    facts = SERVICES[service]
    (tmp_path / "pytube.toml").write_text(CONFIG)
    with managed(any_bare_dsn, facts) as server:
        install = ("install", "--roles", server.prefix)
        assert "event triggers: none" in run(*install, dsn=server.admin).stdout
        if facts.event_triggers:
            with server.hooked():
                run(*install, dsn=server.admin)
            assert "event triggers: made" in run(*install, dsn=server.admin).stdout
        worker, monitor = server.login("worker"), server.login("monitor")
        with psycopg.connect(server.admin, autocommit=True) as conn:
            conn.execute("CREATE SCHEMA app CREATE TABLE app.goods (id bigint PRIMARY KEY, note text)")
            conn.execute(f"GRANT USAGE ON SCHEMA app TO worker_{server.name}, monitor_{server.name}".encode())
            conn.execute(f"GRANT SELECT ON app.goods TO worker_{server.name}".encode())
            assert "t: applied" in run("apply", dsn=server.admin, folder=tmp_path).stdout
            conn.execute("INSERT INTO app.goods VALUES (7)")
            conn.execute("ALTER TABLE app.goods ADD more text")
            conn.execute("UPDATE app.goods SET note = 'new'")
        assert "FAIL" not in run("doctor", dsn=worker, folder=tmp_path).stdout
        deliver(tmp_path, worker, '"new"')
        assert run("plan", dsn=monitor, folder=tmp_path).stdout.splitlines()[-1] == "nothing to do"
        found = server.superuser.execute(TRIGGERS.encode()).fetchall()
        assert len(found) == (2 if facts.event_triggers else 0)
        run("uninstall", "--force", "--yes", dsn=server.admin)
        assert server.superuser.execute(LEFT.encode()).fetchall() == []


def deliver(folder: Path, dsn: str, text: str) -> None:
    """A worker runs until it has delivered a document with this in it."""
    copy = folder / "t.jsonl"
    worker = start("worker", config=folder / "pytube.toml", PYTUBE_DSN=dsn)
    try:
        wait_until(lambda: copy.exists() and text in copy.read_text(), what="the document is delivered")
        worker.send_signal(signal.SIGTERM)
        said = worker.communicate(timeout=LIMIT)
    finally:
        worker.kill()
    assert worker.returncode == 0, said
