"""`pg_upgrade` to a new major version: nothing is lost, and nothing is asked for."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytube.embedded.postgres import SUPERUSER, Postgres, Version
from tests.helpers.capture import TABLE, Conn, asked, open_session, ops, scalar, set_up
from tests.helpers.database import INSTALL_SQL, psql_file, server_folder
from tests.helpers.outbox import OUTBOX
from tests.helpers.roles import roles


class Upgrade:
    """Two servers, and the move of all databases from one to the other."""

    def __init__(self, folder: Path, version: Version) -> None:
        self._folder = folder
        self.old = Postgres(folder / "old", version)
        self.new = Postgres(folder / "new", 18)
        self._user = self.old._user
        for name in ("new", "run"):
            (folder / name).mkdir(exist_ok=True)
        self._data = folder / "new" / "data"
        self._data.mkdir(mode=0o700)
        if self._user is not None:
            entry = pwd.getpwnam(self._user)
            for path in (self._data, folder / "run"):
                os.chown(path, entry.pw_uid, entry.pw_gid)

    def run(self) -> None:
        """Stop the old server, move its data, and start the new one."""
        self.old.stop()
        # Servers before 18 have no checksums unless they are told to, and both have to be alike.
        self._call(
            "initdb", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-data-checksums"
        )
        old, new = (str(server.bin("postgres").parent) for server in (self.old, self.new))
        self._call(
            "pg_upgrade",
            "-b",
            old,
            "-B",
            new,
            "-d",
            str(self._folder / "old" / "data"),
            "-s",
            str(self._folder / "run"),
            "--no-sync",
        )
        self.new.start()

    def _call(self, program: str, *options: str) -> None:
        done = subprocess.run(
            [str(self.new.bin(program)), "-D", str(self._data), "-U", SUPERUSER, *options],
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._folder / "run",
            env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
            user=self._user,
            group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
            extra_groups=None if self._user is None else [],
        )
        logs = "".join(path.read_text() for path in self._data.rglob("*.txt")) if done.returncode else ""
        assert done.returncode == 0, done.stdout + logs

    def close(self) -> None:
        self.old.close()
        self.new.close()


@pytest.fixture(params=[16, pytest.param("system", marks=pytest.mark.older_server)], ids=str)
def upgrade(request: pytest.FixtureRequest) -> Iterator[Upgrade]:
    with server_folder() as folder:
        upgrade = Upgrade(folder, request.param)
        upgrade.old.start()
        yield upgrade
        upgrade.close()


def test_what_waits_is_kept_and_capture_goes_on(upgrade: Upgrade) -> None:
    psql_file(upgrade.old, upgrade.old.dsn(), INSTALL_SQL)
    with open_session(upgrade.old.dsn()) as conn:
        set_up(conn, predicate="id > 0")
        conn.execute("SELECT outbox_ensure_exists(%s)", (OUTBOX,))
        conn.execute(f"INSERT INTO {TABLE} VALUES (1), (-1)")
        conn.execute("SELECT outbox_stash(%s, 'topic', 'key', 'value')", (OUTBOX,))
    upgrade.run()
    with open_session(upgrade.new.dsn()) as conn:
        conn.execute(f"INSERT INTO {TABLE} VALUES (2), (-2)")
        psql_file(upgrade.new, upgrade.new.dsn(), INSTALL_SQL)
        assert asked(conn) == [], "the table was captured all the time"
        conn.execute(f"INSERT INTO {TABLE} VALUES (3), (-3)")
        assert ops(conn) == [("I", 1), ("I", 2), ("I", 3)]
        conn.execute("SELECT outbox_stash(%s, 'topic', 'key', 'value')", (OUTBOX,))
        assert scalar(conn, f"SELECT count(*) FROM tube.{OUTBOX}") == 2


def test_what_was_not_captured_before_is_still_to_be_resent(postgres: Postgres, dsn: str, conn: Conn) -> None:
    """The new owner of a table has not agreed yet, so the table has no function of that owner."""
    set_up(conn)
    with roles(dsn, "an_heir") as admin:
        admin.execute(f"ALTER TABLE {TABLE} OWNER TO an_heir".encode())
        conn.execute(f"INSERT INTO {TABLE} VALUES (1)")
        assert ops(conn) == [], "it is not captured"
        psql_file(postgres, dsn, INSTALL_SQL)
        conn.execute("SELECT tube_sync()")
        assert asked(conn) == ["backfill_schedule"]
        conn.execute(f"DROP TABLE {TABLE} CASCADE")
