"""Roles for tests: they belong to the whole server, so each has to be taken away again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

KINDS = ("owner", "admin", "worker", "writer", "monitor")


def as_role(dsn: str, role: str) -> str:
    """The same database, logged in as `role`."""
    return make_conninfo(dsn, user=role)


def database_name(dsn: str) -> str:
    """The name of the database, which no other has had on its server."""
    return str(conninfo_to_dict(dsn)["dbname"])


@contextmanager
def roles(dsn: str, *names: str, ours: str | None = None) -> Iterator[psycopg.Connection]:
    """A superuser's session, and login roles for the time of the block.

    Args:
        dsn: the database that they get rights in.
        names: each with what `CREATE ROLE` shall say behind it, e.g. `app CREATEROLE`.
        ours: what the names of our roles begin with, if those are to go as well.
    """
    made = [name.split()[0] for name in names]
    gone = made + [f"{ours}_{kind}" for kind in KINDS if ours is not None]
    with psycopg.connect(dsn, autocommit=True) as admin:
        try:
            for name in names:
                admin.execute(f"CREATE ROLE {name} LOGIN".encode())
            yield admin
        finally:
            drop_roles(admin, gone)


def drop_roles(admin: psycopg.Connection, names: list[str]) -> None:
    """Take roles away, and what they own in this database; those that are not there are no error."""
    there = admin.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", [names]).fetchall()
    identifiers = [sql.Identifier(name) for (name,) in there]
    for identifier in identifiers:
        admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(identifier))
    for identifier in identifiers:
        admin.execute(sql.SQL("DROP ROLE {}").format(identifier))


@dataclass(frozen=True, slots=True)
class Staff:
    """Logins, each in one of our roles of an installation, and the one that installed."""

    admin: psycopg.Connection
    """A superuser's session."""
    dsns: Mapping[str, str]
    """Of `installer`, `admin`, `worker`, `writer`, `monitor`, and of a `stranger`, who is in none of ours."""
    prefix: str
    """What the names of our roles begin with."""

    def name(self, kind: str) -> str:
        """Which login it is."""
        return str(conninfo_to_dict(self.dsns[kind])["user"])


@contextmanager
def staff(bare_dsn: str, *, superuser: bool, install: Callable[[str, str], object]) -> Iterator[Staff]:
    """An installation by a superuser, or by a role that may make roles; and logins for it.

    Args:
        bare_dsn: an empty database.
        superuser: who installs.
        install: installs with a DSN and what the names of our roles begin with.
    """
    name = database_name(bare_dsn)
    ours, installer = f"ours_{name}", f"installer_{name}"
    with roles(bare_dsn, f"{installer} CREATEROLE", ours=ours) as session:
        session.execute(f"GRANT CREATE ON DATABASE {name} TO {installer}".encode())
        dsns = {"installer": bare_dsn if superuser else as_role(bare_dsn, installer)}
        install(dsns["installer"], ours)
        kinds = ("admin", "worker", "writer", "monitor")
        members = [f"{kind}_{name} IN ROLE {ours}_{kind}" for kind in kinds]
        with roles(bare_dsn, *members, f"stranger_{name}"):
            dsns |= {kind: as_role(bare_dsn, f"{kind}_{name}") for kind in (*kinds, "stranger")}
            yield Staff(session, dsns, ours)
