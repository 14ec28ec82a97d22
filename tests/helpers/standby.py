"""A server that follows another one by streaming, and takes its place when told."""

from __future__ import annotations

import pwd
import subprocess
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from pytube.embedded.postgres import SUPERUSER, Postgres, Version
from pytube.embedded.process import HOST
from tests.helpers.waiting import wait_until

NAME = "standby"


class Standby(Postgres):
    """A copy of `primary`, made when it is started first."""

    def __init__(self, directory: Path | str, primary: Postgres, version: Version = 18) -> None:
        """`directory`: where data and log go."""
        super().__init__(directory, version, settings={"cluster_name": NAME})
        self._primary = primary

    def _initialise(self) -> None:
        self._data.mkdir(parents=True)
        self._data.chmod(0o700)
        self._give(self._data)
        source = make_conninfo("", host=HOST, port=self._primary.port, user=SUPERUSER, application_name=NAME)
        done = subprocess.run(
            [
                *(str(self.bin("pg_basebackup")), "-d", source, "-D", str(self._data)),
                *("-R", "-X", "stream", "-c", "fast", "--no-sync"),
            ],
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            user=self._user,
            group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
            extra_groups=None if self._user is None else [],
        )
        assert done.returncode == 0, done.stderr

    def wait_until_streaming(self) -> None:
        """Until the primary sends what it writes as it writes it."""
        self._wait_for_primary("state = 'streaming'", "the standby streams")

    def wait_until_caught_up(self) -> None:
        """Until all that is committed at the primary can be read here, also what its disk waits for."""
        with psycopg.connect(self._primary.dsn(), autocommit=True) as connection:
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row
        self._wait_for_primary(f"replay_lsn >= '{row[0]}'", "the standby has replayed all")

    def make_synchronous(self) -> None:
        """From now on no commit at the primary is answered before it is on the disk here."""
        with psycopg.connect(self._primary.dsn(), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{NAME}'")
            connection.execute("SELECT pg_reload_conf()")
        self._wait_for_primary("sync_state = 'sync'", "the standby is synchronous")

    def cut_off(self) -> None:
        """Receive nothing any more: what is committed from now on is not here."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
            connection.execute("SELECT pg_reload_conf()")
        with psycopg.connect(self._primary.dsn(), autocommit=True) as connection:
            query = "SELECT count(*) FROM pg_stat_replication"
            wait_until(lambda: connection.execute(query).fetchone() == (0,), what="the standby is cut off")

    def promote(self) -> None:
        """Take the primary's place; returns when it takes writes."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            assert connection.execute("SELECT pg_promote(wait => true)").fetchone() == (True,)

    def _wait_for_primary(self, condition: str, what: str) -> None:
        with psycopg.connect(self._primary.dsn(), autocommit=True) as connection:
            query = (
                f"SELECT count(*) FROM pg_stat_replication WHERE application_name = '{NAME}' AND {condition}"
            )
            wait_until(lambda: connection.execute(query).fetchone() == (1,), what=what)
