"""The servers of a run, and the network between them and each worker."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from pytube.embedded.kafka_real import RealKafka
from pytube.embedded.postgres import Postgres
from pytube.embedded.process import Port
from tests.crash.chaos import outboxes, source
from tests.helpers.database import INSTALL_SQL, psql_file
from tests.helpers.proxy import Proxy

DATABASE = "chaos"
PREPARED = 10
"""Transactions that may be prepared at a time, where any may."""
_DAMAGED = "is out of sync with the underlying log"
"""In the log of a broker that serves its groups no more until it is started again."""


class _PatientKafka(RealKafka):
    """A broker that is killed often: after that it recovers its log, which takes long on a busy machine."""

    START_TIMEOUT = 600.0


class Arena:
    """Postgres, a real broker, and for each worker a proxy before each server that it speaks to."""

    def __init__(self, folder: Path, members: Iterable[str]) -> None:
        """Start it all.

        Args:
            folder: for everything that is written; the server's user can enter it.
            members: the names of the workers.
        """
        self.folder = folder
        self.journals = folder / "journals"
        self.journals.mkdir()
        self._stack = ExitStack()
        self.postgres = self._make_postgres(None, prepared=True)
        self._prepared = True
        self._stack.callback(self._close_postgres)
        self._doors = {name: Port() for name in members}
        self.kafka = _PatientKafka(folder / "kafka", [door.number for door in self._doors.values()])
        self._stack.enter_context(self.kafka)
        self._damages = 0
        self.version = self._make_database()
        """Of Postgres."""
        self.proxies = {(name, "postgres"): self._proxy(self.postgres.port) for name in self._doors}
        for name, door in self._doors.items():
            self.proxies[name, "kafka"] = self._proxy(self.kafka.behind(door.number), door)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _make_postgres(self, port: int | None, *, prepared: bool) -> Postgres:
        settings = {"max_prepared_transactions": str(PREPARED if prepared else 0), "max_connections": "200"}
        folder = self.folder / "postgres"
        folder.mkdir(exist_ok=True)
        return Postgres(folder, 18, port=port, settings=settings).start()

    def _close_postgres(self) -> None:
        """Whichever runs by then."""
        self.postgres.close()

    def _make_database(self) -> str:
        """Make it; the server's version."""
        with psycopg.connect(self.postgres.dsn(), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {DATABASE}")
            version = admin.execute("SHOW server_version").fetchone()
        psql_file(self.postgres, self.dsn, INSTALL_SQL)
        source.make(self.dsn)
        with self.connect() as connection:
            outboxes.make(connection)
        outboxes.make_topics(self.kafka.bootstrap)
        return str(version[0]) if version else "unknown"

    def _proxy(self, upstream: int, door: Port | None = None) -> Proxy:
        return self._stack.enter_context(Proxy(upstream, door))

    @property
    def dsn(self) -> str:
        """The database, without a proxy."""
        return self.postgres.dsn(DATABASE)

    @property
    def prepared(self) -> bool:
        """Whether transactions can be prepared now; where they can't, writers wake workers."""
        return self._prepared

    def environment(self, name: str) -> dict[str, str]:
        """Where worker `name` finds its servers: behind its proxies."""
        port = self.proxies[name, "postgres"].port
        return {
            "WORKER_DSN": self.dsn.replace(f":{self.postgres.port}/", f":{port}/"),
            "WORKER_KAFKA": self.proxies[name, "kafka"].address,
        }

    def connect(self) -> psycopg.Connection:
        """An autocommit session, without a proxy."""
        return psycopg.connect(
            self.dsn, autocommit=True, options="-c search_path=tube,public", application_name="chaos"
        )

    def switch_prepared(self) -> None:
        """Restart Postgres with prepared transactions, or without; nobody may have one now."""
        self._prepared = not self._prepared
        port = self.postgres.port
        self.postgres.stop()
        self.postgres.close()
        self.postgres = self._make_postgres(port, prepared=self._prepared)

    def restart_damaged_broker(self) -> bool:
        """Do what an operator would, whom `status` tells that the broker serves no group; whether it was so.

        Kafka 4.1.2 did this after one of forty kills within transactions, in a program without pytube.
        """
        damages = self.kafka.log.read_text(errors="replace").count(_DAMAGED)
        if damages == self._damages:
            return False
        self.kafka.stop()
        self.kafka.start()
        self._damages = damages
        return True

    def rotate(self, number: int) -> Path:
        """Put the journals aside; workers make new ones. Returns where the old ones are."""
        aside = self.folder / f"window-{number}"
        aside.mkdir()
        for path in self.journals.iterdir():
            path.rename(aside / path.name)
        return aside

    @staticmethod
    def drop(aside: Path) -> None:
        """Remove journals that were put aside."""
        shutil.rmtree(aside)
