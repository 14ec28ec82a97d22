"""A small shop for the runbook: a source, a copy in another database, and a worker process between them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import psycopg
from click.testing import Result
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.docs.alerts import read_alerts
from tests.docs.pages import BY_NAME
from tests.helpers import cli, forked
from tests.helpers.database import ROOT, TestServer
from tests.helpers.waiting import wait_until

_CONFIG = """
[postgres]
dsn = "${PYTUBE_DSN}"
[worker]
receive_deadline = 1
session_timeout = 2
[tube."es-live"]
park_limit = 1
[tube."es-live".sink]
type = "postgres"
dsn = "${COPY_DSN}"
table = "orders_copy"
create = true
request_timeout = 1
"""
_POISON = "ALTER TABLE public.orders_copy ADD CONSTRAINT no_{id} CHECK (id <> {id}) NOT VALID"
RUNBOOK = BY_NAME["docs/runbook.md"]
ALERTS = read_alerts()


class Shop:
    """The tube es-live over the table orders of 20 rows; the sink compares tokens, and can be read."""

    def __init__(self, server: TestServer, folder: Path) -> None:
        self.server = server.postgres
        self.folder = folder
        self._stack = ExitStack()
        self.dsn = self._stack.enter_context(server.database(installed=True))
        self.copy_dsn = self._stack.enter_context(server.database(installed=False))
        (folder / "pytube.toml").write_text(_CONFIG)
        os.environ["COPY_DSN"] = self.copy_dsn
        self.query("CREATE TABLE public.orders (id bigint PRIMARY KEY, total numeric)")
        self.query("INSERT INTO public.orders SELECT i, i FROM generate_series(1, 20) i")
        self.operate("pytube tube create es-live")
        self.operate("pytube tube attach es-live public.orders")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        del os.environ["COPY_DSN"]

    def start_worker(self) -> None:
        """Start a worker process, which is killed at the end, and wait until it leads."""
        environment = {
            **os.environ,
            "PYTUBE_DSN": self.dsn,
            "PYTUBE_CONFIG": str(self.folder / "pytube.toml"),
        }
        with (self.folder / "worker.log").open("ab") as log:
            worker = forked.start(
                "pytube", ["worker"], environment=environment | {"PYTHONPATH": str(ROOT)}, output=log
            )
        self._stack.callback(worker.wait)
        self._stack.callback(worker.kill)
        self.wait_for("leads")

    # --- what an operator does --------------------------------------------------------------

    def operate(self, command: str, code: int = 0) -> Result:
        """Run any command of pytube, as in a shell."""
        program, *arguments = shlex.split(command)
        assert program == "pytube"
        return cli.run(*arguments, dsn=self.dsn, folder=self.folder, code=code)

    def follow(self, section: str, command: str, code: int = 0) -> str:
        """Run a command that stands in this section of the runbook; what it printed."""
        assert command in RUNBOOK.section(section).splitlines(), (section, command)
        return self.operate(command, code).output

    def status(self) -> dict[str, Any]:
        """The one partition."""
        (row,) = json.loads(self.operate("pytube status --json").stdout)
        assert isinstance(row, dict)
        return row

    def wait_for(self, state: str) -> None:
        """Until the partition has this state, as `pytube status` shows it."""
        wait_until(lambda: self.status()["state"] == state, what=lambda: f"{state}\n{self.last_words()}")

    def alerts(self, **limits: float) -> set[str]:
        """The alerts on the partition that would go off; `limits` stand in place of their own."""
        metrics = self.operate("pytube status --prometheus").stdout
        watched = {"PytubeParked", "PytubeStopped", "PytubeSinkDown", "PytubePartitionLost", *limits}
        return {name for name in watched if ALERTS[name].goes_off(metrics, limits.get(name))}

    def wait_for_calm(self, **limits: float) -> None:
        """Until none of them would: what a worker tells is there from its next renewal on."""
        wait_until(lambda: not self.alerts(**limits), what=lambda: f"no alert\n{self.last_words()}")

    def wait_for_alert(self, alert: str) -> None:
        """Until this one would, and no other."""
        wait_until(lambda: self.alerts() == {alert}, what=lambda: f"{alert}\n{self.last_words()}")

    def last_words(self) -> str:
        """The end of the worker's log: what one needs to see when a test fails."""
        return "\n".join((self.folder / "worker.log").read_text().splitlines()[-12:])

    # --- what happens to it -----------------------------------------------------------------

    def query(self, statement: str) -> None:
        """A statement at the source."""
        with psycopg.connect(self.dsn, autocommit=True) as session:
            session.execute(statement)

    def poison(self, key: int) -> None:
        """From now on the sink rejects this document."""
        self.at_the_sink(_POISON.format(id=key))

    def cure(self, key: int) -> None:
        """It takes it again."""
        self.at_the_sink(f"ALTER TABLE public.orders_copy DROP CONSTRAINT no_{key}")

    def at_the_sink(self, statement: str) -> None:
        """A statement at the sink."""
        with psycopg.connect(self.copy_dsn, autocommit=True) as session:
            session.execute(statement)

    def let_sink(self, *, answer: bool) -> None:
        """Take the sink down, or bring it up."""
        name = sql.Identifier(str(conninfo_to_dict(self.copy_dsn)["dbname"]))
        with psycopg.connect(self.server.dsn(), autocommit=True) as admin:
            admin.execute(
                sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format(name, sql.SQL(str(answer)))
            )
            if not answer:
                end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                admin.execute(end, [conninfo_to_dict(self.copy_dsn)["dbname"]])

    def back_up(self) -> Path:
        """A dump of the source."""
        file = self.folder / "backup"
        subprocess.run([self.server.bin("pg_dump"), "-Fc", "-f", file, self.dsn], check=True)
        return file

    def restore(self, file: Path) -> None:
        """Put the dump into the place of the source, at once: nobody meets a half restored one."""
        name = sql.Identifier(str(conninfo_to_dict(self.dsn)["dbname"]))
        fresh = sql.Identifier("restored")
        with psycopg.connect(self.server.dsn(), autocommit=True) as admin:
            admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(fresh))
            target = make_conninfo(self.dsn, dbname="restored")
            subprocess.run(
                [self.server.bin("pg_restore"), "--exit-on-error", "-d", target, str(file)], check=True
            )
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
            admin.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(fresh, name))

    # --- what came of it --------------------------------------------------------------------

    def source(self) -> dict[int, Any]:
        """The rows."""
        with psycopg.connect(self.dsn) as session:
            return dict(session.execute("SELECT id, total FROM public.orders").fetchall())

    def copy(self) -> dict[int, Any]:
        """The documents."""
        with psycopg.connect(self.copy_dsn) as session:
            rows = session.execute("SELECT id, (doc->>'total')::numeric FROM public.orders_copy")
            return dict(rows.fetchall())
